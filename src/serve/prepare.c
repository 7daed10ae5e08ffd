/* The thread between HTTP and the engine's: bodies in the order in which they came, one at a time, become jobs that wait, are
 * answered at once or refused. What a body means is admission.c's. */
#include <poll.h>

#include "base/log.h"
#include "serve/job.h"
#include "serve/queue.h"

static void refuse(pl_job *job, const pl_fault *fault)
{
    pl_serve *s = job->serve;

    pl_log(PL_LOG_INFO, "request", "id=%s status=%d param=%s total_ms=%.1f", job->id, fault->http,
           fault->param[0] ? fault->param : "-", 1e3 * (pl_serve_now() - job->arrived));
    pthread_mutex_lock(&s->lock);
    job->fault = *fault;
    job->state = PL_JOB_REFUSED;
    s->counters.requests_refused++;
    pl_job_wake_locked(job);
    pthread_mutex_unlock(&s->lock);
    pl_job_unref(job);
}

/* Into the queue, unless that is full. */
static bool accept_job(pl_job *job, pl_fault *fault)
{
    pl_serve *s = job->serve;
    bool fits, entered;

    pthread_mutex_lock(&s->lock);
    fits = job->n_choices <= s->params.max_waiting - s->n_waiting;
    entered = fits && pl_queue_enter_locked(s, job);
    if (entered) {
        job->state = PL_JOB_ACCEPTED;
        s->n_waiting += job->n_choices;
        s->counters.n_waiting = s->n_waiting;
        pthread_cond_broadcast(&s->to_run);
        pl_job_wake_locked(job);
    }
    pthread_mutex_unlock(&s->lock);
    if (fits)
        return entered || pl_fault_set(fault, 503, "", "server: out of memory");
    return pl_fault_set(fault, 429, "", "server: too many requests wait (want at most %d)",
                        s->params.max_waiting);
}

static void answer_text(pl_job *job)
{
    pl_serve *s = job->serve;

    pl_log(PL_LOG_INFO, "request", "id=%s status=200 total_ms=%.1f", job->id,
           1e3 * (pl_serve_now() - job->arrived));
    pthread_mutex_lock(&s->lock);
    job->state = PL_JOB_ENDED;
    pl_job_wake_locked(job);
    pthread_mutex_unlock(&s->lock);
    pl_job_unref(job);
}

/* Who accepts it takes the reference over. */
static void prepare(pl_job *job, pl_encoder *encoder)
{
    const bool is_text = job->kind == PL_FIELDS_TOKENIZE || job->kind == PL_FIELDS_DETOKENIZE;
    pl_fault fault;

    if (is_text && pl_job_text(job, encoder, &fault))
        answer_text(job);
    else if (is_text || !pl_job_prepare(job, encoder, &fault) || !accept_job(job, &fault))
        refuse(job, &fault);
}

void *pl_serve_prepare_loop(void *serve)
{
    pl_serve *s = serve;
    pl_encoder *encoder = NULL;

    while (pl_encoder_create(0, &encoder) != PL_OK)
        (void)poll(NULL, 0, 100);
    for (;;) {
        pl_job *job;

        pthread_mutex_lock(&s->lock);
        while (!s->preparing.first && !s->stopping)
            pthread_cond_wait(&s->to_prepare, &s->lock);
        job = pl_serve_take_locked(&s->preparing);
        pthread_mutex_unlock(&s->lock);
        if (!job)
            break;
        prepare(job, encoder);
    }
    pl_encoder_destroy(encoder);
    return NULL;
}
