/* Level f64: indexer scores and the choice of entries (specification section 3.8). Query and key rows
 * are 128 doubles. In mode ref dot products, their weighted values and the sum are bf16. */
#include "ops/f64/f64.h"
#include "ops/topk.h"

void pl__f64_index_query(const pl_op_env *env, const pl_index_query_args *a, int64_t begin,
                         int64_t end)
{
    for (int64_t u = begin; u < end; u++)
        pl__f64_index_row(env, &a->angles, u / a->n_heads, (const double *)a->q + u * PL_INDEX_DIM,
                          (double *)pl_rows_data(&a->out, u));
}

static double score(const pl_op_env *env, const pl_index_topk_args *a, int64_t t, const double *key)
{
    bool bf16 = env->mode == PL_MODE_REF;
    double sum = 0, factor = (double)a->factor;

    for (int64_t h = 0; h < a->n_heads; h++) {
        const double *q = (const double *)pl_rows_data(&a->query, t * a->n_heads + h);
        double w = pl__f64_act(env, ((const double *)a->w)[t * a->n_heads + h] * factor);
        double dot = pl__f64_acc(env, pl__f64_dot(q, key, PL_INDEX_DIM));

        dot = 0 > dot ? 0 : dot; /* a NaN passes */
        if (bf16)
            sum += pl__f64_act(env, pl__f64_act(env, dot) * w);
        else
            sum += pl__f64_acc(env, dot * w);
    }
    return bf16 ? pl__f64_act(env, sum) : pl__f64_acc(env, sum);
}

void pl__f64_index_topk(const pl_op_env *env, const pl_index_topk_args *a, int64_t begin,
                        int64_t end)
{
    for (int64_t u = begin; u < end; u++) {
        int64_t t = u / a->n_parts, part = u % a->n_parts;
        int64_t visible = ((int64_t)a->position[t] + 1) / 4;
        const pl_rows *keys = &a->seqs[a->seq_of[t]].keys;
        double *scores = a->scores ? (double *)((uint8_t *)a->scores + t * a->scores_stride) : NULL;
        pl_topk best = {(double *)a->best_score + u * a->topk, a->best + u * a->topk, 0, a->topk};

        for (int64_t i = visible * part / a->n_parts; i < visible * (part + 1) / a->n_parts; i++) {
            double s = score(env, a, t, (const double *)pl_rows_data(keys, i));

            pl_topk_push(&best, s, (int32_t)i);
            if (scores)
                scores[i] = s;
        }
        pl_topk_sort_by_entry(&best);
        a->n_best[u] = best.n;
    }
}

void pl__f64_index_merge(const pl_op_env *env, const pl_index_merge_args *a, int64_t begin,
                         int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        pl_topk best = {env->scratch, a->sel + t * a->topk, 0, a->topk};

        for (int64_t u = t * a->n_parts; u < (t + 1) * a->n_parts; u++)
            for (int64_t i = 0; i < a->n_best[u]; i++)
                pl_topk_push(&best, ((const double *)a->best_score)[u * a->topk + i],
                             a->best[u * a->topk + i]);
        pl_topk_sort_by_entry(&best);
        a->n_sel[t] = best.n;
        for (int32_t i = best.n; i < a->topk; i++)
            a->sel[t * a->topk + i] = -1;
    }
}
