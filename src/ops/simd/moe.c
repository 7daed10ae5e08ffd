/* The gated unit and the experts' sum for vector levels (NUMERICS 12). */
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
