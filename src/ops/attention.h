/* One shared key = value head, a window, compressed entries and a sink per head.
 *
 * Source: specification sections 3.2-3.4, 3.6, 4.2; order of the sums: docs/NUMERICS.md. */
#ifndef PL_OPS_ATTENTION_H
#define PL_OPS_ATTENTION_H

#include "ops/op.h"
#include "ops/rows.h"

/* Where a finished row of 512 or 128 dims goes. */
typedef struct pl_row_dest {
    const pl_rows *rows;
    int64_t index;
} pl_row_dest;

/* Rotates the last 64 dims, rounds to bf16, quantises the first 448 in blocks of 64 and writes the
 * cache row. Used for window keys and for compressed entries. Unit: a row. */
typedef struct pl_kv_store_args {
    const void *kv; /* act [n][512] after the norm */
    pl_angles angles;
    const pl_row_dest *dest; /* [n] */
} pl_kv_store_args;
typedef void pl_kv_store_fn(const pl_op_env *env, const pl_kv_store_args *a, int64_t begin,
                            int64_t end);

/* The keys of one sequence at one layer, and which tokens of the step are its. */
typedef struct pl_attention_seq {
    int32_t first;     /* row of its first token in the step */
    int32_t n;         /* tokens, at consecutive positions and rows */
    int32_t start;     /* position of the first */
    pl_rows ring;      /* keys of positions below start: slot = position % ring_rows */
    int32_t ring_rows; /* at least 128; holds positions max(0, start - 127) .. start - 1 */
    pl_rows entries;   /* compressed entries, those of this step included; ratio != 0 */
    pl_rows keys;      /* indexer keys, those of this step included; ratio 4 */
} pl_attention_seq;

/* For the query of token t at position P, with the keys of its sequence
 *     window  positions max(0, P - 127) .. P: below start from the ring, others from `step`
 *     then    entries: none (ratio 0); 0 .. (P + 1) / ratio - 1 where sel is NULL; else the n_sel[t]
 *             entries of sel[t], ascending
 * o[t][h] = softmax over keys with the sink in the denominator only. o may be q.
 * Unit: one (t, h), t * n_heads + h. */
typedef struct pl_attention_args {
    int32_t n_heads;
    int32_t ratio;       /* 0, 4, 128 */
    const void *q;       /* act [n][n_heads][512] */
    pl_weight_view sink; /* F32 [n_heads] */
    const pl_attention_seq *seqs;
    const int32_t *seq_of;      /* [n] index into seqs */
    const int32_t *position;    /* [n] */
    pl_rows step;               /* keys of this step: row t is token t */
    const int32_t *sel, *n_sel; /* [n][sel_stride], [n]; NULL: all visible */
    int64_t sel_stride;         /* elements */
    void *o;                    /* act [n][n_heads][512] */
} pl_attention_args;
typedef void pl_attention_fn(const pl_op_env *env, const pl_attention_args *a, int64_t begin,
                             int64_t end);

#endif
