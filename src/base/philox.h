/* The counter generator Philox4x32-10 and the Gumbel noise that sampling adds to logits.
 *
 * Noise is a pure function of (seed, position, purpose, choice, token): no state, no order of calls, so
 * a draft and the target it is checked against draw the same (docs/NUMERICS.md 13). */
#ifndef PL_BASE_PHILOX_H
#define PL_BASE_PHILOX_H

#include <stdint.h>

/* Ten rounds. out may be counter. */
void pl_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* What a draw is for; part of the counter, so the numbers are part of the contract. */
typedef enum pl_purpose {
    PL_PURPOSE_TOKEN = 0, /* choosing the token of a position */
    /* Rejection sampling, which needs draws that know nothing of each other. */
    PL_PURPOSE_DRAFT = 1,    /* drawing a draft */
    PL_PURPOSE_ACCEPT = 2,   /* accepting it */
    PL_PURPOSE_RESIDUAL = 3, /* choosing in its place */
} pl_purpose;

/* Which draw: all of it but the token. */
typedef struct pl_noise {
    uint64_t seed;
    uint32_t position; /* of the token being chosen, from 0 */
    uint32_t choice;   /* index of the completion within its request */
    pl_purpose purpose;
} pl_noise;

/* out[i] = noise of token first + i, i < n. It lies between PL_GUMBEL_MIN and PL_GUMBEL_MAX, so a
 * candidate whose logit trails the best sum by more than PL_GUMBEL_MAX needs none. */
void pl_gumbel_fill(const pl_noise *noise, uint32_t first, int64_t n, float *out);
float pl_gumbel(const pl_noise *noise, uint32_t token);

/* One number of the open interval from 0 to 1: that of word 0. */
double pl_uniform(const pl_noise *noise);

/* fp32 of the noise for words 0 and 2^32 - 1. */
#define PL_GUMBEL_MIN (-0x1.90a3aap+1f)
#define PL_GUMBEL_MAX 0x1.6dfb52p+4f

#endif
