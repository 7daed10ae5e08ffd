/* The lives of requests: free, queued, running in a place, ended, free again.
 *
 * A place is a cache; a strip holds outputs. A request takes both when it starts to run and keeps them until it is
 * released or cancelled. Where one of higher priority finds no place, the lowest gives its own up and waits again with
 * its strip: it later runs its prompt and its outputs as one long prompt, which no bit depends on. What is asked for within a step (from a callback) is noted and done at its end, so
 * that the step never loses what it works on. */
#include <string.h>

#include "base/error.h"
#include "engine/internal.h"

/* ---- lists */

void pl__list_append(pl__list *list, pl_request *r)
{
    r->list = list;
    r->next = NULL;
    r->prev = list->last;
    *(list->last ? &list->last->next : &list->first) = r;
    list->last = r;
    list->n++;
}

void pl__list_remove(pl_request *r)
{
    pl__list *list = r->list;

    *(r->prev ? &r->prev->next : &list->first) = r->next;
    *(r->next ? &r->next->prev : &list->last) = r->prev;
    list->n--;
    r->list = NULL;
}

/* Behind `after`, NULL: in front. */
static void insert(pl__list *list, pl_request *r, pl_request *after)
{
    r->list = list;
    r->prev = after;
    r->next = after ? after->next : list->first;
    *(r->next ? &r->next->prev : &list->last) = r;
    *(after ? &after->next : &list->first) = r;
    list->n++;
}

static void move(pl_request *r, pl__list *to)
{
    pl__list_remove(r);
    pl__list_append(to, r);
}

void pl__requests_init(pl_engine *e)
{
    const pl_engine_shape *s = &e->plan->shape;

    for (int32_t i = 0; i < s->max_num_seqs + s->max_queued; i++) {
        pl_request *r = &e->parts.requests[i];
        memset(r, 0, sizeof *r);
        r->engine = e;
        r->place = r->strip = r->row = -1;
        pl__list_append(&e->free, r);
    }
    for (int32_t i = s->max_num_seqs - 1; i >= 0; i--)
        e->parts.free_places[e->n_free_places++] = i;
    for (int32_t i = s->max_num_seqs + s->max_preempted - 1; i >= 0; i--)
        e->parts.free_strips[e->n_free_strips++] = i;
}

/* ---- submitting */

pl_request_params pl_request_params_default(void)
{
    return (pl_request_params){.max_tokens = 256, .top_p = 1, .repetition_penalty = 1};
}

static pl_status check_prompt(const pl_plan *plan, const pl_request_params *p, pl_error *err)
{
    const int32_t vocab = plan->model.config.vocab_size, len = plan->shape.limits.max_len;

    PL_CHECK(p->tokens && p->n_tokens >= 1, err, "tokens: no prompt (got %d tokens, want 1 to %d)",
             p->n_tokens, len - 1);
    PL_CHECK(p->n_tokens < len, err,
             "tokens: prompt is too long (got %d tokens, want at most %d: max_model_len less 1)",
             p->n_tokens, len - 1);
    for (int32_t i = 0; i < p->n_tokens; i++)
        PL_CHECK(p->tokens[i] >= 0 && p->tokens[i] < vocab, err,
                 "tokens: token %d is not in the vocabulary (got %d, want 0 to %d)", i,
                 p->tokens[i], vocab - 1);
    PL_CHECK(p->max_tokens >= 1, err, "max_tokens: out of range (got %d, want 1 or more)",
             p->max_tokens);
    PL_CHECK(p->min_tokens >= 0 && p->min_tokens <= p->max_tokens, err,
             "min_tokens: out of range (got %d, want 0 to max_tokens, %d)", p->min_tokens,
             p->max_tokens);
    return PL_OK;
}

pl_status pl_plan_check_request(const pl_plan *plan, const pl_request_params *p, pl_error *err)
{
    const pl_config *c = &plan->model.config;

    PL_TRY(check_prompt(plan, p, err));
    return pl_sampling_check(p, c->vocab_size, p->ignore_eos ? -1 : c->eos_token_id, err);
}

static bool goes_before(const pl_request *a, const pl_request *b)
{
    if (a->params.priority != b->params.priority)
        return a->params.priority > b->params.priority;
    return a->arrival < b->arrival;
}

/* The queue is sorted; most requests go to its end. */
static void enqueue(pl_engine *e, pl_request *r)
{
    pl_request *after = e->queue.last;

    while (after && goes_before(r, after))
        after = after->prev;
    pl__list_remove(r);
    insert(&e->queue, r, after);
    r->state = PL_REQUEST_QUEUED;
}

pl_status pl_engine_submit(pl_engine *e, const pl_request_params *p, pl_request **out,
                           pl_error *err)
{
    pl_request *r = e->free.first;
    int32_t room;

    *out = NULL;
    PL_TRY(pl_plan_check_request(e->plan, p, err));
    PL_TRY(pl__snapshot_check(e, p, err));
    room = e->plan->shape.limits.max_len - p->n_tokens;
    if (!r || e->queue.n >= e->plan->shape.max_queued + e->n_free_places)
        return pl_error_set(err, PL_ERR_AGAIN, "requests: too many wait (got %d, want at most %d)",
                            e->queue.n, e->plan->shape.max_queued);
    r->params = *p;
    r->arrival = e->n_submitted++;
    r->n_preempted = 0;
    r->n_output = r->n_drafts = 0;
    r->n_prompt_rows = r->n_prompt_told = r->n_cached = 0;
    r->n_shared = r->n_stored = r->n_passing = 0;
    r->speculation = (pl_speculation){0};
    r->max_output = p->max_tokens < room ? p->max_tokens : room;
    r->cancelled = r->released = false;
    (void)XXH3_128bits_reset(&r->digest);
    enqueue(e, r);
    *out = r;
    return PL_OK;
}

static void give_place_back(pl_request *r)
{
    if (r->place >= 0)
        r->engine->parts.free_places[r->engine->n_free_places++] = r->place;
    r->place = -1;
}

static void give_strip_back(pl_request *r)
{
    if (r->strip >= 0)
        r->engine->parts.free_strips[r->engine->n_free_strips++] = r->strip;
    r->strip = -1;
    r->n_output = 0;
}

/* Takes the place of the lowest running request if that is below r and a strip is left for r beside its own. */
static bool preempt_for(pl_engine *e, const pl_request *r)
{
    pl_request *lowest = e->running.first;

    for (pl_request *other = lowest; other; other = other->next)
        if (goes_before(lowest, other))
            lowest = other;
    if (!lowest || lowest->params.priority >= r->params.priority ||
        (r->strip < 0 && !e->n_free_strips))
        return false;
    give_place_back(lowest);
    lowest->n_drafts = 0;
    lowest->n_preempted++;
    e->stats.preemptions++;
    enqueue(e, lowest);
    return true;
}

void pl__requests_admit(pl_engine *e)
{
    for (pl_request *r = e->queue.first; r; r = e->queue.first) {
        if (!e->n_free_places && !preempt_for(e, r))
            return;
        r->place = e->parts.free_places[--e->n_free_places];
        if (r->strip < 0)
            r->strip = e->parts.free_strips[--e->n_free_strips];
        r->state = PL_REQUEST_RUNNING;
        r->prefilling = true;
        pl__snapshot_start(r);
        move(r, &e->running);
    }
}

/* ---- ending */

static bool is_live(const pl_request *r)
{
    return r->state == PL_REQUEST_QUEUED || r->state == PL_REQUEST_RUNNING;
}

static void end_cancelled(pl_request *r)
{
    if (is_live(r)) {
        r->state = PL_REQUEST_CANCELLED;
        give_place_back(r);
        give_strip_back(r);
        move(r, &r->engine->ended);
    }
}

static void free_released(pl_request *r)
{
    end_cancelled(r);
    give_place_back(r);
    give_strip_back(r);
    move(r, &r->engine->free);
}

void pl_request_cancel(pl_request *r)
{
    if (r->engine->in_step)
        r->cancelled = true;
    else
        end_cancelled(r);
}

void pl_request_release(pl_request *r)
{
    if (!r)
        return;
    if (r->engine->in_step)
        r->cancelled = r->released = true;
    else
        free_released(r);
}

static void settle(pl__list *list)
{
    for (pl_request *r = list->first, *next; r; r = next) {
        next = r->next;
        if (r->released)
            free_released(r);
        else if (r->cancelled)
            end_cancelled(r);
    }
}

void pl__requests_settle(pl_engine *e)
{
    settle(&e->queue);
    settle(&e->running);
    settle(&e->ended);
}

/* ---- reading */

const pl_config *pl__engine_config(const pl_engine *e)
{
    return &e->plan->model.config;
}

int32_t pl__request_eos(const pl_request *r)
{
    return r->params.ignore_eos ? -1 : pl__engine_config(r->engine)->eos_token_id;
}

static size_t first_output(const pl_request *r)
{
    return (size_t)r->strip * (size_t)r->engine->plan->shape.limits.max_len;
}

int32_t *pl__request_outputs(const pl_request *r)
{
    return r->strip < 0 ? NULL : r->engine->parts.outputs + first_output(r);
}

float *pl__request_logprobs(const pl_request *r)
{
    return r->strip < 0 ? NULL : r->engine->parts.logprobs + first_output(r);
}

pl_request_state pl_request_state_of(const pl_request *r)
{
    return r->state;
}

const int32_t *pl_request_tokens(const pl_request *r, int32_t *n)
{
    *n = r->n_output;
    return pl__request_outputs(r);
}

const float *pl_request_logprobs(const pl_request *r, int32_t *n)
{
    *n = r->n_output;
    return pl__request_logprobs(r);
}

pl_request_stats pl_request_stats_of(const pl_request *r)
{
    return (pl_request_stats){
        .speculation = r->speculation, .preemptions = r->n_preempted, .cached_tokens = r->n_cached};
}

void pl_request_digest(const pl_request *r, char digest[PL_REQUEST_DIGEST_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    XXH128_canonical_t bytes;

    XXH128_canonicalFromHash(&bytes, XXH3_128bits_digest(&r->digest));
    for (size_t i = 0; i < sizeof bytes.digest; i++) {
        digest[2 * i] = digits[bytes.digest[i] >> 4];
        digest[2 * i + 1] = digits[bytes.digest[i] & 15];
    }
    digest[PL_REQUEST_DIGEST_BYTES - 1] = 0;
}
