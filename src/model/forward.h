/* The forward pass of DeepSeek-V4: one code for prefill, decoding, verification and mtp.
 *
 * Owns the activations of one step, sized for the largest step beforehand; nothing is allocated later.
 * What a token's row becomes depends on its sequence alone, not on what shares the step.
 *
 * Source: specification sections 2-6, Appendix C. */
#ifndef PL_MODEL_FORWARD_H
#define PL_MODEL_FORWARD_H

#include "base/pool.h"
#include "comm/comm.h"
#include "model/step.h"
#include "model/trace.h"
#include "model/weights.h"
#include "ops/profile.h"
#include "plan/region.h"

typedef struct pl_forward_limits {
    int32_t max_tokens; /* of a step */
    int32_t max_seqs;   /* of a step */
    int32_t max_logits; /* rows of a step */
    int32_t max_len;    /* positions of a sequence */
    int32_t max_draft;
    int32_t n_ranks;  /* of this process, 0: one; others need pl_forward_set_ranks */
    bool want_scores; /* hooks may ask for indexer scores: costs max_tokens * max_len / 4 values */
} pl_forward_limits;

typedef struct pl_forward pl_forward;

/* The geometry of this model's states; borrows from config. */
pl_state_shape pl_forward_state_shape(const pl_config *config, const pl_ops *ops, bool has_mtp,
                                      const pl_forward_limits *limits);

/* Bytes of memory that pl_forward_init carves: closed form. */
uint64_t pl_forward_bytes(const pl_config *config, const pl_ops *ops, bool has_mtp, int n_workers,
                          const pl_forward_limits *limits);

/* The same bytes taken from an arena, as regions "forward.*"; the plan and the carving. Returns the memory for
 * pl_forward_init, NULL in a dry run. */
void *pl_forward_layout(pl_regions *regions, pl_arena *arena, const pl_config *config,
                        const pl_ops *ops, bool has_mtp, int n_workers,
                        const pl_forward_limits *limits);

/* PL_OK where pl_forward_init takes these limits for this model; else INVALID. */
pl_status pl_forward_check_limits(const pl_config *config, const pl_forward_limits *limits,
                                  pl_error *err) PL_MUST_CHECK;

/* memory: pl_forward_bytes, 64-byte aligned; it, weights and pool are borrowed while f is used. */
pl_status pl_forward_init(void *memory, const pl_weights *weights, const pl_ops *ops, pl_pool *pool,
                          const pl_forward_limits *limits, pl_forward **out,
                          pl_error *err) PL_MUST_CHECK;

/* NULL: none. Borrowed. A run refuses hooks that want indexer scores where the limits did not, and any with several
 * ranks, none of which has every tensor whole. */
void pl_forward_set_hooks(pl_forward *f, const pl_hooks *hooks);

/* A clock on the operators of every step from now on (ops/profile.h), for as many workers as the pool has; NULL: none.
 * Borrowed. */
void pl_forward_set_profile(pl_forward *f, pl_profile *profile);

/* Who runs the passes of limits.n_ranks ranks; as many, INVALID else. All see the same weights and take turns at the
 * workers; every other buffer, states too, each has for itself: a step's states are chains of n_ranks
 * (pl_state.next_rank). Bits do not depend on the number. Borrowed. */
pl_status pl_forward_set_ranks(pl_forward *f, pl_ranks *ranks, pl_error *err) PL_MUST_CHECK;

/* Runs the main stack over a step and advances the states. Afterwards pl_forward_streams are the streams
 * of its tokens, pl_forward_logits the wanted rows. Refuses (INVALID) a step beyond the limits, a token
 * id outside the vocabulary, a state that two sequences name, a position beyond a state's max_len. */
pl_status pl_forward_run(pl_forward *f, const pl_step *step, pl_error *err) PL_MUST_CHECK;

/* Runs the mtp block: row r of the step pairs the stream row rows[r] of `streams` (those of the main
 * stack, or the block's own of the call before) at position i with tokens[r], the token at i + 1; token
 * -1 stands for a zero embedding. Advances n_mtp; a caller that fed back a draft sets it back. */
pl_status pl_forward_run_mtp(pl_forward *f, const pl_step *step, const void *streams,
                             const int32_t *rows, pl_error *err) PL_MUST_CHECK;

/* The head alone, once more, over the streams that the last pl_forward_run left: logits of step's logit_rows, as that run
 * of the same step would have given them. Changes no state. */
pl_status pl_forward_run_head(pl_forward *f, const pl_step *step, pl_error *err) PL_MUST_CHECK;

/* Makes a state that stands at position n without having run it, to measure steps there (model/inject.c): what would
 * be remembered of positions `from` .. n - 1 is made of random numbers that `seed`, layer and position decide, the formats
 * and amounts are true. Compressors stand as at position 0, hence n a multiple of 128. Results mean nothing; only
 * speed does. What is remembered of positions below `from` stays: 0, or the n of an earlier call for this state. */
pl_status pl_forward_inject(pl_forward *f, pl_state *state, int32_t from, int32_t n, uint64_t seed,
                            pl_error *err) PL_MUST_CHECK;

/* act [n_tokens][4][D], before the head; valid until the next run of the same kind. */
const void *pl_forward_streams(const pl_forward *f);
const void *pl_forward_mtp_streams(const pl_forward *f);

/* Logits of the last run of either kind, row i of logit_rows: acc [n_logits][V]. */
const void *pl_forward_logits(const pl_forward *f);

/* The largest logit's id, ties to the lower one. */
int32_t pl_forward_argmax(const pl_forward *f, int32_t i);

#endif
