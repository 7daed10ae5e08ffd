/* Connections of the client of HTTP: TCP, TLS over it where the URL says https, and one exchange.
 *
 * A certificate must be believed and be the host's; there is no way to look away. A peer that ends TLS without its farewell
 * has not ended its answer, so that nobody can cut one short. */
#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/http_client.h"

struct pl_http_trust {
    gnutls_certificate_credentials_t credentials;
};

typedef struct connection {
    int fd;
    gnutls_session_t tls; /* NULL: plain */
    bool silent;          /* the socket waited as long as it may */
} connection;

/* ---- trust */

static pl_status read_authorities(const pl_http_trust *t, const char *ca_file, pl_error *err)
{
    const int n = ca_file ? gnutls_certificate_set_x509_trust_file(t->credentials, ca_file,
                                                                   GNUTLS_X509_FMT_PEM)
                          : gnutls_certificate_set_x509_system_trust(t->credentials);

    if (n > 0)
        return PL_OK;
    if (ca_file)
        return pl_error_set(err, PL_ERR_INVALID, "--tls-ca: no certificates (got '%s': %s)",
                            ca_file, n < 0 ? gnutls_strerror(n) : "none in it");
    return pl_error_set(err, PL_ERR_IO,
                        "https: this system has no certificates to believe (want --tls-ca FILE)");
}

pl_status pl_http_trust_create(const char *ca_file, pl_http_trust **trust, pl_error *err)
{
    pl_http_trust *t = calloc(1, sizeof *t);
    pl_status s;

    if (!t || gnutls_certificate_allocate_credentials(&t->credentials) != 0) {
        free(t);
        return pl_error_set(err, PL_ERR_NOMEM, "https: out of memory");
    }
    s = read_authorities(t, ca_file, err);
    if (s == PL_OK)
        *trust = t;
    else
        pl_http_trust_destroy(t);
    return s;
}

void pl_http_trust_destroy(pl_http_trust *trust)
{
    if (!trust)
        return;
    gnutls_certificate_free_credentials(trust->credentials);
    free(trust);
}

/* ---- connections */

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

/* TLS says "again" both of silence and of a record without data, as tickets are: only the socket tells them apart. */
static ssize_t pull(gnutls_transport_ptr_t to, void *data, size_t max)
{
    connection *c = to;
    const ssize_t n = recv(c->fd, data, max, 0);

    c->silent = n < 0 && errno == EAGAIN;
    return n;
}

static ssize_t push(gnutls_transport_ptr_t to, const void *data, size_t n)
{
    connection *c = to;
    const ssize_t done = send(c->fd, data, n, MSG_NOSIGNAL);

    c->silent = done < 0 && errno == EAGAIN;
    return done;
}

static bool goes_on(const connection *c, ssize_t code)
{
    return code < 0 && !c->silent && !gnutls_error_is_fatal((int)code);
}

static bool is_address(const char *host)
{
    return strchr(host, ':') || strspn(host, "0123456789.") == strlen(host);
}

static pl_status refuse_certificate(const connection *c, const pl_http_target *t, pl_error *err)
{
    const unsigned status = gnutls_session_get_verify_cert_status(c->tls);
    gnutls_datum_t why = {NULL, 0};

    (void)gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &why, 0);
    (void)pl_error_set(err, PL_ERR_IO, "%s:%s: certificate refused (got: %s)", t->host, t->port,
                       why.data ? (const char *)why.data : "no reason");
    gnutls_free(why.data);
    return PL_ERR_IO;
}

static pl_status begin_tls(connection *c, const pl_http_target *t, pl_error *err)
{
    int code = gnutls_init(&c->tls, GNUTLS_CLIENT);

    if (code < 0)
        c->tls = NULL;
    if (code >= 0)
        code = gnutls_set_default_priority(c->tls);
    if (code >= 0)
        code = gnutls_credentials_set(c->tls, GNUTLS_CRD_CERTIFICATE, t->trust->credentials);
    if (code >= 0 && !is_address(t->host))
        code = gnutls_server_name_set(c->tls, GNUTLS_NAME_DNS, t->host, strlen(t->host));
    if (code >= 0) {
        gnutls_session_set_verify_cert(c->tls, t->host, 0);
        gnutls_transport_set_ptr(c->tls, c);
        gnutls_transport_set_pull_function(c->tls, pull);
        gnutls_transport_set_push_function(c->tls, push);
        do
            code = gnutls_handshake(c->tls);
        while (goes_on(c, code));
    }
    if (code == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
        return refuse_certificate(c, t, err);
    return code >= 0 ? PL_OK
                     : pl_error_set(err, PL_ERR_IO, "%s:%s: no TLS (got %s)", t->host, t->port,
                                    gnutls_strerror(code));
}

static pl_status begin(connection *c, const pl_http_target *t, int timeout_s, pl_error *err)
{
    *c = (connection){.fd = -1};
    c->fd = dial(t, timeout_s);
    if (c->fd < 0)
        return pl_error_set(err, PL_ERR_IO, "%s:%s: cannot connect", t->host, t->port);
    return t->tls ? begin_tls(c, t, err) : PL_OK;
}

static void end(connection *c)
{
    if (c->tls) {
        (void)gnutls_bye(c->tls, GNUTLS_SHUT_WR);
        gnutls_deinit(c->tls);
    }
    if (c->fd >= 0)
        (void)close(c->fd);
}

/* Bytes that were sent, or -1 with the reason in *why. */
static ssize_t send_some(const connection *c, const char *data, size_t n, const char **why)
{
    ssize_t done;

    do
        done = c->tls ? gnutls_record_send(c->tls, data, n) : send(c->fd, data, n, MSG_NOSIGNAL);
    while (c->tls ? goes_on(c, done) : done < 0 && errno == EINTR);
    if (done < 0)
        *why = c->tls ? gnutls_strerror((int)done) : strerror(errno);
    return done < 0 ? -1 : done;
}

/* The same for bytes that were read; 0: the end. */
static ssize_t receive_some(const connection *c, char *data, size_t max, const char **why)
{
    ssize_t n;

    do
        n = c->tls ? gnutls_record_recv(c->tls, data, max) : recv(c->fd, data, max, 0);
    while (c->tls ? goes_on(c, n) : n < 0 && errno == EINTR);
    if (n < 0)
        *why = c->tls ? gnutls_strerror((int)n) : strerror(errno);
    return n < 0 ? -1 : n;
}

static pl_status send_all(const connection *c, const char *data, size_t n, pl_error *err)
{
    const char *why = "nothing sent";

    while (n) {
        const ssize_t done = send_some(c, data, n, &why);

        if (done <= 0)
            return pl_error_set(err, PL_ERR_IO, "connection: cannot write (got %s)", why);
        data += done;
        n -= (size_t)done;
    }
    return PL_OK;
}

static pl_status receive(const connection *c, pl_http_answer *a, pl_error *err)
{
    char buffer[16384];

    while (!a->done) {
        const char *why;
        const ssize_t n = receive_some(c, buffer, sizeof buffer, &why);

        if (n < 0)
            return pl_error_set(err, PL_ERR_IO, "connection: cannot read (got %s)", why);
        if (n == 0)
            return pl_http_answer_is_whole(a)
                       ? PL_OK
                       : pl_error_set(err, PL_ERR_IO, "connection: closed before the answer's end");
        PL_TRY(pl_http_answer_push(a, buffer, (size_t)n, err));
    }
    return PL_OK;
}

/* ---- the exchange */

static char *make_head(const pl_http_target *t, const char *path, const char *key, const char *body)
{
    const bool bracketed = strchr(t->host, ':');
    char *head = NULL;
    const int n = asprintf(&head,
                           "%s %s%s HTTP/1.1\r\nHost: %s%s%s:%s\r\nConnection: close\r\n%s%s%s"
                           "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                           body ? "POST" : "GET", t->prefix, path, bracketed ? "[" : "", t->host,
                           bracketed ? "]" : "", t->port, key ? "Authorization: Bearer " : "",
                           key ? key : "", key ? "\r\n" : "", body ? strlen(body) : 0);

    return n < 0 ? NULL : head;
}

pl_status pl_http_exchange(const pl_http_target *t, const char *path, const char *key,
                           const char *body, int timeout_s, pl_http_answer *a, pl_error *err)
{
    char *head = make_head(t, path, key, body);
    connection c;
    pl_status s;

    if (!head)
        return pl_error_set(err, PL_ERR_NOMEM, "connection: out of memory");
    s = begin(&c, t, timeout_s, err);
    if (s == PL_OK)
        s = send_all(&c, head, strlen(head), err);
    if (s == PL_OK && body)
        s = send_all(&c, body, strlen(body), err);
    if (s == PL_OK)
        s = receive(&c, a, err);
    end(&c);
    free(head);
    return s;
}
