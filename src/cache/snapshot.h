/* A sequence's state as one block of bytes with a versioned header, to be saved and restored by the caller.
 *
 * Layout, little-endian:
 *
 *     pl_snapshot_header    all fields, 64-bit aligned, without padding
 *     sections              as the table says, in its order, each at a multiple of 64, zeros between them
 *
 * Sections: the tokens (int32 each), then those of cache/pack.h. The checksum is XXH3-128 (canonical form) of all
 * bytes, its own field taken as zeros. Nothing is believed: sizes must be those that the counts and the geometry give,
 * and the geometry that of the state restored to. A restored state gives the bits of one that was never left. */
#ifndef PL_CACHE_SNAPSHOT_H
#define PL_CACHE_SNAPSHOT_H

#include "cache/pack.h"
#include "plimsoll/status.h"

enum {
    PL_SNAPSHOT_VERSION = 1,
    PL_SNAPSHOT_SECTIONS = 1 + PL_PACK_COUNT,
    PL_SNAPSHOT_CHECKPOINT_BYTES = 64,
};

/* Whose state it is: results of other checkpoints or versions of the numerics are other bits. */
typedef struct pl_snapshot_id {
    uint32_t numerics_version;
    const char *checkpoint; /* at most 63 bytes */
} pl_snapshot_id;

typedef struct pl_snapshot_header {
    char magic[8]; /* "PLIMSNAP" */
    uint32_t version, header_bytes;
    uint64_t total_bytes;
    uint32_t numerics_version, n_sections;
    char checkpoint[PL_SNAPSHOT_CHECKPOINT_BYTES]; /* zeros behind the text */
    /* Geometry */
    uint32_t n_layers, has_mtp, kv_data_bytes, kv_scale_bytes, key_data_bytes, key_scale_bytes;
    uint32_t acc_bytes, window;
    uint64_t ratios; /* XXH3-64 of the layers' ratios, int32 each */
    /* Counts */
    int32_t n, n_settled, n_mtp, reserved;
    struct {
        uint64_t offset, bytes;
    } section[PL_SNAPSHOT_SECTIONS];
    uint8_t checksum[16];
} pl_snapshot_header;

/* Bytes of a snapshot of s. */
uint64_t pl_snapshot_bytes(const pl_state *s);

/* The tokens of the positions of a state: first[n_first], where there are more positions rest[]. */
typedef struct pl_snapshot_tokens {
    const int32_t *first, *rest;
    int32_t n_first;
} pl_snapshot_tokens;

/* Writes pl_snapshot_bytes to `out`. */
void pl_snapshot_save(const pl_state *s, const pl_snapshot_id *id, const pl_snapshot_tokens *tokens,
                      void *out);

/* Checks all of it against an empty or used state `s` of the same model, which stays as it is. *n: its tokens,
 * which *tokens are copied from with memcpy (the address may be odd). CORRUPT for bytes that no save wrote,
 * UNSUPPORTED for another version, INVALID for another model, numerics or geometry, LIMIT where s is too short. */
pl_status pl_snapshot_check(const pl_state *s, const pl_snapshot_id *id, const void *data,
                            uint64_t bytes, int32_t *n, const uint8_t **tokens,
                            pl_error *err) PL_MUST_CHECK;

/* Makes s, at all its ranks, what was saved. `data` has passed pl_snapshot_check for s. */
void pl_snapshot_restore(pl_state *s, const void *data);

#endif
