/* Reading a checkpoint's files past the page cache or through it.
 *
 * Direct reads (O_DIRECT) want offsets, lengths and memory in multiples of a block; a reader takes care of that,
 * in a buffer of the caller's. One reader belongs to one thread. */
#ifndef PL_MODEL_SHARD_READ_H
#define PL_MODEL_SHARD_READ_H

#include "model/checkpoint.h"

enum { PL_READ_ALIGN = 4096 };

typedef enum pl_load_mode {
    PL_LOAD_AUTO,     /* direct, unless the files are in the page cache or the file system cannot */
    PL_LOAD_DIRECT,   /* UNSUPPORTED where the file system cannot */
    PL_LOAD_BUFFERED, /* through the page cache */
} pl_load_mode;

/* NULL and "auto", "direct", "buffered"; INVALID for others. */
pl_status pl_load_mode_parse(const char *name, pl_load_mode *mode, pl_error *err) PL_MUST_CHECK;

/* Decides between direct and buffered for all files; `reason` says why in a few words. Errors: a file changed since it
 * was opened, direct asked for and not possible. */
pl_status pl__load_decide(const pl_checkpoint *checkpoint, pl_load_mode mode, bool *direct,
                          const char **reason, pl_error *err) PL_MUST_CHECK;

/* IO where a file is not the one whose header was read: its size or its time of change differs. */
pl_status pl__shards_unchanged(const pl_checkpoint *checkpoint, pl_error *err) PL_MUST_CHECK;

typedef struct pl_reader {
    const pl_checkpoint *checkpoint;
    int fd; /* of `shard` for direct reads; -1: none open */
    int32_t shard;
    uint8_t *buffer; /* PL_READ_ALIGN-aligned, pl_reader_buffer_bytes(largest read) */
} pl_reader;

/* Bytes of a buffer for reads of up to n, or of rows with their gaps. */
uint64_t pl_reader_buffer_bytes(uint64_t n);

/* `n` bytes of the tensor from byte `at` on, direct; *data is where they lie, in the buffer. */
pl_status pl_reader_direct(pl_reader *r, const pl_checkpoint_tensor *tensor, uint64_t at, size_t n,
                           const uint8_t **data, pl_error *err) PL_MUST_CHECK;

/* What lies between two rows in memory so that those of a panel do not fall into the same sets of a first cache: where
 * they are whole pages long, a line. */
uint64_t pl_reader_row_gap(uint64_t row_bytes);

/* `n` bytes of the tensor from byte `at` on, whole rows of row_bytes, through the page cache; each row is followed by
 * `gap` bytes in `to`, which keep what they hold. */
pl_status pl_reader_rows(const pl_reader *r, const pl_checkpoint_tensor *tensor, uint64_t at,
                         size_t n, size_t row_bytes, size_t gap, uint8_t *to,
                         pl_error *err) PL_MUST_CHECK;

void pl_reader_close(pl_reader *r);

#endif
