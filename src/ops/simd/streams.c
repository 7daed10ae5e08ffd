/* Hyper-connections for vector levels (NUMERICS 8): the long dot products, and what is done per channel. Sinkhorn
 * and the sigmoids, 24 values a token, are level scalar's. */
#include "ops/simd/streams.h"

#include <string.h>

#include "ops/simd/sums.h"

enum { S = PL_HC_MULT, BLOCK = PL_QUANT_BLOCK };

/* ---- dot products: outputs in lanes, four blocks of 128 side by side to hide the chain's latency */

enum { BLOCKS = 4 };

typedef struct panel {
    float fn[BLOCKS][BLOCK][LANES]; /* column by column; zero past the last output and column */
    float v[BLOCKS][BLOCK];
} panel;

_Static_assert(sizeof(panel) <= PL_SIMD_STREAMS_BYTES, "scratch of the table");

static void load_fn(panel *p, const float *fn, int64_t n, int64_t outputs, int64_t first)
{
    for (int b = 0; b < BLOCKS; b++)
        for (int i = 0; i < BLOCK; i += LANES) {
            int64_t at = first + b * BLOCK + i;
            vf r[LANES];

            for (int o = 0; o < LANES; o++) {
                float tail[LANES] = {0};

                if (o < outputs && at + LANES <= n) {
                    r[o] = vf_load(fn + o * n + at);
                    continue;
                }
                for (int64_t j = 0; o < outputs && at + j < n; j++)
                    tail[j] = fn[o * n + at + j];
                r[o] = vf_load(tail);
            }
            vf_transpose(r);
            for (int j = 0; j < LANES; j++)
                vf_store(p->fn[b][i + j], r[j]);
        }
}

static void load_v(panel *p, const uint16_t *v, int64_t n, int64_t first)
{
    float *out = p->v[0];

    for (int64_t i = 0; i < BLOCKS * BLOCK; i += LANES)
        if (first + i + LANES <= n)
            vf_store(out + i, vf_load_bf16(v + first + i));
        else
            for (int64_t j = 0; j < LANES; j++)
                out[i + j] = first + i + j < n ? pl_bf16_to_f32(v[first + i + j]) : 0;
}

/* acc + p_b for the blocks that there are, ascending. */
INLINE vf add_blocks(const panel *p, vf acc, int64_t n_blocks)
{
    vf sum[BLOCKS];

    UNROLL
    for (int b = 0; b < BLOCKS; b++)
        sum[b] = vf_zero();
    for (int i = 0; i < BLOCK; i++)
        UNROLL
    for (int b = 0; b < BLOCKS; b++)
        sum[b] = vf_fma(vf_load(p->fn[b][i]), vf_at(&p->v[b][i]), sum[b]);
    UNROLL
    for (int b = 0; b < BLOCKS; b++)
        if (b < n_blocks)
            acc = vf_add(acc, sum[b]);
    return acc;
}

static const uint16_t *row_of(const pl_hc_dots_args *a, int64_t t)
{
    return (const uint16_t *)a->x + (a->rows ? a->rows[t] : t) * a->fn.cols;
}

/* Outputs o .. o + n - 1 (at most LANES) of tokens t .. t + n_tokens - 1 (at most PL_SIMD_STREAMS_TOKENS). */
static void dots(panel *p, const pl_hc_dots_args *a, int64_t t, int n_tokens, int64_t o, int64_t n)
{
    int64_t k = a->fn.rows, cols = a->fn.cols;
    float acc[PL_SIMD_STREAMS_TOKENS][LANES] = {{0}};

    for (int64_t i = 0; i < cols; i += (int64_t)BLOCKS * BLOCK) {
        load_fn(p, (const float *)a->fn.data + o * cols, cols, n, i);
        for (int j = 0; j < n_tokens; j++) {
            load_v(p, row_of(a, t + j), cols, i);
            vf_store(acc[j], add_blocks(p, vf_load(acc[j]), (cols - i + BLOCK - 1) / BLOCK));
        }
    }
    for (int j = 0; j < n_tokens; j++)
        memcpy((float *)a->m + (t + j) * (k + 1) + o, acc[j], sizeof(float) * (size_t)n);
}

/* Outputs o0 .. o1 - 1 of some tokens; number k is the mean of squares. */
static void outputs(panel *p, const pl_hc_dots_args *a, int64_t t, int n_tokens, int64_t o0,
                    int64_t o1)
{
    int64_t k = a->fn.rows;

    for (int64_t o = o0; o < o1 && o < k; o += LANES) {
        int64_t n = (o1 < k ? o1 : k) - o;
        dots(p, a, t, n_tokens, o, n < LANES ? n : LANES);
    }
    for (int j = 0; j < n_tokens && o1 == k + 1; j++)
        ((float *)a->m)[(t + j) * (k + 1) + k] =
            vf_sum_squares(row_of(a, t + j), a->fn.cols) / (float)a->fn.cols;
}

void PL__AT(hc_dots)(const pl_op_env *env, const pl_hc_dots_args *a, int64_t begin, int64_t end)
{
    int64_t units = a->fn.rows + 1;

    for (int64_t u = begin; u < end;) {
        int64_t t = u / units, o = u % units, n = (end - u) / units;

        if (o > 0 || n == 0) {
            int64_t stop = o + (end - u) < units ? o + (end - u) : units;
            outputs(env->scratch, a, t, 1, o, stop);
            u += stop - o;
            continue;
        }
        n = n > PL_SIMD_STREAMS_TOKENS ? PL_SIMD_STREAMS_TOKENS : n;
        outputs(env->scratch, a, t, (int)n, 0, units);
        u += n * units;
    }
}

/* ---- channels */

INLINE void weighted_sum(const float weight[S], const uint16_t *x, int64_t dim, uint16_t *y)
{
    int64_t c = 0;

    for (; c + LANES <= dim; c += LANES) {
        vf sum = vf_mul(vf_set(weight[0]), vf_load_bf16(x + c));
        UNROLL
        for (int i = 1; i < S; i++)
            sum = vf_add(sum, vf_mul(vf_set(weight[i]), vf_load_bf16(x + i * dim + c)));
        vf_store_bf16(y + c, sum);
    }
    for (; c < dim; c++) {
        float sum = weight[0] * pl_bf16_to_f32(x[c]);
        for (int i = 1; i < S; i++)
            sum = sum + weight[i] * pl_bf16_to_f32(x[i * dim + c]);
        y[c] = pl_f32_to_bf16(sum);
    }
}

void PL__AT(hc_pre)(const pl_op_env *env, const pl_hc_pre_args *a, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        float pre[S];

        pl__scalar_hc_mix(a, t, pre);
        weighted_sum(pre, (const uint16_t *)a->x + t * S * a->dim, a->dim,
                     (uint16_t *)a->y + t * a->dim);
    }
}

void PL__AT(hc_head)(const pl_op_env *env, const pl_hc_head_args *a, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        int64_t from = a->rows ? a->rows[t] : t;
        float p[S];

        pl__scalar_hc_head_mix(a, t, p);
        weighted_sum(p, (const uint16_t *)a->x + from * S * a->dim, a->dim,
                     (uint16_t *)a->y + t * a->dim);
    }
}

static void post_tail(const float *post, const float *C, const uint16_t *f, uint16_t *x,
                      int64_t dim, int64_t c)
{
    for (; c < dim; c++) {
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

void PL__AT(hc_post)(const pl_op_env *env, const pl_hc_post_args *a, int64_t begin, int64_t end)
{
    int64_t dim = a->dim;

    for (int64_t t = begin; t < end; t++) {
        const uint16_t *f = (const uint16_t *)a->f + t * dim;
        const float *post = (const float *)a->post + t * S, *C = (const float *)a->comb + t * S * S;
        uint16_t *x = (uint16_t *)a->x + t * S * dim;
        int64_t c = 0;

        for (; c + LANES <= dim; c += LANES) {
            vf old[S], fc = vf_load_bf16(f + c);
            UNROLL
            for (int j = 0; j < S; j++)
                old[j] = vf_load_bf16(x + j * dim + c);
            UNROLL
            for (int k = 0; k < S; k++) {
                vf sum = vf_mul(vf_at(post + k), fc);
                UNROLL
                for (int j = 0; j < S; j++)
                    sum = vf_add(sum, vf_mul(vf_at(C + j * S + k), old[j]));
                vf_store_bf16(x + k * dim + c, sum);
            }
        }
        post_tail(post, C, f, x, dim, c);
    }
}
