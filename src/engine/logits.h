/* What is read off a row of logits: the largest, the log-softmax, and the bits of all.
 *
 * Source: docs/NUMERICS.md 11 (total order) and 13. The functions run in the environment of base/fpenv.h. */
#ifndef PL_ENGINE_LOGITS_H
#define PL_ENGINE_LOGITS_H

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "ops/ops.h"
#include "plimsoll/engine.h"

enum { PL_LOGITS_BLOCK = 1280 }; /* ids that are summed before the next ones */

typedef struct pl_logits_summary {
    int32_t best;       /* first id in the total order */
    float max, log_sum; /* M and ln(S): logprob of l is (l - M) - ln(S) */
} pl_logits_summary;

/* Whether id a with logit la comes before id b: the larger first, equal ones by id, NaN as -inf. */
static inline bool pl_logit_before(float la, int32_t a, float lb, int32_t b)
{
    float x = la != la ? -__builtin_inff() : la, y = lb != lb ? -__builtin_inff() : lb;

    return x > y || (x == y && a < b);
}

/* Summary of one row (acc [vocab]). */
pl_logits_summary pl_logits_summarise(const pl_ops *ops, const void *row, int32_t vocab);

/* Its first id in the total order alone. */
int32_t pl_logits_best(const pl_ops *ops, const void *row, int32_t vocab);

/* Feeds the bits of a row: little-endian fp32, NaN as 0x7FC00000. */
void pl_logits_digest(const pl_ops *ops, const void *row, int32_t vocab, XXH3_state_t *digest);

/* How many ids come before one in the total order, and that one: 1 for the first. */
int32_t pl_logits_rank(const pl_ops *ops, const void *row, int32_t vocab, int32_t id);

/* Log-softmax at one id. */
float pl_logits_logprob(const pl_ops *ops, const void *row, const pl_logits_summary *summary,
                        int32_t id);

/* The first n <= vocab ids in the total order, with their log-softmax. */
void pl_logits_top(const pl_ops *ops, const void *row, int32_t vocab,
                   const pl_logits_summary *summary, pl_token_logprob *top, int32_t n);

#endif
