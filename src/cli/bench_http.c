/* The HTTP client of plimsoll bench serve. The parser takes bytes in any cut and holds one line; nothing has a size that
 * the server decides. No redirects, no compression, no TLS, no connection that is used twice. */
#include "cli/bench_http.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

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

pl_status pl_http_target_parse(const char *url, pl_http_target *t, pl_error *err)
{
    const char *at = url, *end, *colon;
    size_t n;

    *t = (pl_http_target){.port = "80"};
    if (strncmp(url, "https://", 8) == 0)
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "--url: https is not spoken here (want http://, or a proxy)");
    PL_CHECK(strncmp(url, "http://", 7) == 0, err,
             "--url: no URL (got '%s', want http://HOST:PORT)", url);
    at += 7;
    end = at + strcspn(at, "/");
    colon = memchr(at, ':', (size_t)(end - at));
    n = (size_t)((colon ? colon : end) - at);
    PL_CHECK(n > 0 && n < sizeof t->host && at[0] != '[', err, "--url: no host (got '%s')", url);
    memcpy(t->host, at, n);
    if (colon) {
        n = (size_t)(end - colon - 1);
        PL_CHECK(n > 0 && n < 6 && strspn(colon + 1, "0123456789") == n, err,
                 "--url: no port (got '%s')", url);
        memcpy(t->port, colon + 1, n);
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

/* ---- the connection */

static int dial(const pl_http_target *t, int timeout_s)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const struct timeval patience = {.tv_sec = timeout_s};
    struct addrinfo *found = NULL;
    const int one = 1;
    int fd = -1;

    if (getaddrinfo(t->host, t->port, &hints, &found) != 0)
        return -1;
    for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (fd < 0)
            continue;
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
            (void)close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

static pl_status send_all(int fd, const char *data, size_t n, pl_error *err)
{
    while (n) {
        const ssize_t done = send(fd, data, n, MSG_NOSIGNAL);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return pl_error_set(err, PL_ERR_IO, "connection: cannot write (got %s)",
                                strerror(errno));
        data += done;
        n -= (size_t)done;
    }
    return PL_OK;
}

static pl_status receive(int fd, pl_http_answer *a, pl_error *err)
{
    char buffer[16384];

    while (!a->done) {
        const ssize_t n = recv(fd, buffer, sizeof buffer, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pl_error_set(err, PL_ERR_IO, "connection: cannot read (got %s)",
                                strerror(errno));
        if (n == 0)
            return pl_http_answer_is_whole(a)
                       ? PL_OK
                       : pl_error_set(err, PL_ERR_IO, "connection: closed before the answer's end");
        PL_TRY(pl_http_answer_push(a, buffer, (size_t)n, err));
    }
    return PL_OK;
}

pl_status pl_http_exchange(const pl_http_target *t, const char *path, const char *key,
                           const char *body, int timeout_s, pl_http_answer *a, pl_error *err)
{
    char *head = NULL;
    const int n = asprintf(&head,
                           "%s %s%s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n%s%s%s"
                           "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                           body ? "POST" : "GET", t->prefix, path, t->host, t->port,
                           key ? "Authorization: Bearer " : "", key ? key : "", key ? "\r\n" : "",
                           body ? strlen(body) : 0);
    pl_status s;
    int fd;

    if (n < 0)
        return pl_error_set(err, PL_ERR_NOMEM, "connection: out of memory");
    fd = dial(t, timeout_s);
    s = fd >= 0 ? send_all(fd, head, (size_t)n, err)
                : pl_error_set(err, PL_ERR_IO, "%s:%s: cannot connect", t->host, t->port);
    if (s == PL_OK && body)
        s = send_all(fd, body, strlen(body), err);
    if (s == PL_OK)
        s = receive(fd, a, err);
    if (fd >= 0)
        (void)close(fd);
    free(head);
    return s;
}
