/* Rejection sampling over the sampler's candidates. Probabilities are exponentials over their sum; what rounding does to
 * them is far below what any number of draws could show. */
#include "engine/rejection.h"

#include <string.h>

#include "base/math.h"
#include "engine/logits.h"

static pl_noise noise_of(const pl_choice *c, pl_purpose purpose)
{
    pl_noise noise = c->noise;

    noise.purpose = purpose;
    return noise;
}

int32_t pl_rejection_draft(pl_sampler *s, const pl_choice *c, float *q)
{
    const pl_noise noise = noise_of(c, PL_PURPOSE_DRAFT);
    const int32_t n = pl__sample_candidates(s, c);
    float max;
    double mass;

    memset(q, 0, (size_t)s->vocab * sizeof *q);
    if (n == 0)
        return -1;
    mass = pl__sample_mass(s, n, &max);
    for (int32_t i = 0; i < n; i++)
        q[s->cand[i]] = (float)((double)pl_exp_f32(s->l[s->cand[i]] - max) / mass);
    return pl__sample_pick(s, n, &noise);
}

/* The first of max(0, p - q) with the noise; -1 where nothing is above 0, which only rounding can bring about. */
static int32_t pick_residual(const pl_sampler *s, int32_t n, const pl_noise *noise, const float *q,
                             float max, double mass)
{
    int32_t best = -1;
    float sum = 0;

    for (int32_t i = 0; i < n; i++) {
        const int32_t id = s->cand[i];
        const double p = (double)pl_exp_f32(s->l[id] - max) / mass, left = p - (double)q[id];
        float with;

        if (!(left > 0))
            continue;
        with = (float)pl_log_f64(left) + pl_gumbel(noise, (uint32_t)id);
        if (best < 0 || pl_logit_before(with, id, sum, best)) {
            sum = with;
            best = id;
        }
    }
    return best;
}

static bool is_candidate(const pl_sampler *s, int32_t n, int32_t id)
{
    int32_t low = 0, high = n;

    while (low < high) {
        const int32_t middle = low + (high - low) / 2;

        if (s->cand[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && s->cand[low] == id;
}

int32_t pl_rejection_choose(pl_sampler *s, const pl_choice *c, const float *q, int32_t draft)
{
    const pl_noise accept = noise_of(c, PL_PURPOSE_ACCEPT);
    const pl_noise residual = noise_of(c, PL_PURPOSE_RESIDUAL);
    const int32_t n = pl__sample_candidates(s, c);
    const bool possible = is_candidate(s, n, draft);
    int32_t token;
    float max;
    double mass;

    if (n == 0)
        return -1;
    mass = pl__sample_mass(s, n, &max);
    if (possible &&
        pl_uniform(&accept) * (double)q[draft] < (double)pl_exp_f32(s->l[draft] - max) / mass)
        return draft;
    token = pick_residual(s, n, &residual, q, max, mass);
    if (token >= 0)
        return token;
    return possible ? draft : pl__sample_pick(s, n, &residual);
}
