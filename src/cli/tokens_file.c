/* Token ids from text. */
#include "cli/tokens_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum {
    LONGEST_ID = 11
}; /* bytes that an id and its separator need at most, for the size of a file */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

/* One id at text[*at]; moves *at behind it. */
static pl_status parse_id(const char *name, const char *text, size_t length, size_t *at,
                          int32_t *id, pl_error *err)
{
    int64_t value = 0;
    size_t i = *at;

    for (; i < length && text[i] >= '0' && text[i] <= '9' && value <= INT32_MAX; i++)
        value = 10 * value + (text[i] - '0');
    if (i == *at)
        return pl_error_set_at(err, PL_ERR_INVALID, i,
                               "%s: byte %zu is no token id (got '%c', want decimal numbers "
                               "separated by commas or white space)",
                               name, i, text[i]);
    if (value > INT32_MAX)
        return pl_error_set_at(err, PL_ERR_INVALID, *at,
                               "%s: token id at byte %zu is too large (want at most %d)", name, *at,
                               INT32_MAX);
    *at = i;
    *id = (int32_t)value;
    return PL_OK;
}

static void skip_spaces(const char *text, size_t length, size_t *at)
{
    while (*at < length && is_space(text[*at]))
        ++*at;
}

/* Ids into `out`; two ids need a separator, two commas an id between them. */
static pl_status parse_all(const char *name, const char *text, size_t length, int32_t max_tokens,
                           int32_t *out, int32_t *n, pl_error *err)
{
    size_t at = 0;

    for (skip_spaces(text, length, &at); at < length;) {
        size_t end;

        if (*n == max_tokens)
            return pl_error_set_at(err, PL_ERR_INVALID, at, "%s: too many tokens (want at most %d)",
                                   name, max_tokens);
        PL_TRY(parse_id(name, text, length, &at, &out[*n], err));
        ++*n;
        end = at;
        skip_spaces(text, length, &at);
        if (at < length && text[at] == ',') {
            at++;
            skip_spaces(text, length, &at);
        } else if (at == end && at < length) {
            return pl_error_set_at(err, PL_ERR_INVALID, at,
                                   "%s: byte %zu is no separator (got '%c', want a comma or white "
                                   "space)",
                                   name, at, text[at]);
        }
    }
    if (*n == 0)
        return pl_error_set(err, PL_ERR_INVALID, "%s: no token ids (want at least one)", name);
    return PL_OK;
}

pl_status pl_tokens_parse(const char *name, const char *text, size_t length, int32_t max_tokens,
                          int32_t **tokens, int32_t *n, pl_error *err)
{
    size_t most = length / 2 + 1; /* an id and a separator */
    pl_status status;

    *n = 0;
    *tokens = malloc((most < (size_t)max_tokens ? most : (size_t)max_tokens) * sizeof **tokens + 1);
    if (!*tokens)
        return pl_error_set(err, PL_ERR_NOMEM, "%s: out of memory", name);
    status = parse_all(name, text, length, max_tokens, *tokens, n, err);
    if (status != PL_OK) {
        free(*tokens);
        *tokens = NULL;
    }
    return status;
}

static pl_status read_file(const char *path, size_t max_bytes, char **text, size_t *length,
                           pl_error *err)
{
    FILE *f = fopen(path, "rb");
    bool failed;

    if (!f)
        return pl_error_set(err, errno == ENOENT ? PL_ERR_NOT_FOUND : PL_ERR_IO,
                            "%s: cannot open (got %s)", path, strerror(errno));
    *text = malloc(max_bytes + 1);
    *length = *text ? fread(*text, 1, max_bytes + 1, f) : 0;
    failed = ferror(f) != 0;
    fclose(f);
    if (*text && !failed && *length <= max_bytes)
        return PL_OK;
    free(*text);
    if (failed)
        return pl_error_set(err, PL_ERR_IO, "%s: cannot read (got %s)", path, strerror(errno));
    if (*length > max_bytes)
        return pl_error_set(err, PL_ERR_INVALID, "%s: too long for %zu tokens", path,
                            max_bytes / LONGEST_ID);
    return pl_error_set(err, PL_ERR_NOMEM, "%s: out of memory", path);
}

pl_status pl_tokens_read(const char *path, int32_t max_tokens, int32_t **tokens, int32_t *n,
                         pl_error *err)
{
    pl_status status;
    size_t length = 0;
    char *text = NULL;

    *tokens = NULL;
    PL_TRY(read_file(path, (size_t)max_tokens * LONGEST_ID + 4096, &text, &length, err));
    status = pl_tokens_parse(path, text, length, max_tokens, tokens, n, err);
    free(text);
    return status;
}
