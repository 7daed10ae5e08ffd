/* Sending the load of plimsoll bench serve: one thread for each request that may be in flight; each takes the next request,
 * waits for its arrival, streams its answer. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/bench_serve.h"

typedef struct load {
    const pl_http_target *target;
    const char *path, *key;
    int timeout_s, n, next, n_answered;
    bool shows; /* progress, on a terminal */
    pl_bench_request *request;
    struct timespec begin;
    pthread_mutex_t lock;
} load;

static double since(const struct timespec *begin)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)(t.tv_sec - begin->tv_sec) + 1e-9 * (double)(t.tv_nsec - begin->tv_nsec);
}

static double now(void *user)
{
    return since(user);
}

static void wait_until(const load *l, double at)
{
    double left = at - since(&l->begin);

    while (left > 0) {
        const struct timespec t = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};

        (void)nanosleep(&t, NULL);
        left = at - since(&l->begin);
    }
}

static bool drop_body(void *user, const char *data, size_t n)
{
    return true;
}

/* The body of a refusal is no stream. */
typedef struct sink {
    pl_bench_stream stream;
    const pl_http_answer *answer;
} sink;

static bool push(void *user, const char *data, size_t n)
{
    sink *s = user;

    return s->answer->status == 200 ? pl_bench_stream_push(&s->stream, data, n)
                                    : drop_body(NULL, data, n);
}

static void send_one(load *l, pl_bench_request *r)
{
    sink s = {.stream = {.request = r, .now = now, .user = &l->begin}};
    pl_http_answer a = {.on_body = push, .user = &s};
    pl_error err = {0};
    pl_status status;

    s.answer = &a;
    r->start = since(&l->begin);
    status = pl_http_exchange(l->target, l->path, l->key, r->body, l->timeout_s, &a, &err);
    if (a.status && a.status != 200)
        (void)pl_error_set(&err, PL_ERR_IO, "status %d", a.status);
    else if (s.stream.failed)
        (void)pl_error_set(&err, PL_ERR_CORRUPT, "stream: an error or no JSON");
    else if (status == PL_OK && !s.stream.done)
        status = pl_error_set(&err, PL_ERR_CORRUPT, "stream: ended without [DONE]");
    else if (status == PL_OK && s.stream.n_events == 0)
        status = pl_error_set(&err, PL_ERR_CORRUPT, "stream: no text");
    r->ok = status == PL_OK && a.status == 200 && !s.stream.failed;
    memcpy(r->failure, err.msg, sizeof r->failure);
    free(s.stream.line);
}

static void *work(void *user)
{
    load *l = user;

    for (;;) {
        int i;

        pthread_mutex_lock(&l->lock);
        i = l->next < l->n ? l->next++ : -1;
        pthread_mutex_unlock(&l->lock);
        if (i < 0)
            return NULL;
        wait_until(l, l->request[i].arrival);
        send_one(l, &l->request[i]);
        pthread_mutex_lock(&l->lock);
        l->n_answered++;
        if (l->shows)
            fprintf(stderr, "\r%d of %d requests%s", l->n_answered, l->n,
                    l->n_answered == l->n ? "\r\033[K" : "");
        pthread_mutex_unlock(&l->lock);
    }
}

pl_status pl_bench_send(const pl_http_target *t, const char *path, const char *key, int timeout_s,
                        pl_bench_request *r, int n, int concurrency, double *duration,
                        pl_error *err)
{
    load l = {.target = t,
              .path = path,
              .key = key,
              .timeout_s = timeout_s,
              .n = n,
              .request = r,
              .shows = isatty(STDERR_FILENO),
              .lock = PTHREAD_MUTEX_INITIALIZER};
    const int wanted = n < concurrency ? n : concurrency;
    pthread_t *thread = malloc((size_t)wanted * sizeof *thread);
    int started = 0;

    if (!thread)
        return pl_error_set(err, PL_ERR_NOMEM, "bench serve: out of memory for threads");
    (void)clock_gettime(CLOCK_MONOTONIC, &l.begin);
    while (started < wanted && pthread_create(&thread[started], NULL, work, &l) == 0)
        started++;
    if (started < wanted) {
        pthread_mutex_lock(&l.lock);
        l.next = n;
        pthread_mutex_unlock(&l.lock);
    }
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    *duration = since(&l.begin);
    free(thread);
    return started == wanted ? PL_OK
                             : pl_error_set(err, PL_ERR_NOMEM,
                                            "bench serve: cannot start threads (got %d, want %d)",
                                            started, wanted);
}
