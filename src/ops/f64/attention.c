/* Level f64: window keys and attention with one softmax maximum over all keys, as the golden files have
 * it (specification sections 3.2-3.4). Cache rows are 512 doubles. */
#include "ops/f64/f64.h"

#include <string.h>

#include "ops/quant.h"

void pl__f64_kv_store(const pl_op_env *env, const pl_kv_store_args *a, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++) {
        double *row = (double *)pl_rows_data(a->dest[r].rows, a->dest[r].index);

        memcpy(row, (const double *)a->kv + r * PL_HEAD_DIM, PL_HEAD_DIM * sizeof *row);
        pl__f64_rotate(env, &a->angles, r, false, PL_HEAD_DIM, row);
        if (env->mode != PL_MODE_EXACT)
            pl_quant_e4m3_fake_f64(row, PL_NOPE_DIM, PL_KV_BLOCK, row);
    }
}

/* The keys of one query in order: window, then entries. */
typedef struct key_list {
    const pl_attention_args *a;
    const pl_attention_seq *seq;
    int64_t first_window, n_window, n;
    const int32_t *sel;
} key_list;

static key_list keys_of(const pl_attention_args *a, int64_t t)
{
    int64_t pos = a->position[t];
    key_list list = {.a = a, .seq = &a->seqs[a->seq_of[t]]};

    list.first_window = pos < PL_WINDOW ? 0 : pos - PL_WINDOW + 1;
    list.n_window = pos - list.first_window + 1;
    list.n = list.n_window;
    if (a->sel) {
        list.sel = a->sel + t * a->sel_stride;
        list.n += a->n_sel[t];
    } else if (a->ratio) {
        list.n += (pos + 1) / a->ratio;
    }
    return list;
}

static const double *key_at(const key_list *list, int64_t i)
{
    const pl_attention_seq *seq = list->seq;
    int64_t entry = i - list->n_window, pos = list->first_window + i;

    if (entry >= 0)
        return (const double *)pl_rows_data(&seq->entries, list->sel ? list->sel[entry] : entry);
    if (pos < seq->start)
        return (const double *)pl_rows_data(&seq->ring, pos % seq->ring_rows);
    return (const double *)pl_rows_data(&list->a->step, seq->first + pos - seq->start);
}

static void one_head(const pl_op_env *env, const key_list *list, const double *q, double sink,
                     double *o)
{
    double scale = pl__f64_acc(env, 0.04419417382415922), max = -INFINITY, den = 0;
    double *p = env->scratch, sum[PL_HEAD_DIM] = {0};

    for (int64_t i = 0; i < list->n; i++) {
        double dot = pl__f64_acc(env, pl__f64_dot(q, key_at(list, i), PL_HEAD_DIM));

        p[i] = pl__f64_acc(env, dot * scale);
        max = p[i] > max ? p[i] : max;
    }
    for (int64_t i = 0; i < list->n; i++) {
        const double *v = key_at(list, i);
        double weight;

        p[i] = pl__f64_acc(env, pl_exp_f64(pl__f64_acc(env, p[i] - max)));
        den += p[i];
        weight = pl__f64_act(env, p[i]);
        for (int c = 0; c < PL_HEAD_DIM; c++)
            sum[c] += weight * v[c];
    }
    den = pl__f64_acc(env, pl__f64_acc(env, den) +
                               pl__f64_acc(env, pl_exp_f64(pl__f64_acc(env, sink - max))));
    for (int c = 0; c < PL_HEAD_DIM; c++)
        o[c] = pl__f64_act(env, pl__f64_acc(env, sum[c]) / den);
}

void pl__f64_attention(const pl_op_env *env, const pl_attention_args *a, int64_t begin, int64_t end)
{
    for (int64_t u = begin; u < end; u++) {
        key_list list = keys_of(a, u / a->n_heads);

        one_head(env, &list, (const double *)a->q + u * PL_HEAD_DIM,
                 pl__f64_weight(&a->sink, u % a->n_heads), (double *)a->o + u * PL_HEAD_DIM);
    }
}
