/* What one request's state takes, as a table: the closed form of cache/state.h.
 *
 * A part is a kind of piece that some layers have, of a fixed size or of so many bytes for each 128 tokens.
 * The plan prints parts, and whoever carves checks their sum against what was carved. */
#ifndef PL_CACHE_GEOMETRY_H
#define PL_CACHE_GEOMETRY_H

#include "cache/state.h"

enum { PL_CACHE_MAX_PARTS = 12, PL_CACHE_BLOCK_TOKENS = 128 };

typedef struct pl_cache_part {
    const char *name;     /* "window", "csa_entries", .. */
    int32_t n_layers;     /* that have it, the mtp block among them */
    int32_t n_pieces;     /* in each */
    uint64_t piece_bytes; /* of one; for each block where per_block */
    bool per_block; /* one piece is all blocks of the request, rounded up to 64 bytes at the end */
} pl_cache_part;

typedef struct pl_cache_geometry {
    pl_cache_part part[PL_CACHE_MAX_PARTS];
    int32_t n_parts;
    int64_t n_blocks; /* of 128 tokens that max_len takes */
} pl_cache_geometry;

/* Parts that no layer has are left out. */
pl_cache_geometry pl_cache_geometry_of(const pl_state_shape *shape);

/* Bytes of one part in one request. */
uint64_t pl_cache_part_bytes(const pl_cache_geometry *g, const pl_cache_part *part);

/* Of one request: all that does not grow with its length, and what each whole block adds. */
uint64_t pl_cache_fixed_bytes(const pl_cache_geometry *g);
uint64_t pl_cache_block_bytes(const pl_cache_geometry *g);

/* All of one request: what pl_state_layout carves. */
uint64_t pl_cache_request_bytes(const pl_cache_geometry *g);

#endif
