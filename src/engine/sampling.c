/* The sampler. Candidates are a list of ids, ascending; each step that drops some compacts it. Top-k and top-p
 * need the total order, which heaps give as far as it is needed: the vocabulary is never sorted. */
#include "engine/sampling.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "engine/logits.h"

void pl_sampler_layout(pl_sampler *s, pl_arena *arena, int32_t vocab)
{
    size_t n = (size_t)vocab;

    *s = (pl_sampler){
        .vocab = vocab,
        .l = pl_arena_array(arena, n, sizeof *s->l, 0),
        .cand = pl_arena_array(arena, n, sizeof *s->cand, 0),
        .heap = pl_arena_array(arena, n, sizeof *s->heap, 0),
        .count = pl_arena_array(arena, n, sizeof *s->count, 0),
        .mask = pl_arena_array(arena, (n + 31) / 32, sizeof *s->mask, 0),
    };
}

/* ---- options */

static pl_status check_float(const char *name, float v, double min, double max, pl_error *err)
{
    if (isfinite(v) && (double)v >= min && (double)v <= max)
        return PL_OK;
    return pl_error_set(err, PL_ERR_INVALID, "%s: out of range (got %g, want %g to %g)", name,
                        (double)v, min, max);
}

static pl_status check_ids(const char *name, const int32_t *ids, int32_t n, int32_t vocab,
                           pl_error *err)
{
    PL_CHECK(n >= 0 && (n == 0 || ids), err, "%s: no array of that length (got %d)", name, n);
    for (int32_t i = 0; i < n; i++)
        PL_CHECK(ids[i] >= 0 && ids[i] < vocab, err,
                 "%s: entry %d is not in the vocabulary (got %d, want 0 to %d)", name, i, ids[i],
                 vocab - 1);
    return PL_OK;
}

static bool is_stop(const pl_request_params *p, int32_t eos, int32_t id)
{
    if (id == eos)
        return true;
    for (int32_t i = 0; i < p->n_stop_ids; i++)
        if (p->stop_ids[i] == id)
            return true;
    return false;
}

static bool is_allowed(const uint32_t *allowed, int32_t id)
{
    return !allowed || allowed[id / 32] >> (id & 31) & 1;
}

static pl_status check_candidates(const pl_request_params *p, int32_t vocab, int32_t eos,
                                  pl_error *err)
{
    for (int32_t id = 0; id < vocab; id++)
        if (is_allowed(p->allowed, id) && !(p->min_tokens > 0 && is_stop(p, eos, id)))
            return PL_OK;
    return pl_error_set(err, PL_ERR_INVALID,
                        "allowed: no token could be chosen (want at least one%s)",
                        p->min_tokens > 0 ? " that is no stop token, because of min_tokens" : "");
}

pl_status pl_sampling_check(const pl_request_params *p, int32_t vocab, int32_t eos, pl_error *err)
{
    PL_TRY(check_float("temperature", p->temperature, 0, FLT_MAX, err));
    PL_TRY(check_float("top_p", p->top_p, FLT_MIN, 1, err));
    PL_TRY(check_float("min_p", p->min_p, 0, 1, err));
    PL_TRY(check_float("repetition_penalty", p->repetition_penalty, FLT_MIN, FLT_MAX, err));
    PL_TRY(check_float("frequency_penalty", p->frequency_penalty, -FLT_MAX, FLT_MAX, err));
    PL_TRY(check_float("presence_penalty", p->presence_penalty, -FLT_MAX, FLT_MAX, err));
    PL_CHECK(p->top_k >= 0, err, "top_k: out of range (got %d, want 0 or more)", p->top_k);
    PL_CHECK(p->n_logit_bias >= 0 && (p->n_logit_bias == 0 || p->logit_bias), err,
             "logit_bias: no array of that length (got %d)", p->n_logit_bias);
    for (int32_t i = 0; i < p->n_logit_bias; i++) {
        PL_CHECK(p->logit_bias[i].token >= 0 && p->logit_bias[i].token < vocab, err,
                 "logit_bias: entry %d is not in the vocabulary (got %d, want 0 to %d)", i,
                 p->logit_bias[i].token, vocab - 1);
        PL_TRY(check_float("logit_bias", p->logit_bias[i].bias, -FLT_MAX, FLT_MAX, err));
    }
    PL_TRY(check_ids("stop_ids", p->stop_ids, p->n_stop_ids, vocab, err));
    return check_candidates(p, vocab, eos, err);
}

static bool has_penalties(const pl_request_params *p)
{
    return p->repetition_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0;
}

/* A denormal temperature is zero, as every operand is (DAZ). */
static bool is_greedy(const pl_request_params *p)
{
    return p->temperature < FLT_MIN;
}

static bool bans_stops(const pl_choice *c)
{
    return c->n_output < c->params->min_tokens;
}

bool pl_choice_is_greedy(const pl_choice *c)
{
    return is_greedy(c->params);
}

bool pl_choice_is_plain(const pl_choice *c)
{
    const pl_request_params *p = c->params;

    return is_greedy(p) && !p->allowed && !p->mask && !bans_stops(c) && p->n_logit_bias == 0 &&
           !has_penalties(p);
}

/* ---- steps 1 to 4 */

enum { IN_PROMPT = 1u << 31 };

static void penalise(pl_sampler *s, const pl_request_params *p, int32_t id)
{
    uint32_t n = s->count[id] & ~(uint32_t)IN_PROMPT;
    float l = s->l[id];

    if (s->count[id] == 0)
        return; /* done already */
    s->count[id] = 0;
    if (p->repetition_penalty != 1)
        l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
    if (p->frequency_penalty != 0)
        l = l - p->frequency_penalty * (float)n;
    if (p->presence_penalty != 0 && n > 0)
        l = l - p->presence_penalty;
    s->l[id] = l;
}

void pl__sample_penalise(pl_sampler *s, const pl_choice *c)
{
    const pl_request_params *p = c->params;

    if (!has_penalties(p))
        return;
    for (int32_t i = 0; i < p->n_tokens; i++)
        s->count[p->tokens[i]] = IN_PROMPT;
    for (int32_t i = 0; i < c->n_output; i++)
        s->count[c->output[i]]++;
    for (int32_t i = 0; i < p->n_tokens; i++)
        penalise(s, p, p->tokens[i]);
    for (int32_t i = 0; i < c->n_output; i++)
        penalise(s, p, c->output[i]);
}

static void ban(pl_sampler *s, int32_t id)
{
    if (id >= 0)
        s->mask[id / 32] &= ~(1u << (id & 31));
}

/* What the options leave, without and with the bans of min_tokens. */
static void make_mask(pl_sampler *s, const pl_choice *c, bool bans)
{
    const pl_request_params *p = c->params;
    size_t words = ((size_t)s->vocab + 31) / 32;

    if (p->allowed)
        memcpy(s->mask, p->allowed, words * sizeof *s->mask);
    else
        memset(s->mask, 0xFF, words * sizeof *s->mask);
    if (p->mask)
        p->mask(p->mask_user, c->output, c->n_output, s->mask);
    if (!bans)
        return;
    ban(s, c->eos);
    for (int32_t i = 0; i < p->n_stop_ids; i++)
        ban(s, p->stop_ids[i]);
}

static int32_t list_mask(pl_sampler *s)
{
    int32_t n = 0;

    for (int32_t id = 0; id < s->vocab; id++)
        if (s->mask[id / 32] >> (id & 31) & 1)
            s->cand[n++] = id;
    return n;
}

/* Candidates ascending; their number. A mask that leaves only stop tokens has the last word. */
static int32_t list_candidates(pl_sampler *s, const pl_choice *c)
{
    int32_t n;

    make_mask(s, c, bans_stops(c));
    n = list_mask(s);
    if (n > 0 || !c->params->mask || !bans_stops(c))
        return n;
    make_mask(s, c, false);
    return list_mask(s);
}

/* ---- the total order, as far as it is needed */

static bool before(const pl_sampler *s, int32_t a, int32_t b)
{
    return pl_logit_before(s->l[a], a, s->l[b], b);
}

static int32_t first_of(const pl_sampler *s, int32_t n)
{
    int32_t best = s->cand[0];

    for (int32_t i = 1; i < n; i++)
        if (before(s, s->cand[i], best))
            best = s->cand[i];
    return best;
}

/* Lets heap[at] sink. The root is the first of all (max) or the last one. */
static void sink(const pl_sampler *s, int32_t *heap, int32_t n, int32_t at, bool max)
{
    int32_t id = heap[at];

    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && before(s, heap[child + 1], heap[child]) == max)
            child++;
        if (before(s, heap[child], id) != max)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = id;
}

static void heapify(const pl_sampler *s, int32_t *heap, int32_t n, bool max)
{
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sink(s, heap, n, i, max);
}

/* ---- steps 7 to 9 */

static int32_t keep_top_k(pl_sampler *s, int32_t n, int32_t k)
{
    int32_t last, kept = 0;

    if (k == 0 || k >= n)
        return n;
    memcpy(s->heap, s->cand, (size_t)k * sizeof *s->heap);
    heapify(s, s->heap, k, false);
    for (int32_t i = k; i < n; i++)
        if (before(s, s->cand[i], s->heap[0])) {
            s->heap[0] = s->cand[i];
            sink(s, s->heap, k, 0, false);
        }
    last = s->heap[0];
    for (int32_t i = 0; i < n; i++)
        if (!before(s, last, s->cand[i]))
            s->cand[kept++] = s->cand[i];
    return kept;
}

static int32_t keep_min_p(pl_sampler *s, int32_t n, int32_t first, float min_p)
{
    float max = s->l[first];
    int32_t kept = 0;

    for (int32_t i = 0; i < n; i++) {
        int32_t id = s->cand[i];
        if (id == first || pl_exp_f32(s->l[id] - max) >= min_p)
            s->cand[kept++] = id;
    }
    return kept;
}

/* Sum of the candidates' exponentials, ids in blocks. */
static double total_mass(const pl_sampler *s, int32_t n, float max)
{
    double total = 0;

    for (int32_t i = 0; i < n;) {
        int32_t block = s->cand[i] / PL_LOGITS_BLOCK;
        double sum = 0;
        for (; i < n && s->cand[i] / PL_LOGITS_BLOCK == block; i++)
            sum = sum + (double)pl_exp_f32(s->l[s->cand[i]] - max);
        total = total + sum;
    }
    return total;
}

static int32_t keep_top_p(pl_sampler *s, int32_t n, int32_t first, float top_p)
{
    float max = s->l[first];
    double limit = (double)top_p * total_mass(s, n, max), c = 0;
    int32_t left = n, last = first, kept = 0;

    memcpy(s->heap, s->cand, (size_t)n * sizeof *s->heap);
    heapify(s, s->heap, n, true);
    while (left > 0 && (left == n || c < limit)) {
        last = s->heap[0];
        c = c + (double)pl_exp_f32(s->l[last] - max);
        s->heap[0] = s->heap[--left];
        sink(s, s->heap, left, 0, true);
    }
    for (int32_t i = 0; i < n; i++)
        if (!before(s, last, s->cand[i]))
            s->cand[kept++] = s->cand[i];
    return kept;
}

int32_t pl__sample_candidates(pl_sampler *s, const pl_choice *c)
{
    const pl_request_params *p = c->params;
    int32_t n = list_candidates(s, c), first;

    if (n == 0)
        return 0;
    for (int32_t i = 0; i < p->n_logit_bias; i++)
        s->l[p->logit_bias[i].token] += p->logit_bias[i].bias;
    pl__sample_penalise(s, c);
    first = first_of(s, n);
    if (is_greedy(p)) {
        s->cand[0] = first;
        return 1;
    }
    for (int32_t i = 0; i < n; i++)
        s->l[s->cand[i]] = s->l[s->cand[i]] / p->temperature;
    /* Division can make equal what was not: the first candidate may have become another. */
    first = first_of(s, n);
    n = keep_top_k(s, n, p->top_k);
    if (p->min_p > 0)
        n = keep_min_p(s, n, first, p->min_p);
    if (p->top_p < 1)
        n = keep_top_p(s, n, first, p->top_p);
    return n;
}

double pl__sample_mass(const pl_sampler *s, int32_t n, float *max)
{
    *max = s->l[first_of(s, n)];
    return total_mass(s, n, *max);
}

/* ---- step 10 */

int32_t pl__sample_pick(const pl_sampler *s, int32_t n, const pl_noise *noise)
{
    int32_t best = first_of(s, n);
    float sum = s->l[best] + pl_gumbel(noise, (uint32_t)best);

    for (int32_t i = 0; i < n; i++) {
        int32_t id = s->cand[i];
        float with;
        /* Addition is monotone: one that loses with the largest noise loses with any. */
        if (s->l[id] + PL_GUMBEL_MAX < sum || id == best)
            continue;
        with = s->l[id] + pl_gumbel(noise, (uint32_t)id);
        if (pl_logit_before(with, id, sum, best)) {
            sum = with;
            best = id;
        }
    }
    return best;
}

int32_t pl_sample(pl_sampler *s, const pl_choice *c)
{
    const int32_t n = pl__sample_candidates(s, c);

    if (n <= 1)
        return n ? s->cand[0] : -1;
    return pl__sample_pick(s, n, &c->noise);
}
