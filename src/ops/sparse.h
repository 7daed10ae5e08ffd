/* Attention over keys listed by number, FlashMLA's sparse contract (docs/NUMERICS.md 9).
 *
 * A token's slots are its list in the first set, then its list in the second. A number below 0, at or past the rows of
 * the cache, or a place at or past the list's length is a slot that is not visible: nothing of it is read. Keys have
 * `dim` numbers; their first 512 are the values. */
#ifndef PL_OPS_SPARSE_H
#define PL_OPS_SPARSE_H

#include "ops/cache_rows.h"
#include "ops/op.h"

enum { PL_SPARSE_BLOCK = 64, PL_SPARSE_VALUE_DIM = 512, PL_SPARSE_GROUP = 32 };

typedef struct pl_sparse_set {
    pl_cache_rows rows;
    const int32_t *index; /* [n][index_stride] */
    int64_t index_stride;
    int32_t n_index;
    const int32_t *length; /* [n / length_tokens], clamped to 0 .. n_index; NULL: n_index */
} pl_sparse_set;

typedef struct pl_sparse_args {
    int32_t n_heads, dim; /* 512 or 576, that of every set */
    const uint16_t *q;    /* bf16 [n][n_heads][dim]; strides in elements */
    int64_t q_token_stride, q_head_stride;
    float scale;
    pl_sparse_set set[2];
    int32_t n_sets;
    int32_t length_tokens; /* tokens that share a length, which follow one another */
    const float *sink;     /* [n_heads], in the denominator alone; NULL: none */
    uint16_t *out;         /* bf16 [n][n_heads][512] */
    int64_t out_token_stride, out_head_stride;
    float *lse, *max_logits; /* [n_heads][stat_stride]; NULL: not wanted */
    int64_t stat_stride;
} pl_sparse_args;

/* Unit: one (token, head), token * n_heads + head. Level f64 has none. */
typedef void pl_sparse_fn(const pl_op_env *env, const pl_sparse_args *a, int64_t begin,
                          int64_t end);

/* Places of the list of token t that count. */
int32_t pl_sparse_length(const pl_sparse_args *a, const pl_sparse_set *set, int64_t t);

/* Scratch of one worker, all levels. */
enum { PL_SPARSE_SCRATCH_BYTES = 320 * 1024 };

#endif
