/* Who ends before his time: clients that are gone, requests that take too long, a drain that lasts too long. They are only
 * marked here; the engine's thread ends them between two steps. */
#include <microhttpd.h>
#include <poll.h>

#include "serve/loop.h"

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

/* The patience may be changed while a drain lasts. */
static bool is_drain_over(const pl_serve_loop *l, double now, int more_seconds)
{
    return l->drain_began > 0 &&
           now - l->drain_began > (double)l->serve->params.drain_seconds + more_seconds;
}

static void watch_job(const pl_serve_loop *l, pl_job *job, double now)
{
    if (now - job->arrived > l->serve->params.max_request_seconds && !job->cancelled)
        job->timed_out = job->cancelled = true;
    if (is_gone(job) || is_drain_over(l, now, 0))
        job->cancelled = true;
}

void pl_watch_locked(pl_serve_loop *l)
{
    const double now = pl_serve_now();

    if (l->serve->draining && l->drain_began == 0)
        l->drain_began = now;
    if (now - l->watched < 0.05)
        return;
    l->watched = now;
    for (pl_job *job = l->running; job; job = job->next)
        watch_job(l, job, now);
    for (pl_job *job = l->serve->waiting.first; job; job = job->next)
        watch_job(l, job, now);
}

pl_job *pl_watch_take_cancelled_locked(pl_serve *s)
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

bool pl_watch_is_drained_locked(const pl_serve_loop *l)
{
    enum { SEND_SECONDS = 5 };
    const pl_serve *s = l->serve;

    if (!s->draining || l->running || s->waiting.first || s->preparing.first)
        return false;
    return (s->n_jobs == 0 && s->n_exchanges == 0) ||
           is_drain_over(l, pl_serve_now(), SEND_SECONDS);
}
