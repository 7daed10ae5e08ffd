/* Bytes that grow at their end, with a failure that is latched: writers need not check each call. */
#ifndef PL_TEXT_JSON_BUFFER_H
#define PL_TEXT_JSON_BUFFER_H

#include "plimsoll/status.h"

/* {.max_bytes = N} is an empty one. */
typedef struct pl_json_buffer {
    char *bytes;
    size_t n, capacity;
    size_t max_bytes; /* growing past it is PL_ERR_LIMIT */
    pl_status failed; /* PL_OK, PL_ERR_NOMEM or PL_ERR_LIMIT; then n no longer changes */
} pl_json_buffer;

void pl_json_buffer_put(pl_json_buffer *b, const void *bytes, size_t n);
void pl_json_buffer_put_text(pl_json_buffer *b, const char *text); /* 0-terminated */
void pl_json_buffer_put_char(pl_json_buffer *b, char c);

/* Empties it and keeps the memory. */
void pl_json_buffer_clear(pl_json_buffer *b);

/* Frees the memory; the buffer is empty then. */
void pl_json_buffer_fini(pl_json_buffer *b);

#endif
