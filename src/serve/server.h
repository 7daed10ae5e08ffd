/* The server: OpenAI's API over one engine.
 *
 * One thread polls all connections, one reads and encodes requests, and the thread that calls pl_server_run steps
 * the engine. What clients may make the process hold is capped and known before anything is opened
 * (pl_server_memory_bytes). docs/SERVING.md says what is served, docs/SECURITY.md against whom. */
#ifndef PL_SERVE_SERVER_H
#define PL_SERVE_SERVER_H

#include "plimsoll/engine.h"

typedef struct pl_server_params {
    const char *host; /* a numeric address; another than loopback needs a key */
    int port;         /* 0: any that is free */
    const char *model_path, *model_name;
    const char *key_file; /* a key a line; NULL: only the environment's PLIMSOLL_API_KEY */
    const char *tls_cert, *tls_key; /* PEM files, both or neither */
    const char *cors_origin;        /* NULL: none */
    uint64_t max_body_bytes;        /* of a request */
    uint64_t request_memory_bytes;  /* bodies, prompts and answers of all requests together */
    int max_connections;            /* at once */
    int max_waiting;                /* completions that wait for a place; more get 429 */
    bool fcfs;                      /* first come, first served: no priorities, no fairness */
    int max_request_seconds;        /* from arrival to the last token */
    int idle_seconds;  /* for a request's head, for its body, between requests, of silence */
    int drain_seconds; /* after SIGTERM, before what still runs is cancelled */
} pl_server_params;

pl_server_params pl_server_params_default(void);

/* The most the server holds beside the engine: code, connections, the work of encoding, request_memory_bytes. */
uint64_t pl_server_memory_bytes(const pl_server_params *params);

/* The most that the kernel holds in the buffers of its connections, which a control group is charged. */
uint64_t pl_server_socket_bytes(const pl_server_params *params);

/* Told once the engine is open and requests are taken; a failure ends the server. */
typedef pl_status pl_server_opened_fn(void *user, const pl_engine *engine, const char *url,
                                      pl_error *err);

/* Binds, answers /health, opens the engine, serves until SIGTERM or SIGINT, drains. PL_OK after a drain. Blocks both
 * signals in the calling thread and all threads it starts. INVALID and IO for addresses, keys and
 * certificates before anything is opened. */
pl_status pl_server_run(const pl_server_params *params, const pl_engine_params *engine,
                        pl_server_opened_fn *opened, void *user, pl_error *err) PL_MUST_CHECK;

#endif
