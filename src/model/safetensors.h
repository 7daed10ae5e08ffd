/* The header of one safetensors file, read with every rule of the format checked.
 *
 * A file is 8 bytes (little-endian length N of the header), N bytes of JSON
 *
 *     {"__metadata__": {KEY: TEXT, ...}, NAME: {"dtype": D, "shape": [..], "data_offsets": [BEGIN, END]}, ...}
 *
 * and the data, which the tensors cover without gap or overlap, counted from the end of the header. The
 * header is hostile input: names, numbers and offsets are bounded before they are used, and memory is
 * proportional to the bytes the file really has. */
#ifndef PL_MODEL_SAFETENSORS_H
#define PL_MODEL_SAFETENSORS_H

#include "model/tensors.h"

enum {
    PL_SAFETENSORS_MAX_HEADER = 100000000, /* the limit of the format's own library */
    PL_SAFETENSORS_MAX_RANK = 8,
    PL_SAFETENSORS_NAME_BYTES = 256, /* with the final 0; longer names are refused */
};

/* Key of __metadata__ in the files of a checkpoint without data (`plimsoll synth --headers-only`): names,
 * types and shapes are true, but the data is a hole, which reads as zeros. */
#define PL_SAFETENSORS_HEADERS_ONLY "plimsoll.headers_only"

typedef struct pl_safetensors_entry {
    const char *name; /* UTF-8, ended by 0; valid during the call */
    size_t name_length;
    pl_dtype dtype;
    int32_t rank;
    int64_t shape[PL_SAFETENSORS_MAX_RANK];
    uint64_t begin,
        end;      /* bytes from the start of the data; end - begin is what dtype and shape need */
    uint64_t pos; /* of the name in the file, for errors */
} pl_safetensors_entry;

/* Called for each tensor in the order of the header. A failure ends the reading and is passed on. */
typedef pl_status pl_safetensors_visit(void *user, const pl_safetensors_entry *entry,
                                       pl_error *err);

/* Checks `header` (length bytes, the JSON alone) of a file with data_bytes of data. `name` stands for the
 * file in errors, which say file, tensor, field and byte of the file: CORRUPT, or UNSUPPORTED for an
 * element type that V4 does not have. The entries are visited as they are read, so that some may have
 * been when an error is found; overlaps, gaps and double names are found last. *headers_only, if not NULL,
 * tells whether the metadata has PL_SAFETENSORS_HEADERS_ONLY. */
pl_status pl_safetensors_parse(const char *name, const char *header, size_t length,
                               uint64_t data_bytes, pl_safetensors_visit *visit, void *user,
                               bool *headers_only, pl_error *err) PL_MUST_CHECK;

/* Reads the header of the open file `fd`. *data_begin is where the data starts in the file; its length is
 * that of the file, so that a truncated download is found here. */
pl_status pl_safetensors_read(const char *name, int fd, pl_safetensors_visit *visit, void *user,
                              uint64_t *data_begin, bool *headers_only,
                              pl_error *err) PL_MUST_CHECK;

#endif
