/* Random checkpoints in the official layout: `plimsoll synth`.
 *
 * Bytes depend on the options and the seed alone: not on threads, and equal to what the project's
 * Python oracle writes for the same configuration. Source: specification sections 1 and 9. */
#ifndef PL_MODEL_SYNTH_H
#define PL_MODEL_SYNTH_H

#include "model/synth_preset.h"
#include "model/tensors.h"

typedef struct pl_synth pl_synth;

/* Works out configuration and files; writes nothing. The caller destroys *out. */
pl_status pl_synth_create(const pl_synth_config_options *options, uint64_t seed, pl_synth **out,
                          pl_error *err) PL_MUST_CHECK;
void pl_synth_destroy(pl_synth *synth);

size_t pl_synth_n_tensors(const pl_synth *synth);
size_t pl_synth_n_shards(const pl_synth *synth);
uint64_t pl_synth_data_bytes(const pl_synth *synth); /* of all tensors */

/* Called now and then from any thread, one call at a time; false stops the work. */
typedef bool pl_synth_progress(void *user, uint64_t bytes_done, size_t shards_done);

typedef struct pl_synth_write_options {
    bool headers_only;           /* sparse files, marked by PL_SAFETENSORS_HEADERS_ONLY */
    bool force;                  /* replace whatever checkpoint lies in the folder */
    int n_threads;               /* 0: one per usable core */
    pl_synth_progress *progress; /* may be NULL */
    void *user;
} pl_synth_write_options;

/* Writes the checkpoint into `folder`, which is created with its parents.
 *
 * A folder with anything in it is refused (PL_ERR_INVALID) unless its config.json is the one that would
 * be written, as after an earlier or interrupted run with the same options, or `force` is given. Only
 * files of a checkpoint's names are ever replaced or removed. Free space is checked first.
 *
 * The index file is removed first and written last, every file appears under its name when it is whole:
 * a run that ends early, for whatever reason, leaves no folder that passes for a checkpoint.
 *
 * Memory: a buffer of about 1 MiB per thread, whatever the model's size. PL_ERR_CANCELLED when
 * `progress` said so, PL_ERR_IO for the disk. */
pl_status pl_synth_write(const pl_synth *synth, const char *folder,
                         const pl_synth_write_options *options, pl_error *err) PL_MUST_CHECK;

#endif
