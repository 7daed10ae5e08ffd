/* Choosing a token from a row of logits: docs/NUMERICS.md 13, steps 1 to 10.
 *
 * The choice is a function of the row, the options and the noise of (seed, position, choice): nothing else
 * is remembered between calls. */
#ifndef PL_ENGINE_SAMPLING_H
#define PL_ENGINE_SAMPLING_H

#include "base/arena.h"
#include "base/philox.h"
#include "plimsoll/engine.h"

/* Working memory, for any number of requests one after another. */
typedef struct pl_sampler {
    int32_t vocab;
    float *l;        /* [vocab] the caller puts raw logits here; used up by a choice */
    int32_t *cand;   /* [vocab] */
    int32_t *heap;   /* [vocab] */
    uint32_t *count; /* [vocab] zeros between calls */
    uint32_t *mask;  /* [up(vocab, 32) / 32] candidates */
} pl_sampler;

/* Carves; a dry run counts. The memory must be zeros. */
void pl_sampler_layout(pl_sampler *s, pl_arena *arena, int32_t vocab);

/* What a choice depends on beside the logits. Pointers are borrowed during the call. */
typedef struct pl_choice {
    const pl_request_params *params; /* checked: pl_sampling_check */
    int32_t eos;                     /* banned with the stop ids; -1: none */
    const int32_t *output;           /* tokens chosen so far */
    int32_t n_output;
    pl_noise noise;
} pl_choice;

/* INVALID with field, value and range where an option makes no sense or no token could ever be chosen. */
pl_status pl_sampling_check(const pl_request_params *params, int32_t vocab, int32_t eos,
                            pl_error *err) PL_MUST_CHECK;

/* Whether the choice is that of the largest raw logit, so that nobody needs a sampler. */
bool pl_choice_is_plain(const pl_choice *c);

/* The token; -1 where the request's mask leaves none. Runs in the environment of base/fpenv.h; s->l holds the raw
 * logits. */
int32_t pl_sample(pl_sampler *s, const pl_choice *c);

/* Whether the temperature is 0 (docs/NUMERICS.md 13, step 5). */
bool pl_choice_is_greedy(const pl_choice *c);

/* The parts of pl_sample. Steps 2 to 4: penalties of the tokens in the prompt and the output. */
void pl__sample_penalise(pl_sampler *s, const pl_choice *c);

/* The candidates that are left after step 9, ids ascending in s->cand, their processed logits in s->l; the
 * number of them. At temperature 0 there is one at most. */
int32_t pl__sample_candidates(pl_sampler *s, const pl_choice *c);

/* The sum of exp(l - max) over n > 0 candidates, docs/NUMERICS.md 13, step 9. */
double pl__sample_mass(const pl_sampler *s, int32_t n, float *max);

/* Step 10: the first of n > 0 candidates with the noise. */
int32_t pl__sample_pick(const pl_sampler *s, int32_t n, const pl_noise *noise);

#endif
