/* Keys that clients show: from a file or the environment, never from a command line that others can read. */
#ifndef PL_SERVE_KEYS_H
#define PL_SERVE_KEYS_H

#include <stdbool.h>

#include "plimsoll/status.h"

enum { PL_KEYS_MAX = 64, PL_KEYS_MAX_BYTES = 256 };

typedef struct pl_keys {
    char key[PL_KEYS_MAX][PL_KEYS_MAX_BYTES + 1];
    size_t n_bytes[PL_KEYS_MAX];
    int n; /* 0: everybody may come in */
} pl_keys;

/* Lines of `file` (NULL: none) that are not empty, and the environment's PLIMSOLL_API_KEY. Texts of errors name the
 * line, not the key. */
pl_status pl_keys_read(const char *file, pl_keys *keys, pl_error *err) PL_MUST_CHECK;

/* Which of them an Authorization header, "Bearer KEY", has; -1: none; NULL: there was no header. Its time depends on
 * the header's length alone. */
int pl_keys_find(const pl_keys *keys, const char *authorization);

#endif
