/* The listening socket. Connections inherit its buffer sizes, which must be set before the first is there: the kernel
 * would let them grow to megabytes, and a control group is charged for them. */
#include "serve/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

pl_status pl_listen_parse(const char *host, int port, pl_address *a, bool *loopback, pl_error *err)
{
    const char *numeric = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;

    memset(a, 0, sizeof *a);
    if (inet_pton(AF_INET, numeric, &a->v4.sin_addr) == 1) {
        a->v4.sin_family = AF_INET;
        a->v4.sin_port = htons((uint16_t)port);
        *loopback = (ntohl(a->v4.sin_addr.s_addr) >> 24) == 127;
        return PL_OK;
    }
    PL_CHECK(inet_pton(AF_INET6, numeric, &a->v6.sin6_addr) == 1, err,
             "--host: not a numeric address (got '%s', want such as 127.0.0.1, 0.0.0.0 or ::1)",
             host);
    a->v6.sin6_family = AF_INET6;
    a->v6.sin6_port = htons((uint16_t)port);
    *loopback = IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
    return PL_OK;
}

static int option(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value);
}

pl_status pl_listen_open(const pl_address *a, const char *host, int *fd, pl_error *err)
{
    const bool v6 = a->any.sa_family == AF_INET6;
    const int port = ntohs(v6 ? a->v6.sin6_port : a->v4.sin_port);

    *fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* A server that ended a moment ago must not keep the next one from its port; an IPv6 socket is that alone. */
    if (*fd < 0 || option(*fd, SOL_SOCKET, SO_REUSEADDR, 1) != 0 ||
        (v6 && option(*fd, IPPROTO_IPV6, IPV6_V6ONLY, 1) != 0) ||
        option(*fd, SOL_SOCKET, SO_RCVBUF, PL_LISTEN_BUFFER_BYTES) != 0 ||
        option(*fd, SOL_SOCKET, SO_SNDBUF, PL_LISTEN_BUFFER_BYTES) != 0 ||
        bind(*fd, &a->any, v6 ? sizeof a->v6 : sizeof a->v4) != 0 || listen(*fd, SOMAXCONN) != 0) {
        const int failure = errno;

        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        return pl_error_set(err, PL_ERR_IO, "server: cannot serve on %s port %d (got %s)", host,
                            port, strerror(failure));
    }
    return PL_OK;
}
