/* The thread that steps the engine.
 *
 * The engine batches what it is given; this decides what it is given and when: whom queue.c names, never more than there are places for, or than may be had by
 * preempting, so that nobody stands behind a queue he cannot overtake. Clients that are gone, requests that take too long and a drain that lasts too long end as cancelled,
 * between two steps. */
#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "serve/job.h"
#include "serve/queue.h"

typedef struct pl_serve_loop {
    pl_serve *serve;
    pl_engine *engine;
    const pl_tokenizer *tokenizer;
    char *piece; /* text of a token */
    size_t piece_bytes;
    pl_job *running; /* submitted at least in part */
    int n_live, max_live, max_preempted;
    double watched, drain_ends; /* 0: no drain */
} loop;

/* The text of a token to the search for stop strings. */
static void feed_text(const loop *l, pl_job_choice *c, int32_t token)
{
    const unsigned flags = c->job->kind == PL_FIELDS_CHAT ? 0 : PL_DECODE_SKIP_SPECIAL;
    size_t n = 0;

    if (!l->tokenizer || token >= pl_tokenizer_vocab_size(l->tokenizer))
        return;
    if (pl_text_stream_push(l->tokenizer, &c->stop_stream, token, flags, l->piece, l->piece_bytes,
                            &n, NULL) != PL_OK)
        return;
    c->stopped = pl_stop_feed(&c->stop, l->piece, n, &c->safe_bytes);
}

static void on_token(void *user, pl_request *request, const pl_token_event *event)
{
    pl_job_choice *c = user;
    pl_serve *s = c->job->serve;
    const int n_top = c->job->fields.n_top;
    const bool is_text = pl_request_state_of(request) != PL_REQUEST_STOPPED;

    if (c->stopped || c->n_tokens == c->max_tokens)
        return;
    if (n_top)
        (void)pl_request_top_logprobs(request, c->top + (size_t)c->n_tokens * (size_t)n_top, n_top);
    pthread_mutex_lock(&s->lock);
    c->tokens[c->n_tokens] = event->token;
    c->logprobs[c->n_tokens++] = event->logprob;
    c->n_text += is_text;
    s->counters.generation_tokens++;
    pl_queue_charge_locked(c->job, 1);
    if (is_text)
        feed_text(s->loop, c, event->token);
    if (c->stopped)
        pl_request_cancel(request);
    if (c->job->first_token == 0) {
        c->job->first_token = pl_serve_now();
        pl_serve_observe_locked(&s->ttft, c->job->first_token - c->job->arrived);
    }
    if (c->job->fields.stream)
        pl_job_wake_locked(c->job);
    pthread_mutex_unlock(&s->lock);
}

/* The completions of one prompt share what is told of it: the first of them asks. */
static void on_prompt_token(void *user, pl_request *request, const pl_token_event *event)
{
    const pl_job_choice *c = user;
    pl_job *job = c->job;
    pl_job_prompt *p = &job->prompts[c->prompt];
    const int n_top = job->fields.n_prompt_top;

    if (n_top)
        (void)pl_request_top_logprobs(request, p->top + (size_t)event->index * (size_t)n_top,
                                      n_top);
    p->told[event->index] = (pl_prompt_told){
        event->logprob, job->fields.prompt_logprobs ? pl_request_rank(request) : 0};
    pthread_mutex_lock(&job->serve->lock);
    p->n_told = event->index;
    if (p->n_told == p->n - 1 && job->fields.stream)
        pl_job_wake_locked(job);
    pthread_mutex_unlock(&job->serve->lock);
}

/* ---- ends */

static const char *reason_of(const pl_job *job)
{
    if (job->fault.http)
        return "error";
    if (job->timed_out)
        return "timeout";
    return job->cancelled ? "cancelled" : pl_finish_name(job->choices[0].finish);
}

static int64_t tokens_of(const pl_job *job)
{
    int64_t n = 0;

    for (int i = 0; i < job->n_choices; i++)
        n += job->choices[i].n_tokens;
    return n;
}

static void log_end(const pl_job *job)
{
    const double started = job->started > 0 ? job->started : job->ended;
    int64_t n_prompt = 0;

    for (int i = 0; i < job->n_prompts; i++)
        n_prompt += job->prompts[i].n;
    pl_log(PL_LOG_INFO, "request",
           "id=%s status=%d n=%d prompt_tokens=%lld completion_tokens=%lld queue_ms=%.1f "
           "ttft_ms=%.1f total_ms=%.1f stream=%d reason=%s",
           job->id, job->fault.http ? job->fault.http : 200, job->n_choices, (long long)n_prompt,
           (long long)tokens_of(job), 1e3 * (started - job->arrived),
           job->first_token > 0 ? 1e3 * (job->first_token - job->arrived) : 0.0,
           1e3 * (job->ended - job->arrived), job->fields.stream, reason_of(job));
    if (job->fields.unknown[0])
        pl_log(PL_LOG_INFO, "unknown_fields", "id=%s ignored=%s", job->id, job->fields.unknown);
}

/* All its choices have ended or never began. Takes the engine's reference. */
static void end_job(loop *l, pl_job *job)
{
    pl_serve *s = l->serve;
    const int64_t n = tokens_of(job);
    bool lost = false;

    pthread_mutex_lock(&s->lock);
    s->n_waiting -= job->n_choices - job->n_submitted;
    s->counters.n_waiting = s->n_waiting;
    pl_queue_leave_locked(s, job);
    job->ended = pl_serve_now();
    for (int i = 0; i < job->n_choices; i++) {
        if (job->choices[i].finish == PL_FINISH_NONE)
            job->choices[i].finish = PL_FINISH_CANCELLED;
        lost = lost || job->choices[i].finish == PL_FINISH_CANCELLED;
        s->counters.finished[job->choices[i].finish]++;
    }
    if (job->timed_out)
        (void)pl_fault_set(&job->fault, 504, "", "server: generation took longer than %d s",
                           s->params.max_request_seconds);
    else if (job->cancelled && !job->fault.http)
        (void)pl_fault_set(&job->fault, 503, "", "server: the request was cancelled");
    else if (lost && !job->fault.http)
        (void)pl_fault_set(&job->fault, 500, "", "server: the form left no token");
    *(job->fault.http ? &s->counters.requests_cancelled : &s->counters.requests_ok) += 1;
    pl_serve_observe_locked(&s->e2e, job->ended - job->arrived);
    if (n > job->n_choices)
        pl_serve_observe_locked(&s->tpot, (job->ended - job->first_token) * job->n_choices /
                                              (double)(n - job->n_choices));
    pthread_mutex_unlock(&s->lock);
    log_end(job);
    pthread_mutex_lock(&s->lock);
    job->state = PL_JOB_ENDED;
    pl_job_wake_locked(job);
    pthread_mutex_unlock(&s->lock);
    pl_job_unref(job);
}

static pl_finish finish_of(const pl_job_choice *c, pl_request_state state)
{
    if (c->job->fields.echo_only && state != PL_REQUEST_CANCELLED)
        return PL_FINISH_LENGTH;
    if (c->stopped)
        return PL_FINISH_STOP;
    if (state == PL_REQUEST_STOPPED)
        return c->mask && pl_mask_run_forced(c->mask, c->tokens, c->n_tokens) ? PL_FINISH_LENGTH
                                                                              : PL_FINISH_STOP;
    return state == PL_REQUEST_LENGTH ? PL_FINISH_LENGTH : PL_FINISH_CANCELLED;
}

static void end_choice(loop *l, pl_job_choice *c)
{
    const pl_request_state state = pl_request_state_of(c->request);
    const int32_t n_cached = pl_request_stats_of(c->request).cached_tokens;
    char rest[3];

    pl_request_digest(c->request, c->digest);
    pl_request_release(c->request);
    c->request = NULL;
    c->job->n_live--;
    l->n_live--;
    pthread_mutex_lock(&l->serve->lock);
    if (!c->stopped) {
        const size_t n = pl_text_stream_flush(&c->stop_stream, rest);
        if (!pl_stop_feed(&c->stop, rest, n, &c->safe_bytes))
            c->safe_bytes = c->stop.seen;
    }
    c->n_cached = n_cached;
    c->finish = finish_of(c, state);
    l->serve->counters.n_running = l->n_live;
    if (c->job->fields.stream)
        pl_job_wake_locked(c->job);
    pthread_mutex_unlock(&l->serve->lock);
}

static bool is_over(const pl_job_choice *c)
{
    return c->request && (c->stopped || pl_request_state_of(c->request) > PL_REQUEST_RUNNING);
}

/* Ends what has ended, and what was cancelled. */
static void settle(loop *l)
{
    pl_job **at = &l->running;

    while (*at) {
        pl_job *job = *at;
        bool cancelled;

        pthread_mutex_lock(&l->serve->lock);
        cancelled = job->cancelled;
        pthread_mutex_unlock(&l->serve->lock);
        for (int i = 0; i < job->n_submitted; i++) {
            if (cancelled && job->choices[i].request)
                pl_request_cancel(job->choices[i].request);
            if (is_over(&job->choices[i]))
                end_choice(l, &job->choices[i]);
        }
        if (job->n_live == 0 && (cancelled || job->n_submitted == job->n_choices)) {
            *at = job->next;
            end_job(l, job);
        } else {
            at = &job->next;
        }
    }
}

/* ---- watching */

/* A client that closed its side will not read the answer. Only a suspended connection is looked at: it cannot be closed
 * meanwhile; one that is not suspended is noticed by HTTP itself. */
static bool is_gone(const pl_job *job)
{
    const union MHD_ConnectionInfo *info;
    struct pollfd p = {.events = POLLRDHUP};

    if (!job->connection)
        return true;
    if (!job->suspended)
        return false;
    info = MHD_get_connection_info(job->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!info)
        return false;
    p.fd = info->connect_fd;
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static void watch_job(const loop *l, pl_job *job, double now)
{
    if (now - job->arrived > l->serve->params.max_request_seconds && !job->cancelled)
        job->timed_out = job->cancelled = true;
    if (is_gone(job) || (l->drain_ends > 0 && now > l->drain_ends))
        job->cancelled = true;
}

static void watch_locked(loop *l)
{
    const double now = pl_serve_now();

    if (l->serve->draining && l->drain_ends == 0)
        l->drain_ends = now + l->serve->params.drain_seconds;
    if (now - l->watched < 0.05)
        return;
    l->watched = now;
    for (pl_job *job = l->running; job; job = job->next)
        watch_job(l, job, now);
    for (pl_job *job = l->serve->waiting.first; job; job = job->next)
        watch_job(l, job, now);
}

/* Jobs that were cancelled before they ran, in a list of their own. */
static pl_job *take_cancelled_locked(pl_serve *s)
{
    pl_job **at = &s->waiting.first, *cancelled = NULL;

    while (*at) {
        pl_job *job = *at;
        if (!job->cancelled) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        job->next = cancelled;
        cancelled = job;
    }
    return cancelled;
}

static void end_cancelled(loop *l, pl_job *job)
{
    while (job) {
        pl_job *next = job->next;
        end_job(l, job);
        job = next;
    }
}

/* ---- submitting */

static pl_status submit(loop *l, pl_job *job, pl_error *err)
{
    pl_job_choice *c = &job->choices[job->n_submitted];
    pl_request_params p = job->fields.params;

    p.tokens = job->prompts[c->prompt].tokens;
    p.n_tokens = job->prompts[c->prompt].n;
    p.choice = (uint32_t)(c->index % job->fields.n);
    p.on_token = on_token;
    if (job->prompts[c->prompt].told && c->index % job->fields.n == 0)
        p.on_prompt_token = on_prompt_token;
    p.user = c;
    p.mask = c->mask ? pl_mask_run_mask : NULL;
    p.mask_user = c->mask;
    p.priority = l->serve->params.fcfs ? 0 : -job->fields.priority;
    PL_TRY(pl_engine_submit(l->engine, &p, &c->request, err));
    job->n_live++;
    l->n_live++;
    pthread_mutex_lock(&l->serve->lock);
    if (job->n_submitted++ == 0) {
        job->started = pl_serve_now();
        for (int i = 0; i < job->n_prompts; i++)
            l->serve->counters.prompt_tokens += (uint64_t)job->prompts[i].n;
    }
    l->serve->n_waiting--;
    l->serve->counters.n_waiting = l->serve->n_waiting;
    pl_queue_charge_locked(job, p.n_tokens);
    pthread_mutex_unlock(&l->serve->lock);
    return PL_OK;
}

/* All places are taken, but one of lower priority runs, and the engine can remember it. */
static bool can_preempt(const loop *l, const pl_job *job)
{
    if (l->n_live >= l->max_live + l->max_preempted)
        return false;
    for (const pl_job *other = l->running; other; other = other->next)
        for (int i = 0; i < other->n_submitted && other->fields.priority > job->fields.priority;
             i++)
            if (other->choices[i].request &&
                pl_request_state_of(other->choices[i].request) == PL_REQUEST_RUNNING)
                return true;
    return false;
}

/* Whose completion is submitted next; NULL: nobody's. */
static pl_job *next_job(loop *l)
{
    pl_serve *s = l->serve;
    pl_job *job;

    pthread_mutex_lock(&s->lock);
    job = pl_queue_next_locked(s, l->running);
    if (job && l->n_live >= l->max_live && !can_preempt(l, job))
        job = NULL;
    if (job && pl_queue_take_locked(s, job)) {
        job->next = l->running;
        l->running = job;
    }
    pthread_mutex_unlock(&s->lock);
    return job;
}

/* At most one request preempts another in a step: whom, the engine decides when it begins the step. */
static pl_status submit_some(loop *l, pl_error *err)
{
    bool preempts = false;

    while (!preempts) {
        pl_job *job = next_job(l);
        pl_status s = PL_ERR_AGAIN;

        preempts = l->n_live >= l->max_live;
        if (job)
            s = submit(l, job, err);
        if (s == PL_ERR_AGAIN)
            return PL_OK;
        PL_TRY(s);
    }
    return PL_OK;
}

/* ---- the loop */

static void wait_for_work(loop *l)
{
    pl_serve *s = l->serve;
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 100000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    if (!l->running && !s->waiting.first)
        (void)pthread_cond_timedwait(&s->to_run, &s->lock, &until);
}

/* Nobody waits for an answer any more, or for too long to send it. */
static bool is_drained(const loop *l)
{
    enum { SEND_SECONDS = 5 };
    const pl_serve *s = l->serve;

    if (!s->draining || l->running || s->waiting.first || s->preparing.first)
        return false;
    return (s->n_jobs == 0 && s->n_exchanges == 0) ||
           (l->drain_ends > 0 && pl_serve_now() > l->drain_ends + SEND_SECONDS);
}

static pl_status run_loop(loop *l, pl_error *err)
{
    pl_serve *s = l->serve;

    for (;;) {
        pl_job *cancelled;
        bool busy, drained;

        pthread_mutex_lock(&s->lock);
        wait_for_work(l);
        watch_locked(l);
        cancelled = take_cancelled_locked(s);
        drained = is_drained(l);
        s->counters.engine = pl_engine_stats_of(l->engine);
        s->counters.n_running = l->n_live;
        pthread_mutex_unlock(&s->lock);
        end_cancelled(l, cancelled);
        if (drained)
            return PL_OK;
        PL_TRY(submit_some(l, err));
        if (l->n_live)
            PL_TRY(pl_engine_step(l->engine, &busy, err));
        settle(l);
    }
}

/* The engine failed: whoever waits is told so. */
static void fail_all(loop *l)
{
    pl_serve *s = l->serve;
    pl_job *cancelled;

    pthread_mutex_lock(&s->lock);
    s->draining = true;
    for (pl_job *job = l->running; job; job = job->next) {
        job->cancelled = true;
        (void)pl_fault_set(&job->fault, 500, "", "server: the engine failed");
    }
    for (pl_job *job = s->waiting.first; job; job = job->next) {
        job->cancelled = true;
        (void)pl_fault_set(&job->fault, 500, "", "server: the engine failed");
    }
    cancelled = take_cancelled_locked(s);
    pthread_mutex_unlock(&s->lock);
    settle(l);
    end_cancelled(l, cancelled);
}

pl_status pl_serve_engine_loop(pl_serve *s, pl_error *err)
{
    loop l = {.serve = s, .engine = s->engine, .tokenizer = pl_engine_tokenizer(s->engine)};
    pl_status status;

    l.max_live = pl_plan_totals_of(pl_engine_plan(s->engine)).max_num_seqs;
    l.max_preempted = s->max_preempted;
    l.piece_bytes = l.tokenizer ? pl_text_stream_max_bytes(l.tokenizer) : 1;
    l.piece = malloc(l.piece_bytes);
    if (!l.piece)
        return pl_error_set(err, PL_ERR_NOMEM, "server: out of memory");
    s->loop = &l;
    status = run_loop(&l, err);
    if (status != PL_OK)
        fail_all(&l);
    s->loop = NULL;
    free(l.piece);
    return status;
}
