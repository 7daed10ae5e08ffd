/* Level f64: sums, norms and rotations (specification sections 0.7-0.9, 3.1). */
#include "ops/f64/f64.h"

#include <string.h>

#include "ops/hadamard.h"
#include "ops/quant.h"
#include "ops/rope_table.h"

double pl__f64_dot(const double *a, const double *b, int64_t n)
{
    double sum[8] = {0};

    for (int64_t i = 0; i < n; i += 8)
        for (int j = 0; j < 8; j++)
            sum[j] += a[i + j] * b[i + j];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

double pl__f64_sum_squares(const double *x, int64_t n)
{
    return pl__f64_dot(x, x, n);
}

double pl__f64_rsqrt(const pl_op_env *env, double mean, float eps)
{
    return pl__f64_acc(env, 1 / pl_sqrt_f64(pl__f64_acc(env, mean + (double)eps)));
}

double pl__f64_sigmoid(const pl_op_env *env, double x)
{
    return pl__f64_acc(env, pl_sigmoid_f64(x));
}

void pl__f64_rms_norm_row(const pl_op_env *env, const pl_weight_view *w, float eps, int64_t dim,
                          const double *x, double *y)
{
    double mean = pl__f64_acc(env, pl__f64_sum_squares(x, dim) / (double)dim);
    double scale = pl__f64_rsqrt(env, mean, eps);

    for (int64_t i = 0; i < dim; i++)
        y[i] = pl__f64_act(env, pl__f64_weight(w, i) * pl__f64_acc(env, x[i] * scale));
}

void pl__f64_rms_norm(const pl_op_env *env, const pl_rms_norm_args *a, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++)
        pl__f64_rms_norm_row(env, &a->w, a->eps, a->dim, (const double *)a->x + r * a->dim,
                             (double *)a->y + r * a->dim);
}

void pl__f64_rope_angles(const pl_op_env *env, const pl_rope_angles_args *a, int64_t begin,
                         int64_t end)
{
    for (int64_t r = begin; r < end; r++) {
        double *c = (double *)a->cos + r * PL_ROPE_PAIRS, *s = (double *)a->sin + r * PL_ROPE_PAIRS;

        pl_rope_table_row_f64(a->freq, a->position[r], c, s);
        for (int i = 0; i < PL_ROPE_PAIRS; i++) {
            c[i] = pl__f64_acc(env, c[i]);
            s[i] = pl__f64_acc(env, s[i]);
        }
    }
}

void pl__f64_rotate(const pl_op_env *env, const pl_angles *angles, int64_t t, bool inverse,
                    int64_t dim, double *x)
{
    const double *cosines = (const double *)angles->cos + t * PL_ROPE_PAIRS;
    const double *sines = (const double *)angles->sin + t * PL_ROPE_PAIRS;
    double *tail = x + dim - PL_ROPE_DIM;

    for (int i = 0; i < PL_ROPE_PAIRS; i++) {
        double a = tail[2 * i], b = tail[2 * i + 1];
        double c = cosines[i], s = inverse ? -sines[i] : sines[i];

        tail[2 * i] = pl__f64_acc(env, a * c) - pl__f64_acc(env, b * s);
        tail[2 * i + 1] = pl__f64_acc(env, a * s) + pl__f64_acc(env, b * c);
    }
    for (int64_t i = 0; i < dim; i++)
        x[i] = pl__f64_act(env, x[i]);
}

void pl__f64_unrope(const pl_op_env *env, const pl_unrope_args *a, int64_t begin, int64_t end)
{
    for (int64_t u = begin; u < end; u++)
        pl__f64_rotate(env, &a->angles, u / a->n_heads, true, PL_HEAD_DIM,
                       (double *)a->o + u * PL_HEAD_DIM);
}

/* The reference's head norm in mode ref: square, mean, rsqrt and product are bf16 tensor operations. */
static void head_norm_op_by_op(const pl_op_env *env, float eps, double *q)
{
    double sum = 0, mean, scale;

    for (int i = 0; i < PL_HEAD_DIM; i++)
        sum += pl__f64_act(env, q[i] * q[i]);
    mean = pl__f64_act(env, sum / PL_HEAD_DIM);
    mean = pl__f64_act(env, mean + (double)eps);
    scale = pl__f64_act(env, 1 / pl_sqrt_f64(mean));
    for (int i = 0; i < PL_HEAD_DIM; i++)
        q[i] = pl__f64_act(env, q[i] * scale);
}

static void head_norm(const pl_op_env *env, float eps, double *q)
{
    double mean = pl__f64_acc(env, pl__f64_sum_squares(q, PL_HEAD_DIM) / PL_HEAD_DIM);
    double scale = pl__f64_rsqrt(env, mean, eps);

    for (int i = 0; i < PL_HEAD_DIM; i++)
        q[i] = pl__f64_acc(env, q[i] * scale);
}

void pl__f64_q_norm_rope(const pl_op_env *env, const pl_q_norm_rope_args *a, int64_t begin,
                         int64_t end)
{
    for (int64_t u = begin; u < end; u++) {
        double *q = (double *)a->q + u * PL_HEAD_DIM;

        if (env->mode == PL_MODE_REF)
            head_norm_op_by_op(env, a->eps, q);
        else
            head_norm(env, a->eps, q);
        pl__f64_rotate(env, &a->angles, u / a->n_heads, false, PL_HEAD_DIM, q);
    }
}

void pl__f64_index_row(const pl_op_env *env, const pl_angles *angles, int64_t t, const double *x,
                       double *out)
{
    memcpy(out, x, PL_INDEX_DIM * sizeof *out);
    pl__f64_rotate(env, angles, t, false, PL_INDEX_DIM, out);
    pl_hadamard128_f64(out, env->mode == PL_MODE_EXACT);
    for (int i = 0; i < PL_INDEX_DIM; i++)
        out[i] = pl__f64_act(env, out[i]);
    if (env->mode != PL_MODE_EXACT)
        pl_quant_e2m1_fake_f64(out, PL_INDEX_DIM, out);
}
