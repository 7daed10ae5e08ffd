/* Which tensor of a synthetic checkpoint lies where: shards, offsets, headers and the index file. */
#ifndef PL_MODEL_SYNTH_LAYOUT_H
#define PL_MODEL_SYNTH_LAYOUT_H

#include "model/tensors.h"

enum { PL_SYNTH_FILE_BYTES = 64 };

typedef struct pl_synth_tensor {
    pl_tensor_spec spec;
    uint64_t begin, end; /* bytes within the shard's data */
} pl_synth_tensor;

typedef struct pl_synth_shard {
    char file[PL_SYNTH_FILE_BYTES]; /* "model-00001-of-00046.safetensors" */
    size_t first, n;                /* its tensors, in file order */
    uint64_t data_bytes;
} pl_synth_shard;

typedef struct pl_synth_layout {
    pl_synth_tensor
        *tensor; /* shard by shard; wide elements first, then by name: all stay aligned */
    size_t n_tensors;
    pl_synth_shard *shard;
    size_t n_shards;
    uint64_t data_bytes; /* of all shards: total_size of the index */
} pl_synth_layout;

/* On failure nothing is owned. */
pl_status pl_synth_layout_init(pl_synth_layout *layout, const pl_config *config,
                               const pl_storage *storage, pl_error *err) PL_MUST_CHECK;
void pl_synth_layout_fini(pl_synth_layout *layout);

/* What stands before the data of a shard: eight bytes of length and the JSON header, padded to 8 bytes.
 * With `headers_only` its __metadata__ has PL_SAFETENSORS_HEADERS_ONLY. The caller frees *bytes. */
pl_status pl_synth_layout_header(const pl_synth_layout *layout, size_t shard, bool headers_only,
                                 char **bytes, size_t *n, pl_error *err) PL_MUST_CHECK;

/* Text of model.safetensors.index.json. The caller frees *text. */
pl_status pl_synth_layout_index(const pl_synth_layout *layout, char **text, size_t *n,
                                pl_error *err) PL_MUST_CHECK;

#endif
