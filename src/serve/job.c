/* Lives of jobs and the memory they may hold. */
#include "serve/job.h"

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *pl_finish_name(pl_finish finish)
{
    static const char *const names[] = {"none", "stop", "length", "cancelled"};

    return names[finish];
}

double pl_serve_now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- memory */

bool pl_serve_hold(pl_serve *s, uint64_t bytes)
{
    bool fits;

    pthread_mutex_lock(&s->lock);
    fits = bytes <= s->params.request_memory_bytes - s->held_bytes;
    if (fits)
        s->held_bytes += bytes;
    pthread_mutex_unlock(&s->lock);
    return fits;
}

void pl_serve_give_back(pl_serve *s, uint64_t bytes)
{
    pthread_mutex_lock(&s->lock);
    s->held_bytes -= bytes;
    pthread_mutex_unlock(&s->lock);
}

/* ---- lives */

static void name_job(pl_job *job)
{
    static const char *const prefixes[] = {"chatcmpl", "cmpl", "tok", "detok"};
    const char *prefix = prefixes[job->kind];

    (void)snprintf(job->id, sizeof job->id, "%s-%llx%06llx", prefix, (long long)job->created,
                   (unsigned long long)job->number);
}

pl_job *pl_job_create(pl_serve *s, pl_fields_kind kind, char *body, size_t n_body, uint64_t held)
{
    pl_job *job = calloc(1, sizeof *job);

    if (!job)
        return NULL;
    *job = (pl_job){
        .serve = s,
        .kind = kind,
        .body = body,
        .n_body = n_body,
        .held_bytes = held,
        .n_refs = 1,
        .arrived = pl_serve_now(),
        .created = time(NULL),
    };
    pthread_mutex_lock(&s->lock);
    job->number = s->next_number++;
    s->n_jobs++;
    pthread_mutex_unlock(&s->lock);
    name_job(job);
    return job;
}

static void free_job(pl_job *job)
{
    for (int i = 0; i < job->n_choices && job->choices; i++) {
        free(job->choices[i].tokens);
        free(job->choices[i].logprobs);
        free(job->choices[i].top);
        free(job->choices[i].mask);
    }
    for (int i = 0; i < job->n_prompts && job->prompts; i++) {
        free(job->prompts[i].tokens);
        free(job->prompts[i].told);
        free(job->prompts[i].top);
    }
    free(job->choices);
    pl_calls_destroy(job->calls);
    free(job->prompts);
    free(job->body);
    free(job->reply);
    pl_fields_free(&job->fields);
    pl_serve_give_back(job->serve, job->held_bytes);
    free(job);
}

void pl_job_ref_locked(pl_job *job)
{
    job->n_refs++;
}

void pl_job_unref(pl_job *job)
{
    pl_serve *s = job->serve;
    int left;

    pthread_mutex_lock(&s->lock);
    left = --job->n_refs;
    pthread_mutex_unlock(&s->lock);
    if (left > 0)
        return;
    free_job(job);
    pthread_mutex_lock(&s->lock);
    s->n_jobs--;
    pthread_cond_broadcast(&s->to_run);
    pthread_mutex_unlock(&s->lock);
}

void pl_job_wake_locked(pl_job *job)
{
    if (!job->suspended || !job->connection)
        return;
    job->suspended = false;
    MHD_resume_connection(job->connection);
}

/* ---- lists */

void pl_serve_append_locked(pl_serve_list *list, pl_job *job)
{
    pl_job **at = &list->first;

    while (*at)
        at = &(*at)->next;
    job->next = NULL;
    *at = job;
}

pl_job *pl_serve_take_locked(pl_serve_list *list)
{
    pl_job *job = list->first;

    if (job) {
        list->first = job->next;
        job->next = NULL;
    }
    return job;
}
