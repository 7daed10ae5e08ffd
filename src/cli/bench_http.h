/* A small HTTP/1.1 client for plimsoll bench serve: one request a connection, plain text, bounded answers. */
#ifndef PL_CLI_BENCH_HTTP_H
#define PL_CLI_BENCH_HTTP_H

#include <stdbool.h>

#include "plimsoll/status.h"

typedef struct pl_http_target {
    char host[256], port[8],
        prefix[256]; /* of http://HOST:PORT/PREFIX, without a slash at its end */
} pl_http_target;

/* INVALID where it is no URL of that form. https is UNSUPPORTED. */
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

/* One exchange; body NULL: GET. `key` may be NULL. Waits at most timeout_s for each piece. Any status is a success.
 * Errors: IO, CORRUPT. */
pl_status pl_http_exchange(const pl_http_target *t, const char *path, const char *key,
                           const char *body, int timeout_s, pl_http_answer *a,
                           pl_error *err) PL_MUST_CHECK;

#endif
