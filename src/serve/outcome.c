/* What becomes of what was submitted: tokens as the engine chooses them, and the ends of completions and of jobs.
 *
 * A token is written where the HTTP thread reads it, under the lock, and wakes a connection that streams. Ends are taken
 * between two steps: the answer, the counters and the line in the log say the same. When something ends early is watch.c's. */
#include <stdlib.h>

#include "base/log.h"
#include "serve/loop.h"
#include "serve/queue.h"

/* ---- tokens */

/* The text of a token to the search for stop strings. */
static void feed_text(const pl_serve_loop *l, pl_job_choice *c, int32_t token)
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

void pl_outcome_token(void *user, pl_request *request, const pl_token_event *event)
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
void pl_outcome_prompt_token(void *user, pl_request *request, const pl_token_event *event)
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

/* ---- ends of jobs */

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
static void end_job(pl_serve_loop *l, pl_job *job)
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

/* ---- ends of completions */

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

static void end_choice(pl_serve_loop *l, pl_job_choice *c)
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

void pl_outcome_settle(pl_serve_loop *l)
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

void pl_outcome_end_all(pl_serve_loop *l, pl_job *job)
{
    while (job) {
        pl_job *next = job->next;
        end_job(l, job);
        job = next;
    }
}
