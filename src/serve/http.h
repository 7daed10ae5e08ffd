/* HTTP: routes, bodies, replies. */
#ifndef PL_SERVE_HTTP_H
#define PL_SERVE_HTTP_H

#include <microhttpd.h>

#include "serve/body.h"

/* A request of HTTP from its first line to its last byte. */
typedef struct pl_exchange {
    pl_serve *serve;
    const struct pl_route *route;
    struct MHD_Connection *connection;
    char *body;
    size_t n_body, max_body;
    uint64_t held_bytes;
    bool too_large;
    int key;           /* its index; -1: none was shown, or none is needed */
    const char *allow; /* methods of the path; NULL: there is no such path */
    char rest[256];    /* of the path, behind the route's prefix; "..." for what does not fit */
    pl_job *job;
} pl_exchange;

typedef struct pl_route {
    const char *method, *path;
    bool open;   /* answered without a key */
    bool prefix; /* whatever comes behind `path` is the exchange's `rest` */
    /* GET */
    enum MHD_Result (*get)(pl_exchange *x);
    /* POST */
    pl_fields_kind kind;
} pl_route;

/* ---- http.c: what libmicrohttpd calls; cls is the pl_serve, *state the exchange */

enum MHD_Result pl_http_handle(void *cls, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_bytes, void **state);
void pl_http_completed(void *cls, struct MHD_Connection *connection, void **state,
                       enum MHD_RequestTerminationCode code);

/* ---- reply.c */

/* Takes `text` over, malloc'ed; NULL means that memory is out. */
enum MHD_Result pl_reply_text(pl_exchange *x, int status, const char *type, char *text);
enum MHD_Result pl_reply_json(pl_exchange *x, int status, json_t *value);
enum MHD_Result pl_reply_fault(pl_exchange *x, const pl_fault *fault);
/* `bytes` stay; with n_headers more headers, each a name and its value. */
enum MHD_Result pl_reply_static(pl_exchange *x, const char *type, const void *bytes, size_t n_bytes,
                                const char *const (*headers)[2], size_t n_headers);
enum MHD_Result pl_reply_stream(pl_exchange *x);
enum MHD_Result pl_reply_empty(pl_exchange *x, int status, const char *header, const char *value);

/* ---- http_info.c */

enum MHD_Result pl_http_health(pl_exchange *x);
enum MHD_Result pl_http_ready(pl_exchange *x);
enum MHD_Result pl_http_version(pl_exchange *x);
enum MHD_Result pl_http_models(pl_exchange *x);
enum MHD_Result pl_http_model(pl_exchange *x);
enum MHD_Result pl_http_plan(pl_exchange *x);
enum MHD_Result pl_http_metrics(pl_exchange *x);

/* ---- http_page.c: the page and its parts */
enum MHD_Result pl_http_page(pl_exchange *x);

/* ---- metrics.c: malloc'ed; NULL where memory is out */
char *pl_serve_metrics(pl_serve *s, size_t *n);

#endif
