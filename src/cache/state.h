/* What one sequence remembers between steps: window keys, compressed entries, indexer keys, compressor
 * states, for every layer and the mtp block.
 *
 * Memory is one block per sequence, closed form, carved once; a state is copied by pl_state_copy.
 * Entries and keys lie in pages of 128 tokens: 32 rows (ratio 4) or 1 row (ratio 128).
 *
 * Speculation: the last `n_draft` tokens of a step may be taken back. Window keys need no more than
 * ring_rows = 128 + max_draft slots, entries are only counted, and compressor states stay before the
 * drafts: their raw rows wait in `pending` until the next step tells how many were kept.
 *
 * Source: specification sections 4.1, 4.7, 6.5. */
#ifndef PL_CACHE_STATE_H
#define PL_CACHE_STATE_H

#include "base/arena.h"
#include "ops/ops.h"

/* The geometry of every sequence, as data. */
typedef struct pl_state_shape {
    const pl_ops *ops;    /* whose formats the rows have */
    int32_t n_layers;     /* of the main stack */
    const int32_t *ratio; /* [n_layers], borrowed */
    bool has_mtp;
    int32_t max_len;   /* positions */
    int32_t max_draft; /* tokens that one step may take back */
} pl_state_shape;

typedef struct pl_layer_state {
    int32_t ratio;
    pl_rows ring;     /* slot = position % ring_rows */
    pl_rows entries;  /* ratio 4, 128 */
    pl_rows keys;     /* ratio 4 */
    void *comp;       /* compressor state, ratio 4, 128 */
    void *index_comp; /* ratio 4 */
    /* Raw rows (acc [max_draft][width]) of positions n_settled.. */
    void *pending_kv, *pending_gate;
    void *pending_index_kv, *pending_index_gate;
} pl_layer_state;

typedef struct pl_state {
    int32_t n; /* positions that the main stack has done */
    int32_t
        n_settled; /* positions that the compressor states contain; n - n_settled rows are pending */
    int32_t n_mtp; /* positions that the mtp block has done */
    int32_t max_len, max_draft, ring_rows;
    int32_t n_layers;      /* entries of `layer`, the mtp block behind the others included */
    pl_layer_state *layer; /* [n_layers + has_mtp] */
    uint8_t *block;        /* what a copy copies */
    uint64_t block_bytes;
} pl_state;

/* Carves one state; a dry run counts. Contents need pl_state_reset. */
void pl_state_layout(pl_state *s, pl_arena *arena, const pl_state_shape *shape);

/* Back to no positions. */
void pl_state_reset(pl_state *s, const pl_ops *ops);

/* dst and src have equal shapes. */
void pl_state_copy(pl_state *dst, const pl_state *src);

/* Takes back what lies behind the first n positions; n_settled <= n <= s->n. */
void pl_state_rewind(pl_state *s, int32_t n);

/* Entries of a layer of this ratio once `n` positions are done. */
static inline int32_t pl_state_n_entries(int32_t ratio, int32_t n)
{
    return ratio ? n / ratio : 0;
}

#endif
