/* Starting and stopping. HTTP comes first, so that /health answers while weights load; the engine is opened and stepped
 * by the calling thread, which is the one its pool pins. */
#include "serve/server.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "serve/connections.h"
#include "serve/http.h"
#include "serve/listen.h"

enum {
    CONNECTION_BYTES = 16384,      /* request line, headers and buffers of a connection */
    CONNECTION_EXTRA_BYTES = 8192, /* what libmicrohttpd keeps beside them; TLS sessions */
    LIBRARY_BYTES = 12 << 20,      /* libmicrohttpd, GnuTLS and theirs; stacks; measured 9 MiB */
    ENCODE_BYTES_PER_BYTE = 96,    /* of a body: a JSON tree, or encoding (plimsoll/chat.h) */
    THREAD_STACK_BYTES = 512 << 10,
    VOCABULARY_BYTES = 2 << 20 /* of 260,000 tokens, for enforced forms */
};

pl_server_params pl_server_params_default(void)
{
    return (pl_server_params){
        .host = "127.0.0.1",
        .port = 8000,
        .max_body_bytes = 1 << 20,
        .request_memory_bytes = 64 << 20,
        .max_connections = 1024,
        .max_waiting = 1024,
        .max_request_seconds = 3600,
        .idle_seconds = 60,
        .drain_seconds = 30,
    };
}

uint64_t pl_server_memory_bytes(const pl_server_params *p)
{
    return LIBRARY_BYTES + VOCABULARY_BYTES + p->max_body_bytes * ENCODE_BYTES_PER_BYTE +
           p->request_memory_bytes +
           (uint64_t)p->max_connections * (CONNECTION_BYTES + CONNECTION_EXTRA_BYTES);
}

uint64_t pl_server_socket_bytes(const pl_server_params *p)
{
    return (uint64_t)p->max_connections * PL_LISTEN_CHARGED_BYTES;
}

/* ---- what it is given */

static pl_status read_pem(const char *option, const char *path, char **text, pl_error *err)
{
    enum { MAX_BYTES = 1 << 20 };
    FILE *from = fopen(path, "re");
    size_t n;

    PL_CHECK(from, err, "%s: cannot be opened (got '%s': %s)", option, path, strerror(errno));
    *text = calloc(1, MAX_BYTES + 1);
    n = *text ? fread(*text, 1, MAX_BYTES, from) : 0;
    (void)fclose(from);
    PL_CHECK(n > 0 && n < MAX_BYTES, err, "%s: not a PEM file (got '%s', %zu bytes)", option, path,
             n);
    return PL_OK;
}

static pl_status read_tls(pl_serve *s, pl_error *err)
{
    const pl_server_params *p = &s->params;

    PL_CHECK(!p->tls_cert == !p->tls_key, err,
             "--tls-cert: goes with --tls-key (want both or neither)");
    if (!p->tls_cert)
        return PL_OK;
    PL_TRY(read_pem("--tls-cert", p->tls_cert, &s->tls_cert, err));
    return read_pem("--tls-key", p->tls_key, &s->tls_key, err);
}

static bool is_plain_name(const char *name)
{
    size_t i = 0;

    while (name[i] > 0x20 && name[i] < 0x7f && name[i] != '"' && name[i] != '\\')
        i++;
    return i > 0 && !name[i];
}

static pl_status check(pl_serve *s, pl_address *a, pl_error *err)
{
    bool loopback = false;

    PL_CHECK(is_plain_name(s->params.model_name), err,
             "--served-model-name: not a name (got '%s', want ASCII without spaces and quotes)",
             s->params.model_name);
    PL_TRY(pl_listen_parse(s->params.host, s->params.port, a, &loopback, err));
    PL_TRY(pl_keys_read(s->params.key_file, &s->keys, err));
    PL_CHECK(loopback || s->keys.n > 0, err,
             "--host: other machines may ask there, so a key is needed (got '%s', want "
             "--api-key-file or PLIMSOLL_API_KEY, or a loopback address)",
             s->params.host);
    return read_tls(s, err);
}

/* ---- the daemon */

static void log_http(void *cls, const char *format, va_list args)
{
    char text[256];

    (void)vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\n")] = 0;
    pl_log(PL_LOG_DEBUG, "http", "text=\"%s\"", text);
}

/* A connection is a file, and so are epoll, shards and the standard ones. */
static void raise_file_limit(int n_connections)
{
    const rlim_t want = (rlim_t)n_connections + 128;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want)
        return;
    limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static pl_status start_daemon(pl_serve *s, const pl_address *a, pl_error *err)
{
    unsigned flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    const bool v6 = a->any.sa_family == AF_INET6;
    const union MHD_DaemonInfo *info;
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, s->tls_cert},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, s->tls_key},
                                   {MHD_OPTION_END, 0, NULL}};
    int fd;

    PL_TRY(pl_listen_open(a, s->params.host, &fd, err));
    flags |= (v6 ? MHD_USE_IPv6 : 0) | (s->tls_cert ? MHD_USE_TLS : 0);
    if (!s->tls_cert)
        tls[0].option = MHD_OPTION_END;
    raise_file_limit(s->params.max_connections);
    errno = 0;
    s->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, pl_http_handle, s, MHD_OPTION_EXTERNAL_LOGGER, log_http, NULL,
        MHD_OPTION_LISTEN_SOCKET, (MHD_socket)fd, MHD_OPTION_NOTIFY_COMPLETED, pl_http_completed, s,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->params.max_connections,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)s->params.idle_seconds, MHD_OPTION_NOTIFY_CONNECTION, pl_connections_notify, s,
        MHD_OPTION_THREAD_STACK_SIZE, (size_t)THREAD_STACK_BYTES, MHD_OPTION_ARRAY, tls,
        MHD_OPTION_END);
    /* The socket is the library's from now on, whether it started or not. */
    if (!s->daemon)
        return pl_error_set(err, PL_ERR_IO, "server: cannot serve on %s port %d%s (got %s)",
                            s->params.host, s->params.port, s->tls_cert ? " with TLS" : "",
                            errno ? strerror(errno) : "no reason");
    info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
    (void)snprintf(s->url, sizeof s->url, v6 ? "%s://[%s]:%d" : "%s://%s:%d",
                   s->tls_cert ? "https" : "http", s->params.host, info ? info->port : 0);
    pl_log(PL_LOG_INFO, "listen", "url=%s keys=%d", s->url, s->keys.n);
    return PL_OK;
}

/* ---- signals */

static void stop_signals(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGINT);
}

/* While weights load there is nothing to drain. A second signal ends the patience of the first. In between this thread
 * looks after connections that are late. */
static void *wait_for_signals(void *serve)
{
    pl_serve *s = serve;
    const struct timespec second = {.tv_sec = 1};
    sigset_t set;

    stop_signals(&set);
    for (;;) {
        const int signal = sigtimedwait(&set, NULL, &second);
        bool ready, stopping;

        if (signal < 0) {
            pl_connections_sweep(s);
            continue;
        }
        pthread_mutex_lock(&s->lock);
        ready = s->ready;
        stopping = s->stopping;
        if (s->draining && !stopping)
            s->params.drain_seconds = 0;
        s->draining = true;
        pthread_cond_broadcast(&s->to_run);
        pthread_mutex_unlock(&s->lock);
        if (stopping)
            return NULL;
        pl_log(PL_LOG_INFO, "drain", "signal=%d", signal);
        if (!ready)
            _exit(0);
    }
}

/* ---- running */

static void on_load(void *user, uint64_t done, uint64_t total)
{
    pl_serve *s = user;

    atomic_store(&s->load_total, total);
    atomic_store(&s->load_done, done);
}

static void name_results(pl_serve *s)
{
    const pl_numerics_report n = pl_engine_numerics(s->engine);

    (void)snprintf(s->fingerprint, sizeof s->fingerprint, "n%d.c%d.%s", n.version, n.numerics_class,
                   n.checkpoint);
}

/* Where it is too large, what needs it is refused. */
static pl_status read_vocabulary(pl_serve *s, pl_error *err)
{
    const int32_t n = pl_engine_model_of(s->engine).vocab_size;
    const pl_tokenizer *t = pl_engine_tokenizer(s->engine);

    if (!t || pl_vocabulary_bytes(n) > VOCABULARY_BYTES)
        return PL_OK;
    return pl_vocabulary_init(&s->vocabulary, t, n)
               ? PL_OK
               : pl_error_set(err, PL_ERR_NOMEM, "server: out of memory");
}

static pl_status serve_engine(pl_serve *s, const pl_engine_params *params,
                              pl_server_opened_fn *opened, void *user, pl_error *err)
{
    pl_engine_params p = *params;
    pl_engine *e;

    s->max_preempted = p.max_preempted;
    p.on_load = on_load;
    p.on_load_user = s;
    PL_TRY(pl_engine_open(s->params.model_path, &p, &e, err));
    s->engine = e;
    name_results(s);
    PL_TRY(read_vocabulary(s, err));
    pthread_mutex_lock(&s->lock);
    s->ready = true;
    s->opened = time(NULL);
    pthread_mutex_unlock(&s->lock);
    PL_TRY(opened(user, e, s->url, err));
    pl_log(PL_LOG_INFO, "ready", "url=%s model=%s fingerprint=%s load_s=%.3f", s->url,
           s->params.model_name, s->fingerprint, pl_engine_stats_of(e).load_s);
    return pl_serve_engine_loop(s, err);
}

static pl_status start_thread(pthread_t *thread, void *(*run)(void *), pl_serve *s, pl_error *err)
{
    pthread_attr_t attr;
    int failed;

    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES);
    failed = pthread_create(thread, &attr, run, s);
    (void)pthread_attr_destroy(&attr);
    return failed ? pl_error_set(err, PL_ERR_IO, "server: no thread (got %s)", strerror(failed))
                  : PL_OK;
}

/* After a drain nothing is left; after a failure the answers that say so are sent. */
static void stop_daemon(pl_serve *s)
{
    if (!s->daemon)
        return;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < 50 && s->n_exchanges > 0; i++) {
        pthread_mutex_unlock(&s->lock);
        (void)usleep(20000);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    MHD_stop_daemon(s->daemon);
}

static pl_status run_threads(pl_serve *s, const pl_address *a, const pl_engine_params *engine,
                             pl_server_opened_fn *opened, void *user, pl_error *err)
{
    pthread_t signals, preparing;
    pl_status status;
    bool prepares;

    PL_TRY(start_thread(&signals, wait_for_signals, s, err));
    status = start_thread(&preparing, pl_serve_prepare_loop, s, err);
    prepares = status == PL_OK;
    if (prepares) {
        status = start_daemon(s, a, err);
        if (status == PL_OK)
            status = serve_engine(s, engine, opened, user, err);
        stop_daemon(s);
    }
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->to_prepare);
    pthread_mutex_unlock(&s->lock);
    (void)pthread_kill(signals, SIGINT);
    (void)pthread_join(signals, NULL);
    if (prepares)
        (void)pthread_join(preparing, NULL);
    pl_vocabulary_fini(&s->vocabulary);
    pl_engine_close(s->engine);
    return status;
}

static void init(pl_serve *s, const pl_server_params *params)
{
    pthread_condattr_t attr;

    s->params = *params;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&s->to_run, &attr);
    (void)pthread_cond_init(&s->to_prepare, &attr);
    (void)pthread_condattr_destroy(&attr);
}

pl_status pl_server_run(const pl_server_params *params, const pl_engine_params *engine,
                        pl_server_opened_fn *opened, void *user, pl_error *err)
{
    pl_serve *s = calloc(1, sizeof *s);
    pl_status status;
    sigset_t set;
    pl_address a;

    if (!s)
        return pl_error_set(err, PL_ERR_NOMEM, "server: out of memory");
#ifdef __GLIBC__
    /* One heap that gives back what is free: threads' own would each keep some. */
    (void)mallopt(M_ARENA_MAX, 1);
#endif
    init(s, params);
    stop_signals(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    status = check(s, &a, err);
    if (status == PL_OK)
        status = run_threads(s, &a, engine, opened, user, err);
    free(s->tls_cert);
    free(s->tls_key);
    free(s);
    return status;
}
