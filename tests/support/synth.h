/* Synthetic checkpoints for tests: making them, and comparing them with digests. */
#ifndef PL_TESTS_SYNTH_H
#define PL_TESTS_SYNTH_H

#include "model/synth.h"

/* `overrides` is JSON text or NULL. */
pl_synth_config_options synth_options(const char *preset, const char *overrides);

/* These fail the test where the library refuses. The caller destroys what they return. */
pl_synth *synth_create_from(const pl_synth_config_options *o, uint64_t seed);
pl_synth *synth_create(const char *preset, const char *overrides, uint64_t seed);
void synth_write_to(const pl_synth *s, const char *folder, const pl_synth_write_options *o);

/* SHA-256 of a file in the folder. */
void check_digest(const char *folder, const char *file, const char *want);

/* The digests of all shards are in the golden file's metadata. */
void check_golden_shards(const char *folder, const char *golden_name, size_t n_shards);

/* Names in the folder, hidden ones too. */
int count_entries(const char *folder);

#endif
