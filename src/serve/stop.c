/* Byte by byte: the tail holds what can still be the beginning of a stop string, which is short, so that comparing it
 * anew costs less than a machine that remembers. */
#include "serve/stop.h"

#include <string.h>

void pl_stop_init(pl_stop *s, char *const *text, const size_t *n_bytes, int n)
{
    *s = (pl_stop){.text = text, .n_bytes = n_bytes, .n = n};
}

static bool ends_with(const pl_stop *s, int i)
{
    const size_t n = s->n_bytes[i];

    return s->n_tail >= n && memcmp(s->tail + s->n_tail - n, s->text[i], n) == 0;
}

/* The longest of the strings that end here begins first. */
static size_t found_bytes(const pl_stop *s)
{
    size_t longest = 0;

    for (int i = 0; i < s->n; i++)
        if (s->n_bytes[i] > longest && ends_with(s, i))
            longest = s->n_bytes[i];
    return longest;
}

/* The longest end of the tail that begins a stop string. */
static size_t open_bytes(const pl_stop *s)
{
    for (size_t n = s->n_tail; n > 0; n--)
        for (int i = 0; i < s->n; i++)
            if (n < s->n_bytes[i] && memcmp(s->tail + s->n_tail - n, s->text[i], n) == 0)
                return n;
    return 0;
}

bool pl_stop_feed(pl_stop *s, const char *text, size_t n_bytes, uint64_t *safe)
{
    if (s->n == 0) {
        s->seen += n_bytes;
        *safe = s->seen;
        return false;
    }
    for (size_t i = 0; i < n_bytes; i++) {
        size_t found;

        if (s->n_tail == sizeof s->tail)
            memmove(s->tail, s->tail + 1, --s->n_tail);
        s->tail[s->n_tail++] = text[i];
        s->seen++;
        found = found_bytes(s);
        if (found) {
            *safe = s->seen - found;
            return true;
        }
    }
    *safe = s->seen - open_bytes(s);
    return false;
}
