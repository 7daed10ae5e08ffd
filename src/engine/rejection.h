/* Classic rejection sampling of drafts, which keeps the distribution of tokens and not their bits: docs/NUMERICS.md 13.
 *
 * With p what the target's row and the options make of a token, q the same of the draft's row: a draft x is drawn from q and
 * accepted with probability min(1, p(x) / q(x)); in its place comes a token drawn from max(0, p - q). Either way the
 * token is distributed as p (specification section 3.1 of speculation). All draws are noise of their own purposes. */
#ifndef PL_ENGINE_REJECTION_H
#define PL_ENGINE_REJECTION_H

#include "engine/sampling.h"

/* Draws a draft; q [vocab] becomes the probabilities that it was drawn from. -1, and q zeros, where a mask leaves no
 * token. s->l holds the raw logits of the draft's row; c->noise is that of a token at its position. Temperature above 0, as
 * below. */
int32_t pl_rejection_draft(pl_sampler *s, const pl_choice *c, float *q);

/* The token where `draft` was drawn from q: the draft exactly where it is accepted. -1 where a mask leaves no token. s->l
 * holds the raw logits of the target's row. */
int32_t pl_rejection_choose(pl_sampler *s, const pl_choice *c, const float *q, int32_t draft);

#endif
