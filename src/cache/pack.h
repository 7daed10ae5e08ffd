/* Parts of a sequence's state as plain bytes: what a snapshot holds, what a cached prefix holds.
 *
 * Packed bytes do not depend on the ring's length, the number of ranks or max_len: window rows lie in the order of
 * their positions, entries and keys row by row. Window rows are the last 128; those of the mtp block that it has not
 * done are zeros, which drafts worse and changes no result. Source: specification sections 4.2 to 4.7. */
#ifndef PL_CACHE_PACK_H
#define PL_CACHE_PACK_H

#include "cache/state.h"

typedef enum pl_pack {
    PL_PACK_WINDOW,  /* min(n, 128) rows of each layer */
    PL_PACK_ENTRIES, /* of the positions begin .. n - 1 */
    PL_PACK_KEYS,    /* the same */
    PL_PACK_POOLS,   /* states of the compressors, before the pending rows */
    PL_PACK_PENDING, /* raw rows of the positions n_settled .. n - 1 */
    PL_PACK_COUNT
} pl_pack;

/* How many positions; begin is a multiple of 128. */
typedef struct pl_pack_span {
    int32_t begin, n, n_settled, n_mtp;
} pl_pack_span;

/* Bytes of a part: closed form. */
uint64_t pl_pack_bytes_of(const pl_state_shape *shape, pl_pack part, const pl_pack_span *span);
uint64_t pl_pack_bytes(const pl_state *s, pl_pack part, const pl_pack_span *span);

/* Copies a part of s out to, or in from, as many bytes; one rank's. The counts of s are left alone. */
void pl_pack_save(const pl_state *s, pl_pack part, const pl_pack_span *span, void *to);
void pl_pack_load(pl_state *s, pl_pack part, const pl_pack_span *span, const void *from);

#endif
