/* The growable buffer of the text module: doubling, one limit, latched failure. */
#include "text/json_buffer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Room for `n` more bytes, or the failure. */
static bool reserve(pl_json_buffer *b, size_t n)
{
    size_t capacity = b->capacity ? b->capacity : 256;
    char *bytes;

    if (b->failed != PL_OK)
        return false;
    if (n > b->max_bytes - b->n) {
        b->failed = PL_ERR_LIMIT;
        return false;
    }
    if (n <= b->capacity - b->n)
        return true;
    while (capacity - b->n < n && capacity <= SIZE_MAX / 2)
        capacity *= 2;
    if (capacity > b->max_bytes)
        capacity = b->max_bytes;
    bytes = realloc(b->bytes, capacity);
    if (!bytes) {
        b->failed = PL_ERR_NOMEM;
        return false;
    }
    b->bytes = bytes;
    b->capacity = capacity;
    return true;
}

void pl_json_buffer_put(pl_json_buffer *b, const void *bytes, size_t n)
{
    if (n == 0 || !reserve(b, n))
        return;
    memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
}

void pl_json_buffer_put_text(pl_json_buffer *b, const char *text)
{
    pl_json_buffer_put(b, text, strlen(text));
}

void pl_json_buffer_put_char(pl_json_buffer *b, char c)
{
    pl_json_buffer_put(b, &c, 1);
}

void pl_json_buffer_clear(pl_json_buffer *b)
{
    b->n = 0;
}

void pl_json_buffer_fini(pl_json_buffer *b)
{
    free(b->bytes);
    *b = (pl_json_buffer){.max_bytes = b->max_bytes};
}
