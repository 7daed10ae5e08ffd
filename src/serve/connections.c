/* Deadlines of connections. libmicrohttpd's own time limit is of silence: who sends a byte now and then would keep a
 * connection for ever, and a thousand of them all there are. So each has a time for the head of a request and again for
 * its body, however it is spent, and one that is late is shut down; the library then sees its end and closes it.
 *
 * Answers have no deadline here: generation has its own (--max-request-seconds), and silence of a reader ends as silence does. */
#include "serve/connections.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "base/log.h"

struct pl_connection {
    pl_connection *next, *prev;
    int fd;
    double since; /* it owes something from then on; 0: nothing */
};

static void begin(pl_serve *s, struct MHD_Connection *connection, void **context)
{
    const int fd =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    pl_connection *c = malloc(sizeof *c);

    *context = c;
    if (!c) { /* what cannot be watched is not served */
        (void)shutdown(fd, SHUT_RDWR);
        return;
    }
    pthread_mutex_lock(&s->lock);
    *c = (pl_connection){.next = s->connections, .fd = fd, .since = pl_serve_now()};
    if (c->next)
        c->next->prev = c;
    s->connections = c;
    pthread_mutex_unlock(&s->lock);
}

/* The library closes the socket after this: a descriptor in the list is never another's. */
static void end(pl_serve *s, pl_connection *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&s->lock);
    if (c->next)
        c->next->prev = c->prev;
    *(c->prev ? &c->prev->next : &s->connections) = c->next;
    pthread_mutex_unlock(&s->lock);
    free(c);
}

void pl_connections_notify(void *cls, struct MHD_Connection *connection, void **context,
                           enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        begin(cls, connection, context);
    else
        end(cls, *context);
}

static void set_since(pl_serve *s, struct MHD_Connection *connection, double since)
{
    pl_connection *c =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;

    if (!c)
        return;
    pthread_mutex_lock(&s->lock);
    c->since = since;
    pthread_mutex_unlock(&s->lock);
}

void pl_connections_expect(pl_serve *s, struct MHD_Connection *connection)
{
    set_since(s, connection, pl_serve_now());
}

void pl_connections_answer(pl_serve *s, struct MHD_Connection *connection)
{
    set_since(s, connection, 0);
}

void pl_connections_sweep(pl_serve *s)
{
    int n_late = 0;
    double now;

    pthread_mutex_lock(&s->lock);
    now = pl_serve_now();
    for (pl_connection *c = s->connections; c; c = c->next)
        if (c->since > 0 && now - c->since > s->params.idle_seconds) {
            c->since = 0;
            (void)shutdown(c->fd, SHUT_RDWR);
            n_late++;
        }
    pthread_mutex_unlock(&s->lock);
    if (n_late > 0)
        pl_log(PL_LOG_INFO, "late", "connections=%d idle_timeout_s=%d", n_late,
               s->params.idle_seconds);
}
