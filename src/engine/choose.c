/* From rows of logits to tokens: summaries on all workers, choices one request after another, digests on all
 * workers, then bookkeeping and callbacks on the calling thread.
 *
 * A request with drafts has a row for its last token and one for each draft. Rows choose in order, each as it would
 * without drafts: with the outputs before it, and the noise of its position (docs/NUMERICS.md 13). A draft is accepted
 * if it is what its row chose; the first one that is not ends the request's share of the step. Rows behind it,
 * like those behind a stop token, chose nothing: no digest sees them. With rejection sampling (rejection.h) a row that has
 * a draft chooses by what that was drawn from too: it is the one place where drafts reach tokens. */
#include "engine/internal.h"
#include "engine/rejection.h"

const void *pl__logits_row(const pl_engine *e, int64_t i)
{
    return (const uint8_t *)pl_forward_logits(e->forward) +
           i * pl__engine_config(e)->vocab_size * e->plan->shape.ops->acc_bytes;
}

static pl_choice choice_of(const pl_request *r, int32_t ahead)
{
    return (pl_choice){
        .params = &r->params,
        .eos = pl__request_eos(r),
        .output = pl__request_outputs(r),
        .n_output = r->n_output + ahead,
        .noise = {.seed = r->params.seed,
                  .position = (uint32_t)(r->params.n_tokens + r->n_output + ahead),
                  .choice = r->params.choice,
                  .purpose = PL_PURPOSE_TOKEN},
    };
}

/* What a row of logits chooses as output n_output + ahead; the outputs before it are there. -1 where the request's mask
 * leaves no token. */
static int32_t choose_from(pl_engine *e, const pl_request *r, int32_t ahead, const void *row,
                           int32_t best)
{
    pl_sampler *s = &e->parts.sampler;
    pl_choice c = choice_of(r, ahead);

    if (pl_choice_is_plain(&c))
        return best;
    e->plan->shape.ops->acc_get(row, s->vocab, s->l);
    return pl_sample(s, &c);
}

/* What draft i of a request was drawn from. */
static float *draft_probs(const pl_engine *e, const pl_request *r, int32_t i)
{
    const size_t row = (size_t)r->place * (size_t)e->plan->shape.limits.max_draft + (size_t)i;

    return e->parts.draft_probs + row * (size_t)pl__engine_config(e)->vocab_size;
}

/* Whether drafts of it are accepted or not by chance. */
static bool rejects(const pl_engine *e, const pl_choice *c)
{
    return e->parts.draft_probs && !pl_choice_is_greedy(c);
}

int32_t pl__choose_draft(pl_engine *e, const pl_request *r, const void *row, int32_t best)
{
    pl_sampler *s = &e->parts.sampler;
    const pl_choice c = choice_of(r, r->n_drafts);
    int32_t token;

    if (rejects(e, &c)) {
        e->plan->shape.ops->acc_get(row, s->vocab, s->l);
        token = pl_rejection_draft(s, &c, draft_probs(e, r, r->n_drafts));
        if (token < 0)
            draft_probs(e, r, r->n_drafts)[best] = 1;
    } else {
        token = choose_from(e, r, r->n_drafts, row, best);
    }
    /* Behind a draft that no mask would let pass there may be no token. Any will do: it is not reached. */
    return token < 0 ? best : token;
}

/* What the row of output n_output + i chooses, which `draft` was drafted for; -1: none was. */
static int32_t choose_at(pl_engine *e, const pl_request *r, int32_t i, const void *row,
                         int32_t best, int32_t draft)
{
    pl_sampler *s = &e->parts.sampler;
    const pl_choice c = choice_of(r, i);

    if (draft < 0 || !rejects(e, &c))
        return choose_from(e, r, i, row, best);
    e->plan->shape.ops->acc_get(row, s->vocab, s->l);
    return pl_rejection_choose(s, &c, draft_probs(e, r, i), draft);
}

static void summarise_row(void *user, int64_t i, int worker)
{
    pl_engine *e = user;

    e->parts.rows[i].summary = pl_logits_summarise(e->plan->shape.ops, pl__logits_row(e, i),
                                                   pl__engine_config(e)->vocab_size);
}

static bool ends_request(const pl_request *r, int32_t token)
{
    if (token == pl__request_eos(r))
        return true;
    for (int32_t i = 0; i < r->params.n_stop_ids; i++)
        if (token == r->params.stop_ids[i])
            return true;
    return false;
}

/* The first row of sequence s that chooses; those before it tell of the prompt. */
static int32_t first_choice(const pl_engine *e, int32_t s)
{
    return e->parts.first_row[s] + e->parts.step_requests[s]->n_prompt_rows;
}

/* What the prompt says where a row of it looks ahead. */
static void look_at_prompt(pl_engine *e, int32_t s)
{
    const pl_request *r = e->parts.step_requests[s];

    for (int32_t i = 0; i < r->n_prompt_rows; i++) {
        pl__row *row = &e->parts.rows[e->parts.first_row[s] + i];

        row->token = r->params.tokens[r->n_prompt_told + i + 1];
        row->logprob =
            pl_logits_logprob(e->plan->shape.ops, pl__logits_row(e, e->parts.first_row[s] + i),
                              &row->summary, row->token);
    }
}

/* Lets the rows of sequence s choose, up to the first that differs from its draft or ends the request. */
static void choose_of(pl_engine *e, int32_t s)
{
    const int32_t first = first_choice(e, s), n_rows = e->parts.first_row[s + 1] - first;
    const pl_ops *ops = e->plan->shape.ops;
    pl_request *r = e->parts.step_requests[s];
    int32_t *next = pl__request_outputs(r) + r->n_output;
    bool goes_on = true;

    r->n_chosen = 0;
    for (int32_t i = 0; i < n_rows && goes_on; i++) {
        pl__row *row = &e->parts.rows[first + i];
        const void *logits = pl__logits_row(e, first + i);
        const bool has_draft = i < n_rows - 1;

        row->token = choose_at(e, r, i, logits, row->summary.best, has_draft ? next[i] : -1);
        if (row->token < 0) {
            r->cancelled = true; /* its mask left nothing */
            return;
        }
        row->logprob = pl_logits_logprob(ops, logits, &row->summary, row->token);
        goes_on = has_draft && row->token == next[i];
        r->speculation.accepted[i] += goes_on;
        e->stats.speculation.accepted[i] += goes_on;
        goes_on = goes_on && !ends_request(r, row->token);
        next[i] = row->token;
        r->n_chosen++;
    }
}

static void choose_all(void *user, int64_t tile, int worker)
{
    pl_engine *e = user;

    for (int32_t s = 0; s < e->n_step_seqs; s++) {
        look_at_prompt(e, s);
        choose_of(e, s);
    }
}

static void digest_of(void *user, int64_t s, int worker)
{
    const pl_engine *e = user;
    pl_request *r = e->parts.step_requests[s];

    for (int32_t i = 0; i < r->n_chosen; i++)
        pl_logits_digest(e->plan->shape.ops, pl__logits_row(e, first_choice(e, (int32_t)s) + i),
                         pl__engine_config(e)->vocab_size, &r->digest);
}

/* Takes back the drafts of sequence s that were not accepted, and counts. Returns the tokens that decoding gave. */
static int32_t settle_drafts(pl_engine *e, int32_t s)
{
    const pl_step_seq *seq = &e->parts.step_seqs[s];
    pl_request *r = e->parts.step_requests[s];

    r->n_drafts = 0;
    if (pl__request_is_prefilling(r))
        return 0;
    /* The token before the drafts stays, also where a mask left none to choose. */
    pl_state_rewind(seq->state, seq->state->n - seq->n + (r->n_chosen > 0 ? r->n_chosen : 1));
    r->speculation.steps++;
    e->stats.speculation.steps++;
    for (int32_t i = 0; i < seq->n_draft; i++) {
        r->speculation.drafted[i]++;
        e->stats.speculation.drafted[i]++;
    }
    return r->n_chosen;
}

static void append(pl_engine *e, pl_request *r, const pl__row *row)
{
    pl__request_logprobs(r)[r->n_output] = row->logprob;
    r->n_output++;
    r->prefilling = false;
    if (ends_request(r, row->token))
        r->state = PL_REQUEST_STOPPED;
    else if (r->n_output == r->max_output)
        r->state = PL_REQUEST_LENGTH;
    if (r->state != PL_REQUEST_RUNNING) {
        pl__list_remove(r);
        pl__list_append(&e->ended, r);
    }
}

static void tell(const pl_engine *e, pl_request *r, int32_t i)
{
    const pl__row *row = &e->parts.rows[i];
    const pl_token_event event = {row->token, row->logprob, r->n_output - 1};

    r->row = i;
    if (r->params.on_token && !r->cancelled)
        r->params.on_token(r->params.user, r, &event);
    r->row = -1;
}

static void tell_prompt(const pl_engine *e, int32_t s)
{
    pl_request *r = e->parts.step_requests[s];

    for (int32_t i = 0; i < r->n_prompt_rows && !r->cancelled; i++) {
        const pl__row *row = &e->parts.rows[e->parts.first_row[s] + i];
        const pl_token_event event = {row->token, row->logprob, r->n_prompt_told + 1};

        r->row = e->parts.first_row[s] + i;
        r->n_prompt_told++;
        r->params.on_prompt_token(r->params.user, r, &event);
        r->row = -1;
    }
}

int32_t pl__choose(pl_engine *e)
{
    int32_t n_decoded = 0;

    if (!e->n_rows)
        return 0;
    pl_pool_run(e->pool, e->n_rows, summarise_row, e);
    pl_pool_run(e->pool, 1, choose_all, e);
    pl_pool_run(e->pool, e->n_step_seqs, digest_of, e);
    for (int32_t s = 0; s < e->n_step_seqs; s++)
        n_decoded += settle_drafts(e, s);
    for (int32_t s = 0; s < e->n_step_seqs; s++) {
        pl_request *r = e->parts.step_requests[s];
        const int32_t first = first_choice(e, s);

        tell_prompt(e, s);
        for (int32_t i = 0; i < r->n_chosen; i++) {
            append(e, r, &e->parts.rows[first + i]);
            tell(e, r, first + i);
        }
    }
    return n_decoded;
}

/* ---- the likeliest tokens */

struct listing {
    const pl_request *request;
    pl_token_logprob *top;
    int32_t n;
};

static void list_top(void *user, int64_t tile, int worker)
{
    const struct listing *l = user;
    const pl_engine *e = l->request->engine;
    const int32_t i = l->request->row;

    pl_logits_top(e->plan->shape.ops, pl__logits_row(e, i), pl__engine_config(e)->vocab_size,
                  &e->parts.rows[i].summary, l->top, l->n);
}

/* Through the pool, which sets the floating-point environment. */
int32_t pl_request_top_logprobs(const pl_request *r, pl_token_logprob *top, int32_t n)
{
    const int32_t vocab = pl__engine_config(r->engine)->vocab_size;
    struct listing l = {.request = r, .top = top, .n = n < vocab ? n : vocab};

    if (r->row < 0 || n <= 0)
        return 0;
    pl_pool_run(r->engine->pool, 1, list_top, &l);
    return l.n;
}

struct ranking {
    const pl_request *request;
    int32_t rank;
};

static void find_rank(void *user, int64_t tile, int worker)
{
    struct ranking *k = user;
    const pl_engine *e = k->request->engine;
    const int32_t i = k->request->row;

    k->rank = pl_logits_rank(e->plan->shape.ops, pl__logits_row(e, i),
                             pl__engine_config(e)->vocab_size, e->parts.rows[i].token);
}

int32_t pl_request_rank(const pl_request *r)
{
    struct ranking k = {.request = r};

    if (r->row < 0)
        return 0;
    pl_pool_run(r->engine->pool, 1, find_rank, &k);
    return k.rank;
}
