/* The compressor: gated pooling of token rows into entries, one token after the other.
 *
 * Pooling is a recurrence over tokens, separate for every channel; what it must remember between
 * tokens is the pool state. For ratio 128 that is the running (max, denominator, numerator), for
 * ratio 4 the rows of the last and the current window. Entries do not depend on how tokens are cut
 * into steps.
 *
 * Source: specification sections 3.6 and 3.7. */
#ifndef PL_OPS_COMPRESS_H
#define PL_OPS_COMPRESS_H

#include "ops/attention.h"
#include "ops/op.h"

/* Consecutive tokens of one sequence. A row has `width` = 2 dim (ratio 4) or dim (ratio 128) values. */
typedef struct pl_compress_job {
    void *state;      /* pl_ops.compress_state_bytes(ratio, dim), updated; 64-byte aligned */
    const void *kv;   /* acc [n][width]: wkv x */
    const void *gate; /* acc [n][width]: wgate x, without ape */
    int32_t n;
    int32_t start; /* position of the first */
    void *
        pooled; /* act [(start + n) / ratio - start / ratio][dim]: finished sums, rounded to bf16 */
} pl_compress_job;

/* Unit: a tile of 64 channels of one job, job * (dim / 64) + tile; it owns those channels of the
 * state and of pooled. (For ratio 4: both halves of the tile's channels.) */
typedef struct pl_compress_args {
    int32_t ratio;      /* 4, 128 */
    int32_t dim;        /* 512, 128 */
    pl_weight_view ape; /* F32 [ratio][width] */
    const pl_compress_job *jobs;
} pl_compress_args;
typedef void pl_compress_fn(const pl_op_env *env, const pl_compress_args *a, int64_t begin,
                            int64_t end);

/* The state before position 0. */
typedef void pl_compress_reset_fn(void *state, int32_t ratio, int32_t dim);

/* Pooled vectors of the indexer to keys: norm is done; rotation of the last 64 dims, Hadamard, e2m1 in
 * groups of 32 (main entries: kv_store). Unit: a row. */
typedef struct pl_key_store_args {
    const void *y;    /* act [n][128] after the norm */
    pl_angles angles; /* of the first token of each block */
    const pl_row_dest *dest;
} pl_key_store_args;
typedef void pl_key_store_fn(const pl_op_env *env, const pl_key_store_args *a, int64_t begin,
                             int64_t end);

#endif
