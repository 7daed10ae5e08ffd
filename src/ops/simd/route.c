/* The router for vector levels (NUMERICS 12): scores of LANES experts at once; of a full heap only those that beat its
 * worst are looked at one by one. */
#include "ops/simd/elementary.h"
#include "ops/topk.h"

INLINE vf score_of(vf x)
{
    return _mm256_sqrt_ps(vf_softplus(x));
}

INLINE void form_scores(float *score, int32_t n)
{
    float last[LANES] = {0};
    int32_t e = 0;

    for (; e + LANES <= n; e += LANES)
        vf_store(score + e, score_of(vf_load(score + e)));
    for (int32_t i = e; i < n; i++)
        last[i - e] = score[i];
    vf_store(last, score_of(vf_load(last)));
    for (int32_t i = e; i < n; i++)
        score[i] = last[i - e];
}

/* Entries are pushed ascending, so that one equal to the worst loses: it would have to be greater. The worst is a float
 * again, and a NaN is not greater. */
static void choose(const pl_op_env *env, const pl_route_args *a, const float *score, int32_t *ids)
{
    const float *bias = a->bias.data;
    double *scores = env->scratch;
    pl_topk best = {scores, (int32_t *)(scores + a->top_k), 0, a->top_k};
    int32_t e = 0;

    for (; e < a->n_experts && best.n < best.max; e++)
        pl_topk_push(&best, (double)(score[e] + bias[e]), e);
    for (; e + LANES <= a->n_experts; e += LANES) {
        vf sum = vf_add(vf_load(score + e), vf_load(bias + e));
        uint32_t above = (uint32_t)_mm256_movemask_ps(vf_gt(sum, vf_set((float)best.score[0])));

        for (; above; above &= above - 1) {
            int32_t i = e + __builtin_ctz(above);
            pl_topk_push(&best, (double)(score[i] + bias[i]), i);
        }
    }
    for (; e < a->n_experts; e++)
        pl_topk_push(&best, (double)(score[e] + bias[e]), e);
    pl_topk_sort_by_score(&best);
    for (int32_t i = 0; i < a->top_k; i++)
        ids[i] = best.entry[i];
}

void PL__AT(route)(const pl_op_env *env, const pl_route_args *a, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        float *score = (float *)a->score + t * a->n_experts;
        int32_t *ids = a->ids + t * a->top_k;

        form_scores(score, a->n_experts);
        if (!a->by_token) {
            choose(env, a, score, ids);
            continue;
        }
        for (int32_t i = 0; i < a->top_k; i++)
            ids[i] =
                (int32_t)((const int64_t *)a->table.data)[a->tokens[t] * (int64_t)a->top_k + i];
    }
}
