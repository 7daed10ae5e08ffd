/* Drafts from the mtp block: docs/NUMERICS.md 13, specification sections 6.2 and 6.3.
 *
 * The block runs behind the main stack over the same positions, prompts included, so that its window is always
 * complete: position i pairs the main stack's streams with the token at i + 1. Where a request has just chosen,
 * the last row is its first draft; each further one feeds back the block's own streams and the draft before. The
 * keys that fed-back rows leave behind are written again once their positions are known: n_mtp goes back to the
 * positions that are.
 *
 * Drafts lie behind a request's outputs. They are chosen as tokens are, from the block's logits and with the noise of
 * the position they stand for, so that any temperature accepts them as often as the two models agree. */
#include "base/error.h"
#include "engine/internal.h"

/* One round of drafting. */
typedef struct drafting {
    pl_engine *e;
    int32_t share; /* drafts of a request that the next step has room for */
    int32_t n;     /* requests, whose logits are rows 0 .. n - 1 */
    int32_t n_tokens, n_seqs;
} drafting;

/* Tokens that a request may still choose, the next one apart: drafts for more than these are in vain. */
static int32_t room(const pl_request *r)
{
    return r->max_output - r->n_output - 1;
}

static bool wants_drafts(const pl_request *r)
{
    return r->state == PL_REQUEST_RUNNING && !r->cancelled && room(r) > 0;
}

static int32_t n_wanted(const drafting *d, const pl_request *r)
{
    const int32_t most = d->e->n_depth;
    int32_t n = d->share < most ? d->share : most;

    if (pl__request_is_prefilling(r))
        return 0;
    return n < room(r) ? n : room(r);
}

/* The share of the next step's tokens, rounded up: with chance one of several requests has more. */
static int32_t share_of(const pl_engine *e)
{
    const int32_t budget = e->plan->shape.limits.max_tokens;
    int32_t n = 0;

    for (const pl_request *r = e->running.first; r; r = r->next)
        n += !pl__request_is_prefilling(r);
    return n && n < budget ? (budget - n + n - 1) / n : 0;
}

/* Adds n rows of a request, `next` their first position's successor. */
static void add(drafting *d, pl_request *r, int32_t first_stream, int32_t n, int32_t next)
{
    pl_engine_parts *p = &d->e->parts;

    for (int32_t i = 0; i < n; i++) {
        p->draft_tokens[d->n_tokens + i] = pl__request_token_at(r, next + i);
        p->draft_streams[d->n_tokens + i] = first_stream + i;
    }
    p->draft_seqs[d->n_seqs++] =
        (pl_step_seq){.state = pl__request_state(r), .first = d->n_tokens, .n = n};
    d->n_tokens += n;
}

static pl_status run(drafting *d, const void *streams, pl_error *err)
{
    const pl_engine_parts *p = &d->e->parts;
    const pl_step step = {
        .n_tokens = d->n_tokens,
        .tokens = p->draft_tokens,
        .n_seqs = d->n_seqs,
        .seqs = p->draft_seqs,
        .n_logits = d->n,
        .logit_rows = p->draft_logit_rows,
    };

    return d->n_tokens ? pl_forward_run_mtp(d->e->forward, &step, streams, p->draft_streams, err)
                       : PL_OK;
}

static void find_best(void *user, int64_t i, int worker)
{
    pl_engine *e = user;

    e->parts.rows[i].token =
        pl_logits_best(e->plan->shape.ops, pl__logits_row(e, i), pl__engine_config(e)->vocab_size);
}

static void choose_drafts(void *user, int64_t tile, int worker)
{
    const drafting *d = user;
    pl_engine *e = d->e;

    for (int32_t i = 0; i < d->n; i++) {
        pl_request *r = e->parts.draft_requests[i];
        const int32_t best = e->parts.rows[i].token;

        pl__request_outputs(r)[r->n_output + r->n_drafts] =
            pl__choose_draft(e, r, pl__logits_row(e, i), best);
        r->n_drafts++;
    }
}

static void choose(drafting *d)
{
    if (!d->n)
        return;
    pl_pool_run(d->e->pool, d->n, find_best, d->e);
    pl_pool_run(d->e->pool, 1, choose_drafts, d);
}

/* The positions that the main stack has just done; for those that chose, the first draft. */
static pl_status follow(drafting *d, pl_error *err)
{
    pl_engine_parts *p = &d->e->parts;

    for (int32_t s = 0; s < d->e->n_step_seqs; s++) {
        pl_request *r = p->step_requests[s];
        const pl_state *state = p->step_seqs[s].state;

        if (!wants_drafts(r))
            continue;
        add(d, r, p->step_seqs[s].first, state->n - state->n_mtp, state->n_mtp + 1);
        if (n_wanted(d, r) > 0) {
            p->draft_logit_rows[d->n] = d->n_tokens - 1;
            p->draft_requests[d->n++] = r;
        }
    }
    PL_TRY(run(d, pl_forward_streams(d->e->forward), err));
    choose(d);
    return PL_OK;
}

/* One more draft for those that want it. */
static pl_status feed_back(drafting *d, pl_error *err)
{
    pl_engine_parts *p = &d->e->parts;
    const int32_t n = d->n;

    d->n = d->n_tokens = d->n_seqs = 0;
    for (int32_t i = 0; i < n; i++) {
        pl_request *r = p->draft_requests[i];

        if (r->n_drafts == n_wanted(d, r))
            continue;
        add(d, r, p->draft_logit_rows[i], 1, pl__request_state(r)->n_mtp + 1);
        p->draft_logit_rows[d->n] = d->n_tokens - 1;
        p->draft_requests[d->n++] = r;
    }
    PL_TRY(run(d, pl_forward_mtp_streams(d->e->forward), err));
    choose(d);
    return PL_OK;
}

pl_status pl__draft(pl_engine *e, pl_error *err)
{
    drafting d = {.e = e, .share = share_of(e)};

    if (!e->plan->shape.limits.max_draft)
        return PL_OK;
    PL_TRY(follow(&d, err));
    while (d.n)
        PL_TRY(feed_back(&d, err));
    for (int32_t s = 0; s < e->n_step_seqs; s++) {
        pl_state *state = e->parts.step_seqs[s].state;

        if (state->n_mtp > state->n)
            pl_state_rewind_mtp(state, state->n);
    }
    return PL_OK;
}
