/* Reading and comparing keys. */
#include "serve/keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

static pl_status add(pl_keys *keys, const char *where, const char *text, size_t n, pl_error *err)
{
    PL_CHECK(n <= PL_KEYS_MAX_BYTES, err, "%s: key is too long (got %zu bytes, want at most %d)",
             where, n, PL_KEYS_MAX_BYTES);
    PL_CHECK(keys->n < PL_KEYS_MAX, err, "%s: too many keys (want at most %d)", where, PL_KEYS_MAX);
    for (size_t i = 0; i < n; i++)
        PL_CHECK(text[i] > 0x20 && text[i] < 0x7f, err,
                 "%s: key with a byte that does not print, at %zu (want ASCII without spaces)",
                 where, i);
    memcpy(keys->key[keys->n], text, n);
    keys->n_bytes[keys->n++] = n;
    return PL_OK;
}

static pl_status read_lines(FILE *from, const char *file, pl_keys *keys, pl_error *err)
{
    char line[PL_KEYS_MAX_BYTES + 3], where[64];

    for (int i = 1; fgets(line, sizeof line, from); i++) {
        const size_t n = strcspn(line, "\r\n");

        (void)snprintf(where, sizeof where, "--api-key-file: line %d", i);
        PL_CHECK(n < sizeof line - 1, err, "%s: too long (want at most %d bytes)", where,
                 PL_KEYS_MAX_BYTES);
        if (n)
            PL_TRY(add(keys, where, line, n, err));
    }
    PL_CHECK(!ferror(from), err, "%s: cannot be read", file);
    PL_CHECK(keys->n > 0, err, "--api-key-file: holds no key (got '%s')", file);
    return PL_OK;
}

pl_status pl_keys_read(const char *file, pl_keys *keys, pl_error *err)
{
    const char *variable = getenv("PLIMSOLL_API_KEY");
    pl_status s = PL_OK;
    FILE *from;

    memset(keys, 0, sizeof *keys);
    if (file) {
        from = fopen(file, "re");
        PL_CHECK(from, err, "--api-key-file: cannot be opened (got '%s': %s)", file,
                 strerror(errno));
        s = read_lines(from, file, keys, err);
        (void)fclose(from);
    }
    if (s == PL_OK && variable && variable[0])
        s = add(keys, "PLIMSOLL_API_KEY", variable, strlen(variable), err);
    return s;
}

/* Every byte of the text is looked at, whatever came before it. */
static unsigned differs(const char *key, size_t n_key, const char *text, size_t n_text)
{
    volatile unsigned difference = n_key != n_text;

    for (size_t i = 0; i < n_text; i++)
        difference |=
            (unsigned)((unsigned char)text[i] ^ (unsigned char)key[i <= PL_KEYS_MAX_BYTES ? i : 0]);
    return difference;
}

int pl_keys_find(const pl_keys *keys, const char *authorization)
{
    unsigned found = 0; /* its index and 1 */
    const char *text;
    size_t n;

    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0)
        return -1;
    text = authorization + 7;
    text += strspn(text, " ");
    n = strlen(text);
    for (int i = 0; i < keys->n; i++)
        found |= (0u - (differs(keys->key[i], keys->n_bytes[i], text, n) == 0)) &
                 (unsigned)(i + 1) & (0u - (found == 0));
    return (int)found - 1;
}
