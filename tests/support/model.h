/* A small checkpoint opened for a test: weights, pool, forward pass, states of sequences.
 *
 * The checkpoints lie in PL_CHECKPOINT_DIR, written once per build by `plimsoll synth`. */
#ifndef PL_TESTS_MODEL_H
#define PL_TESTS_MODEL_H

#include "model/forward.h"
#include "support/check.h"

typedef struct test_model {
    const pl_config *config;
    const pl_ops *ops;
    pl_forward *forward;
    pl_forward_limits limits;
    pl_pool *pool;
    pl_ranks *ranks; /* where the limits have several */
    pl_weights *weights;
    void *memory, *weights_memory;
    char path[1024];
} test_model;

/* Opens PL_CHECKPOINT_DIR/name at the level of `ops` with a pool of n_workers, weights in tiles but at f64 and
 * scalar. Unset limits: max_seqs 1, max_logits max_tokens,
 * max_len max_tokens. Fails the test when anything fails. */
test_model *test_model_open(const char *name, const pl_ops *ops, pl_forward_limits limits,
                            int n_workers);
void test_model_close(test_model *m);

/* Loads the weights again, in tiles; the forward pass must not be run any more. */
void test_model_tile(test_model *m);

/* A fresh state of this model, at all its ranks; freed by test_state_free. */
pl_state *test_state_new(const test_model *m);
void test_state_free(pl_state *s);

/* Runs tokens[n] of one sequence as one step; the logits of all rows are wanted where `logits`. */
void test_run(test_model *m, pl_state *s, const int32_t *tokens, int32_t n, bool logits);

/* The same through the mtp block, on rows first_row .. of `streams`. */
void test_run_mtp(test_model *m, pl_state *s, const void *streams, int32_t first_row,
                  const int32_t *tokens, int32_t n, bool logits);

/* Logits row i of the last run. */
void test_logits(const test_model *m, int32_t i, float *out);

#endif
