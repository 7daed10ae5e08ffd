/* Lists of ids, plain or JSON. Which of the two is told by the first character. */
#include "cli/token_list.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

typedef struct list {
    const char *name;
    int32_t vocab_size;
    int32_t *ids; /* room for what the caller counted */
    size_t n;
    pl_error *err;
} list;

/* `digits` is the number as written. */
static pl_status add(list *l, uint64_t id, const char *digits, size_t n_digits)
{
    if (id >= (uint64_t)l->vocab_size)
        return pl_error_set(l->err, PL_ERR_INVALID,
                            "%s: token %zu: no such id (got %.*s, want 0..%d: the vocabulary has "
                            "%d)",
                            l->name, l->n, (int)(n_digits < 40 ? n_digits : 40), digits,
                            l->vocab_size - 1, l->vocab_size);
    l->ids[l->n++] = (int32_t)id;
    return PL_OK;
}

static bool is_separator(char c)
{
    return c == ',' || c == ' ' || (c >= '\t' && c <= '\r');
}

static pl_status parse_plain(list *l, const char *text, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes;) {
        size_t begin = at;
        uint64_t id = 0;

        if (is_separator(text[at])) {
            at++;
            continue;
        }
        for (; at < n_bytes && text[at] >= '0' && text[at] <= '9'; at++)
            if (id < UINT32_MAX) /* large enough to be refused */
                id = id * 10 + (uint64_t)(text[at] - '0');
        if (at == begin || (at < n_bytes && !is_separator(text[at])))
            return pl_error_set_at(l->err, PL_ERR_INVALID, at,
                                   "%s: not a token id at byte %zu (got '%c', want decimal ids "
                                   "separated by commas or white space)",
                                   l->name, at, text[at]);
        PL_TRY(add(l, id, text + begin, at - begin));
    }
    return PL_OK;
}

static pl_status parse_json(list *l, const json_t *root)
{
    const json_t *array = json_is_object(root) ? json_object_get(root, "tokens") : root, *id;
    size_t i;

    if (!json_is_array(array))
        return pl_error_set(l->err, PL_ERR_INVALID,
                            "%s: no token ids (want an array, or an object with \"tokens\")",
                            l->name);
    l->ids = malloc((json_array_size(array) + 1) * sizeof l->ids[0]);
    if (!l->ids)
        return pl_error_set(l->err, PL_ERR_NOMEM, "%s: out of memory", l->name);
    json_array_foreach(array, i, id)
    {
        char digits[24] = "";

        if (!json_is_integer(id))
            return pl_error_set(l->err, PL_ERR_INVALID, "%s: token %zu: not a whole number",
                                l->name, i);
        snprintf(digits, sizeof digits, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
        PL_TRY(add(l, (uint64_t)json_integer_value(id), digits, strlen(digits)));
    }
    return PL_OK;
}

static pl_status load_json(list *l, const char *text, size_t n_bytes)
{
    json_error_t e;
    json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &e);
    pl_status status;

    if (!root)
        return pl_error_set_at(l->err, PL_ERR_INVALID, e.position > 0 ? (uint64_t)e.position : 0,
                               "%s: not JSON: %s (line %d, column %d)", l->name, e.text, e.line,
                               e.column);
    status = parse_json(l, root);
    json_decref(root);
    return status;
}

pl_status pl_token_list_parse(const char *name, const char *text, size_t n_bytes,
                              int32_t vocab_size, int32_t **ids, size_t *n_ids, pl_error *err)
{
    list l = {.name = name, .vocab_size = vocab_size, .err = err};
    size_t first = 0;
    pl_status status;

    while (first < n_bytes && is_separator(text[first]))
        first++;
    if (first < n_bytes && (text[first] == '{' || text[first] == '[')) {
        status = load_json(&l, text, n_bytes);
    } else {
        l.ids = malloc((n_bytes / 2 + 1) * sizeof l.ids[0]);
        status = l.ids ? parse_plain(&l, text, n_bytes)
                       : pl_error_set(err, PL_ERR_NOMEM, "%s: out of memory", name);
    }
    if (status != PL_OK) {
        free(l.ids);
        l.ids = NULL;
        l.n = 0;
    }
    *ids = l.ids;
    *n_ids = l.n;
    return status;
}
