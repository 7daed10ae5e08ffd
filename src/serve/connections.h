/* Which connections there are, and how long each may take to say what it wants. */
#ifndef PL_SERVE_CONNECTIONS_H
#define PL_SERVE_CONNECTIONS_H

#include <microhttpd.h>

#include "serve/job.h"

/* libmicrohttpd's notification of connections that begin and end; cls is the pl_serve. */
void pl_connections_notify(void *cls, struct MHD_Connection *connection, void **context,
                           enum MHD_ConnectionNotificationCode code);

/* From now on the client has idle_seconds for what it owes: the head of a request, or a body. */
void pl_connections_expect(pl_serve *s, struct MHD_Connection *connection);

/* It owes nothing: its request is whole. */
void pl_connections_answer(pl_serve *s, struct MHD_Connection *connection);

/* Breaks off those that are late. Of any thread, about once a second. */
void pl_connections_sweep(pl_serve *s);

#endif
