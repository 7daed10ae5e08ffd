/* The order of the queue. A client is known while it has jobs; its count of tokens is compared with those of others, and one that
 * comes begins with the least count of those that are there: nobody saves up by staying away. The queue is
 * looked through from end to end: it is as long as max_waiting at most, and a step takes far longer. */
#include "serve/queue.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

struct pl_client {
    pl_client *next;
    pl_client_id id;
    int n_jobs;
    int64_t served; /* tokens */
};

/* Of an IPv6 address the network: a host may have as many addresses in it as it likes. */
pl_client_id pl_client_id_of(const pl_serve *s, int key, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info;
    pl_client_id id = {.kind = 1, .value = (uint64_t)key};

    if (s->keys.n > 1)
        return id;
    id = (pl_client_id){0};
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (info && info->client_addr->sa_family == AF_INET) {
        const struct sockaddr_in *a = (const void *)info->client_addr;
        id = (pl_client_id){4, a->sin_addr.s_addr};
    } else if (info && info->client_addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const void *)info->client_addr;
        id.kind = 6;
        memcpy(&id.value, &a->sin6_addr, sizeof id.value);
    }
    return id;
}

/* ---- clients */

static pl_client *find(const pl_serve *s, pl_client_id id)
{
    pl_client *c = s->clients;

    while (c && (c->id.kind != id.kind || c->id.value != id.value))
        c = c->next;
    return c;
}

static int64_t least_served(const pl_serve *s)
{
    int64_t least = s->clients ? s->clients->served : 0;

    for (const pl_client *c = s->clients; c; c = c->next)
        least = c->served < least ? c->served : least;
    return least;
}

bool pl_queue_enter_locked(pl_serve *s, pl_job *job)
{
    pl_client *c = find(s, job->client_id);

    if (!c) {
        c = calloc(1, sizeof *c);
        if (!c)
            return false;
        *c = (pl_client){.next = s->clients, .id = job->client_id, .served = least_served(s)};
        s->clients = c;
    }
    c->n_jobs++;
    job->client = c;
    pl_serve_append_locked(&s->waiting, job);
    return true;
}

void pl_queue_leave_locked(pl_serve *s, pl_job *job)
{
    pl_client **at = &s->clients, *c = job->client;

    job->client = NULL;
    if (--c->n_jobs > 0)
        return;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    free(c);
}

void pl_queue_charge_locked(pl_job *job, int64_t n_tokens)
{
    job->client->served += n_tokens;
}

/* ---- the order */

static bool goes_before(const pl_serve *s, const pl_job *a, const pl_job *b)
{
    if (s->params.fcfs)
        return a->number < b->number;
    if (a->fields.priority != b->fields.priority)
        return a->fields.priority < b->fields.priority;
    if (a->client->served != b->client->served)
        return a->client->served < b->client->served;
    return a->number < b->number;
}

pl_job *pl_queue_next_locked(const pl_serve *s, pl_job *running)
{
    pl_job *next = NULL;

    for (pl_job *job = running; job; job = job->next)
        if (job->n_submitted < job->n_choices && !job->cancelled &&
            (!next || goes_before(s, job, next)))
            next = job;
    for (pl_job *job = s->waiting.first; job; job = job->next)
        if (!job->cancelled && (!next || goes_before(s, job, next)))
            next = job;
    return next;
}

bool pl_queue_take_locked(pl_serve *s, pl_job *job)
{
    pl_job **at = &s->waiting.first;

    while (*at && *at != job)
        at = &(*at)->next;
    if (!*at)
        return false;
    *at = job->next;
    job->next = NULL;
    return true;
}
