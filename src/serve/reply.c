/* Replies: headers that every one has, and the ways in which a body comes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/http.h"
#include "serve/stream.h"

static enum MHD_Result send_reply(pl_exchange *x, int status, struct MHD_Response *r)
{
    const char *origin = x->serve->params.cors_origin;
    enum MHD_Result result;

    if (!r)
        return MHD_NO;
    if (x->job)
        (void)MHD_add_response_header(r, "X-Request-Id", x->job->id);
    if (status == 429 || status == 503)
        (void)MHD_add_response_header(r, "Retry-After", status == 429 ? "1" : "5");
    if (origin) {
        (void)MHD_add_response_header(r, "Access-Control-Allow-Origin", origin);
        (void)MHD_add_response_header(r, "Access-Control-Allow-Headers",
                                      "Authorization, Content-Type");
        (void)MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    }
    result = MHD_queue_response(x->connection, (unsigned)status, r);
    MHD_destroy_response(r);
    return result;
}

static struct MHD_Response *from_text(const char *type, char *text)
{
    struct MHD_Response *r;

    if (!text)
        return NULL;
    r = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (r)
        (void)MHD_add_response_header(r, "Content-Type", type);
    else
        free(text);
    return r;
}

enum MHD_Result pl_reply_text(pl_exchange *x, int status, const char *type, char *text)
{
    return send_reply(x, status, from_text(type, text));
}

enum MHD_Result pl_reply_json(pl_exchange *x, int status, json_t *value)
{
    return pl_reply_text(x, status, "application/json", pl_body_text(value));
}

enum MHD_Result pl_reply_fault(pl_exchange *x, const pl_fault *fault)
{
    struct MHD_Response *r = from_text("application/json", pl_body_text(pl_body_error(fault)));

    if (r && fault->http == 401)
        (void)MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (r && fault->http == 405)
        (void)MHD_add_response_header(r, "Allow", x->allow);
    return send_reply(x, fault->http, r);
}

enum MHD_Result pl_reply_empty(pl_exchange *x, int status, const char *header, const char *value)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);

    if (r && header)
        (void)MHD_add_response_header(r, header, value);
    return send_reply(x, status, r);
}

enum MHD_Result pl_reply_static(pl_exchange *x, const char *type, const void *bytes, size_t n_bytes,
                                const char *const (*headers)[2], size_t n_headers)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(n_bytes, (void *)(uintptr_t)bytes, MHD_RESPMEM_PERSISTENT);

    if (r)
        (void)MHD_add_response_header(r, "Content-Type", type);
    for (size_t i = 0; r && i < n_headers; i++)
        (void)MHD_add_response_header(r, headers[i][0], headers[i][1]);
    return send_reply(x, MHD_HTTP_OK, r);
}

enum MHD_Result pl_reply_stream(pl_exchange *x)
{
    enum { BLOCK_BYTES = 16384 };
    pl_stream *s = pl_stream_create(x->job);
    struct MHD_Response *r;

    if (!s)
        return MHD_NO;
    r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, pl_stream_read, s,
                                          pl_stream_destroy);
    if (!r) {
        pl_stream_destroy(s);
        return MHD_NO;
    }
    (void)MHD_add_response_header(r, "Content-Type", "text/event-stream; charset=utf-8");
    (void)MHD_add_response_header(r, "Cache-Control", "no-cache");
    return send_reply(x, MHD_HTTP_OK, r);
}
