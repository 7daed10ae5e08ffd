/* The indexer: which compressed entries a query of a ratio-4 layer sees.
 *
 * score_i = sum_h w[h] max(0, q[h] . key_i) over the visible entries i < (P + 1) / 4; the min(topk,
 * visible) largest are taken, ties to the lower index (order: pl_index_before).
 *
 * Source: specification section 3.8. */
#ifndef PL_OPS_INDEXER_H
#define PL_OPS_INDEXER_H

#include "ops/attention.h"
#include "ops/op.h"

/* Query heads to the format of keys: rotation, Hadamard, e2m1. Unit: one (t, h), t * n_heads + h. */
typedef struct pl_index_query_args {
    int32_t n_heads; /* of the indexer */
    const void *q;   /* act [n][n_heads][128] */
    pl_angles angles;
    pl_rows out; /* row t * n_heads + h, format of keys */
} pl_index_query_args;
typedef void pl_index_query_fn(const pl_op_env *env, const pl_index_query_args *a, int64_t begin,
                               int64_t end);

/* Scores the visible keys and keeps the best. The keys of a token are cut into n_parts ranges, part p
 * being visible * p / n_parts .. visible * (p + 1) / n_parts - 1, so that one long token can use all
 * workers. Unit: one (t, p), t * n_parts + p. */
typedef struct pl_index_topk_args {
    int32_t n_heads;
    int32_t topk;
    int32_t n_parts;
    pl_rows query; /* of index_query */
    const void *w; /* act [n][n_heads]: weights_proj x */
    float factor;  /* w[h] is multiplied by it and rounded to bf16 */
    const pl_attention_seq *seqs;
    const int32_t *seq_of, *position;
    void *best_score;      /* acc [n][n_parts][topk] */
    int32_t *best;         /* [n][n_parts][topk]: entry numbers, ascending */
    int32_t *n_best;       /* [n][n_parts] */
    void *scores;          /* acc [n][scores_stride], every visible score; NULL: not wanted, and
                                scoring may be skipped where all visible entries are taken */
    int64_t scores_stride; /* bytes */
} pl_index_topk_args;
typedef void pl_index_topk_fn(const pl_op_env *env, const pl_index_topk_args *a, int64_t begin,
                              int64_t end);

/* Joins the parts. Unit: a token. */
typedef struct pl_index_merge_args {
    int32_t topk, n_parts;
    const void *best_score;
    const int32_t *best, *n_best;
    int32_t *sel;   /* [n][topk], ascending; past n_sel[t] -1 */
    int32_t *n_sel; /* [n] */
} pl_index_merge_args;
typedef void pl_index_merge_fn(const pl_op_env *env, const pl_index_merge_args *a, int64_t begin,
                               int64_t end);

#endif
