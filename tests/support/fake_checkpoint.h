/* Checkpoint folders made in memory, to be changed tensor by tensor before they are written: for tests of
 * everything that a loader must accept or refuse. Values are fixed by a tensor's name alone. */
#ifndef PL_TESTS_FAKE_CHECKPOINT_H
#define PL_TESTS_FAKE_CHECKPOINT_H

#include "model/tensors.h"

enum { FAKE_MAX_RANK = 10 };

typedef struct fake_tensor {
    char name[512]; /* written into JSON as it is */
    char dtype[16];
    char file[64]; /* the shard it is written to */
    int rank;
    int64_t shape[FAKE_MAX_RANK];
    uint64_t bytes; /* of data; not kept in step with dtype and shape */
    uint8_t *data;  /* NULL: a hole, reads as zeros */
    bool in_index;
} fake_tensor;

typedef struct fake_checkpoint {
    char *config; /* text of config.json */
    fake_tensor *tensors;
    size_t n, max;
    const char *metadata;  /* of the index, JSON text; NULL: the right total_size */
    const char *index_end; /* what follows the weight_map in the index; "}" */
    bool sharded;
} fake_checkpoint;

/* The tensors of a preset (support/configs.h) as `plimsoll synth` would name them; without values where
 * `values` is false. */
fake_checkpoint *fake_create(const char *preset, bool values);
void fake_free(fake_checkpoint *f);

/* Replaces the config text (taken). */
void fake_set_config(fake_checkpoint *f, char *config);

/* Fails the test where there is none. */
fake_tensor *fake_find(fake_checkpoint *f, const char *name);
void fake_remove(fake_checkpoint *f, const char *name);
/* A copy at the end, under another name. */
fake_tensor *fake_repeat(fake_checkpoint *f, const char *name, const char *new_name);

/* Rewrites element type, shape and bytes of a tensor (rank 2); values are made anew. */
void fake_retype(fake_tensor *t, const char *dtype, int64_t rows, int64_t cols);

/* Writes config.json, the weights in one file or in shards, and the index. */
void fake_write(const fake_checkpoint *f, const char *dir);

/* Header (the 8 length bytes included) of one file; the caller frees it. */
char *fake_header(const fake_checkpoint *f, const char *file, size_t *length);

#endif
