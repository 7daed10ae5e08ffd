/* What one sequence remembers between steps: window keys, compressed entries, indexer keys, compressor
 * states, for every layer and the mtp block.
 *
 * Memory is closed form and carved once. Entries and keys lie in pages of 128 tokens: 32 rows (ratio 4)
 * or 1 row (ratio 128).
 *
 * Speculation: the last `n_draft` tokens of a step may be taken back. Window keys need no more than
 * ring_rows = 128 + max_draft slots, entries are only counted, and compressor states stay before the
 * drafts: the drafts' raw rows wait as `pending` until the next step tells how many were kept.
 *
 * Source: specification sections 4.1, 4.7, 6.5. */
#ifndef PL_CACHE_STATE_H
#define PL_CACHE_STATE_H

#include "base/arena.h"
#include "ops/ops.h"

/* The geometry of every sequence, as data. */
typedef struct pl_state_shape {
    const pl_ops *ops; /* whose formats the rows have; borrowed */
    int32_t n_layers;  /* of the main stack */
    bool has_mtp;
    const int32_t *ratio; /* [n_layers], borrowed: 0, 4, 128 */
    int32_t max_len;      /* positions */
    int32_t max_draft;    /* tokens that one step may take back */
} pl_state_shape;

/* A compressor: ratio and dim say its shape; all pointers NULL where the layer has none. */
typedef struct pl_compressor_state {
    int32_t ratio, dim;
    void *state; /* pl_ops.compress_state_bytes */
    /* Raw rows of the positions n_settled ..: acc [max_draft][width]; NULL where max_draft is 0. */
    void *pending_kv, *pending_gate;
} pl_compressor_state;

typedef struct pl_layer_state {
    int32_t ratio;
    pl_rows ring;              /* slot = position % ring_rows */
    pl_rows entries;           /* ratio 4, 128 */
    pl_rows keys;              /* ratio 4 */
    pl_compressor_state main;  /* ratio 4, 128: entries */
    pl_compressor_state index; /* ratio 4: keys */
} pl_layer_state;

typedef struct pl_state {
    int32_t n;         /* positions that the main stack has done */
    int32_t n_settled; /* positions in the compressor states; the rows of the others are pending */
    int32_t n_mtp;     /* positions that the mtp block has done */
    int32_t max_len, max_draft, ring_rows;
    int32_t n_layers; /* of the main stack */
    bool has_mtp;
    const pl_ops *ops;
    pl_layer_state *layer; /* [n_layers + has_mtp], the mtp block last */
    /* The same sequence at the next rank of this process; NULL at the last one. Set by whoever carves the states
     * of all ranks, after their layout. */
    struct pl_state *next_rank;
    int32_t seq_of_step; /* whose it is in the step being checked: nobody else's */
} pl_state;

/* Carves one state; a dry run counts. Contents need pl_state_reset. */
void pl_state_layout(pl_state *s, pl_arena *arena, const pl_state_shape *shape);

/* Back to no positions. This and the others below do it at all ranks. */
void pl_state_reset(pl_state *s);

/* Makes dst equal to src; of the same shape and number of ranks, but for max_len, which must hold src. */
void pl_state_copy(pl_state *dst, const pl_state *src);

/* Takes back what lies behind the first n positions; n_settled <= n <= s->n. */
void pl_state_rewind(pl_state *s, int32_t n);

/* The same for what the mtp block did on its own drafts; n <= s->n_mtp. */
void pl_state_rewind_mtp(pl_state *s, int32_t n);

/* Width of a compressor's raw rows in elements. */
static inline int32_t pl_compressor_width(int32_t ratio, int32_t dim)
{
    return ratio == 4 ? 2 * dim : dim;
}

#endif
