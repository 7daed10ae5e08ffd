/* A small HTTP/1.1 client for commands that ask a server: one request a connection, bounded answers, TLS with certificates that
 * are checked. */
#ifndef PL_CLI_HTTP_CLIENT_H
#define PL_CLI_HTTP_CLIENT_H

#include <stdbool.h>

#include "plimsoll/status.h"

/* ---- http_parse.c */

typedef struct pl_http_trust pl_http_trust;

/* Of http[s]://HOST[:PORT]/PREFIX; an address of IPv6 stands in brackets, which `host` lacks. */
typedef struct pl_http_target {
    bool tls;
    char host[256], port[8], prefix[256]; /* prefix: without a slash at its end */
    const pl_http_trust *trust;           /* borrowed; needed where tls */
} pl_http_target;

/* INVALID where it is no URL of that form. `trust` is NULL then. */
pl_status pl_http_target_parse(const char *url, pl_http_target *t, pl_error *err) PL_MUST_CHECK;

/* Pieces of the body as they come; false ends the exchange with an error of the callee's. */
typedef bool pl_http_body_fn(void *user, const char *data, size_t n);

/* The parser of an answer, given bytes as they come. */
typedef struct pl_http_answer {
    int status; /* 0 until the first line is read */
    bool chunked, has_length, done;
    uint64_t left;   /* of the body or the chunk */
    int state;       /* of the parser */
    char line[4096]; /* the line being read */
    size_t n_line, head_bytes;
    pl_http_body_fn *on_body;
    void *user;
} pl_http_answer;

/* CORRUPT for what is no answer, heads above 64 KiB, lines above 4 KiB. Bytes behind the end are ignored. */
pl_status pl_http_answer_push(pl_http_answer *a, const char *data, size_t n,
                              pl_error *err) PL_MUST_CHECK;

/* Whether an answer that ended with the connection is whole. */
bool pl_http_answer_is_whole(const pl_http_answer *a);

/* ---- http_connect.c */

/* Whose certificates are believed: those of the PEM file `ca_file`, or the system's where it is NULL. Threads may share it.
 * Errors: INVALID (no such file, no certificate in it), IO (the system has none), NOMEM. */
pl_status pl_http_trust_create(const char *ca_file, pl_http_trust **trust,
                               pl_error *err) PL_MUST_CHECK;
void pl_http_trust_destroy(pl_http_trust *trust);

/* One exchange; body NULL: GET. `key` may be NULL. Waits at most timeout_s for each piece. Any status is a success.
 * Errors: IO (also a certificate that is not believed, or another's), CORRUPT. */
pl_status pl_http_exchange(const pl_http_target *t, const char *path, const char *key,
                           const char *body, int timeout_s, pl_http_answer *a,
                           pl_error *err) PL_MUST_CHECK;

/* ---- http_client.c: what a command was told of a server */

typedef struct pl_http_client {
    pl_http_target target;
    pl_http_trust *trust; /* owned */
    char *key;            /* owned; NULL: none */
} pl_http_client;

/* Options of every command that asks a server; fields of `type` are `url`, `key_file` and `ca_file`. */
#define PL_HTTP_CLIENT_KEY_ROW(type)                                               \
    {                                                                              \
        .name = "--api-key-file", .kind = PL_OPTION_STRING, .value = "FILE",       \
        .help = "a key on its first line; or PLIMSOLL_API_KEY of the environment", \
        .offset = offsetof(type, key_file)                                         \
    }
#define PL_HTTP_CLIENT_CA_ROW(type)                                                                \
    {                                                                                              \
        .name = "--tls-ca", .kind = PL_OPTION_STRING, .value = "FILE",                             \
        .help = "of an https URL: certificates to believe, PEM, a server's own too; default: the " \
                "system's",                                                                        \
        .offset = offsetof(type, ca_file)                                                          \
    }

/* key_file NULL: the key of PLIMSOLL_API_KEY, or none. Nothing is connected yet. After a failure nothing is owned.
 * Errors: INVALID, IO, NOMEM. */
pl_status pl_http_client_open(pl_http_client *c, const char *url, const char *key_file,
                              const char *ca_file, pl_error *err) PL_MUST_CHECK;
void pl_http_client_close(pl_http_client *c);

/* The body of a GET that was answered with 200, at most 16 MiB, with a 0 behind it; else NULL. The caller frees it. */
char *pl_http_client_get(const pl_http_client *c, const char *path, pl_error *err);

#endif
