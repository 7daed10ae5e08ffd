/* The gated units and the experts' sum for vector levels (NUMERICS 12). */
#include "ops/simd/vec.h"

INLINE vf gated(vf x, vf up, vf limit)
{
    x = vf_select(vf_gt(x, limit), limit, x);
    up = vf_select(vf_gt(up, limit), limit, up);
    up = vf_select(vf_gt(vf_negate(limit), up), vf_negate(limit), up);
    return vf_mul(vf_mul(x, vf_sigmoid(x)), up);
}

void PL__AT(swiglu)(const pl_op_env *env, const pl_swiglu_args *a, int64_t begin, int64_t end)
{
    if (a->dim % LANES) { /* no model has such rows */
        pl__scalar_swiglu(env, a, begin, end);
        return;
    }
    for (int64_t r = begin; r < end; r++) {
        const uint16_t *g = (const uint16_t *)a->g + r * a->dim;
        const uint16_t *u = (const uint16_t *)a->u + r * a->dim;
        uint16_t *y = (uint16_t *)a->a + r * a->dim;
        int32_t at = a->weight_at[r];
        vf w = vf_set(at >= 0 ? ((const float *)a->weight)[at] : 0);

        for (int64_t i = 0; i < a->dim; i += LANES) {
            vf v = gated(vf_load_bf16(g + i), vf_load_bf16(u + i), vf_set(a->limit));
            vf_store_bf16(y + i, at >= 0 ? vf_mul(v, w) : v);
        }
    }
}

INLINE vf gated7(vf g, vf l)
{
    const vf seven = vf_set(7.0f);

    g = vf_select(vf_gt(g, seven), seven, g);
    l = vf_select(vf_gt(l, seven), seven, l);
    l = vf_select(vf_gt(vf_negate(seven), l), vf_negate(seven), l);
    return vf_mul(vf_mul(g, vf_sigmoid(vf_mul(vf_set(1.702f), g))), vf_add(l, vf_set(1.0f)));
}

/* LANES pairs: a pair of bf16 numbers is a word, those of floats are sorted by quarters first. */
INLINE void load_pairs(const void *x, int64_t pair, bool wide, vf *g, vf *l)
{
    if (wide) {
        vf a = vf_load((const float *)x + 2 * pair),
           b = vf_load((const float *)x + 2 * pair + LANES);
        vf low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
        *g = _mm256_shuffle_ps(low, high, 0x88);
        *l = _mm256_shuffle_ps(low, high, 0xDD);
    } else {
        vi w = _mm256_loadu_si256((const __m256i *)((const uint16_t *)x + 2 * pair));
        *g = vf_from_bits(_mm256_slli_epi32(w, 16));
        *l = vf_from_bits(_mm256_and_si256(w, _mm256_set1_epi32((int)0xFFFF0000)));
    }
}

void PL__AT(swiglu7)(const pl_op_env *env, const pl_swiglu7_args *a, int64_t begin, int64_t end)
{
    int64_t i = begin * a->dim, stop = end * a->dim;

    if (a->dim % LANES) {
        pl__scalar_swiglu7(env, a, begin, end);
        return;
    }
    for (; i < stop; i += LANES) {
        vf g, l;

        if (a->interleaved) {
            load_pairs(a->g, i, a->wide, &g, &l);
        } else if (a->wide) {
            g = vf_load((const float *)a->g + i);
            l = vf_load((const float *)a->l + i);
        } else {
            g = vf_load_bf16((const uint16_t *)a->g + i);
            l = vf_load_bf16((const uint16_t *)a->l + i);
        }
        vf_store_bf16((uint16_t *)a->a + i, gated7(g, l));
    }
}

INLINE vf expert_sum(const pl_moe_sum_args *a, const int32_t *ids, const int32_t *rows, int64_t i)
{
    vf total = vf_zero();

    for (int32_t j = 0, s = 0; s < a->n_shards; s++) {
        int64_t stop = (int64_t)(s + 1) * a->n_experts / a->n_shards;
        vf part = vf_zero();

        for (; j < a->top_k && ids[j] < stop; j++)
            part = vf_add(part, vf_load_bf16((const uint16_t *)a->y + rows[j] * a->dim + i));
        total = vf_add(total, part);
    }
    return total;
}

void PL__AT(moe_sum)(const pl_op_env *env, const pl_moe_sum_args *a, int64_t begin, int64_t end)
{
    if (a->dim % LANES) {
        pl__scalar_moe_sum(env, a, begin, end);
        return;
    }
    for (int64_t t = begin; t < end; t++)
        for (int64_t i = 0; i < a->dim; i += LANES) {
            vf total = expert_sum(a, a->ids + t * a->top_k, a->rows + t * a->top_k, i);
            vf shared = vf_load_bf16((const uint16_t *)a->shared + t * a->dim + i);

            vf_store_bf16((uint16_t *)a->f + t * a->dim + i, vf_add(total, shared));
        }
}
