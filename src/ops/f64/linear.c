/* Level f64: linear layers. A few weight rows at a time are widened exactly to double, then every token
 * takes its dot products with them; a sum is rounded once (specification section 0.6). */
#include "ops/f64/f64.h"

#include <string.h>

#include "ops/quant.h"

enum { BAND = 4 }; /* weight rows widened at a time: scratch is BAND * max_k doubles */

void pl__f64_quantise(const pl_op_env *env, const pl_quantise_args *a, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++) {
        const double *x = (const double *)((const uint8_t *)a->x + r * a->x_stride);
        double *q = (double *)((uint8_t *)a->q + r * a->q_stride) + a->first;

        if (env->mode == PL_MODE_EXACT)
            memcpy(q, x, (size_t)a->dim * sizeof *q);
        else
            pl_quant_e4m3_fake_f64(x, a->dim, PL_QUANT_BLOCK, q);
    }
}

/* Values of the codes; a table because a function call a weight would take most of the time. */
#define EIGHT(first, step)                                                                       \
    (first), (first) + (step), (first) + 2 * (step), (first) + 3 * (step), (first) + 4 * (step), \
        (first) + 5 * (step), (first) + 6 * (step), (first) + 7 * (step)
#define E4M3_HALF(sign)                                                                            \
    EIGHT((sign)*0.0, (sign)*0x1p-9), EIGHT((sign)*0x1p-6, (sign)*0x1p-9),                         \
        EIGHT((sign)*0x1p-5, (sign)*0x1p-8), EIGHT((sign)*0x1p-4, (sign)*0x1p-7),                  \
        EIGHT((sign)*0x1p-3, (sign)*0x1p-6), EIGHT((sign)*0x1p-2, (sign)*0x1p-5),                  \
        EIGHT((sign)*0x1p-1, (sign)*0x1p-4), EIGHT((sign)*0x1p0, (sign)*0x1p-3),                   \
        EIGHT((sign)*0x1p1, (sign)*0x1p-2), EIGHT((sign)*0x1p2, (sign)*0x1p-1),                    \
        EIGHT((sign)*0x1p3, (sign)*0x1p0), EIGHT((sign)*0x1p4, (sign)*0x1p1),                      \
        EIGHT((sign)*0x1p5, (sign)*0x1p2), EIGHT((sign)*0x1p6, (sign)*0x1p3),                      \
        EIGHT((sign)*0x1p7, (sign)*0x1p4), (sign)*0x1p8, (sign)*288.0, (sign)*320.0, (sign)*352.0, \
        (sign)*384.0, (sign)*416.0, (sign)*448.0, NAN
static const double e4m3_values[256] = {E4M3_HALF(1), E4M3_HALF(-1)};
static const double e2m1_values[16] = {0.0,  0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                                       -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};

static double tile_scale(const pl_weight_view *w, int64_t row, int64_t block)
{
    int64_t at = row / 128 * (w->cols / 128) + block;

    if (w->format == PL_WEIGHT_FP8_F32)
        return (double)((const float *)w->scale)[at];
    return pl_e8m0_to_f64(((const uint8_t *)w->scale)[at]);
}

/* The reference expands wo_a to bf16 before use: `stored_bf16`. Powers of two lose nothing by that, but
 * for scales near the bottom of fp32; Base's free scales do. */
static void widen_fp8(const pl_op_env *env, const pl_weight_view *w, int64_t row, bool stored_bf16,
                      double *out)
{
    const uint8_t *codes = (const uint8_t *)w->data + row * w->cols;

    for (int64_t b = 0; b < w->cols / 128; b++) {
        double scale = tile_scale(w, row, b);
        bool rounds = stored_bf16 && (w->format == PL_WEIGHT_FP8_F32 || scale < 0x1p-100);

        for (int64_t i = 128 * b; i < 128 * (b + 1); i++)
            out[i] = e4m3_values[codes[i]] * scale;
        for (int64_t i = 128 * b; rounds && i < 128 * (b + 1); i++)
            out[i] = pl__f64_act(env, out[i]);
    }
}

static void widen_fp4(const pl_weight_view *w, int64_t row, double *out)
{
    const uint8_t *pairs = (const uint8_t *)w->data + row * (w->cols / 2);
    const uint8_t *scales = (const uint8_t *)w->scale + row * (w->cols / 32);

    for (int64_t g = 0; g < w->cols / 32; g++) {
        double scale = pl_e8m0_to_f64(scales[g]);
        for (int64_t i = 16 * g; i < 16 * (g + 1); i++) {
            out[2 * i] = e2m1_values[pairs[i] & 15] * scale;
            out[2 * i + 1] = e2m1_values[pairs[i] >> 4] * scale;
        }
    }
}

static void widen(const pl_op_env *env, const pl_linear_job *job, int64_t row, double *out)
{
    switch (job->w.format) {
    case PL_WEIGHT_FP8_E8M0:
    case PL_WEIGHT_FP8_F32:
        widen_fp8(env, &job->w, row, job->a16, out);
        break;
    case PL_WEIGHT_FP4:
        widen_fp4(&job->w, row, out);
        break;
    default:
        for (int64_t i = 0; i < job->w.cols; i++)
            out[i] = pl__f64_weight(&job->w, row * job->w.cols + i);
    }
}

/* Four doubles; the compiler cuts them to what the processor has. A lane is one accumulator. */
typedef double four __attribute__((vector_size(32), aligned(8), may_alias));

/* sum[r] = w[r] . x for BAND rows at once: x is read once. n is a multiple of 128. */
static void dot_band(const double *w, const double *x, int64_t n, double sum[BAND])
{
    four a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0};

    for (int64_t i = 0; i < n; i += 4) {
        const four v = *(const four *)(x + i);

        a0 += *(const four *)(w + i) * v;
        a1 += *(const four *)(w + n + i) * v;
        a2 += *(const four *)(w + 2 * n + i) * v;
        a3 += *(const four *)(w + 3 * n + i) * v;
    }
    sum[0] = (a0[0] + a0[1]) + (a0[2] + a0[3]);
    sum[1] = (a1[0] + a1[1]) + (a1[2] + a1[3]);
    sum[2] = (a2[0] + a2[1]) + (a2[2] + a2[3]);
    sum[3] = (a3[0] + a3[1]) + (a3[2] + a3[3]);
}

static void band(const pl_op_env *env, const pl_linear_job *job, int64_t first, int64_t n_rows)
{
    int64_t k = job->w.cols;
    double *w = env->scratch, sum[BAND];

    for (int64_t r = 0; r < BAND; r++) {
        if (r < n_rows)
            widen(env, job, job->first_row + first + r, w + r * k);
        else
            memset(w + r * k, 0, (size_t)k * sizeof *w);
    }
    for (int64_t t = 0; t < job->n; t++) {
        int64_t from = job->rows ? job->rows[t] : t;
        const double *x = (const double *)((const uint8_t *)job->x + from * job->x_stride);
        double *y = (double *)((uint8_t *)job->y + t * job->y_stride) + first;

        dot_band(w, x, k, sum);
        for (int64_t r = 0; r < n_rows; r++)
            y[r] = job->out == PL_LINEAR_ACT ? pl__f64_act(env, sum[r]) : pl__f64_acc(env, sum[r]);
    }
}

void pl__f64_linear(const pl_op_env *env, const pl_linear_job *job, int64_t begin, int64_t end)
{
    int64_t stop = end * PL_TILE_ROWS < job->n_rows ? end * PL_TILE_ROWS : job->n_rows;

    for (int64_t row = begin * PL_TILE_ROWS; row < stop; row += BAND)
        band(env, job, row, stop - row < BAND ? stop - row : BAND);
}
