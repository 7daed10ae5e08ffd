/* The k best of a stream of scored entries, by the total order of docs/NUMERICS.md: the larger score
 * first, equal scores by the lower entry. A score that is NaN counts as -infinity; -0 equals +0. */
#ifndef PL_OPS_TOPK_H
#define PL_OPS_TOPK_H

#include <stdbool.h>
#include <stdint.h>

/* A heap with the worst kept entry on top, in the caller's arrays of max elements. */
typedef struct pl_topk {
    double *score;
    int32_t *entry;
    int32_t n, max;
} pl_topk;

/* Whether entry a with its score comes before entry b. */
static inline bool pl_topk_before(double score_a, int32_t a, double score_b, int32_t b)
{
    return score_a > score_b || (score_a == score_b && a < b);
}

void pl_topk_push(pl_topk *t, double score, int32_t entry);

/* Entries ascending, each with its score; the heap is used up. */
void pl_topk_sort_by_entry(pl_topk *t);

/* Best first, ties by entry; the heap is used up. */
void pl_topk_sort_by_score(pl_topk *t);

#endif
