/* Level scalar: indexer scores and the choice of entries (NUMERICS 11). */
#include "ops/scalar/scalar.h"

#include "ops/topk.h"

enum { GROUP = 32, GROUPS = PL_INDEX_DIM / GROUP };

/* Twice the value of an e2m1 code: 0, 1, 2, 3, 4, 6, 8, 12 and their negatives. */
static const int8_t doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static float row_dot(const pl_rows *q_rows, int64_t q_row, const pl_rows *k_rows, int64_t k_row)
{
    const uint8_t *q = pl_rows_data(q_rows, q_row), *sq = pl_rows_scales(q_rows, q_row);
    const uint8_t *k = pl_rows_data(k_rows, k_row), *sk = pl_rows_scales(k_rows, k_row);
    float t[GROUPS];

    for (int g = 0; g < GROUPS; g++) {
        int32_t quarters = 0;
        for (int i = g * GROUP / 2; i < (g + 1) * GROUP / 2; i++)
            quarters +=
                doubled[q[i] & 15] * doubled[k[i] & 15] + doubled[q[i] >> 4] * doubled[k[i] >> 4];
        t[g] = (float)quarters * 0.25f * (pl_e8m0_to_f32(sq[g]) * pl_e8m0_to_f32(sk[g]));
    }
    return ((t[0] + t[1]) + t[2]) + t[3];
}

static float score(const pl_index_topk_args *a, int64_t t, const pl_rows *keys, int64_t key)
{
    float sum = 0;

    for (int64_t h = 0; h < a->n_heads; h++) {
        float w = pl_bf16_to_f32(((const uint16_t *)a->w)[t * a->n_heads + h]);
        float dot = row_dot(&a->query, t * a->n_heads + h, keys, key), term;

        dot = 0 > dot ? 0 : dot;
        term = dot * pl_bf16_round(w * a->factor);
        sum = h == 0 ? term : sum + term;
    }
    return sum + 0.0f;
}

static pl_topk open_heap(const pl_op_env *env, int32_t max)
{
    double *scores = env->scratch;

    return (pl_topk){scores, (int32_t *)(scores + max), 0, max};
}

void pl__scalar_index_topk(const pl_op_env *env, const pl_index_topk_args *a, int64_t begin,
                           int64_t end)
{
    for (int64_t u = begin; u < end; u++) {
        int64_t t = u / a->n_parts, part = u % a->n_parts;
        int64_t visible = ((int64_t)a->position[t] + 1) / 4;
        const pl_rows *keys = &a->seqs[a->seq_of[t]].keys;
        bool all = visible <= a->topk && !a->scores; /* nothing to choose */
        float *best_score = (float *)a->best_score + u * a->topk;
        pl_topk heap = open_heap(env, a->topk);

        for (int64_t i = visible * part / a->n_parts; i < visible * (part + 1) / a->n_parts; i++) {
            float s = all ? 0 : score(a, t, keys, i);

            pl_topk_push(&heap, (double)s, (int32_t)i);
            if (a->scores)
                *(float *)((uint8_t *)a->scores + t * a->scores_stride + i * (int64_t)sizeof s) = s;
        }
        pl_topk_sort_by_entry(&heap);
        a->n_best[u] = heap.n;
        for (int32_t i = 0; i < heap.n; i++) {
            best_score[i] = (float)heap.score[i];
            a->best[u * a->topk + i] = heap.entry[i];
        }
    }
}

void pl__scalar_index_merge(const pl_op_env *env, const pl_index_merge_args *a, int64_t begin,
                            int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        pl_topk heap = open_heap(env, a->topk);
        int32_t *sel = a->sel + t * a->topk;

        for (int64_t u = t * a->n_parts; u < (t + 1) * a->n_parts; u++)
            for (int64_t i = 0; i < a->n_best[u]; i++)
                pl_topk_push(&heap, (double)((const float *)a->best_score)[u * a->topk + i],
                             a->best[u * a->topk + i]);
        pl_topk_sort_by_entry(&heap);
        a->n_sel[t] = heap.n;
        for (int32_t i = 0; i < a->topk; i++)
            sel[i] = i < heap.n ? heap.entry[i] : -1;
    }
}
