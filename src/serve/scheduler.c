/* The thread that steps the engine.
 *
 * The engine batches what it is given; this decides what it is given and when: whom queue.c names, never more than there are
 * places for, or than may be had by preempting, so that nobody stands behind a queue he cannot overtake. What comes of it is
 * outcome.c's, who ends early watch.c's. */
#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "serve/loop.h"
#include "serve/queue.h"

/* ---- submitting */

static pl_status submit(pl_serve_loop *l, pl_job *job, pl_error *err)
{
    pl_job_choice *c = &job->choices[job->n_submitted];
    pl_request_params p = job->fields.params;

    p.tokens = job->prompts[c->prompt].tokens;
    p.n_tokens = job->prompts[c->prompt].n;
    p.choice = (uint32_t)(c->index % job->fields.n);
    p.on_token = pl_outcome_token;
    if (job->prompts[c->prompt].told && c->index % job->fields.n == 0)
        p.on_prompt_token = pl_outcome_prompt_token;
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
    l->serve->counters.n_running = l->n_live;
    pl_queue_charge_locked(job, p.n_tokens);
    pthread_mutex_unlock(&l->serve->lock);
    return PL_OK;
}

/* All places are taken, but one of lower priority runs, and the engine can remember it. */
static bool can_preempt(const pl_serve_loop *l, const pl_job *job)
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
static pl_job *next_job(pl_serve_loop *l)
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
static pl_status submit_some(pl_serve_loop *l, pl_error *err)
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

static void wait_for_work(pl_serve_loop *l)
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

/* Before any answer ends: whoever has read one finds its last step counted. */
static void count(const pl_serve_loop *l)
{
    pthread_mutex_lock(&l->serve->lock);
    l->serve->counters.engine = pl_engine_stats_of(l->engine);
    pthread_mutex_unlock(&l->serve->lock);
}

static pl_status run_loop(pl_serve_loop *l, pl_error *err)
{
    pl_serve *s = l->serve;

    for (;;) {
        pl_job *cancelled;
        bool busy, drained;

        pthread_mutex_lock(&s->lock);
        wait_for_work(l);
        pl_watch_locked(l);
        cancelled = pl_watch_take_cancelled_locked(s);
        drained = pl_watch_is_drained_locked(l);
        pthread_mutex_unlock(&s->lock);
        pl_outcome_end_all(l, cancelled);
        if (drained)
            return PL_OK;
        PL_TRY(submit_some(l, err));
        if (l->n_live)
            PL_TRY(pl_engine_step(l->engine, &busy, err));
        count(l);
        pl_outcome_settle(l);
    }
}

/* The engine failed: whoever waits is told so. */
static void fail_all(pl_serve_loop *l)
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
    cancelled = pl_watch_take_cancelled_locked(s);
    pthread_mutex_unlock(&s->lock);
    pl_outcome_settle(l);
    pl_outcome_end_all(l, cancelled);
}

pl_status pl_serve_engine_loop(pl_serve *s, pl_error *err)
{
    pl_serve_loop l = {
        .serve = s, .engine = s->engine, .tokenizer = pl_engine_tokenizer(s->engine)};
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
