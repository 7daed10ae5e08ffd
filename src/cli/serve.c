/* plimsoll serve: options of the server, and its plan before anything is bound or read. */
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/memory_line.h"
#include "cli/serve_unit.h"
#include "serve/server.h"

struct options {
    pl_engine_options engine;
    double memory_utilization;
    int64_t port, max_connections, max_waiting, max_request_seconds, idle_seconds, drain_seconds;
    uint64_t max_body, request_memory;
    const char *host, *name, *key_file, *tls_cert, *tls_key, *cors_origin;
    int64_t max_preempted; /* -1: as many as run */
    const char *policy;
    bool unit;
};

static const char *const policies[] = {"priority", "fcfs", NULL};

#define OFFSET(field) offsetof(struct options, field)
#define TEXT(option, what, field, text)                                        \
    {                                                                          \
        .name = option, .kind = PL_OPTION_STRING, .value = what, .help = text, \
        .offset = OFFSET(field)                                                \
    }
#define NUMBER(option, what, field, low, high, text)                                    \
    {                                                                                   \
        .name = option, .kind = PL_OPTION_INT, .value = what, .help = text, .min = low, \
        .max = high, .offset = OFFSET(field)                                            \
    }
#define BYTES(option, field, low, high, text)                                                \
    {                                                                                        \
        .name = option, .kind = PL_OPTION_BYTES, .value = "BYTES", .help = text, .min = low, \
        .max = high, .offset = OFFSET(field)                                                 \
    }

/* clang-format off */
static const pl_option table[] = {
    TEXT("--host", "ADDRESS", host, "where to listen; default: 127.0.0.1; another than loopback needs a key"),
    NUMBER("--port", "N", port, 0, 65535, "default: 8000; 0: any that is free, and it is printed"),
    TEXT("--served-model-name", "NAME", name, "what clients call the model; default: the folder's name"),
    TEXT("--api-key-file", "FILE", key_file,
         "keys, one a line, of which clients must show one; or PLIMSOLL_API_KEY of the environment"),
    TEXT("--tls-cert", "FILE", tls_cert, "certificate chain, PEM; with --tls-key: HTTPS"),
    TEXT("--tls-key", "FILE", tls_key, "its private key, PEM"),
    TEXT("--cors-origin", "ORIGIN", cors_origin, "let pages of this origin (or *) ask; default: none"),
    NUMBER("--max-connections", "N", max_connections, 1, 65536, "at once; default: 1024"),
    NUMBER("--max-waiting", "N", max_waiting, 1, 1 << 20, "completions that wait; more get 429; default: 1024"),
    {.name = "--scheduling-policy", .kind = PL_OPTION_CHOICE, .value = "POLICY", .choices = policies,
     .help = "priority: by priority, fair between clients; fcfs: as they come; default: priority",
     .offset = OFFSET(policy)},
    NUMBER("--max-preempted", "N", max_preempted, 0, 65536,
           "requests that may wait once more for one of higher priority; default: --max-num-seqs"),
    NUMBER("--max-request-seconds", "S", max_request_seconds, 1, INT32_MAX,
           "from arrival to the last token; default: 3600"),
    NUMBER("--idle-timeout", "S", idle_seconds, 1, 86400,
           "for a request's head, for its body, and of silence; default: 60"),
    NUMBER("--drain-seconds", "S", drain_seconds, 0, INT32_MAX,
           "what runs may go on for so long after SIGTERM; default: 30"),
    BYTES("--max-body", max_body, 1024, 1 << 30, "largest request; default: 1MiB"),
    BYTES("--request-memory", request_memory, 1 << 20, 1LL << 40,
          "bodies, prompts and answers of all requests; default: 64MiB"),
    {.name = "--unit", .kind = PL_OPTION_FLAG, .offset = OFFSET(unit),
     .help = "print this server as a systemd unit whose MemoryMax is what the plan charges, and end"},
    PL_ENGINE_OPTION_ROWS(struct options, engine, "what fits the line, at most the model's", "16",
                          "what a given line leaves, else 0"),
    {.name = "--memory-utilization", .kind = PL_OPTION_FLOAT, .value = "F", .min = 0, .max = 1,
     .help = "the line as a share of this machine's or control group's memory; default: 0.9",
     .offset = OFFSET(memory_utilization)},
    {0},
};
/* clang-format on */

static bool is_fcfs(const struct options *o)
{
    return strcmp(o->policy, "fcfs") == 0;
}

static int max_preempted(const struct options *o, const pl_engine_params *p)
{
    if (is_fcfs(o))
        return 0;
    return o->max_preempted >= 0 ? (int)o->max_preempted : p->max_num_seqs;
}

static pl_server_params server_params(const struct options *o, const char *path, char *name)
{
    pl_server_params p = pl_server_params_default();

    p.host = o->host;
    p.port = (int)o->port;
    p.model_path = path;
    p.model_name = o->name ? o->name : basename(name);
    p.key_file = o->key_file;
    p.tls_cert = o->tls_cert;
    p.tls_key = o->tls_key;
    p.cors_origin = o->cors_origin;
    p.max_connections = (int)o->max_connections;
    p.max_waiting = (int)o->max_waiting;
    p.fcfs = is_fcfs(o);
    p.max_request_seconds = (int)o->max_request_seconds;
    p.idle_seconds = (int)o->idle_seconds;
    p.drain_seconds = (int)o->drain_seconds;
    p.max_body_bytes = o->max_body;
    p.request_memory_bytes = o->request_memory;
    return p;
}

/* The server's address on standard output is the sign that it answers. */
static pl_status opened(void *user, const pl_engine *engine, const char *url, pl_error *err)
{
    const uint64_t *server_bytes = user;

    PL_TRY(pl_memory_line_tighten(pl_engine_plan(engine), *server_bytes, err));
    printf("%s\n", url);
    PL_CHECK(fflush(stdout) == 0, err, "standard output: write failed");
    return PL_OK;
}

static pl_status plan_server(const char *path, const pl_engine_params *p, pl_error *err)
{
    pl_plan *plan;
    pl_status s;

    PL_TRY(pl_plan_create(path, p, &plan, err));
    s = pl_plan_check_fits(plan, err);
    if (s == PL_OK && pl_plan_note(plan)[0])
        fprintf(stderr, "plimsoll: plan: %s\n", pl_plan_note(plan));
    if (s == PL_OK)
        s = pl_memory_line_draw(plan, err);
    pl_plan_destroy(plan);
    return s;
}

static pl_status print_unit(const char *path, const struct options *o, const pl_engine_params *p,
                            int argc, char **argv, pl_error *err)
{
    pl_serve_unit unit = {.argc = argc,
                          .argv = argv,
                          .files = {path, o->key_file, o->tls_cert, o->tls_key},
                          .drain_seconds = o->drain_seconds,
                          .n_connections = o->max_connections};
    pl_plan_totals t;
    pl_plan *plan;
    pl_status s;

    PL_TRY(pl_plan_create(path, p, &plan, err));
    t = pl_plan_totals_of(plan);
    unit.total_bytes = t.total_bytes;
    unit.charged_bytes = t.charged_bytes;
    unit.max_model_len = t.max_model_len;
    unit.prefix_cache_bytes = t.prefix_cache_bytes;
    s = pl_plan_check_fits(plan, err);
    pl_plan_destroy(plan);
    return s == PL_OK ? pl_serve_print_unit(&unit, err) : s;
}

static pl_status serve(const char *path, const struct options *o, int argc, char **argv,
                       pl_error *err)
{
    pl_engine_params p = pl_engine_options_params(&o->engine);
    char *real = realpath(path, NULL);
    pl_server_params server;
    uint64_t server_bytes;
    pl_status s;

    PL_CHECK(real, err, "%s: cannot be opened", path);
    p.max_preempted = max_preempted(o, &p);
    server = server_params(o, path, real);
    server_bytes = pl_server_memory_bytes(&server);
    p.program_heap_bytes = server_bytes;
    p.socket_bytes = pl_server_socket_bytes(&server);
    /* A line that nobody drew is no leave to fill it. */
    if (o->engine.prefix_cache_memory == PL_PREFIX_CACHE_REST &&
        (o->engine.memory || o->memory_utilization >= 0))
        p.prefix_cache_memory_bytes = PL_PREFIX_CACHE_REST;
    s = pl_memory_line_choose(o->memory_utilization, &p, err);
    if (s == PL_OK && o->unit)
        s = print_unit(path, o, &p, argc, argv, err);
    else if (s == PL_OK)
        s = plan_server(path, &p, err);
    if (s == PL_OK && !o->unit)
        s = pl_server_run(&server, &p, opened, &server_bytes, err);
    free(real);
    return s;
}

static int run(int argc, char **argv)
{
    const pl_server_params d = pl_server_params_default();
    struct options o = {
        .engine = pl_engine_options_none(),
        .memory_utilization = PL_MEMORY_LINE_DEFAULT,
        .host = d.host,
        .port = d.port,
        .max_connections = d.max_connections,
        .max_waiting = d.max_waiting,
        .max_preempted = -1,
        .policy = policies[0],
        .max_request_seconds = d.max_request_seconds,
        .idle_seconds = d.idle_seconds,
        .drain_seconds = d.drain_seconds,
        .max_body = d.max_body_bytes,
        .request_memory = d.request_memory_bytes,
    };
    const char *args[1];
    pl_error err = {0};
    int status;

    if (!pl_options_parse(&pl_command_serve, argc, argv, &o, args, &status))
        return status;
    pl_log_set_level(PL_LOG_INFO);
    return serve(args[0], &o, argc, argv, &err) == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
}

const pl_command pl_command_serve = {
    .name = "serve",
    .usage = "MODEL [options]",
    .summary = "answer OpenAI clients over HTTP",
    .details =
        "Serves /v1/chat/completions, /v1/completions, /v1/models, /tokenize, /detokenize,\n"
        "/health, /ready, /version, /metrics and /v1/plan. Once the model is loaded, its URL is "
        "printed.\n"
        "SIGTERM ends it after what runs has been answered. Memory is planned and drawn as a "
        "line,\n"
        "as with 'plimsoll run'; what requests may hold is part of it.\n\n"
        "examples:\n"
        "  plimsoll serve models/demo --port 8000\n"
        "  curl http://127.0.0.1:8000/v1/models\n"
        "  plimsoll serve models/demo --memory 300MiB --unit > plimsoll.service\n\n"
        "docs/SERVING.md describes fields and errors, docs/SECURITY.md what it defends.\n",
    .options = table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
