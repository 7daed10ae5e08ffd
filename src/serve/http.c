/* One exchange after another on every connection: the route and the key first, then the body, then a job whose
 * connection sleeps until there is something to say. */
#include "serve/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "serve/connections.h"
#include "serve/queue.h"

static const pl_route routes[] = {
    {"GET", "/health", .open = true, .get = pl_http_health},
    {"GET", "/ready", .open = true, .get = pl_http_ready},
    {"GET", "/", .open = true, .get = pl_http_page},
    {"GET", "/page.css", .open = true, .get = pl_http_page},
    {"GET", "/page.js", .open = true, .get = pl_http_page},
    {"GET", "/version", .get = pl_http_version},
    {"GET", "/metrics", .get = pl_http_metrics},
    {"GET", "/v1/models", .get = pl_http_models},
    {"GET", "/v1/models/", .prefix = true, .get = pl_http_model},
    {"GET", "/v1/plan", .get = pl_http_plan},
    {"POST", "/v1/chat/completions", .kind = PL_FIELDS_CHAT},
    {"POST", "/v1/completions", .kind = PL_FIELDS_COMPLETION},
    {"POST", "/tokenize", .kind = PL_FIELDS_TOKENIZE},
    {"POST", "/detokenize", .kind = PL_FIELDS_DETOKENIZE},
};

static enum MHD_Result refuse(pl_exchange *x, int http, const char *text)
{
    pl_fault fault;

    (void)pl_fault_set(&fault, http, "", "%s", text);
    pl_log(PL_LOG_INFO, "refused", "status=%d method=%s path=%s", http,
           x->route ? x->route->method : "-", x->route ? x->route->path : "-");
    return pl_reply_fault(x, &fault);
}

/* ---- the beginning */

static bool matches(const pl_route *r, const char *url)
{
    return r->prefix ? strncmp(url, r->path, strlen(r->path)) == 0 : strcmp(url, r->path) == 0;
}

static const pl_route *find(const char *method, const char *url, const char **allow)
{
    *allow = NULL;
    if (strcmp(method, "HEAD") == 0)
        method = "GET";
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (matches(&routes[i], url)) {
            *allow = strcmp(routes[i].method, "GET") == 0 ? "GET, HEAD" : routes[i].method;
            if (strcmp(method, routes[i].method) == 0)
                return &routes[i];
        }
    return NULL;
}

static const char *header(const pl_exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

static bool has_key(pl_exchange *x)
{
    const bool needed = x->serve->keys.n > 0 && !x->route->open;

    x->key = needed ? pl_keys_find(&x->serve->keys, header(x, "Authorization")) : -1;
    return !needed || x->key >= 0;
}

/* Without the length of a body that is refused anyhow, nobody sends it. */
static bool announces_too_much(const pl_exchange *x)
{
    const char *length = header(x, "Content-Length");

    return length && strtoull(length, NULL, 10) > x->serve->params.max_body_bytes;
}

static enum MHD_Result begin(pl_serve *s, struct MHD_Connection *connection, const char *url,
                             const char *method, void **state)
{
    pl_exchange *x = calloc(1, sizeof *x);

    if (!x)
        return MHD_NO;
    *x = (pl_exchange){.serve = s, .connection = connection};
    *state = x;
    pthread_mutex_lock(&s->lock);
    s->n_exchanges++;
    pthread_mutex_unlock(&s->lock);
    pl_connections_expect(s, connection);
    if (s->params.cors_origin && strcmp(method, "OPTIONS") == 0)
        return pl_reply_empty(x, MHD_HTTP_NO_CONTENT, NULL, NULL);
    x->route = find(method, url, &x->allow);
    if (x->route && x->route->prefix &&
        snprintf(x->rest, sizeof x->rest, "%s", url + strlen(x->route->path)) >=
            (int)sizeof x->rest)
        memcpy(x->rest + sizeof x->rest - 4, "...", 4);
    if (!x->route)
        return x->allow ? refuse(x, 405, "server: this path has another method")
                        : refuse(x, 404, "server: there is no such path");
    if (!has_key(x))
        return refuse(x, 401, "server: no valid key (want Authorization: Bearer KEY)");
    if (announces_too_much(x))
        return refuse(x, 413, "server: the body is too large");
    return MHD_YES;
}

/* ---- the body */

static bool make_room(pl_exchange *x, size_t n)
{
    size_t max = x->max_body ? x->max_body : 4096;
    char *more;

    while (max < x->n_body + n)
        max *= 2;
    if (max == x->max_body)
        return true;
    if (!pl_serve_hold(x->serve, max - x->max_body))
        return false;
    x->held_bytes += max - x->max_body;
    more = realloc(x->body, max);
    if (!more)
        return false;
    x->body = more;
    x->max_body = max;
    return true;
}

/* What is too much is read and dropped for a while, so that the refusal can be heard. */
static enum MHD_Result receive(pl_exchange *x, const char *upload, size_t *n)
{
    const uint64_t most = x->serve->params.max_body_bytes;

    if (x->n_body > 2 * most)
        return MHD_NO;
    if (x->too_large || *n > most - x->n_body || !make_room(x, *n))
        x->too_large = true;
    else
        memcpy(x->body + x->n_body, upload, *n);
    x->n_body += *n;
    *n = 0;
    return MHD_YES;
}

/* ---- the answer */

static void sleep_locked(pl_job *job)
{
    job->suspended = true;
    MHD_suspend_connection(job->connection);
}

static enum MHD_Result start_job(pl_exchange *x)
{
    pl_serve *s = x->serve;
    pl_job *job;

    if (x->too_large)
        return x->n_body > s->params.max_body_bytes
                   ? refuse(x, 413, "server: the body is too large")
                   : refuse(x, 503, "server: all memory for requests is in use");
    job = pl_job_create(s, x->route->kind, x->body, x->n_body, x->held_bytes);
    if (!job)
        return refuse(x, 503, "server: out of memory");
    x->body = NULL;
    x->held_bytes = 0;
    x->job = job;
    job->client_id = pl_client_id_of(s, x->key, x->connection);
    pthread_mutex_lock(&s->lock);
    pl_job_ref_locked(job);
    job->connection = x->connection;
    sleep_locked(job);
    pl_serve_append_locked(&s->preparing, job);
    pthread_cond_signal(&s->to_prepare);
    pthread_mutex_unlock(&s->lock);
    return MHD_YES;
}

static enum MHD_Result answer_ended(pl_exchange *x)
{
    pl_job *job = x->job;
    char *text = job->reply;

    job->reply = NULL;
    if (job->fault.http)
        return pl_reply_fault(x, &job->fault);
    if (!text)
        text = pl_body_answer(job);
    if (!text)
        return refuse(x, 503, "server: out of memory");
    return pl_reply_text(x, MHD_HTTP_OK, "application/json", text);
}

static enum MHD_Result go_on(pl_exchange *x)
{
    pl_serve *s = x->serve;
    pl_job *job = x->job;
    pl_job_state state;
    bool streams;

    pthread_mutex_lock(&s->lock);
    state = job->state;
    streams = state != PL_JOB_PREPARING && job->fields.stream;
    if (state == PL_JOB_PREPARING || (state == PL_JOB_ACCEPTED && !streams)) {
        sleep_locked(job);
        pthread_mutex_unlock(&s->lock);
        return MHD_YES;
    }
    pthread_mutex_unlock(&s->lock);
    /* Until it has ended the fault is the engine's thread's. */
    if (state != PL_JOB_ACCEPTED && job->fault.http)
        return pl_reply_fault(x, &job->fault);
    return streams ? pl_reply_stream(x) : answer_ended(x);
}

static enum MHD_Result answer(pl_exchange *x)
{
    pl_serve *s = x->serve;
    bool ready, draining;

    if (x->route->get)
        return x->route->get(x);
    if (x->job)
        return go_on(x);
    pthread_mutex_lock(&s->lock);
    ready = s->ready;
    draining = s->draining;
    pthread_mutex_unlock(&s->lock);
    if (draining)
        return refuse(x, 503, "server: is shutting down");
    if (!ready)
        return refuse(x, 503, "server: the weights are being loaded; /ready tells how far");
    return start_job(x);
}

enum MHD_Result pl_http_handle(void *cls, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_bytes, void **state)
{
    pl_exchange *x = *state;

    if (!x)
        return begin(cls, connection, url, method, state);
    if (*upload_bytes)
        return receive(x, upload, upload_bytes);
    pl_connections_answer(cls, connection);
    return answer(x);
}

void pl_http_completed(void *cls, struct MHD_Connection *connection, void **state,
                       enum MHD_RequestTerminationCode code)
{
    pl_exchange *x = *state;
    pl_serve *s = cls;

    if (!x)
        return;
    *state = NULL;
    pl_connections_expect(s, connection);
    if (x->job) {
        pthread_mutex_lock(&s->lock);
        x->job->connection = NULL;
        pthread_mutex_unlock(&s->lock);
        pl_job_unref(x->job);
    }
    free(x->body);
    pl_serve_give_back(s, x->held_bytes);
    free(x);
    pthread_mutex_lock(&s->lock);
    s->n_exchanges--;
    pthread_cond_broadcast(&s->to_run);
    pthread_mutex_unlock(&s->lock);
}
