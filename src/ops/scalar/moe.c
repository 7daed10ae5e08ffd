/* Level scalar: router, gated units, the experts' sum (NUMERICS 12). */
#include "ops/scalar/scalar.h"

#include <string.h>

#include "ops/topk.h"

static void choose(const pl_op_env *env, const pl_route_args *a, const float *score, int32_t *ids)
{
    double *scores = env->scratch;
    pl_topk best = {scores, (int32_t *)(scores + a->top_k), 0, a->top_k};

    for (int32_t e = 0; e < a->n_experts; e++)
        pl_topk_push(&best, (double)(score[e] + pl__f32_at(&a->bias, e)), e);
    pl_topk_sort_by_score(&best);
    for (int32_t i = 0; i < a->top_k; i++)
        ids[i] = best.entry[i];
}

void pl__scalar_route(const pl_op_env *env, const pl_route_args *a, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        float *score = (float *)a->score + t * a->n_experts;
        int32_t *ids = a->ids + t * a->top_k;

        for (int32_t e = 0; e < a->n_experts; e++)
            score[e] = pl_sqrt_f32(pl_softplus_f32(score[e]));
        if (!a->by_token) {
            choose(env, a, score, ids);
            continue;
        }
        for (int32_t i = 0; i < a->top_k; i++)
            ids[i] =
                (int32_t)((const int64_t *)a->table.data)[a->tokens[t] * (int64_t)a->top_k + i];
    }
}

void pl__scalar_route_weights(const pl_op_env *env, const pl_route_weights_args *a, int64_t begin,
                              int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        const float *score = (const float *)a->score + t * a->n_experts;
        const int32_t *ids = a->ids + t * a->top_k;
        float *weight = (float *)a->weight + t * a->top_k, sum = score[ids[0]];

        for (int32_t i = 1; i < a->top_k; i++)
            sum = sum + score[ids[i]];
        for (int32_t i = 0; i < a->top_k; i++)
            weight[i] = score[ids[i]] / sum * a->scale;
    }
}

void pl__scalar_swiglu(const pl_op_env *env, const pl_swiglu_args *a, int64_t begin, int64_t end)
{
    float lim = a->limit;

    for (int64_t r = begin; r < end; r++) {
        const uint16_t *g = (const uint16_t *)a->g + r * a->dim;
        const uint16_t *u = (const uint16_t *)a->u + r * a->dim;
        uint16_t *y = (uint16_t *)a->a + r * a->dim;
        int32_t at = a->weight_at[r];

        for (int64_t i = 0; i < a->dim; i++) {
            float x = pl_bf16_to_f32(g[i]), up = pl_bf16_to_f32(u[i]), v;

            x = x > lim ? lim : x;
            up = up > lim ? lim : up;
            up = up < -lim ? -lim : up;
            v = x * pl_sigmoid_f32(x) * up;
            if (at >= 0)
                v = v * ((const float *)a->weight)[at];
            y[i] = pl_f32_to_bf16(v);
        }
    }
}

static float element(const void *x, int64_t i, bool wide)
{
    return wide ? ((const float *)x)[i] : pl_bf16_to_f32(((const uint16_t *)x)[i]);
}

void pl__scalar_swiglu7(const pl_op_env *env, const pl_swiglu7_args *a, int64_t begin, int64_t end)
{
    for (int64_t i = begin * a->dim; i < end * a->dim; i++) {
        float g = element(a->g, a->interleaved ? 2 * i : i, a->wide), l;

        l = a->interleaved ? element(a->g, 2 * i + 1, a->wide) : element(a->l, i, a->wide);
        g = g > 7.0f ? 7.0f : g;
        l = l > 7.0f ? 7.0f : l;
        l = l < -7.0f ? -7.0f : l;
        ((uint16_t *)a->a)[i] = pl_f32_to_bf16(g * pl_sigmoid_f32(1.702f * g) * (l + 1.0f));
    }
}

void pl__scalar_moe_sum(const pl_op_env *env, const pl_moe_sum_args *a, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        const int32_t *ids = a->ids + t * a->top_k, *rows = a->rows + t * a->top_k;

        for (int64_t i = 0; i < a->dim; i++) {
            float total = 0;

            for (int32_t j = 0, s = 0; s < a->n_shards; s++) {
                int64_t stop = (int64_t)(s + 1) * a->n_experts / a->n_shards;
                float part = 0;

                for (; j < a->top_k && ids[j] < stop; j++)
                    part = part + pl_bf16_to_f32(((const uint16_t *)a->y)[rows[j] * a->dim + i]);
                total = total + part;
            }
            total = total + pl_bf16_to_f32(((const uint16_t *)a->shared)[t * a->dim + i]);
            ((uint16_t *)a->f)[t * a->dim + i] = pl_f32_to_bf16(total);
        }
    }
}

void pl__scalar_moe_parts(const pl_op_env *env, const pl_moe_parts_args *a, int64_t begin,
                          int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        const int32_t *ids = a->ids + t * a->top_k, *rows = a->rows + t * a->top_k;

        for (int32_t j = 0, s = a->shard; s < a->shard_end; s++) {
            int64_t first = (int64_t)s * a->n_experts / a->n_shards;
            int64_t stop = (int64_t)(s + 1) * a->n_experts / a->n_shards;
            float *part = (float *)((uint8_t *)a->part + s * a->part_bytes) + t * a->dim;

            memset(part, 0, (size_t)a->dim * sizeof *part);
            while (j < a->top_k && ids[j] < first)
                j++;
            for (; j < a->top_k && ids[j] < stop; j++) {
                const uint16_t *y = (const uint16_t *)a->y + rows[j] * a->dim;
                for (int64_t i = 0; i < a->dim; i++)
                    part[i] = part[i] + pl_bf16_to_f32(y[i]);
            }
        }
    }
}

void pl__scalar_shard_sum(const pl_op_env *env, const pl_shard_sum_args *a, int64_t begin,
                          int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        for (int64_t i = t * a->dim; i < (t + 1) * a->dim; i++) {
            float total = 0;

            for (int32_t s = 0; s < a->n_shards; s++) {
                const float *part = (const float *)((const uint8_t *)a->part + s * a->part_bytes);
                if (s * a->n_items / a->n_shards < (s + 1) * a->n_items / a->n_shards)
                    total = total + part[i];
            }
            if (a->shared)
                total = total + pl_bf16_to_f32(((const uint16_t *)a->shared)[i]);
            ((uint16_t *)a->y)[i] = pl_f32_to_bf16(total);
        }
    }
}
