/* Level scalar: RMS norm, the query's head norm, rotations, the Hadamard transform (NUMERICS 7). */
#include "ops/scalar/scalar.h"

#include "ops/hadamard.h"
#include "ops/rope_table.h"

float pl__scalar_sum_squares(const uint16_t *x, int64_t n)
{
    float acc = 0;

    for (int64_t b = 0; b < n; b += PL_QUANT_BLOCK) {
        float p = 0;
        for (int64_t i = b; i < b + PL_QUANT_BLOCK; i += 2) {
            float x0 = i < n ? pl_bf16_to_f32(x[i]) : 0;
            float x1 = i + 1 < n ? pl_bf16_to_f32(x[i + 1]) : 0;
            p = pl__pair(p, x0, x0, x1, x1);
        }
        acc += p;
    }
    return acc;
}

float pl__scalar_rsqrt(float mean, float eps)
{
    return 1.0f / pl_sqrt_f32(mean + eps);
}

void pl__scalar_rms_norm(const pl_op_env *env, const pl_rms_norm_args *a, int64_t begin,
                         int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const uint16_t *x = (const uint16_t *)a->x + row * a->dim;
        uint16_t *y = (uint16_t *)a->y + row * a->dim;
        float r = pl__scalar_rsqrt(pl__scalar_sum_squares(x, a->dim) / (float)a->dim, a->eps);

        for (int64_t i = 0; i < a->dim; i++)
            y[i] = pl_f32_to_bf16(pl__bf16_at(&a->w, i) * (pl_bf16_to_f32(x[i]) * r));
    }
}

void pl__scalar_rope_angles(const pl_op_env *env, const pl_rope_angles_args *a, int64_t begin,
                            int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        pl_rope_table_row(a->freq, a->position[row], (float *)a->cos + row * PL_ROPE_PAIRS,
                          (float *)a->sin + row * PL_ROPE_PAIRS);
}

void pl__scalar_rotate(const pl_angles *angles, int64_t t, bool inverse, float *x)
{
    const float *cosines = (const float *)angles->cos + t * PL_ROPE_PAIRS;
    const float *sines = (const float *)angles->sin + t * PL_ROPE_PAIRS;

    for (int i = 0; i < PL_ROPE_PAIRS; i++) {
        float a = x[2 * i], b = x[2 * i + 1], c = cosines[i], s = inverse ? -sines[i] : sines[i];

        x[2 * i] = a * c - b * s;
        x[2 * i + 1] = a * s + b * c;
    }
}

void pl__scalar_q_norm_rope(const pl_op_env *env, const pl_q_norm_rope_args *a, int64_t begin,
                            int64_t end)
{
    for (int64_t u = begin; u < end; u++) {
        uint16_t *q = (uint16_t *)a->q + u * PL_HEAD_DIM;
        float mean = pl__scalar_sum_squares(q, PL_HEAD_DIM) / (float)PL_HEAD_DIM;
        float r = pl__scalar_rsqrt(mean, a->eps), x[PL_HEAD_DIM];

        for (int i = 0; i < PL_HEAD_DIM; i++)
            x[i] = pl_bf16_to_f32(q[i]) * r;
        pl__scalar_rotate(&a->angles, u / a->n_heads, false, x + PL_NOPE_DIM);
        for (int i = 0; i < PL_HEAD_DIM; i++)
            q[i] = pl_f32_to_bf16(x[i]);
    }
}

/* The 64 dims at x. */
static void rotate_rounded(const pl_angles *angles, int64_t t, bool inverse, uint16_t *x)
{
    float wide[PL_ROPE_DIM];

    for (int i = 0; i < PL_ROPE_DIM; i++)
        wide[i] = pl_bf16_to_f32(x[i]);
    pl__scalar_rotate(angles, t, inverse, wide);
    for (int i = 0; i < PL_ROPE_DIM; i++)
        x[i] = pl_f32_to_bf16(wide[i]);
}

void pl__scalar_unrope(const pl_op_env *env, const pl_unrope_args *a, int64_t begin, int64_t end)
{
    for (int64_t u = begin; u < end; u++)
        rotate_rounded(&a->angles, u / a->n_heads, true,
                       (uint16_t *)a->o + u * PL_HEAD_DIM + PL_NOPE_DIM);
}

void pl__scalar_rope(const pl_op_env *env, const pl_rope_args *a, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++)
        for (int32_t h = 0; h < a->n_heads; h++)
            rotate_rounded(&a->angles, t, a->inverse,
                           (uint16_t *)a->x + t * a->token_stride + h * a->head_stride + a->dim -
                               PL_ROPE_DIM);
}

void pl__scalar_hadamard(const pl_op_env *env, const pl_hadamard_args *a, int64_t begin,
                         int64_t end)
{
    for (int64_t r = begin; r < end; r++) {
        float x[PL_INDEX_DIM];

        for (int i = 0; i < PL_INDEX_DIM; i++)
            x[i] = pl_bf16_to_f32(((const uint16_t *)a->x)[r * PL_INDEX_DIM + i]);
        pl_hadamard128(x);
        for (int i = 0; i < PL_INDEX_DIM; i++)
            ((uint16_t *)a->y)[r * PL_INDEX_DIM + i] = pl_f32_to_bf16(x[i]);
    }
}
