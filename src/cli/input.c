/* A file or standard input, whole, up to a limit. */
#include "cli/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

const char *pl_input_name(const char *path)
{
    return !path || strcmp(path, "-") == 0 ? "standard input" : path;
}

static pl_status read_all(FILE *f, const char *name, size_t max_bytes, char **text, size_t *n_bytes,
                          pl_error *err)
{
    size_t n = 0, capacity = 0;

    for (;;) {
        if (n + 1 >= capacity) {
            size_t more = capacity ? 2 * capacity : 1 << 16;
            char *grown = realloc(*text, more);
            if (!grown)
                return pl_error_set(err, PL_ERR_NOMEM, "%s: out of memory (got %zu bytes so far)",
                                    name, n);
            *text = grown;
            capacity = more;
        }
        n += fread(*text + n, 1, capacity - 1 - n, f);
        if (ferror(f) && errno == EISDIR)
            return pl_error_set(err, PL_ERR_INVALID, "%s: is a folder (want a file)", name);
        if (ferror(f))
            return pl_error_set(err, PL_ERR_IO, "%s: cannot read (%s)", name, strerror(errno));
        if (n > max_bytes)
            return pl_error_set(err, PL_ERR_OVERFLOW,
                                "%s: too long (got more, want at most %zu bytes)", name, max_bytes);
        if (feof(f))
            break;
    }
    (*text)[n] = 0;
    *n_bytes = n;
    return PL_OK;
}

pl_status pl_input_read(const char *path, size_t max_bytes, char **text, size_t *n_bytes,
                        pl_error *err)
{
    const char *name = pl_input_name(path);
    FILE *f = name == path ? fopen(path, "rb") : stdin;
    pl_status status;

    *text = NULL;
    if (!f)
        return pl_error_set(err, errno == ENOENT ? PL_ERR_NOT_FOUND : PL_ERR_IO,
                            "%s: cannot open (%s)", name, strerror(errno));
    status = read_all(f, name, max_bytes, text, n_bytes, err);
    if (f != stdin)
        fclose(f);
    if (status != PL_OK) {
        free(*text);
        *text = NULL;
    }
    return status;
}
