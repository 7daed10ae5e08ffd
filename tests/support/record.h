/* A fingerprint of everything the forward pass computes for each token of each sequence.
 *
 * A recorder is a hook: of every tap it hashes the row of every token into that token's digest, layer after
 * layer, logits last. Two runs computed the same bits for a token exactly when (but for hash collisions) its
 * digests are equal, whatever else their steps held. */
#ifndef PL_TESTS_RECORD_H
#define PL_TESTS_RECORD_H

#include "support/model.h"

/* One sequence: digest [max_len] by position. */
typedef struct recorded {
    const pl_state *state;
    uint64_t *digest, *mtp_digest;
} recorded;

typedef struct recorder {
    pl_hooks hooks;
    recorded *seqs; /* those that steps may hold */
    int n_seqs;
    float *row;
} recorder;

/* Hooks into m; every step's sequences must be among `states`. */
recorder *recorder_open(test_model *m, pl_state *const *states, int n_states);
void recorder_close(test_model *m, recorder *r);

/* Fails unless the first n digests of both are equal; says at which position not. */
void recorder_check_same(const char *what, const uint64_t *got, const uint64_t *want, int32_t n);

#endif
