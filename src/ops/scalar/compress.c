/* Level scalar: the compressor's recurrences and indexer keys (NUMERICS 10, 11).
 *
 * Pool states, floats:
 *   ratio 128  max[dim], den[dim], num[dim]
 *   ratio 4    previous window [4][dim] kv, [4][dim] score (its first half, all that is still needed);
 *              current window [4][2 dim] kv, [4][2 dim] score */
#include "ops/scalar/scalar.h"

#include <math.h>

#include "ops/hadamard.h"
#include "ops/quant.h"

enum { R4 = 4, R128 = 128 };

typedef struct windows {
    float *prev_kv, *prev_score, *kv, *score;
} windows;

static windows windows_of(void *state, int64_t dim)
{
    float *f = state;

    return (windows){f, f + R4 * dim, f + 2 * R4 * dim, f + 4 * R4 * dim};
}

uint64_t pl__scalar_compress_state_bytes(int32_t ratio, int32_t dim)
{
    return sizeof(float) * (uint64_t)dim * (ratio == R4 ? 6 * R4 : 3);
}

void pl__scalar_compress_reset(void *state, int32_t ratio, int32_t dim)
{
    float *f = state;

    for (int64_t i = 0; i < (ratio == R4 ? 6 * R4 : 3) * (int64_t)dim; i++)
        f[i] = 0;
    if (ratio == R4)
        for (int64_t i = 0; i < R4 * (int64_t)dim; i++)
            windows_of(state, dim).prev_score[i] = -INFINITY;
    else
        for (int64_t i = 0; i < dim; i++)
            f[i] = -INFINITY;
}

/* 8 rows of one channel: the previous window's first half, then the current one's second half. */
static float pool8(const windows *w, int64_t dim, int64_t c)
{
    float kv[2 * R4], score[2 * R4], m = -INFINITY, den, pooled;

    for (int r = 0; r < R4; r++) {
        kv[r] = w->prev_kv[r * dim + c];
        score[r] = w->prev_score[r * dim + c];
        kv[R4 + r] = w->kv[r * 2 * dim + dim + c];
        score[R4 + r] = w->score[r * 2 * dim + dim + c];
    }
    for (int r = 0; r < 2 * R4; r++)
        m = pl_max_f32(score[r], m);
    for (int r = 0; r < 2 * R4; r++)
        score[r] = pl_exp_f32(score[r] - m);
    den = score[0];
    for (int r = 1; r < 2 * R4; r++)
        den = den + score[r];
    pooled = score[0] / den * kv[0];
    for (int r = 1; r < 2 * R4; r++)
        pooled = pooled + score[r] / den * kv[r];
    return pooled;
}

static void compress4(const pl_compress_args *a, const pl_compress_job *job, int64_t c0, int64_t c1)
{
    int64_t dim = a->dim, width = 2 * dim;
    windows w = windows_of(job->state, dim);
    uint16_t *out = job->pooled;

    for (int64_t i = 0; i < job->n; i++) {
        int64_t row = (job->start + i) % R4;
        const float *kv = (const float *)job->kv + i * width;
        const float *gate = (const float *)job->gate + i * width;

        for (int64_t c = c0; c < c1; c++)
            for (int64_t half = c; half < width; half += dim) {
                w.kv[row * width + half] = kv[half];
                w.score[row * width + half] = gate[half] + pl__f32_at(&a->ape, row * width + half);
            }
        if (row != R4 - 1)
            continue;
        for (int64_t c = c0; c < c1; c++) {
            out[c] = pl_f32_to_bf16(pool8(&w, dim, c));
            for (int64_t r = 0; r < R4; r++) {
                w.prev_kv[r * dim + c] = w.kv[r * width + c];
                w.prev_score[r * dim + c] = w.score[r * width + c];
            }
        }
        out += dim;
    }
}

static void compress128(const pl_compress_args *a, const pl_compress_job *job, int64_t c0,
                        int64_t c1)
{
    int64_t dim = a->dim;
    float *max = job->state, *den = max + dim, *num = den + dim;
    uint16_t *out = job->pooled;

    for (int64_t i = 0; i < job->n; i++) {
        int64_t row = (job->start + i) % R128;
        const float *kv = (const float *)job->kv + i * dim;
        const float *gate = (const float *)job->gate + i * dim;

        for (int64_t c = c0; c < c1; c++) {
            float score = gate[c] + pl__f32_at(&a->ape, row * dim + c), m, keep, e;

            if (row == 0) {
                max[c] = -INFINITY;
                den[c] = num[c] = 0;
            }
            m = pl_max_f32(score, max[c]);
            keep = pl_exp_f32(max[c] - m);
            e = pl_exp_f32(score - m);
            den[c] = den[c] * keep + e;
            num[c] = num[c] * keep + e * kv[c];
            max[c] = m;
            if (row == R128 - 1)
                out[c] = pl_f32_to_bf16(num[c] / den[c]);
        }
        if (row == R128 - 1)
            out += dim;
    }
}

void pl__scalar_compress(const pl_op_env *env, const pl_compress_args *a, int64_t begin,
                         int64_t end)
{
    int64_t tiles = a->dim / PL_COMPRESS_TILE;

    for (int64_t u = begin; u < end; u++) {
        const pl_compress_job *job = &a->jobs[u / tiles];
        int64_t c0 = u % tiles * PL_COMPRESS_TILE;

        if (a->ratio == R4)
            compress4(a, job, c0, c0 + PL_COMPRESS_TILE);
        else
            compress128(a, job, c0, c0 + PL_COMPRESS_TILE);
    }
}

/* Rotation, Hadamard, e2m1: a key or an indexer query. */
static void store_index_row(const pl_angles *angles, int64_t t, const uint16_t *y,
                            const pl_rows *rows, int64_t index)
{
    uint16_t row[PL_INDEX_DIM];
    float x[PL_INDEX_DIM];

    for (int i = 0; i < PL_INDEX_DIM; i++)
        x[i] = pl_bf16_to_f32(y[i]);
    pl__scalar_rotate(angles, t, false, x + PL_INDEX_DIM - PL_ROPE_DIM);
    for (int i = 0; i < PL_INDEX_DIM; i++)
        x[i] = pl_bf16_round(x[i]);
    pl_hadamard128(x);
    for (int i = 0; i < PL_INDEX_DIM; i++)
        row[i] = pl_f32_to_bf16(x[i]);
    pl_quant_e2m1(row, PL_INDEX_DIM, pl_rows_data(rows, index), pl_rows_scales(rows, index));
}

void pl__scalar_key_store(const pl_op_env *env, const pl_key_store_args *a, int64_t begin,
                          int64_t end)
{
    for (int64_t r = begin; r < end; r++)
        store_index_row(&a->angles, r, (const uint16_t *)a->y + r * PL_INDEX_DIM, a->dest[r].rows,
                        a->dest[r].index);
}

void pl__scalar_index_query(const pl_op_env *env, const pl_index_query_args *a, int64_t begin,
                            int64_t end)
{
    for (int64_t u = begin; u < end; u++)
        store_index_row(&a->angles, u / a->n_heads, (const uint16_t *)a->q + u * PL_INDEX_DIM,
                        &a->out, u);
}
