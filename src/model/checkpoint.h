/* A checkpoint folder, opened from its headers alone: config.json, the shards and their index, and every
 * tensor checked by name, element type and shape against the list in model/tensors.h.
 *
 * No tensor data is read here. Which way quantised tensors are stored is told by the tensors (specification
 * section 1.3): block by block for routed experts, tensor by tensor for the scales of other FP8 linears. */
#ifndef PL_MODEL_CHECKPOINT_H
#define PL_MODEL_CHECKPOINT_H

#include "model/safetensors.h"

typedef struct pl_checkpoint pl_checkpoint;

/* What a tensor in the file is to this program. */
typedef enum pl_tensor_role {
    PL_ROLE_MODEL,   /* of the list; loaded */
    PL_ROLE_COPY,    /* Base's copies of embed and head under mtp.0; not loaded */
    PL_ROLE_DRAFTER, /* mtp.* of a drafter that is not run: listed, not loaded */
} pl_tensor_role;

typedef struct pl_checkpoint_tensor {
    const char *name; /* valid until close */
    pl_tensor_role role;
    pl_dtype dtype;
    int32_t rank; /* up to PL_TENSOR_MAX_RANK for PL_ROLE_MODEL */
    int64_t shape[PL_SAFETENSORS_MAX_RANK];
    int32_t shard;
    uint64_t begin; /* of the data in the shard's file */
    uint64_t bytes;
} pl_checkpoint_tensor;

/* Opens the folder `path`: model.safetensors.index.json with its shards, or else model.safetensors. Keeps the
 * files open, so that what is read later is what was checked. Refusals name file, tensor and field; missing,
 * unknown and ill-typed tensors are counted. On failure *out is NULL. */
pl_status pl_checkpoint_open(const char *path, pl_checkpoint **out, pl_error *err) PL_MUST_CHECK;
void pl_checkpoint_close(pl_checkpoint *checkpoint);

const char *pl_checkpoint_path(const pl_checkpoint *checkpoint);
const pl_config *pl_checkpoint_config(const pl_checkpoint *checkpoint);

/* Of the main stack; where blocks differ, of the first one, and a note says so. n_dspark_stages is what the
 * checkpoint holds. */
const pl_storage *pl_checkpoint_storage(const pl_checkpoint *checkpoint);

/* PL_DRAFTER_MTP can draft. For the others *reason, if not NULL, becomes one sentence for whoever asked for
 * speculation; for PL_DRAFTER_MTP it becomes NULL. */
pl_drafter pl_checkpoint_drafter(const pl_checkpoint *checkpoint, const char **reason);

/* Every tensor in the files, in no promised order. */
int64_t pl_checkpoint_n_tensors(const pl_checkpoint *checkpoint);
pl_checkpoint_tensor pl_checkpoint_tensor_at(const pl_checkpoint *checkpoint, int64_t index);

int32_t pl_checkpoint_n_shards(const pl_checkpoint *checkpoint);
const char *pl_checkpoint_shard_name(const pl_checkpoint *checkpoint, int32_t shard);

/* False for a checkpoint without data (PL_SAFETENSORS_HEADERS_ONLY in any shard): it can be inspected and
 * planned for, pl_checkpoint_read refuses. */
bool pl_checkpoint_has_data(const pl_checkpoint *checkpoint);

/* What is odd but no reason to refuse: one sentence each. */
int32_t pl_checkpoint_n_notes(const pl_checkpoint *checkpoint);
const char *pl_checkpoint_note(const pl_checkpoint *checkpoint, int32_t index);

/* Calls `visit` for every tensor of the list (roles MODEL and COPY): first the model's ends, then the layers
 * ascending, then mtp.0; within a block as pl_tensors_each. spec->dtype is the file's. Ends early, with its
 * status, when `visit` fails. */
typedef pl_status pl_checkpoint_visit(void *user, const pl_tensor_spec *spec,
                                      const pl_checkpoint_tensor *tensor, pl_error *err);
pl_status pl_checkpoint_each(const pl_checkpoint *checkpoint, pl_checkpoint_visit *visit,
                             void *user, pl_error *err) PL_MUST_CHECK;

/* Reads `bytes` bytes from byte `from` of the tensor's data. IO where the file gives less, UNSUPPORTED
 * where the checkpoint has no data. */
pl_status pl_checkpoint_read(const pl_checkpoint *checkpoint, const pl_checkpoint_tensor *tensor,
                             uint64_t from, void *to, size_t bytes, pl_error *err) PL_MUST_CHECK;

/* Told while many bytes are read (loading, digest): done out of total bytes, first with done = 0. NULL ends
 * it. Called by the thread that reads. */
typedef void pl_checkpoint_progress(void *user, uint64_t done, uint64_t total);
void pl_checkpoint_on_progress(pl_checkpoint *checkpoint, pl_checkpoint_progress *progress,
                               void *user);

/* Tells the listener, if there is one. For readers of data. */
void pl_checkpoint_report(const pl_checkpoint *checkpoint, uint64_t done, uint64_t total);

#endif
