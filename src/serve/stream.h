/* Answers as server-sent events, rendered when the client has room for more: nothing is queued for a slow reader but the
 * tokens themselves. */
#ifndef PL_SERVE_STREAM_H
#define PL_SERVE_STREAM_H

#include "serve/body.h"

typedef struct pl_stream pl_stream;

/* Of an accepted job; NULL where memory is out. Holds a reference. */
pl_stream *pl_stream_create(pl_job *job);

/* What libmicrohttpd calls (MHD_ContentReaderCallback, .._FreeCallback). */
ssize_t pl_stream_read(void *stream, uint64_t pos, char *buf, size_t max);
void pl_stream_destroy(void *stream);

#endif
