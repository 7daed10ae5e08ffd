/* The folder that a synthetic checkpoint is written to: may it be used, what must go, is there room. */
#ifndef PL_MODEL_SYNTH_FOLDER_H
#define PL_MODEL_SYNTH_FOLDER_H

#include <stdbool.h>

#include "plimsoll/status.h"

#define PL_SYNTH_CONFIG_FILE "config.json"
#define PL_SYNTH_INDEX_FILE  "model.safetensors.index.json"
/* Files in the making; whatever has such a name is a leftover. */
#define PL_SYNTH_TEMPORARY ".plimsoll-synth.partial"

/* Checks the folder against the rules of pl_synth_write, removes an earlier checkpoint and leftovers, the
 * index first, and creates what is missing. `config` is what config.json will hold, `need_bytes` what the
 * new files will take on the disk. *fd is the open folder; the caller closes it. Nothing is changed on
 * disk unless every check has passed. */
pl_status pl_synth_folder_open(const char *path, const char *config, size_t config_bytes,
                               uint64_t need_bytes, bool force, int *fd,
                               pl_error *err) PL_MUST_CHECK;

/* A file in the making, in the open folder. */
pl_status pl_synth_folder_create_file(int folder, const char *path, int *fd,
                                      pl_error *err) PL_MUST_CHECK;

/* Makes it durable and gives it its name; closes fd in any case. `path` and `name` are for the file and for
 * errors. */
pl_status pl_synth_folder_finish_file(int folder, const char *path, int fd, const char *name,
                                      pl_error *err) PL_MUST_CHECK;

/* Closes and removes it. */
void pl_synth_folder_drop_file(int folder, int fd);

/* A whole small file. */
pl_status pl_synth_folder_put(int folder, const char *path, const char *name, const char *bytes,
                              size_t n, pl_error *err) PL_MUST_CHECK;

/* pwrite that repeats after short writes and signals. `path` is for errors. */
pl_status pl_synth_write_all(int fd, const char *path, const void *bytes, size_t n, uint64_t offset,
                             pl_error *err) PL_MUST_CHECK;

#endif
