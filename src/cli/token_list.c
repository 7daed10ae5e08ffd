/* Lists of ids, plain or JSON. Which of the two is told by the first character. */
#include "cli/token_list.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/input.h"

typedef struct list {
    const char *name;
    const pl_token_list_rules *rules;
    int32_t *ids; /* room for what the caller counted */
    size_t n;
    pl_error *err;
} list;

/* `digits` is the number as written, at byte `at` of the text. */
static pl_status add(list *l, uint64_t id, const char *digits, size_t n_digits, size_t at)
{
    const pl_token_list_rules *rules = l->rules;
    const int shown = (int)(n_digits < 40 ? n_digits : 40);

    if (rules->max_ids && l->n == rules->max_ids)
        return pl_error_set_at(l->err, PL_ERR_INVALID, at, "%s: too many tokens (want at most %zu)",
                               l->name, rules->max_ids);
    if (rules->vocab_size && id >= (uint64_t)rules->vocab_size)
        return pl_error_set_at(l->err, PL_ERR_INVALID, at,
                               "%s: token %zu: no such id (got %.*s, want 0..%d: the vocabulary "
                               "has %d)",
                               l->name, l->n, shown, digits, rules->vocab_size - 1,
                               rules->vocab_size);
    if (id > INT32_MAX)
        return pl_error_set_at(l->err, PL_ERR_INVALID, at,
                               "%s: token %zu: no such id (got %.*s, want at most %d)", l->name,
                               l->n, shown, digits, INT32_MAX);
    l->ids[l->n++] = (int32_t)id;
    return PL_OK;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void skip_spaces(const char *text, size_t n_bytes, size_t *at)
{
    while (*at < n_bytes && is_space(text[*at]))
        ++*at;
}

static pl_status no_id(list *l, const char *text, size_t at)
{
    return pl_error_set_at(l->err, PL_ERR_INVALID, at,
                           "%s: not a token id at byte %zu (got '%c', want decimal ids separated "
                           "by commas or white space)",
                           l->name, at, text[at]);
}

static pl_status parse_plain(list *l, const char *text, size_t n_bytes)
{
    size_t at = 0;

    for (skip_spaces(text, n_bytes, &at); at < n_bytes;) {
        size_t begin = at;
        uint64_t id = 0;

        for (; at < n_bytes && text[at] >= '0' && text[at] <= '9'; at++)
            if (id < UINT32_MAX) /* large enough to be refused */
                id = id * 10 + (uint64_t)(text[at] - '0');
        if (at == begin || (at < n_bytes && text[at] != ',' && !is_space(text[at])))
            return no_id(l, text, at);
        PL_TRY(add(l, id, text + begin, at - begin, begin));
        skip_spaces(text, n_bytes, &at);
        if (at < n_bytes && text[at] == ',') {
            at++;
            skip_spaces(text, n_bytes, &at);
        }
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
        PL_TRY(add(l, (uint64_t)json_integer_value(id), digits, strlen(digits), 0));
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

static pl_status parse(list *l, const char *text, size_t n_bytes)
{
    size_t first = 0, most = n_bytes / 2 + 1; /* an id and a separator */

    skip_spaces(text, n_bytes, &first);
    if (l->rules->json && first < n_bytes && (text[first] == '{' || text[first] == '['))
        return load_json(l, text, n_bytes);
    if (l->rules->max_ids && l->rules->max_ids < most)
        most = l->rules->max_ids;
    l->ids = malloc(most * sizeof l->ids[0]);
    return l->ids ? parse_plain(l, text, n_bytes)
                  : pl_error_set(l->err, PL_ERR_NOMEM, "%s: out of memory", l->name);
}

pl_status pl_token_list_parse(const char *name, const char *text, size_t n_bytes,
                              const pl_token_list_rules *rules, int32_t **ids, size_t *n_ids,
                              pl_error *err)
{
    list l = {.name = name, .rules = rules, .err = err};
    pl_status status = parse(&l, text, n_bytes);

    if (status == PL_OK && l.n == 0 && !rules->may_be_empty)
        status = pl_error_set(err, PL_ERR_INVALID, "%s: no token ids (want at least one)", name);
    if (status != PL_OK) {
        free(l.ids);
        l.ids = NULL;
        l.n = 0;
    }
    *ids = l.ids;
    *n_ids = l.n;
    return status;
}

pl_status pl_token_list_read(const char *path, size_t max_bytes, const pl_token_list_rules *rules,
                             int32_t **ids, size_t *n_ids, pl_error *err)
{
    size_t n_bytes;
    char *text;
    pl_status status;

    *ids = NULL;
    PL_TRY(pl_input_read(path, max_bytes, &text, &n_bytes, err));
    status = pl_token_list_parse(pl_input_name(path), text, n_bytes, rules, ids, n_ids, err);
    free(text);
    return status;
}
