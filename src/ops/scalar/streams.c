/* Level scalar: embedding, hyper-connections, the start of mtp (NUMERICS 8, 12). */
#include "ops/scalar/scalar.h"

#include <math.h>
#include <string.h>

enum { S = PL_HC_MULT };

void pl__scalar_embed(const pl_op_env *env, const pl_embed_args *a, int64_t begin, int64_t end)
{
    size_t row_bytes = sizeof(uint16_t) * (size_t)a->embed.cols;

    for (int64_t t = begin; t < end; t++)
        for (int32_t s = 0; s < a->n_copies; s++) {
            uint8_t *x = (uint8_t *)a->x + (size_t)(t * a->n_copies + s) * row_bytes;

            if (a->tokens[t] < 0)
                memset(x, 0, row_bytes);
            else
                memcpy(x, (const uint8_t *)a->embed.data + (size_t)a->tokens[t] * row_bytes,
                       row_bytes);
        }
}

/* fp32 x bf16: the products have up to 32 bits, so the chain needs the true fma. */
static float fn_dot(const float *fn, const uint16_t *v, int64_t n)
{
    float acc = 0;

    for (int64_t b = 0; b < n; b += PL_QUANT_BLOCK) {
        float p = 0;
        for (int64_t i = b; i < b + PL_QUANT_BLOCK; i++)
            p = pl_fma_f32(i < n ? fn[i] : 0, i < n ? pl_bf16_to_f32(v[i]) : 0, p);
        acc += p;
    }
    return acc;
}

void pl__scalar_hc_dots(const pl_op_env *env, const pl_hc_dots_args *a, int64_t begin, int64_t end)
{
    int64_t k = a->fn.rows, n = a->fn.cols;

    for (int64_t u = begin; u < end; u++) {
        int64_t t = u / (k + 1), o = u % (k + 1);
        const uint16_t *v = (const uint16_t *)a->x + (a->rows ? a->rows[t] : t) * n;
        float *m = (float *)a->m + u;

        if (o < k)
            *m = fn_dot((const float *)a->fn.data + o * n, v, n);
        else
            *m = pl__scalar_sum_squares(v, n) / (float)n;
    }
}

static float max4(const float *x)
{
    float m = -INFINITY;

    for (int i = 0; i < S; i++)
        m = pl_max_f32(x[i], m);
    return m;
}

/* Divides each row of C by its sum; `first` takes the softmax instead. */
static void sinkhorn_rows(float C[S][S], float eps, bool first)
{
    for (int j = 0; j < S; j++) {
        float *c = C[j], sum;

        if (first) {
            float max = max4(c);
            for (int k = 0; k < S; k++)
                c[k] = pl_exp_f32(c[k] - max);
            sum = (c[0] + c[1]) + (c[2] + c[3]);
            for (int k = 0; k < S; k++)
                c[k] = c[k] / sum + eps;
        } else {
            sum = ((c[0] + c[1]) + (c[2] + c[3])) + eps;
            for (int k = 0; k < S; k++)
                c[k] = c[k] / sum;
        }
    }
}

static void sinkhorn_columns(float C[S][S], float eps)
{
    for (int k = 0; k < S; k++) {
        float sum = ((C[0][k] + C[1][k]) + (C[2][k] + C[3][k])) + eps;

        for (int j = 0; j < S; j++)
            C[j][k] = C[j][k] / sum;
    }
}

/* y[c] = bf16(sum_i weight[i] x[i][c]). */
static void weighted_sum(const float weight[S], const uint16_t *x, int64_t dim, uint16_t *y)
{
    for (int64_t c = 0; c < dim; c++) {
        float sum = weight[0] * pl_bf16_to_f32(x[c]);

        for (int i = 1; i < S; i++)
            sum = sum + weight[i] * pl_bf16_to_f32(x[i * dim + c]);
        y[c] = pl_f32_to_bf16(sum);
    }
}

void pl__scalar_hc_mix(const pl_hc_pre_args *a, int64_t t, float *pre)
{
    const float *base = a->base.data, *scale = a->scale.data;
    const float *dot = (const float *)a->m + t * (PL_HC_OUT + 1);
    float rr = pl__scalar_rsqrt(dot[PL_HC_OUT], a->rms_eps), C[S][S];
    float *post = (float *)a->post + t * S, *comb = (float *)a->comb + t * S * S;

    for (int i = 0; i < S; i++) {
        pre[i] = pl_sigmoid_f32(dot[i] * rr * scale[0] + base[i]) + a->hc_eps;
        post[i] = 2.0f * pl_sigmoid_f32(dot[S + i] * rr * scale[1] + base[S + i]);
    }
    for (int i = 0; i < S * S; i++)
        C[i / S][i % S] = dot[2 * S + i] * rr * scale[2] + base[2 * S + i];
    sinkhorn_rows(C, a->hc_eps, true);
    sinkhorn_columns(C, a->hc_eps);
    for (int32_t i = 1; i < a->sinkhorn_iters; i++) {
        sinkhorn_rows(C, a->hc_eps, false);
        sinkhorn_columns(C, a->hc_eps);
    }
    memcpy(comb, C, sizeof C);
}

void pl__scalar_hc_pre(const pl_op_env *env, const pl_hc_pre_args *a, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        float pre[S];

        pl__scalar_hc_mix(a, t, pre);
        weighted_sum(pre, (const uint16_t *)a->x + t * S * a->dim, a->dim,
                     (uint16_t *)a->y + t * a->dim);
    }
}

void pl__scalar_hc_post(const pl_op_env *env, const pl_hc_post_args *a, int64_t begin, int64_t end)
{
    int64_t dim = a->dim;

    for (int64_t t = begin; t < end; t++) {
        const uint16_t *f = (const uint16_t *)a->f + t * dim;
        const float *post = (const float *)a->post + t * S;
        const float *C = (const float *)a->comb + t * S * S;
        uint16_t *x = (uint16_t *)a->x + t * S * dim;

        for (int64_t c = 0; c < dim; c++) {
            float old[S], fc = pl_bf16_to_f32(f[c]);

            for (int j = 0; j < S; j++)
                old[j] = pl_bf16_to_f32(x[j * dim + c]);
            for (int k = 0; k < S; k++) {
                float sum = post[k] * fc;
                for (int j = 0; j < S; j++)
                    sum = sum + C[j * S + k] * old[j];
                x[k * dim + c] = pl_f32_to_bf16(sum);
            }
        }
    }
}

void pl__scalar_hc_head_mix(const pl_hc_head_args *a, int64_t t, float *p)
{
    const float *base = a->base.data, *scale = a->scale.data;
    const float *dot = (const float *)a->m + t * (S + 1);
    float rr = pl__scalar_rsqrt(dot[S], a->rms_eps);

    for (int i = 0; i < S; i++)
        p[i] = pl_sigmoid_f32(dot[i] * rr * scale[0] + base[i]) + a->hc_eps;
}

void pl__scalar_hc_head(const pl_op_env *env, const pl_hc_head_args *a, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        int64_t from = a->rows ? a->rows[t] : t;
        float p[S];

        pl__scalar_hc_head_mix(a, t, p);
        weighted_sum(p, (const uint16_t *)a->x + from * S * a->dim, a->dim,
                     (uint16_t *)a->y + t * a->dim);
    }
}

void pl__scalar_mtp_join(const pl_op_env *env, const pl_mtp_join_args *a, int64_t begin,
                         int64_t end)
{
    for (int64_t t = begin; t < end; t++)
        for (int64_t i = 0; i < S * a->dim; i++) {
            float e = pl_bf16_to_f32(((const uint16_t *)a->e)[t * a->dim + i % a->dim]);
            float h = pl_bf16_to_f32(((const uint16_t *)a->h)[t * S * a->dim + i]);

            ((uint16_t *)a->x)[t * S * a->dim + i] = pl_f32_to_bf16(e + h);
        }
}
