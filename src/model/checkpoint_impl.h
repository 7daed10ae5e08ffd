/* Inside of a checkpoint, shared by the files that make one: shard_index.c (which files), checkpoint.c
 * (opening), checkpoint_access.c (what was found), checkpoint_storage.c (how it is stored), checkpoint_check.c (what the tensors are),
 * and by shard_read.c. */
#ifndef PL_MODEL_CHECKPOINT_IMPL_H
#define PL_MODEL_CHECKPOINT_IMPL_H

#include <time.h>

#include "model/checkpoint.h"
#include "model/name_table.h"

enum {
    PL_MAX_SHARDS = 4096,
    PL_MAX_NOTES = 8,
    PL_NOTE_BYTES = PL_ERROR_MSG_BYTES + 128, /* a note may quote an error */
    PL_MAX_INDEX_BYTES = 128 << 20,
    PL_FILE_NAME_BYTES = 256,
};

#define PL_INDEX_FILE  "model.safetensors.index.json"
#define PL_SINGLE_FILE "model.safetensors"

struct pl__tensor {
    bool present; /* seen in its shard; until then only announced by the index */
    bool matched; /* found in the list */
    uint8_t role;
    uint8_t dtype;
    int32_t rank;
    int64_t shape[PL_SAFETENSORS_MAX_RANK];
    uint32_t shard;
    uint64_t begin, bytes;
};

struct pl__shard {
    int fd; /* -1: not open */
    uint64_t data_begin;
    int64_t size; /* when it was opened; and when it was changed last */
    struct timespec modified;
};

/* How the routed experts of one block are stored. */
struct pl__block {
    bool experts_fp8;
    uint8_t expert_scale;
};

struct pl_checkpoint {
    char *path;
    pl_config config;
    pl_storage storage;
    pl_drafter drafter;
    const char *no_drafts; /* reason, NULL for PL_DRAFTER_MTP */
    bool is_sharded;
    bool headers_only; /* no data */
    pl_name_table shard_names;
    struct pl__shard *shards;
    pl_name_table names; /* number = index into tensors */
    struct pl__tensor *tensors;
    uint32_t max_tensors;     /* allocated */
    uint64_t total_size;      /* of the index's metadata, 0 where it says nothing */
    struct pl__block *blocks; /* [n_layers + 1], the last of mtp.0 */
    uint32_t *in_order;       /* tensors in the order of pl_checkpoint_each */
    uint32_t n_in_order;
    pl_checkpoint_progress *progress;
    void *progress_user;
    char notes[PL_MAX_NOTES][PL_NOTE_BYTES];
    int32_t n_notes;
};

/* Adds a tensor, or finds it. `where` stands for the file in errors. Refuses more tensors than any
 * configuration like this one can have. */
pl_status pl__checkpoint_add(pl_checkpoint *c, const char *where, const char *name, size_t length,
                             uint32_t *number, bool *added, pl_error *err) PL_MUST_CHECK;

/* Reads the index into names, tensors (shard only) and shard_names. *found is false where the folder has no
 * index. */
pl_status pl__checkpoint_read_index(pl_checkpoint *c, bool *found, pl_error *err) PL_MUST_CHECK;

/* The same from text; `name` stands for the file in errors. c->config is set. */
pl_status pl__checkpoint_parse_index(pl_checkpoint *c, const char *name, const char *text,
                                     size_t length, pl_error *err) PL_MUST_CHECK;

/* NULL: the checkpoint has none of that name. */
const struct pl__tensor *pl__checkpoint_find(const pl_checkpoint *c, const char *name);

/* Decides storage and blocks, as far as tensors tell. */
pl_status pl__checkpoint_sniff_storage(pl_checkpoint *c, pl_error *err) PL_MUST_CHECK;

/* Looks at expert 0 of a block; without it, `block` stays what the config says and the tensor is reported as missing
 * later. */
void pl__checkpoint_sniff_block(const pl_checkpoint *c, const char *prefix,
                                struct pl__block *block);

/* Decides storage and drafter, checks every tensor, fills in_order. */
pl_status pl__checkpoint_check(pl_checkpoint *c, pl_error *err) PL_MUST_CHECK;

void pl__checkpoint_note(pl_checkpoint *c, const char *format, ...) PL_PRINTF(2, 3);

/* "PATH/FILE" into `out`; INVALID where it is too long. */
pl_status pl__checkpoint_file(const pl_checkpoint *c, const char *file, char *out, size_t capacity,
                              pl_error *err) PL_MUST_CHECK;

/* The storage of one block: that of the whole with the block's own experts. */
pl_storage pl__checkpoint_block_storage(const pl_checkpoint *c, int32_t layer);

/* Visits the specs of PL_LAYER_GLOBAL, the layers ascending and mtp.0, each with its block's storage. */
bool pl__checkpoint_walk(const pl_checkpoint *c, pl_tensor_visit *visit, void *user);

#endif
