/* Level scalar: linear layers (NUMERICS: chains and block scales; canonical shards).
 *
 * A tile of 16 weight rows is widened once, k-major, so that the 16 chains of a token advance side by
 * side; a chain itself is never split or reordered. The integer form of FP4 groups has the chain's
 * bits wherever it is permitted, so this level runs the chain alone. */
#include "ops/scalar/scalar.h"

#include <string.h>

#include "ops/quant.h"
#include "ops/tile.h"

enum { LANES = PL_TILE_ROWS, BLOCK = PL_QUANT_BLOCK, GROUP = 32 };

/* The weights of a tile and the token at hand. */
typedef struct tile {
    float *w;         /* [k][16] raw codes or bf16 values */
    float *x;         /* [k] of the token */
    int64_t first;    /* first weight row of the tile */
    int64_t n_rows;   /* 1..16 */
    int64_t n_blocks; /* the last one zero-filled */
} tile;

uint64_t pl__scalar_linear_scratch_bytes(int64_t max_k)
{
    uint64_t k = ((uint64_t)max_k + BLOCK - 1) / BLOCK * BLOCK;

    return sizeof(float) * (LANES + 1) * k;
}

void pl__scalar_quantise(const pl_op_env *env, const pl_quantise_args *a, int64_t begin,
                         int64_t end)
{
    int64_t nb = a->dim / BLOCK, row_nb = (a->row_dim ? a->row_dim : a->dim) / BLOCK;
    int64_t first = a->first / BLOCK;

    for (int64_t r = begin; r < end; r++) {
        const uint16_t *x = (const uint16_t *)((const uint8_t *)a->x + r * a->x_stride);
        uint8_t *q = (uint8_t *)a->q + r * a->q_stride, *codes = q + first * BLOCK;
        uint8_t *scale = q + row_nb * BLOCK + first, *exact = scale + row_nb;

        pl_quant_e4m3(x, a->dim, BLOCK, codes, scale);
        for (int64_t b = 0; b < nb; b++) {
            int32_t unit;
            uint8_t bits = 0;
            for (int g = 0; g < BLOCK / GROUP; g++)
                if (pl_quant_group_is_exact(codes + b * BLOCK + g * GROUP, &unit))
                    bits |= (uint8_t)(1u << g);
            exact[b] = bits;
        }
    }
}

static tile open_tile(const pl_op_env *env, const pl_linear_job *job, int64_t unit)
{
    tile t = {.first = job->first_row + unit * LANES,
              .n_blocks = (job->w.cols + BLOCK - 1) / BLOCK};
    int64_t left = job->n_rows - unit * LANES;

    t.n_rows = left < LANES ? left : LANES;
    t.w = env->scratch;
    t.x = t.w + t.n_blocks * BLOCK * LANES;
    return t;
}

/* Index of element k of row r of the tile, as pl_tile_index counts, in the whole matrix. */
static int64_t element(const tile *t, const pl_weight_view *w, int64_t r, int64_t k)
{
    if (w->layout == PL_WEIGHT_TILES)
        return t->first * w->cols + pl_tile_index(w->format, r, k);
    return (t->first + r) * w->cols + k;
}

static void widen_weights(const tile *t, const pl_weight_view *w)
{
    const uint8_t *bytes = (const uint8_t *)w->data;

    memset(t->w, 0, sizeof(float) * LANES * (size_t)(t->n_blocks * BLOCK));
    for (int64_t r = 0; r < t->n_rows; r++) {
        for (int64_t i = 0; i < w->cols; i++) {
            int64_t at = element(t, w, r, i);
            float v;
            if (w->format == PL_WEIGHT_BF16)
                v = pl_bf16_to_f32(((const uint16_t *)w->data)[at]);
            else if (w->format == PL_WEIGHT_FP4)
                v = pl_e2m1_to_f32(bytes[at / 2] >> 4 * (at & 1) & 15);
            else
                v = pl_e4m3_to_f32(bytes[at]);
            t->w[i * LANES + r] = v;
        }
    }
}

static void widen_codes(const tile *t, const uint8_t *codes)
{
    for (int64_t i = 0; i < t->n_blocks * BLOCK; i++)
        t->x[i] = pl_e4m3_to_f32(codes[i]);
}

static void widen_act(const tile *t, const uint16_t *x, int64_t k)
{
    for (int64_t i = 0; i < k; i++)
        t->x[i] = pl_bf16_to_f32(x[i]);
    for (int64_t i = k; i < t->n_blocks * BLOCK; i++)
        t->x[i] = 0;
}

/* p[r] = the chain over n values from k0, from +0. */
static void chain(const tile *t, int64_t k0, int n, float p[LANES])
{
    const float *w = t->w + k0 * LANES, *x = t->x + k0;

    for (int r = 0; r < LANES; r++)
        p[r] = 0;
    for (int i = 0; i < n; i += 2)
        for (int r = 0; r < LANES; r++)
            p[r] = pl__pair(p[r], x[i], w[i * LANES + r], x[i + 1], w[(i + 1) * LANES + r]);
}

static float fp8_scale(const pl_weight_view *w, int64_t row, int64_t block)
{
    int64_t at = row / 128 * (w->cols / BLOCK) + block;

    if (w->format == PL_WEIGHT_FP8_F32)
        return ((const float *)w->scale)[at];
    return pl_e8m0_to_f32(((const uint8_t *)w->scale)[at]);
}

/* acc[r] = fma(p[r], s, acc[r]); an F32 scale has 24 bits of its own. */
static void add_scaled(float acc[LANES], const float p[LANES], float s, bool wide)
{
    for (int r = 0; r < LANES; r++)
        acc[r] = wide ? pl_fma_f32(p[r], s, acc[r]) : pl__fma24(p[r], s, acc[r]);
}

/* Adds block b to the sums: one function per kind of product. */
typedef void add_block_fn(const tile *t, const pl_linear_job *job, const uint8_t *scales, int64_t b,
                          float acc[LANES]);

static void add_fp8(const tile *t, const pl_linear_job *job, const uint8_t *scales, int64_t b,
                    float acc[LANES])
{
    float p[LANES], s = pl_e8m0_to_f32(scales[b]) * fp8_scale(&job->w, t->first, b);

    chain(t, b * BLOCK, BLOCK, p);
    add_scaled(acc, p, s, job->w.format == PL_WEIGHT_FP8_F32);
}

static void add_fp8_a16(const tile *t, const pl_linear_job *job, const uint8_t *scales, int64_t b,
                        float acc[LANES])
{
    float p[LANES];

    chain(t, b * BLOCK, BLOCK, p);
    add_scaled(acc, p, fp8_scale(&job->w, t->first, b), job->w.format == PL_WEIGHT_FP8_F32);
}

static void add_fp4(const tile *t, const pl_linear_job *job, const uint8_t *scales, int64_t b,
                    float acc[LANES])
{
    int64_t groups = job->w.cols / GROUP;
    const uint8_t *ws = (const uint8_t *)job->w.scale + t->first * groups;
    bool tiles = job->w.layout == PL_WEIGHT_TILES;
    float p[LANES], q[LANES] = {0};

    for (int64_t g = b * (BLOCK / GROUP); g < (b + 1) * (BLOCK / GROUP); g++) {
        chain(t, g * GROUP, GROUP, p);
        for (int64_t r = 0; r < t->n_rows; r++) {
            uint8_t s = ws[tiles ? g * LANES + r : r * groups + g];
            q[r] = pl__fma24(p[r], pl_e8m0_to_f32(s), q[r]);
        }
    }
    add_scaled(acc, q, pl_e8m0_to_f32(scales[b]), false);
}

static void add_bf16(const tile *t, const pl_linear_job *job, const uint8_t *scales, int64_t b,
                     float acc[LANES])
{
    float p[LANES];

    chain(t, b * BLOCK, BLOCK, p);
    for (int r = 0; r < LANES; r++)
        acc[r] += p[r];
}

/* One token: the blocks ascending, in one chain, in canonical shards or of one shard alone. */
static void sum_blocks(const tile *t, const pl_linear_job *job, const uint8_t *scales,
                       add_block_fn *add, float total[LANES])
{
    int64_t nb = t->n_blocks, n_shards = job->n_shards ? job->n_shards : 1;

    for (int r = 0; r < LANES; r++)
        total[r] = 0;
    for (int64_t s = 0; s < n_shards; s++) {
        int64_t stop = (s + 1) * nb / n_shards;
        float acc[LANES] = {0};

        if (s * nb / n_shards == stop || (job->one_shard && s != job->one_shard - 1))
            continue;
        for (int64_t b = s * nb / n_shards; b < stop; b++)
            add(t, job, scales, b, acc);
        for (int r = 0; r < LANES; r++)
            total[r] = job->n_shards && !job->one_shard ? total[r] + acc[r] : acc[r];
    }
}

static void run(const pl_op_env *env, const pl_linear_job *job, int64_t begin, int64_t end,
                add_block_fn *add, bool quantised)
{
    for (int64_t unit = begin; unit < end; unit++) {
        tile t = open_tile(env, job, unit);

        if (job->n == 0)
            return;
        widen_weights(&t, &job->w);
        for (int64_t i = 0; i < job->n; i++) {
            int64_t from = job->rows ? job->rows[i] : i;
            const uint8_t *x = (const uint8_t *)job->x + from * job->x_stride;
            uint8_t *y = (uint8_t *)job->y + i * job->y_stride;
            float sum[LANES];

            if (quantised)
                widen_codes(&t, x);
            else
                widen_act(&t, (const uint16_t *)x, job->w.cols);
            sum_blocks(&t, job, quantised ? x + t.n_blocks * BLOCK : NULL, add, sum);
            for (int64_t r = 0; r < t.n_rows; r++) {
                if (job->out == PL_LINEAR_ACC)
                    ((float *)y)[unit * LANES + r] = sum[r];
                else
                    ((uint16_t *)y)[unit * LANES + r] = pl_f32_to_bf16(sum[r]);
            }
        }
    }
}

void pl__scalar_linear_fp8(const pl_op_env *env, const pl_linear_job *job, int64_t begin,
                           int64_t end)
{
    run(env, job, begin, end, add_fp8, true);
}

void pl__scalar_linear_fp8_a16(const pl_op_env *env, const pl_linear_job *job, int64_t begin,
                               int64_t end)
{
    run(env, job, begin, end, add_fp8_a16, false);
}

void pl__scalar_linear_fp4(const pl_op_env *env, const pl_linear_job *job, int64_t begin,
                           int64_t end)
{
    run(env, job, begin, end, add_fp4, true);
}

void pl__scalar_linear_bf16(const pl_op_env *env, const pl_linear_job *job, int64_t begin,
                            int64_t end)
{
    run(env, job, begin, end, add_bf16, false);
}
