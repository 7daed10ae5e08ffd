/* Stop strings, looked for as the text is made.
 *
 * A string may lie across tokens, so the end of the text that may still become one is not safe to hand out. */
#ifndef PL_SERVE_STOP_H
#define PL_SERVE_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/fields.h"

typedef struct pl_stop {
    char *const *text; /* borrowed */
    const size_t *n_bytes;
    int n;
    char tail[PL_SERVE_MAX_STOP_BYTES]; /* the last bytes of the text */
    size_t n_tail;
    uint64_t seen; /* bytes of the text so far */
} pl_stop;

void pl_stop_init(pl_stop *s, char *const *text, const size_t *n_bytes, int n);

/* More text. True where a string was found: *safe is then where the first of them begins, and no more may be fed.
 * Else *safe is how many bytes of the text can be in none. */
bool pl_stop_feed(pl_stop *s, const char *text, size_t n_bytes, uint64_t *safe);

#endif
