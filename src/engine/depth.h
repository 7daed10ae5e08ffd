/* How many drafts a step should have: the depth that gives the most tokens a second, by what steps were seen to cost and
 * by how often drafts were seen to be accepted. It decides about speed alone; no depth changes a bit of a result.
 *
 * A step of n requests with k drafts each gives n (1 + a_0 + .. + a_(k-1)) tokens, where a_i is the share of steps whose
 * draft at position i is accepted; acceptance is that of all requests, old ones counting less and less. What it
 * costs depends on n, so there is a table of costs for each power of two of n. Depths that were not tried are, unless
 * their gain could not pay for what fewer drafts cost already; afterwards the neighbours of the best are tried again from time
 * to time, more and more rarely while nothing changes. Pure: no clock, no memory of its own. */
#ifndef PL_ENGINE_DEPTH_H
#define PL_ENGINE_DEPTH_H

#include "plimsoll/engine.h"

enum {
    PL_DEPTH_SIZES =
        17, /* powers of two of requests: 1, 2, 3..4, 5..8, ..; the last one for all above */
};

/* What steps of about one number of requests were seen to cost. */
typedef struct pl_depth_costs {
    double seconds[PL_MAX_SPECULATIVE + 1]; /* of a step, by depth */
    uint32_t n_samples[PL_MAX_SPECULATIVE + 1];
    uint32_t n_tried[PL_MAX_SPECULATIVE + 1]; /* steps asked for to learn of it */
    uint64_t steps, next_trial,
        pause;                  /* steps so far; when to try a neighbour; between two trials */
    int32_t trial, trial_steps; /* depth being tried, steps it has left */
    int32_t best;
} pl_depth_costs;

typedef struct pl_depth {
    int32_t most;
    double drafted[PL_MAX_SPECULATIVE], accepted[PL_MAX_SPECULATIVE]; /* by position, fading */
    pl_depth_costs costs[PL_DEPTH_SIZES];
} pl_depth;

/* Depths 0 .. most, at most PL_MAX_SPECULATIVE. */
void pl_depth_init(pl_depth *d, int32_t most);

/* A verification: of n_drafts drafts of a request the first n_accepted were accepted. */
void pl_depth_note_drafts(pl_depth *d, int32_t n_drafts, int32_t n_accepted);

/* A step of n_requests in which each had `depth` drafts verified and got as many new ones, and nothing else ran. */
void pl_depth_note_step(pl_depth *d, int32_t n_requests, int32_t depth, double seconds);

/* The depth for the next step of n_requests. */
int32_t pl_depth_choose(pl_depth *d, int32_t n_requests);

/* Tokens that a step gives each request at this depth, by what was seen so far. */
double pl_depth_tokens(const pl_depth *d, int32_t depth);

#endif
