/* RMS norm, the query's head norm and rotations for vector levels (NUMERICS 7). */
#include "ops/simd/rotate.h"
#include "ops/simd/sums.h"

void PL__AT(rms_norm)(const pl_op_env *env, const pl_rms_norm_args *a, int64_t begin, int64_t end)
{
    const uint16_t *w = a->w.data;

    for (int64_t row = begin; row < end; row++) {
        const uint16_t *x = (const uint16_t *)a->x + row * a->dim;
        uint16_t *y = (uint16_t *)a->y + row * a->dim;
        float r = pl__scalar_rsqrt(vf_sum_squares(x, a->dim) / (float)a->dim, a->eps);
        int64_t i = 0;

        for (; i + LANES <= a->dim; i += LANES)
            vf_store_bf16(y + i,
                          vf_mul(vf_load_bf16(w + i), vf_mul(vf_load_bf16(x + i), vf_set(r))));
        for (; i < a->dim; i++)
            y[i] = pl_f32_to_bf16(pl_bf16_to_f32(w[i]) * (pl_bf16_to_f32(x[i]) * r));
    }
}

void PL__AT(q_norm_rope)(const pl_op_env *env, const pl_q_norm_rope_args *a, int64_t begin,
                         int64_t end)
{
    enum { BLOCKS = PL_HEAD_DIM / PL_QUANT_BLOCK, HEADS = LANES / BLOCKS };

    for (int64_t u = begin; u < end; u += HEADS) {
        const uint16_t *blocks[LANES];
        float sums[LANES];

        for (int i = 0; i < LANES; i++) {
            int64_t head = u + i / BLOCKS < end ? u + i / BLOCKS : u;
            blocks[i] = (const uint16_t *)a->q + head * PL_HEAD_DIM + i % BLOCKS * PL_QUANT_BLOCK;
        }
        vf_square_sums(blocks, sums);
        for (int h = 0; h < HEADS && u + h < end; h++) {
            uint16_t *q = (uint16_t *)a->q + (u + h) * PL_HEAD_DIM;
            float ss = 0;
            vf r;

            for (int i = 0; i < BLOCKS; i++)
                ss += sums[h * BLOCKS + i];
            r = vf_set(pl__scalar_rsqrt(ss / (float)PL_HEAD_DIM, a->eps));
            for (int d = 0; d < PL_NOPE_DIM; d += LANES)
                vf_store_bf16(q + d, vf_mul(vf_load_bf16(q + d), r));
            vf_rotate(&a->angles, (u + h) / a->n_heads, false, r, q + PL_NOPE_DIM);
        }
    }
}

void PL__AT(unrope)(const pl_op_env *env, const pl_unrope_args *a, int64_t begin, int64_t end)
{
    for (int64_t u = begin; u < end; u++)
        vf_rotate(&a->angles, u / a->n_heads, true, vf_set(1.0f),
                  (uint16_t *)a->o + u * PL_HEAD_DIM + PL_NOPE_DIM);
}

void PL__AT(rope)(const pl_op_env *env, const pl_rope_args *a, int64_t begin, int64_t end)
{
    const vf one = vf_set(1.0f);

    for (int64_t t = begin; t < end; t++)
        for (int32_t h = 0; h < a->n_heads; h++)
            vf_rotate(&a->angles, t, a->inverse, one,
                      (uint16_t *)a->x + t * a->token_stride + h * a->head_stride + a->dim -
                          PL_ROPE_DIM);
}
