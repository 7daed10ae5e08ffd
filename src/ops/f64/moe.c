/* Level f64: router, gated unit, sum of the experts (specification section 5). */
#include "ops/f64/f64.h"

#include "ops/topk.h"

void pl__f64_route(const pl_op_env *env, const pl_route_args *a, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        double *score = (double *)a->score + t * a->n_experts;
        int32_t *ids = a->ids + t * a->top_k;
        pl_topk best = {env->scratch, ids, 0, a->top_k};

        for (int32_t e = 0; e < a->n_experts; e++)
            score[e] = pl__f64_acc(env, pl_sqrt_f64(pl_softplus_f64(score[e])));
        if (a->by_token) {
            const int64_t *table = a->table.data;
            for (int32_t j = 0; j < a->top_k; j++)
                ids[j] = (int32_t)table[(int64_t)a->tokens[t] * a->top_k + j];
            continue;
        }
        for (int32_t e = 0; e < a->n_experts; e++)
            pl_topk_push(&best, pl__f64_acc(env, score[e] + pl__f64_weight(&a->bias, e)), e);
        pl_topk_sort_by_score(&best);
    }
}

void pl__f64_route_weights(const pl_op_env *env, const pl_route_weights_args *a, int64_t begin,
                           int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        const double *score = (const double *)a->score + t * a->n_experts;
        const int32_t *ids = a->ids + t * a->top_k;
        double *weight = (double *)a->weight + t * a->top_k, sum = 0;

        for (int32_t j = 0; j < a->top_k; j++)
            sum += score[ids[j]];
        sum = pl__f64_acc(env, sum);
        for (int32_t j = 0; j < a->top_k; j++)
            weight[j] = pl__f64_acc(env, pl__f64_acc(env, score[ids[j]] / sum) * (double)a->scale);
    }
}

void pl__f64_swiglu(const pl_op_env *env, const pl_swiglu_args *a, int64_t begin, int64_t end)
{
    double limit = (double)a->limit;

    for (int64_t r = begin; r < end; r++) {
        for (int64_t i = r * a->dim; i < (r + 1) * a->dim; i++) {
            double g = ((const double *)a->g)[i], u = ((const double *)a->u)[i], v;

            g = g > limit ? limit : g;
            u = u > limit ? limit : u < -limit ? -limit : u;
            v = pl__f64_acc(env, pl__f64_acc(env, g * pl__f64_sigmoid(env, g)) * u);
            if (a->weight_at[r] >= 0)
                v = pl__f64_acc(env, v * ((const double *)a->weight)[a->weight_at[r]]);
            ((double *)a->a)[i] = pl__f64_act(env, v);
        }
    }
}

void pl__f64_moe_sum(const pl_op_env *env, const pl_moe_sum_args *a, int64_t begin, int64_t end)
{
    const double *y = a->y;

    for (int64_t t = begin; t < end; t++)
        for (int64_t i = 0; i < a->dim; i++) {
            double sum = 0;

            for (int32_t j = 0; j < a->top_k; j++)
                sum = pl__f64_acc(env, sum + y[a->rows[t * a->top_k + j] * a->dim + i]);
            sum += ((const double *)a->shared)[t * a->dim + i];
            ((double *)a->f)[t * a->dim + i] = pl__f64_act(env, sum);
        }
}
