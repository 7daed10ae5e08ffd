/* A step: a flat list of tokens of several sequences. Prefill, a chunk of it, decoding, verification
 * of drafts and any mixture are steps. */
#ifndef PL_MODEL_STEP_H
#define PL_MODEL_STEP_H

#include "cache/state.h"

/* The tokens first .. first + n - 1 of the step are at positions state->n .. state->n + n - 1 (mtp:
 * state->n_mtp ..). */
typedef struct pl_step_seq {
    pl_state *state;
    int32_t first, n;
    int32_t n_draft; /* of these, how many at the end may be taken back; <= state->max_draft */
} pl_step_seq;

typedef struct pl_step {
    int32_t n_tokens; /* the sum of all n; rows lie in the order of seqs, without gaps */
    const int32_t *tokens;
    int32_t n_seqs;
    const pl_step_seq *seqs;
    int32_t n_logits;          /* rows that want logits */
    const int32_t *logit_rows; /* [n_logits] */
} pl_step;

#endif
