/* The compressor for vector levels (NUMERICS 10): channels in lanes, each with the recurrence of the scalar form. */
#include "ops/simd/vec.h"

enum { R4 = 4, R128 = 128 };

/* 8 rows of LANES channels; score is used up. */
INLINE vf pool8(const vf kv[2 * R4], vf score[2 * R4])
{
    vf m = vf_set(-INFINITY), den, pooled;

    UNROLL
    for (int r = 0; r < 2 * R4; r++)
        m = vf_max(score[r], m);
    UNROLL
    for (int r = 0; r < 2 * R4; r++)
        score[r] = vf_exp(vf_sub(score[r], m));
    den = score[0];
    UNROLL
    for (int r = 1; r < 2 * R4; r++)
        den = vf_add(den, score[r]);
    pooled = vf_mul(vf_div(score[0], den), kv[0]);
    UNROLL
    for (int r = 1; r < 2 * R4; r++)
        pooled = vf_add(pooled, vf_mul(vf_div(score[r], den), kv[r]));
    return pooled;
}

/* The entry of channels c .. c + LANES - 1; the current window becomes the previous one. */
INLINE void finish4(float *state, int64_t dim, int64_t c, uint16_t *out)
{
    float *prev_kv = state + c, *prev_score = prev_kv + R4 * dim;
    const float *now_kv = state + 2 * R4 * dim + c, *now_score = now_kv + 2 * R4 * dim;
    vf kv[2 * R4], score[2 * R4];

    for (int64_t r = 0; r < R4; r++) {
        kv[r] = vf_load(prev_kv + r * dim);
        score[r] = vf_load(prev_score + r * dim);
        kv[R4 + r] = vf_load(now_kv + r * 2 * dim + dim);
        score[R4 + r] = vf_load(now_score + r * 2 * dim + dim);
    }
    vf_store_bf16(out + c, pool8(kv, score));
    for (int64_t r = 0; r < R4; r++) {
        vf_store(prev_kv + r * dim, vf_load(now_kv + r * 2 * dim));
        vf_store(prev_score + r * dim, vf_load(now_score + r * 2 * dim));
    }
}

static void compress4(const pl_compress_args *a, const pl_compress_job *job, int64_t c0, int64_t c1)
{
    const int64_t dim = a->dim, width = 2 * dim;
    float *kv = (float *)job->state + 2 * R4 * dim, *score = kv + R4 * width;
    uint16_t *out = job->pooled;

    for (int64_t i = 0; i < job->n; i++) {
        const int64_t row = (job->start + i) % R4;
        const float *from = (const float *)job->kv + i * width;
        const float *gate = (const float *)job->gate + i * width;
        const float *ape = (const float *)a->ape.data + row * width;

        for (int64_t half = 0; half < width; half += dim)
            for (int64_t c = half + c0; c < half + c1; c += LANES) {
                vf_store(kv + row * width + c, vf_load(from + c));
                vf_store(score + row * width + c, vf_add(vf_load(gate + c), vf_load(ape + c)));
            }
        if (row != R4 - 1)
            continue;
        for (int64_t c = c0; c < c1; c += LANES)
            finish4(job->state, dim, c, out);
        out += dim;
    }
}

static void compress128(const pl_compress_args *a, const pl_compress_job *job, int64_t c0,
                        int64_t c1)
{
    const int64_t dim = a->dim;
    float *max = job->state, *den = max + dim, *num = den + dim;
    uint16_t *out = job->pooled;

    for (int64_t i = 0; i < job->n; i++) {
        const int64_t row = (job->start + i) % R128;
        const float *kv = (const float *)job->kv + i * dim;
        const float *gate = (const float *)job->gate + i * dim;
        const float *ape = (const float *)a->ape.data + row * dim;

        for (int64_t c = c0; c < c1; c += LANES) {
            vf score = vf_add(vf_load(gate + c), vf_load(ape + c));
            vf old = row ? vf_load(max + c) : vf_set(-INFINITY);
            vf d = row ? vf_load(den + c) : vf_zero(), n = row ? vf_load(num + c) : vf_zero();
            vf m = vf_max(score, old), keep = vf_exp(vf_sub(old, m));
            vf e = vf_exp(vf_sub(score, m));

            d = vf_add(vf_mul(d, keep), e);
            n = vf_add(vf_mul(n, keep), vf_mul(e, vf_load(kv + c)));
            vf_store(max + c, m);
            vf_store(den + c, d);
            vf_store(num + c, n);
            if (row == R128 - 1)
                vf_store_bf16(out + c, vf_div(n, d));
        }
        if (row == R128 - 1)
            out += dim;
    }
}

void PL__AT(compress)(const pl_op_env *env, const pl_compress_args *a, int64_t begin, int64_t end)
{
    const int64_t tiles = a->dim / PL_COMPRESS_TILE;

    for (int64_t u = begin; u < end; u++) {
        const pl_compress_job *job = &a->jobs[u / tiles];
        const int64_t c0 = u % tiles * PL_COMPRESS_TILE;

        if (a->ratio == R4)
            compress4(a, job, c0, c0 + PL_COMPRESS_TILE);
        else
            compress128(a, job, c0, c0 + PL_COMPRESS_TILE);
    }
}
