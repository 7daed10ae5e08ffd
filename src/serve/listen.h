/* Where the server listens, and how many bytes the kernel may hold for its connections. */
#ifndef PL_SERVE_LISTEN_H
#define PL_SERVE_LISTEN_H

#include <netinet/in.h>
#include <stdbool.h>

#include "plimsoll/status.h"

/* Asked of each connection's two buffers. Linux doubles it, for its own records, and charges no more than that. */
enum {
    PL_LISTEN_BUFFER_BYTES = 32 << 10,
    PL_LISTEN_CHARGED_BYTES = 2 * 2 * PL_LISTEN_BUFFER_BYTES
};

typedef union pl_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} pl_address;

/* A numeric address or "localhost". *loopback: only this machine can reach it. */
pl_status pl_listen_parse(const char *host, int port, pl_address *address, bool *loopback,
                          pl_error *err);

/* A listening socket, close-on-exec and non-blocking, whose connections have bounded buffers; the caller closes *fd. Error: IO
 * with the address, such as a port that is taken. */
pl_status pl_listen_open(const pl_address *address, const char *host, int *fd, pl_error *err);

#endif
