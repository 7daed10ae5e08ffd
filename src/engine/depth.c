/* The depth of speculation: see depth.h. What a step costs and what became of drafts is told; who measures is step.c. */
#include "engine/depth.h"

#include <string.h>

enum {
    FIRST_SAMPLES =
        3, /* of a depth before it is compared; the first step of a new depth is not one */
    MOST_TRIES =
        24, /* of a depth that gives no sample, since prompts run beside it or drafts are cut */
    TRIAL_STEPS = 3,
    SHORTEST_PAUSE = 64,
    LONGEST_PAUSE = 1024,
    HALF_LIFE = 256, /* steps after which what became of a draft counts half */
};

/* Before anything is known; drafts of the deep models' mtp blocks are accepted about so often. */
static const double FIRST_GUESS = 0.7;

/* What was seen of one depth is trusted so far: a new sample moves the mean by this much. */
static const double NEWEST = 0.2;

/* A depth has to be better than the one in use by this. */
static const double MARGIN = 1.02;

void pl_depth_init(pl_depth *d, int32_t most)
{
    memset(d, 0, sizeof *d);
    d->most = most;
    for (int i = 0; i < PL_DEPTH_SIZES; i++) {
        d->costs[i].pause = SHORTEST_PAUSE;
        d->costs[i].trial = -1;
        d->costs[i].best = most ? 1 : 0;
    }
}

void pl_depth_note_drafts(pl_depth *d, int32_t n_drafts, int32_t n_accepted)
{
    for (int32_t i = 0; i < n_drafts && i < d->most; i++) {
        d->drafted[i] += 1;
        d->accepted[i] += i < n_accepted;
    }
}

/* Positions that are not drafted any more are forgotten too: so the guess comes back, and with it a trial. */
static void fade(pl_depth *d)
{
    const double keep = 1 - 0.69314718 / HALF_LIFE;

    for (int32_t i = 0; i < d->most; i++) {
        d->drafted[i] *= keep;
        d->accepted[i] *= keep;
    }
}

/* Two steps' worth of the guess, then what was seen. A position that was never drafted: as the one before it goes
 * on from its own predecessor. */
double pl_depth_tokens(const pl_depth *d, int32_t depth)
{
    double tokens = 1, before = 1, ratio = FIRST_GUESS;

    for (int32_t i = 0; i < depth; i++) {
        const double guess = before * ratio;
        double a = (d->accepted[i] + 2 * guess) / (d->drafted[i] + 2);

        a = a < before ? a : before;
        ratio = before > 0 ? a / before : 0;
        before = a;
        tokens += a;
    }
    return tokens;
}

static pl_depth_costs *costs_of(pl_depth *d, int32_t n_requests)
{
    int i = 0;

    while (i + 1 < PL_DEPTH_SIZES && (int64_t)1 << i < n_requests)
        i++;
    return &d->costs[i];
}

void pl_depth_note_step(pl_depth *d, int32_t n_requests, int32_t depth, double seconds)
{
    pl_depth_costs *c = costs_of(d, n_requests);
    const uint32_t n = c->n_samples[depth];
    const double weight = 1.0 / (n + 1) > NEWEST ? 1.0 / (n + 1) : NEWEST;
    const double mean = c->seconds[depth];

    /* A step that took long because the machine did something else tells little of its depth. */
    if (n && seconds > 1.25 * mean)
        seconds = 1.25 * mean;
    c->seconds[depth] = seconds < mean / 2 ? seconds : mean + weight * (seconds - mean);
    c->n_samples[depth]++;
}

static double rate(const pl_depth *d, const pl_depth_costs *c, int32_t depth)
{
    return c->seconds[depth] > 0 ? pl_depth_tokens(d, depth) / c->seconds[depth] : 0;
}

static bool is_known(const pl_depth_costs *c, int32_t depth)
{
    return c->n_samples[depth] >= FIRST_SAMPLES;
}

static int32_t best_known(const pl_depth *d, const pl_depth_costs *c)
{
    int32_t best = c->best;

    for (int32_t k = 0; k <= d->most; k++)
        if (is_known(c, k) && (!is_known(c, best) || rate(d, c, k) > MARGIN * rate(d, c, best)))
            best = k;
    return best;
}

/* Whether depth k could be the best: a step with more drafts costs no less than one with fewer. */
static bool could_pay(const pl_depth *d, const pl_depth_costs *c, int32_t k)
{
    double least = 0;

    for (int32_t i = 0; i < k; i++)
        if (is_known(c, i) && c->seconds[i] > least)
            least = c->seconds[i];
    return !is_known(c, c->best) || least <= 0 ||
           pl_depth_tokens(d, k) > MARGIN * rate(d, c, c->best) * least;
}

/* The next depth of which nothing is known and which could be worth it, from few drafts to many; -1: none. */
static int32_t unknown(const pl_depth *d, const pl_depth_costs *c)
{
    for (int32_t k = 0; k <= d->most; k++)
        if (!is_known(c, k) && c->n_tried[k] < MOST_TRIES && could_pay(d, c, k))
            return k;
    return -1;
}

/* The neighbour of the best that was seen less often; -1: none that could pay. */
static int32_t neighbour(const pl_depth *d, const pl_depth_costs *c)
{
    const int32_t up = c->best < d->most && could_pay(d, c, c->best + 1) ? c->best + 1 : -1;
    const int32_t down = c->best - 1;

    if (up < 0 || down < 0)
        return up > down ? up : down;
    return c->n_samples[up] < c->n_samples[down] ? up : down;
}

static void begin_trial(pl_depth *d, pl_depth_costs *c)
{
    c->next_trial = c->steps + c->pause;
    c->pause = 2 * c->pause < LONGEST_PAUSE ? 2 * c->pause : LONGEST_PAUSE;
    c->trial = neighbour(d, c);
    c->trial_steps = TRIAL_STEPS;
}

int32_t pl_depth_choose(pl_depth *d, int32_t n_requests)
{
    pl_depth_costs *c = costs_of(d, n_requests);
    const int32_t before = c->best;
    int32_t k;

    fade(d);
    c->steps++;
    c->best = best_known(d, c);
    if (c->best != before) {
        c->pause = SHORTEST_PAUSE;
        c->next_trial = c->steps + c->pause;
        c->trial = -1;
    }
    k = unknown(d, c);
    if (k >= 0) {
        c->n_tried[k]++;
        return k;
    }
    if (c->trial < 0 && c->steps >= c->next_trial)
        begin_trial(d, c);
    if (c->trial < 0)
        return c->best;
    k = c->trial;
    if (--c->trial_steps == 0)
        c->trial = -1;
    return k;
}
