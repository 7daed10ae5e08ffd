/* What the client of HTTP reads: URLs and answers. The parser takes bytes in any cut and holds one line; nothing has a size
 * that the server decides. No redirects and no compression; connections are http_connect.c's. */
#include "cli/http_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

enum { MAX_HEAD_BYTES = 64 << 10 };
enum {
    STATE_FIRST,
    STATE_HEAD,
    STATE_BODY,
    STATE_SIZE,
    STATE_CHUNK,
    STATE_CHUNK_END,
    STATE_TRAILER
};

/* HOST or [ADDRESS]; *at is then behind it. */
static pl_status take_host(const char **at, const char *end, const char *url, pl_http_target *t,
                           pl_error *err)
{
    const bool bracketed = **at == '[';
    const char *begin = *at + bracketed;
    const char *stop = memchr(begin, bracketed ? ']' : ':', (size_t)(end - begin));
    size_t n;

    PL_CHECK(stop || !bracketed, err, "--url: no host (got '%s')", url);
    stop = stop ? stop : end;
    n = (size_t)(stop - begin);
    PL_CHECK(n > 0 && n < sizeof t->host && strcspn(begin, " \r\n\t@") >= n, err,
             "--url: no host (got '%s')", url);
    memcpy(t->host, begin, n);
    *at = stop + bracketed;
    return PL_OK;
}

pl_status pl_http_target_parse(const char *url, pl_http_target *t, pl_error *err)
{
    const bool tls = strncmp(url, "https://", 8) == 0;
    const char *at = url + (tls ? 8 : 7), *end;
    size_t n;

    *t = (pl_http_target){.tls = tls, .port = "80"};
    PL_CHECK(tls || strncmp(url, "http://", 7) == 0, err,
             "--url: no URL (got '%s', want http://HOST:PORT or https://HOST:PORT)", url);
    if (tls)
        memcpy(t->port, "443", 4);
    end = at + strcspn(at, "/");
    PL_TRY(take_host(&at, end, url, t, err));
    if (at < end) {
        n = (size_t)(end - at - 1);
        PL_CHECK(*at == ':' && n > 0 && n < 6 && strspn(at + 1, "0123456789") == n, err,
                 "--url: no port (got '%s')", url);
        memcpy(t->port, at + 1, n);
        t->port[n] = 0;
    }
    n = strlen(end);
    while (n > 0 && end[n - 1] == '/')
        n--;
    PL_CHECK(n < sizeof t->prefix && strcspn(end, " \r\n\t") == strlen(end), err,
             "--url: no path (got '%s')", url);
    memcpy(t->prefix, end, n);
    return PL_OK;
}

/* ---- the parser */

static pl_status corrupt(pl_error *err, const char *what)
{
    return pl_error_set(err, PL_ERR_CORRUPT, "answer: %s", what);
}

static bool parse_size(const char *text, int base, uint64_t *value)
{
    char *end;

    if (!*text || strspn(text, "0123456789abcdefABCDEF") == 0)
        return false;
    errno = 0;
    *value = strtoull(text, &end, base);
    return errno == 0 && (*end == 0 || *end == ';' || *end == ' ');
}

static pl_status header_line(pl_http_answer *a, pl_error *err)
{
    const char *value = strchr(a->line, ':');

    if (!value)
        return corrupt(err, "a header without a colon");
    value++;
    value += strspn(value, " \t");
    if (strncasecmp(a->line, "content-length:", 15) == 0) {
        if (!parse_size(value, 10, &a->left))
            return corrupt(err, "Content-Length is no number");
        a->has_length = true;
    } else if (strncasecmp(a->line, "transfer-encoding:", 18) == 0) {
        if (strcasecmp(value, "chunked") != 0)
            return corrupt(err, "a transfer encoding other than chunked");
        a->chunked = true;
    }
    return PL_OK;
}

static void head_is_read(pl_http_answer *a)
{
    if (a->status < 200 && a->status != 101) { /* 100 Continue: the answer follows */
        a->state = STATE_FIRST;
        return;
    }
    a->state = a->chunked ? STATE_SIZE : STATE_BODY;
    a->done = !a->chunked && a->has_length && a->left == 0;
}

static pl_status take_line(pl_http_answer *a, pl_error *err)
{
    switch (a->state) {
    case STATE_FIRST:
        if (strncmp(a->line, "HTTP/1.", 7) != 0 || strlen(a->line) < 12 ||
            strspn(a->line + 9, "0123456789") != 3)
            return corrupt(err, "not HTTP/1.1");
        a->status = (int)strtol(a->line + 9, NULL, 10);
        a->state = STATE_HEAD;
        return PL_OK;
    case STATE_HEAD:
        if (a->line[0])
            return header_line(a, err);
        head_is_read(a);
        return PL_OK;
    case STATE_SIZE:
        if (!parse_size(a->line, 16, &a->left))
            return corrupt(err, "a chunk without a size");
        a->state = a->left ? STATE_CHUNK : STATE_TRAILER;
        return PL_OK;
    case STATE_CHUNK_END:
        if (a->line[0])
            return corrupt(err, "a chunk longer than its size");
        a->state = STATE_SIZE;
        return PL_OK;
    default:
        a->done = a->line[0] == 0;
        return PL_OK;
    }
}

static pl_status push_line_byte(pl_http_answer *a, char c, pl_error *err)
{
    if (++a->head_bytes > MAX_HEAD_BYTES && (a->state == STATE_HEAD || a->state == STATE_TRAILER))
        return corrupt(err, "a head above 64 KiB");
    if (c != '\n') {
        if (a->n_line + 1 >= sizeof a->line)
            return corrupt(err, "a line above 4 KiB");
        a->line[a->n_line++] = c;
        return PL_OK;
    }
    if (a->n_line && a->line[a->n_line - 1] == '\r')
        a->n_line--;
    a->line[a->n_line] = 0;
    a->n_line = 0;
    return take_line(a, err);
}

/* Of a body or chunk: as much as there is. */
static pl_status push_data(pl_http_answer *a, const char *data, size_t n, size_t *taken,
                           pl_error *err)
{
    const bool bounded = a->chunked || a->has_length;

    *taken = bounded && a->left < n ? (size_t)a->left : n;
    if (a->on_body && !a->on_body(a->user, data, *taken))
        return corrupt(err, "refused");
    if (!bounded)
        return PL_OK;
    a->left -= *taken;
    if (a->left == 0 && a->chunked)
        a->state = STATE_CHUNK_END;
    else if (a->left == 0)
        a->done = true;
    return PL_OK;
}

pl_status pl_http_answer_push(pl_http_answer *a, const char *data, size_t n, pl_error *err)
{
    while (n && !a->done) {
        size_t taken = 1;

        if (a->state == STATE_BODY || a->state == STATE_CHUNK)
            PL_TRY(push_data(a, data, n, &taken, err));
        else
            PL_TRY(push_line_byte(a, *data, err));
        data += taken;
        n -= taken;
    }
    return PL_OK;
}

bool pl_http_answer_is_whole(const pl_http_answer *a)
{
    return a->done || (a->state == STATE_BODY && !a->has_length);
}
