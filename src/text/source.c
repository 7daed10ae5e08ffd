/* tokenizer.json into arrays: tokens by id, merges by rank.
 *
 * jansson parses; this file resolves names to ids and refuses what is not one consistent
 * vocabulary. The file may be hostile: its length and its number of JSON values are bounded before
 * anything is allocated, and arrays are sized by what was parsed, never by a number in the file. */
#include "text/source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/alphabet.h"
#include "text/pipeline.h"

typedef struct reader {
    const char *name;
    json_t *vocab, *merges, *added;
    pl_source *source;
    int32_t capacity; /* of source->tokens */
    uint8_t *pool;    /* end of what is used of source->pool */
    pl_error *err;
} reader;

static pl_status out_of_memory(reader *r)
{
    return pl_error_set(r->err, PL_ERR_NOMEM, "%s: out of memory while reading it", r->name);
}

/* Values of a JSON text are at most the separators and openings outside of strings, and one. */
static bool too_many_values(const char *json, size_t n)
{
    size_t count = 0;
    bool in_string = false;

    for (size_t i = 0; i < n; i++) {
        char c = json[i];

        if (in_string) {
            if (c == '\\')
                i++;
            else
                in_string = c != '"';
        } else {
            in_string = c == '"';
            count += c == ',' || c == '[' || c == '{';
        }
    }
    return count >= PL_SOURCE_MAX_VALUES;
}

static pl_status parse(const char *name, const char *json, size_t n, json_t **out, pl_error *err)
{
    json_error_t e;

    if (n > PL_SOURCE_MAX_BYTES)
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "%s: too long (got %zu bytes, want at most %d)", name, n,
                            PL_SOURCE_MAX_BYTES);
    if (too_many_values(json, n))
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "%s: too many JSON values (want fewer than %d)", name,
                            PL_SOURCE_MAX_VALUES);
    *out = json_loadb(json, n, JSON_REJECT_DUPLICATES, &e);
    if (*out)
        return PL_OK;
    if (json_error_code(&e) == json_error_out_of_memory)
        return pl_error_set(err, PL_ERR_NOMEM, "%s: out of memory while reading it", name);
    return pl_error_set_at(err, PL_ERR_CORRUPT, e.position > 0 ? (uint64_t)e.position : 0,
                           "%s: not JSON: %s (line %d, column %d)", name, e.text, e.line, e.column);
}

/* Ids must be 0 .. n-1: the id of the last token sizes every table here and in a model. */
static pl_status check_id(reader *r, const char *where, const json_t *id, int32_t *out)
{
    json_int_t v = json_integer_value(id);

    if (!json_is_integer(id))
        return pl_error_set(r->err, PL_ERR_CORRUPT, "%s: %s: id is not a whole number", r->name,
                            where);
    if (v < 0 || v >= r->capacity)
        return pl_error_set(r->err, PL_ERR_CORRUPT,
                            "%s: %s: id out of range (got %" JSON_INTEGER_FORMAT
                            ", want 0..%d for %d entries)",
                            r->name, where, v, r->capacity - 1, r->capacity);
    *out = (int32_t)v;
    return PL_OK;
}

/* Places a copy of the bytes in the pool, which was made large enough. */
static const uint8_t *keep(reader *r, const char *bytes, size_t n)
{
    uint8_t *copy = memcpy(r->pool, bytes, n);

    r->pool += n;
    return copy;
}

static pl_status read_vocab(reader *r)
{
    const char *key;
    size_t length;
    json_t *value;

    json_object_keylen_foreach(r->vocab, key, length, value)
    {
        int32_t id = -1;
        pl_source_token *t;
        uint8_t *bytes;
        size_t n;

        if (length == 0)
            return pl_error_set(r->err, PL_ERR_CORRUPT, "%s: model.vocab: empty token", r->name);
        PL_TRY(check_id(r, "model.vocab", value, &id));
        t = &r->source->tokens[id];
        if (t->n_bytes)
            return pl_error_set(r->err, PL_ERR_CORRUPT,
                                "%s: model.vocab: id %d is given twice (second: '%.60s')", r->name,
                                id, key);
        bytes = r->pool;
        n = pl__alphabet_bytes((const uint8_t *)key, length, bytes);
        t->by_merges = n != SIZE_MAX;
        if (t->by_merges) {
            r->pool += n;
            t->bytes = bytes;
        } else { /* good only if it turns out to be an added token */
            t->bytes = keep(r, key, length);
            n = length;
        }
        t->n_bytes = (uint32_t)n;
    }
    return PL_OK;
}

/* An added token may be listed in the vocabulary too; then it is one token with one spelling. */
static pl_status read_added_token(reader *r, size_t index, const json_t *entry)
{
    json_t *content = json_object_get(entry, "content"), *listed;
    const char *text = json_string_value(content);
    size_t length = json_string_length(content);
    pl_source_token *t;
    int32_t id = -1;

    PL_TRY(check_id(r, "added_tokens", json_object_get(entry, "id"), &id));
    if (length == 0)
        return pl_error_set(r->err, PL_ERR_CORRUPT, "%s: added_tokens[%zu]: empty content", r->name,
                            index);
    t = &r->source->tokens[id];
    listed = json_object_getn(r->vocab, text, length);
    if (listed && json_integer_value(listed) != id)
        return pl_error_set(r->err, PL_ERR_CORRUPT,
                            "%s: added_tokens[%zu]: '%.60s' has two ids (got %d, in model.vocab "
                            "%" JSON_INTEGER_FORMAT ")",
                            r->name, index, text, id, json_integer_value(listed));
    if (t->added || (t->n_bytes && !listed))
        return pl_error_set(r->err, PL_ERR_CORRUPT,
                            "%s: added_tokens[%zu]: id %d is given twice (second: '%.60s')",
                            r->name, index, id, text);
    if (listed && (t->n_bytes != length || memcmp(t->bytes, text, length) != 0))
        return pl_error_set(r->err, PL_ERR_UNSUPPORTED,
                            "%s: added_tokens[%zu]: '%.60s' means other bytes in model.vocab",
                            r->name, index, text);
    if (!listed) {
        t->bytes = keep(r, text, length);
        t->n_bytes = (uint32_t)length;
    }
    t->added = true;
    t->normalized = json_is_true(json_object_get(entry, "normalized"));
    t->special = json_is_true(json_object_get(entry, "special"));
    return PL_OK;
}

/* After both lists: ids without gaps, nothing spelled strangely, all 256 bytes. */
static pl_status check_tokens(reader *r)
{
    pl_source *s = r->source;
    bool byte_seen[256] = {false};

    for (int32_t id = 0; id < r->capacity; id++)
        if (s->tokens[id].n_bytes)
            s->n_tokens = id + 1;
    for (int32_t id = 0; id < s->n_tokens; id++) {
        const pl_source_token *t = &s->tokens[id];

        if (!t->n_bytes)
            return pl_error_set(r->err, PL_ERR_CORRUPT, "%s: no token has id %d (ids go to %d)",
                                r->name, id, s->n_tokens - 1);
        if (t->n_bytes > PL_TOKEN_MAX_BYTES)
            return pl_error_set(r->err, PL_ERR_UNSUPPORTED,
                                "%s: token %d is too long (got %u bytes, want at most %d)", r->name,
                                id, t->n_bytes, PL_TOKEN_MAX_BYTES);
        if (!t->by_merges && !t->added)
            return pl_error_set(r->err, PL_ERR_UNSUPPORTED,
                                "%s: model.vocab: token %d is not spelled in the byte alphabet",
                                r->name, id);
        if (t->by_merges && t->n_bytes == 1)
            byte_seen[t->bytes[0]] = true;
    }
    for (int b = 0; b < 256; b++)
        if (!byte_seen[b])
            return pl_error_set(r->err, PL_ERR_UNSUPPORTED,
                                "%s: model.vocab: no token for byte 0x%02X (want all 256)", r->name,
                                (unsigned)b);
    return PL_OK;
}

static pl_status read_tokens(reader *r)
{
    size_t n = json_object_size(r->vocab) + json_array_size(r->added), pool_bytes = 1, index,
           length;
    const char *key;
    json_t *value;

    json_object_keylen_foreach(r->vocab, key, length, value) pool_bytes += length;
    json_array_foreach(r->added, index, value)
    {
        PL_TRY(pl__pipeline_check_added(r->name, index, value, r->err));
        pool_bytes += json_string_length(json_object_get(value, "content"));
    }
    r->capacity = (int32_t)n; /* < PL_SOURCE_MAX_VALUES */
    r->source->tokens = calloc(n + 1, sizeof r->source->tokens[0]);
    r->source->pool = r->pool = malloc(pool_bytes);
    if (!r->source->tokens || !r->pool)
        return out_of_memory(r);
    PL_TRY(read_vocab(r));
    json_array_foreach(r->added, index, value) PL_TRY(read_added_token(r, index, value));
    return check_tokens(r);
}

/* The two names of a merge: "a b", or ["a", "b"] in newer files. */
typedef struct merge_names {
    const char *left, *right;
    size_t left_bytes, right_bytes;
} merge_names;

static bool split_merge(const json_t *merge, merge_names *m)
{
    if (json_is_string(merge)) {
        const char *text = json_string_value(merge), *space = strchr(text, ' ');

        if (!space || strchr(space + 1, ' '))
            return false;
        m->left = text;
        m->left_bytes = (size_t)(space - text);
        m->right = space + 1;
        m->right_bytes = json_string_length(merge) - m->left_bytes - 1;
    } else {
        const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);

        if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right))
            return false;
        m->left = json_string_value(left);
        m->left_bytes = json_string_length(left);
        m->right = json_string_value(right);
        m->right_bytes = json_string_length(right);
    }
    return m->left_bytes > 0 && m->right_bytes > 0;
}

/* Id of a name among those that merges may use; -1 where there is none. */
static int32_t name_to_id(const reader *r, const char *name, size_t length)
{
    const json_t *id = json_object_getn(r->vocab, name, length);

    if (!id || !r->source->tokens[json_integer_value(id)].by_merges)
        return -1;
    return (int32_t)json_integer_value(id);
}

static pl_status read_merge(reader *r, size_t rank, const json_t *merge, char *joined)
{
    merge_names m;
    int32_t left, right, made;

    if (!split_merge(merge, &m))
        return pl_error_set(r->err, PL_ERR_CORRUPT,
                            "%s: model.merges[%zu]: not a pair (want \"a b\" or [\"a\",\"b\"])",
                            r->name, rank);
    memcpy(joined, m.left, m.left_bytes);
    memcpy(joined + m.left_bytes, m.right, m.right_bytes);
    joined[m.left_bytes + m.right_bytes] = 0;
    left = name_to_id(r, m.left, m.left_bytes);
    right = name_to_id(r, m.right, m.right_bytes);
    made = name_to_id(r, joined, m.left_bytes + m.right_bytes);
    if (left < 0 || right < 0 || made < 0) {
        const char *missing = left < 0 ? m.left : right < 0 ? m.right : joined;
        size_t length = left < 0    ? m.left_bytes
                        : right < 0 ? m.right_bytes
                                    : m.left_bytes + m.right_bytes;

        return pl_error_set(r->err, PL_ERR_CORRUPT,
                            "%s: model.merges[%zu]: '%.*s' is not in model.vocab", r->name, rank,
                            (int)(length < 60 ? length : 60), missing);
    }
    r->source->merges[rank] = (pl_merge){left, right};
    r->source->made[rank] = made;
    return PL_OK;
}

static pl_status read_merges(reader *r)
{
    size_t n = json_array_size(r->merges), index, longest = 0;
    pl_status status = PL_OK;
    merge_names m;
    json_t *merge;
    char *joined;

    json_array_foreach(r->merges, index,
                       merge) if (split_merge(merge, &m) && m.left_bytes + m.right_bytes > longest)
        longest = m.left_bytes + m.right_bytes;
    joined = malloc(longest + 1);
    r->source->merges = malloc((n + 1) * sizeof r->source->merges[0]);
    r->source->made = malloc((n + 1) * sizeof r->source->made[0]);
    if (!joined || !r->source->merges || !r->source->made)
        status = out_of_memory(r);
    for (size_t i = 0; i < n && status == PL_OK; i++)
        status = read_merge(r, i, json_array_get(r->merges, i), joined);
    r->source->n_merges = (int32_t)n; /* < PL_SOURCE_MAX_VALUES */
    free(joined);
    return status;
}

pl_status pl__source_read(const char *name, const char *json, size_t json_bytes, pl_source *out,
                          pl_error *err)
{
    reader r = {.name = name, .source = out, .err = err};
    json_t *root = NULL, *model;
    pl_status status = parse(name, json, json_bytes, &root, err);

    *out = (pl_source){0};
    if (status == PL_OK)
        status = pl__pipeline_check(name, root, err);
    if (status == PL_OK) {
        model = json_object_get(root, "model");
        r.vocab = json_object_get(model, "vocab");
        r.merges = json_object_get(model, "merges");
        r.added = json_object_get(root, "added_tokens");
        out->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
        status = read_tokens(&r);
    }
    if (status == PL_OK)
        status = read_merges(&r);
    if (status != PL_OK)
        pl__source_free(out);
    json_decref(root);
    return status;
}

void pl__source_free(pl_source *source)
{
    free(source->tokens);
    free(source->merges);
    free(source->made);
    free(source->pool);
    *source = (pl_source){0};
}
