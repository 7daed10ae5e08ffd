/* One step: who gets how many of its tokens, the forward pass, the tokens chosen, the drafts of the next one.
 *
 * Requests that choose tokens come first, one token each and their drafts, then prompts in chunks. Both are served in
 * the order of `running`, where whoever was served goes to the end. Drafts are cut to what the others leave, and
 * to half of that where prompts wait. Where there are more choosing requests than tokens in a step, prompts would
 * wait for ever behind them; then all take turns alike, without drafts. None of it changes a bit. */
#include <time.h>

#include "base/error.h"
#include "engine/internal.h"

pl_state *pl__request_state(const pl_request *r)
{
    return &r->engine->parts.states[r->place];
}

int32_t pl__request_token_at(const pl_request *r, int32_t position)
{
    const int32_t n = r->params.n_tokens;

    return position < n ? r->params.tokens[position] : pl__request_outputs(r)[position - n];
}

bool pl__request_is_prefilling(const pl_request *r)
{
    return r->prefilling;
}

/* Positions that are known and have not been run. */
static int32_t n_pending(const pl_request *r)
{
    return r->params.n_tokens + r->n_output - pl__request_state(r)->n;
}

/* Of the next n positions, those that are asked what the prompt's next token is, and have not been. */
static int32_t n_prompt_rows(const pl_request *r, int32_t n)
{
    const int32_t end = pl__request_state(r)->n + n, last = r->params.n_tokens - 1;
    const int32_t rows = (end < last ? end : last) - r->n_prompt_told;

    return r->params.on_prompt_token && rows > 0 ? rows : 0;
}

/* Tokens of a prompt for which there are rows of logits, where each wants one: all but one for each request that may still
 * come in this step. Where a step has rows for all of its tokens, there is no such limit. */
static int32_t n_rows_left(const pl_engine *e, const pl_request *r, int32_t n)
{
    const pl_forward_limits *l = &e->plan->shape.limits;
    const int32_t left = l->max_logits - e->n_rows - (e->running.n - e->n_step_seqs - 1);

    return !r->params.on_prompt_token || l->max_logits == l->max_tokens || left > n ? n : left;
}

/* n known positions and n_draft drafts; drafts only behind all that is known. */
static void take(pl_engine *e, pl_request *r, int32_t n, int32_t n_draft)
{
    pl_engine_parts *p = &e->parts;
    pl_state *state = pl__request_state(r);
    const int32_t first = e->n_step_tokens, last_known = first + n - 1;
    const bool chooses = n == n_pending(r);

    for (int32_t i = 0; i < n + n_draft; i++)
        p->step_tokens[first + i] = pl__request_token_at(r, state->n + i);
    p->step_seqs[e->n_step_seqs] =
        (pl_step_seq){.state = state, .first = first, .n = n + n_draft, .n_draft = n_draft};
    p->step_requests[e->n_step_seqs] = r;
    p->first_row[e->n_step_seqs++] = e->n_rows;
    e->n_step_tokens += n + n_draft;
    r->n_prompt_rows = n_prompt_rows(r, n);
    for (int32_t i = 0; i < r->n_prompt_rows; i++)
        p->logit_rows[e->n_rows++] = first + r->n_prompt_told - state->n + i;
    for (int32_t i = 0; chooses && i <= n_draft; i++)
        p->logit_rows[e->n_rows++] = last_known + i;
    p->first_row[e->n_step_seqs] = e->n_rows;
}

typedef enum kind {
    CHOOSING = 1,
    PREFILLING = 2,
} kind;

static void take_some(pl_engine *e, int kinds)
{
    const int32_t budget = e->plan->shape.limits.max_tokens;

    for (pl_request *r = e->running.first; r && e->n_step_tokens < budget; r = r->next) {
        int32_t left = budget - e->n_step_tokens, n = n_pending(r);

        if (kinds & (pl__request_is_prefilling(r) ? PREFILLING : CHOOSING))
            take(e, r, n_rows_left(e, r, pl__prefix_cut(r, n < left ? n : left)), 0);
    }
}

static int32_t n_choosing(const pl_engine *e)
{
    int32_t n = 0;

    for (const pl_request *r = e->running.first; r; r = r->next)
        n += !pl__request_is_prefilling(r);
    return n;
}

/* The n choosing requests, all of which have room, with equal shares of the tokens for drafts; the first ones get what
 * does not divide. */
static void take_choosing(pl_engine *e, int32_t n)
{
    const int32_t left = e->plan->shape.limits.max_tokens - n;
    const int32_t for_drafts = n < e->running.n ? left / 2 : left;
    int32_t i = 0;

    for (pl_request *r = e->running.first; r; r = r->next) {
        int32_t share = for_drafts / n + (i < for_drafts % n);

        if (pl__request_is_prefilling(r))
            continue;
        take(e, r, 1, r->n_drafts < share ? r->n_drafts : share);
        i++;
    }
}

static void make_step(pl_engine *e)
{
    const int32_t budget = e->plan->shape.limits.max_tokens;
    const int32_t n = n_choosing(e);

    e->n_step_tokens = e->n_step_seqs = e->n_rows = 0;
    if (n >= budget && n < e->running.n) {
        take_some(e, CHOOSING | PREFILLING);
        return;
    }
    if (n > budget)
        take_some(e, CHOOSING);
    else if (n)
        take_choosing(e, n);
    take_some(e, PREFILLING);
}

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* To be called before tokens are chosen: they turn prompts into choosing requests. */
static int32_t count_prefill(const pl_engine *e)
{
    int32_t n = 0;

    for (int32_t i = 0; i < e->n_step_seqs; i++)
        if (pl__request_is_prefilling(e->parts.step_requests[i]))
            n += e->parts.step_seqs[i].n;
    return n;
}

void pl__depth_init(pl_engine *e)
{
    e->stats.adapts_depth = e->plan->params.adapt_speculative_tokens;
    e->n_depth = e->plan->shape.limits.max_draft;
    pl_depth_init(&e->depth, e->n_depth);
}

/* Behind the choice of tokens, before drafts: what became of the step's drafts, and how many the next step is to have. */
static void choose_depth(pl_engine *e)
{
    const int32_t n = n_choosing(e);

    e->n_depth_before = e->n_depth;
    if (!e->stats.adapts_depth)
        return;
    for (int32_t s = 0; s < e->n_step_seqs; s++)
        pl_depth_note_drafts(&e->depth, e->parts.step_seqs[s].n_draft,
                             e->parts.step_requests[s]->n_chosen - 1);
    if (n)
        e->n_depth = pl_depth_choose(&e->depth, n);
}

/* A step tells what its depth costs if it was of choosing requests alone, each with all of its drafts before and
 * behind it. */
static void note_depth(pl_engine *e, int32_t n_prefill, double seconds)
{
    const int32_t k = e->n_depth_before, n = e->n_step_seqs;

    if (n_prefill == e->n_step_tokens)
        return;
    e->stats.depth_steps[k]++;
    if (e->stats.adapts_depth && !n_prefill && e->n_depth == k && n == e->running.n &&
        e->n_step_tokens == n * (1 + k))
        pl_depth_note_step(&e->depth, n, k, seconds);
}

static pl_status run_step(pl_engine *e, pl_error *err)
{
    const pl_step step = {
        .n_tokens = e->n_step_tokens,
        .tokens = e->parts.step_tokens,
        .n_seqs = e->n_step_seqs,
        .seqs = e->parts.step_seqs,
        .n_logits = e->n_rows,
        .logit_rows = e->parts.logit_rows,
    };

    PL_TRY(pl_forward_run(e->forward, &step, err));
    for (int32_t i = 0; i < e->n_step_seqs; i++) {
        pl_request *r = e->parts.step_requests[i];
        pl__list_remove(r);
        pl__list_append(&e->running, r);
    }
    return PL_OK;
}

static void count(pl_engine *e, int32_t n_prefill, int32_t n_decoded, double seconds)
{
    const int32_t n = e->n_step_tokens;

    e->stats.steps++;
    e->stats.prefill_tokens += (uint64_t)n_prefill;
    e->stats.decode_tokens += (uint64_t)n_decoded;
    e->stats.prefill_s += seconds * n_prefill / n;
    e->stats.decode_s += seconds * (n - n_prefill) / n;
}

pl_status pl_engine_step(pl_engine *e, bool *busy, pl_error *err)
{
    const double begin = now();
    int32_t n_prefill, n_decoded;
    double seconds;
    pl_status s;

    *busy = false;
    if (e->in_step)
        return pl_error_set(err, PL_ERR_STATE, "engine: a step within a step");
    pl__requests_admit(e);
    if (!e->running.first && e->queue.first)
        return pl_error_set(err, PL_ERR_STATE,
                            "engine: %d requests wait for a place, all are held by requests that "
                            "have ended (want them released)",
                            e->queue.n);
    if (!e->running.first)
        return PL_OK;
    make_step(e);
    n_prefill = count_prefill(e);
    PL_TRY(run_step(e, err));
    e->in_step = true;
    n_decoded = pl__choose(e);
    e->in_step = false;
    choose_depth(e);
    s = pl__draft(e, err);
    if (s == PL_OK)
        pl__prefix_store(e);
    seconds = now() - begin;
    count(e, n_prefill, n_decoded, seconds);
    note_depth(e, n_prefill, seconds);
    pl__requests_settle(e);
    *busy = e->running.first || e->queue.first;
    return s;
}

pl_status pl_engine_run(pl_engine *e, pl_error *err)
{
    bool busy = true;

    while (busy)
        PL_TRY(pl_engine_step(e, &busy, err));
    return PL_OK;
}
