/* Level f64: embedding, hyper-connections, the start of an mtp block (specification section 2, 6.1). */
#include "ops/f64/f64.h"

enum { S = PL_HC_MULT };

void pl__f64_embed(const pl_op_env *env, const pl_embed_args *a, int64_t begin, int64_t end)
{
    int64_t dim = a->embed.cols;

    for (int64_t t = begin; t < end; t++) {
        double *x = (double *)a->x + t * a->n_copies * dim;

        for (int32_t s = 0; s < a->n_copies; s++)
            for (int64_t i = 0; i < dim; i++)
                x[s * dim + i] =
                    a->tokens[t] < 0 ? 0 : pl__f64_weight(&a->embed, a->tokens[t] * dim + i);
    }
}

static double dot_f32(const float *w, const double *x, int64_t n)
{
    double sum[4] = {0};

    for (int64_t i = 0; i < n; i += 4)
        for (int j = 0; j < 4; j++)
            sum[j] += (double)w[i + j] * x[i + j];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

void pl__f64_hc_dots(const pl_op_env *env, const pl_hc_dots_args *a, int64_t begin, int64_t end)
{
    int64_t n = a->fn.cols, k = a->fn.rows;
    double *m = a->m;

    for (int64_t u = begin; u < end; u++) {
        int64_t t = u / (k + 1), o = u % (k + 1);
        const double *x = (const double *)a->x + (a->rows ? a->rows[t] : t) * n;
        double sum = o < k ? dot_f32((const float *)a->fn.data + o * n, x, n)
                           : pl__f64_sum_squares(x, n) / (double)n;
        m[u] = pl__f64_acc(env, sum);
    }
}

/* bf16(sum_s weight[s] x[s]) */
static void weighted_sum(const pl_op_env *env, const double weight[S], const double *x, int64_t dim,
                         double *y)
{
    for (int64_t i = 0; i < dim; i++) {
        double sum = 0;
        for (int s = 0; s < S; s++)
            sum += weight[s] * x[s * dim + i];
        y[i] = pl__f64_act(env, sum);
    }
}

/* sigmoid(m * rr * scale + base) */
static double gate(const pl_op_env *env, double m, double scale, double base)
{
    return pl__f64_sigmoid(env, pl__f64_acc(env, pl__f64_acc(env, m * scale) + base));
}

/* Divides row or column `line` of c by (its sum + eps). */
static void normalise(const pl_op_env *env, double *c, int line, bool column, double eps)
{
    int first = column ? line : S * line, step = column ? S : 1;
    double sum = 0;

    for (int i = 0; i < S; i++)
        sum += c[first + i * step];
    sum = pl__f64_acc(env, pl__f64_acc(env, sum) + eps);
    for (int i = 0; i < S; i++)
        c[first + i * step] = pl__f64_acc(env, c[first + i * step] / sum);
}

static void softmax_row(const pl_op_env *env, double *c, double eps)
{
    double max = c[0], sum = 0;

    for (int i = 1; i < S; i++)
        max = c[i] > max ? c[i] : max;
    for (int i = 0; i < S; i++) {
        c[i] = pl__f64_acc(env, pl_exp_f64(pl__f64_acc(env, c[i] - max)));
        sum += c[i];
    }
    sum = pl__f64_acc(env, sum);
    for (int i = 0; i < S; i++)
        c[i] = pl__f64_acc(env, pl__f64_acc(env, c[i] / sum) + eps);
}

static void sinkhorn(const pl_op_env *env, double *c, int iterations, double eps)
{
    for (int j = 0; j < S; j++)
        softmax_row(env, c + S * j, eps);
    for (int k = 0; k < S; k++)
        normalise(env, c, k, true, eps);
    for (int it = 1; it < iterations; it++) {
        for (int j = 0; j < S; j++)
            normalise(env, c, j, false, eps);
        for (int k = 0; k < S; k++)
            normalise(env, c, k, true, eps);
    }
}

void pl__f64_hc_pre(const pl_op_env *env, const pl_hc_pre_args *a, int64_t begin, int64_t end)
{
    const float *base = a->base.data, *scale = a->scale.data;
    double eps = (double)a->hc_eps;

    for (int64_t t = begin; t < end; t++) {
        const double *m = (const double *)a->m + t * (PL_HC_OUT + 1);
        double *post = (double *)a->post + t * S, *c = (double *)a->comb + t * S * S;
        double rr = pl__f64_rsqrt(env, m[PL_HC_OUT], a->rms_eps), v[PL_HC_OUT], pre[S];

        for (int o = 0; o < PL_HC_OUT; o++)
            v[o] = pl__f64_acc(env, m[o] * rr);
        for (int s = 0; s < S; s++) {
            pre[s] = pl__f64_acc(env, gate(env, v[s], (double)scale[0], (double)base[s]) + eps);
            post[s] = 2 * gate(env, v[S + s], (double)scale[1], (double)base[S + s]);
        }
        for (int i = 0; i < S * S; i++)
            c[i] = pl__f64_acc(env, pl__f64_acc(env, v[2 * S + i] * (double)scale[2]) +
                                        (double)base[2 * S + i]);
        sinkhorn(env, c, a->sinkhorn_iters, eps);
        weighted_sum(env, pre, (const double *)a->x + t * S * a->dim, a->dim,
                     (double *)a->y + t * a->dim);
    }
}

void pl__f64_hc_post(const pl_op_env *env, const pl_hc_post_args *a, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        const double *f = (const double *)a->f + t * a->dim;
        const double *post = (const double *)a->post + t * S;
        const double *c = (const double *)a->comb + t * S * S;
        double *x = (double *)a->x + t * S * a->dim;

        for (int64_t i = 0; i < a->dim; i++) {
            double old[S];

            for (int j = 0; j < S; j++)
                old[j] = x[j * a->dim + i];
            for (int k = 0; k < S; k++) {
                double sum = post[k] * f[i];
                for (int j = 0; j < S; j++)
                    sum += c[S * j + k] * old[j];
                x[k * a->dim + i] = pl__f64_act(env, sum);
            }
        }
    }
}

void pl__f64_hc_head(const pl_op_env *env, const pl_hc_head_args *a, int64_t begin, int64_t end)
{
    const float *base = a->base.data, *scale = a->scale.data;

    for (int64_t t = begin; t < end; t++) {
        const double *m = (const double *)a->m + t * (S + 1);
        const double *x = (const double *)a->x + (a->rows ? a->rows[t] : t) * S * a->dim;
        double rr = pl__f64_rsqrt(env, m[S], a->rms_eps), p[S];

        for (int s = 0; s < S; s++) {
            double v = pl__f64_acc(env, m[s] * rr);
            p[s] = pl__f64_acc(env,
                               gate(env, v, (double)scale[0], (double)base[s]) + (double)a->hc_eps);
        }
        weighted_sum(env, p, x, a->dim, (double *)a->y + t * a->dim);
    }
}

void pl__f64_mtp_join(const pl_op_env *env, const pl_mtp_join_args *a, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        const double *e = (const double *)a->e + t * a->dim;
        const double *h = (const double *)a->h + t * S * a->dim;
        double *x = (double *)a->x + t * S * a->dim;

        for (int s = 0; s < S; s++)
            for (int64_t i = 0; i < a->dim; i++)
                x[s * a->dim + i] = pl__f64_act(env, e[i] + h[s * a->dim + i]);
    }
}
