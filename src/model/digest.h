/* What a checkpoint holds, in 128 bits: equal digests mean equal tensors, however they are cut into files.
 *
 * XXH3-128 (seed 0) over this byte stream, all numbers little-endian:
 *
 *     "plimsoll checkpoint digest 1\n"  or, without the tensors' bytes,  "plimsoll header digest 1\n"
 *     for each tensor in ascending order of its name's bytes:
 *         u32 length of the name, the name (UTF-8)
 *         u32 length of the element type, the element type ("BF16", ...)
 *         u32 number of dimensions, each dimension as u64
 *         checkpoint digest only: XXH3-128 of the tensor's bytes, in xxHash's canonical (big-endian) form
 *
 * All tensors count, also those that are not loaded; config.json does not. Written as 32 hex digits,
 * canonical form. xxHash is no cryptographic hash: it finds damage and confusion, not forgery. */
#ifndef PL_MODEL_DIGEST_H
#define PL_MODEL_DIGEST_H

#include "model/checkpoint.h"

enum { PL_DIGEST_TEXT_BYTES = 33 };

typedef struct pl_digest {
    char text[PL_DIGEST_TEXT_BYTES]; /* hex, ended by 0 */
} pl_digest;

/* From what pl_checkpoint_open has read. */
pl_status pl_checkpoint_header_digest(const pl_checkpoint *checkpoint, pl_digest *digest,
                                      pl_error *err) PL_MUST_CHECK;

/* Reads every tensor, in the order of the files, through a buffer of 1 MiB, and reports progress. */
pl_status pl_checkpoint_digest(const pl_checkpoint *checkpoint, pl_digest *digest,
                               pl_error *err) PL_MUST_CHECK;

#endif
