/* The reader: recursive descent with a depth bound, one pass, strings without escapes left in place.
 *
 * It does not check what values mean, and it has no mode that forgives. */
#include "text/json_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/utf8.h"

typedef struct reader {
    pl_json_pool *pool;
    const char *where, *begin, *at, *end;
    int depth;
    pl_error *err;
} reader;

static pl_status no_memory(reader *r)
{
    return pl_error_set(r->err, PL_ERR_NOMEM, "%s: out of memory", r->where);
}

/* What stands at `at`, for messages. */
static const char *seen(const reader *r, const char *at, char words[16])
{
    unsigned char c;

    if (at >= r->end)
        return "the end";
    c = (unsigned char)*at;
    snprintf(words, 16, c > 0x20 && c < 0x7F ? "'%c'" : "byte 0x%02x", c);
    return words;
}

static pl_status refuse(reader *r, const char *at, const char *what, const char *want)
{
    char words[16];

    return pl_error_set_at(r->err, PL_ERR_INVALID, (uint64_t)(at - r->begin),
                           "%s: %s at byte %zu (got %s, want %s)", r->where, what,
                           (size_t)(at - r->begin), seen(r, at, words), want);
}

static void skip_space(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

/* ---- strings ---- */

/* Finds the closing quote; *n_escapes is 0 where the text can stay in place. */
static pl_status scan_string(reader *r, const char **close, size_t *n_escapes)
{
    const char *s = r->at;

    *close = r->end;
    *n_escapes = 0;
    while (s < r->end && *s != '"') {
        if ((unsigned char)*s < 0x20)
            return refuse(r, s, "control character in a string", "an escape");
        if (*s == '\\') {
            (*n_escapes)++;
            s++; /* what follows is checked when it is unescaped, only a quote matters here */
            if (s == r->end)
                break;
        }
        s++;
    }
    if (s == r->end)
        return refuse(r, r->end, "string does not end", "'\"'");
    *close = s;
    return PL_OK;
}

static pl_status read_hex4(reader *r, const char *s, const char *close, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++) {
        char c = s + i < close ? s[i] : 0;
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16)
            return refuse(r, s + i, "bad \\u escape", "4 hexadecimal digits");
        *code = *code << 4 | digit;
    }
    return PL_OK;
}

/* \uXXXX at `*s` (behind the u), a surrogate pair as one. */
static pl_status read_unicode(reader *r, const char **s, const char *close, uint32_t *code)
{
    const char *begin = *s - 2;
    uint32_t low;

    PL_TRY(read_hex4(r, *s, close, code));
    *s += 4;
    if (*code < 0xD800 || *code > 0xDFFF)
        return PL_OK;
    if (*code >= 0xDC00 || close - *s < 2 || (*s)[0] != '\\' || (*s)[1] != 'u')
        return refuse(r, begin, "half a surrogate pair", "both halves or a character");
    PL_TRY(read_hex4(r, *s + 2, close, &low));
    if (low < 0xDC00 || low > 0xDFFF)
        return refuse(r, begin, "half a surrogate pair", "both halves or a character");
    *s += 6;
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    return PL_OK;
}

/* Returns the bytes written, 1 to 4. */
static size_t put_code_point(char *out, uint32_t code)
{
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    if (n == 1) {
        out[0] = (char)code;
        return 1;
    }
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(0xF00u >> n | code);
    return n;
}

static pl_status unescape(reader *r, const char *close, char *out, size_t *n_out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *s = r->at;
    char *o = out;

    while (s < close) {
        const char *name;
        uint32_t code;
        if (*s != '\\') {
            *o++ = *s++;
            continue;
        }
        s++;
        if (*s == 'u') {
            s++;
            PL_TRY(read_unicode(r, &s, close, &code));
            o += put_code_point(o, code);
            continue;
        }
        name = *s ? strchr(names, *s) : NULL;
        if (!name)
            return refuse(r, s, "unknown escape", "one of \"\\/bfnrtu");
        *o++ = values[name - names];
        s++;
    }
    *n_out = (size_t)(o - out);
    return PL_OK;
}

/* At the opening quote; an escape is never shorter than what it stands for. */
static pl_status read_string(reader *r, const char **text, size_t *n)
{
    const char *close;
    size_t n_escapes;
    char *copy;

    r->at++;
    PL_TRY(scan_string(r, &close, &n_escapes));
    *text = r->at;
    *n = (size_t)(close - r->at);
    if (n_escapes) {
        copy = pl_json_pool_take(r->pool, *n, 1);
        if (!copy)
            return no_memory(r);
        PL_TRY(unescape(r, close, copy, n));
        *text = copy;
    }
    r->at = close + 1;
    return PL_OK;
}

/* ---- numbers and words ---- */

static size_t count_digits(const char *s, const char *end)
{
    const char *begin = s;

    while (s < end && *s >= '0' && *s <= '9')
        s++;
    return (size_t)(s - begin);
}

static pl_status read_number(reader *r, pl_json_value *v)
{
    const char *s = r->at + (*r->at == '-'), *digits = s;
    size_t n = count_digits(s, r->end);

    if (n == 0)
        return refuse(r, s, "bad number", "a digit");
    if (*digits == '0')
        n = 1; /* a further digit is then what should not be there */
    s += n;
    v->kind = PL_JSON_INTEGER;
    if (s < r->end && *s == '.' && count_digits(s + 1, r->end)) {
        s += 1 + count_digits(s + 1, r->end);
        v->kind = PL_JSON_REAL;
    }
    if (s < r->end && (*s == 'e' || *s == 'E')) {
        const char *e = s + 1;
        if (e < r->end && (*e == '+' || *e == '-'))
            e++;
        if (count_digits(e, r->end)) {
            s = e + count_digits(e, r->end);
            v->kind = PL_JSON_REAL;
        }
    }
    if (v->kind == PL_JSON_INTEGER && n > PL_JSON_MAX_DIGITS)
        return refuse(r, r->at, "whole number is too long", "at most 4300 digits");
    v->text = r->at;
    v->n = (size_t)(s - r->at);
    r->at = s;
    return PL_OK;
}

static bool read_word(reader *r, const char *word, pl_json_kind kind, pl_json_value *v)
{
    size_t n = strlen(word);

    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return false;
    v->kind = kind;
    v->text = r->at;
    v->n = n;
    r->at += n;
    return true;
}

/* ---- arrays and objects ---- */

static int compare_members(const void *a, const void *b)
{
    const pl_json_value *x = *(pl_json_value *const *)a, *y = *(pl_json_value *const *)b;
    size_t n = x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes;
    int c = n ? memcmp(x->key, y->key, n) : 0;

    if (c)
        return c;
    if (x->key_bytes != y->key_bytes)
        return x->key_bytes < y->key_bytes ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static bool same_key(const pl_json_value *x, const pl_json_value *y)
{
    return x->key_bytes == y->key_bytes &&
           (x->key_bytes == 0 || memcmp(x->key, y->key, x->key_bytes) == 0);
}

/* Repeated keys: the last value moves to the place of the first, as in a Python dict. Sorting finds them in
 * n log n whatever the keys are. */
static pl_status join_repeated(reader *r, pl_json_value *object)
{
    pl_json_value **sorted = pl_json_pool_take(r->pool, object->n, sizeof(void *));
    pl_json_value **link = &object->first;
    size_t n = 0;

    if (!sorted)
        return no_memory(r);
    for (pl_json_value *m = object->first; m; m = m->next)
        sorted[n++] = m;
    qsort(sorted, n, sizeof(void *), compare_members);
    for (size_t i = 0; i + 1 < n; i++) {
        size_t last = i;
        while (last + 1 < n && same_key(sorted[i], sorted[last + 1]))
            sorted[++last]->order = UINT32_MAX; /* to be unlinked */
        sorted[i]->kind = sorted[last]->kind;
        sorted[i]->text = sorted[last]->text;
        sorted[i]->n = sorted[last]->n;
        sorted[i]->first = sorted[last]->first;
        i = last;
    }
    for (pl_json_value *m = object->first; m; m = m->next) {
        if (m->order == UINT32_MAX) {
            object->n--;
        } else {
            *link = m;
            link = &m->next;
        }
    }
    *link = NULL;
    return PL_OK;
}

static pl_status read_value(reader *r, pl_json_value *v);

static pl_status read_member(reader *r, bool keyed, pl_json_value *m)
{
    if (keyed) {
        skip_space(r);
        if (r->at >= r->end || *r->at != '"')
            return refuse(r, r->at, "no key", "'\"'");
        PL_TRY(read_string(r, &m->key, &m->key_bytes));
        skip_space(r);
        if (r->at >= r->end || *r->at != ':')
            return refuse(r, r->at, "no value after a key", "':'");
        r->at++;
    }
    return read_value(r, m);
}

/* At the opening bracket. */
static pl_status read_members(reader *r, pl_json_value *v)
{
    bool keyed = *r->at == '{';
    char close = keyed ? '}' : ']';
    pl_json_value **link = &v->first;

    if (r->depth == PL_JSON_MAX_DEPTH)
        return refuse(r, r->at, "nested too deep", "at most 128 levels");
    r->depth++;
    v->kind = keyed ? PL_JSON_OBJECT : PL_JSON_ARRAY;
    r->at++;
    skip_space(r);
    if (r->at < r->end && *r->at == close) {
        r->at++;
        r->depth--;
        return PL_OK;
    }
    for (;;) {
        pl_json_value *m = v->n < UINT32_MAX ? pl_json_pool_take(r->pool, 1, sizeof *m) : NULL;
        if (!m)
            return no_memory(r);
        m->order = (uint32_t)v->n++;
        *link = m;
        link = &m->next;
        PL_TRY(read_member(r, keyed, m));
        skip_space(r);
        if (r->at < r->end && *r->at == close)
            break;
        if (r->at >= r->end || *r->at != ',')
            return refuse(r, r->at, "array or object is broken",
                          keyed ? "',' or '}'" : "',' or ']'");
        r->at++;
    }
    r->at++;
    r->depth--;
    return keyed && v->n > 1 ? join_repeated(r, v) : PL_OK;
}

static pl_status read_value(reader *r, pl_json_value *v)
{
    skip_space(r);
    if (r->at < r->end) {
        if (*r->at == '{' || *r->at == '[')
            return read_members(r, v);
        if (*r->at == '"') {
            v->kind = PL_JSON_STRING;
            return read_string(r, &v->text, &v->n);
        }
        if (read_word(r, "null", PL_JSON_NULL, v) || read_word(r, "true", PL_JSON_TRUE, v) ||
            read_word(r, "false", PL_JSON_FALSE, v) || read_word(r, "NaN", PL_JSON_REAL, v) ||
            read_word(r, "Infinity", PL_JSON_REAL, v) || read_word(r, "-Infinity", PL_JSON_REAL, v))
            return PL_OK;
        if (*r->at == '-' || (*r->at >= '0' && *r->at <= '9'))
            return read_number(r, v);
    }
    return refuse(r, r->at, "no JSON value", "a value");
}

pl_status pl_json_value_parse(pl_json_pool *pool, const char *where, const char *json,
                              size_t json_bytes, const pl_json_value **out, pl_error *err)
{
    reader r = {pool, where, json, json, json + json_bytes, 0, err};
    pl_json_value *v = pl_json_pool_take(pool, 1, sizeof *v);

    size_t valid = pl__utf8_valid_bytes((const uint8_t *)json, json_bytes);

    *out = NULL;
    if (!v)
        return no_memory(&r);
    if (valid < json_bytes)
        return refuse(&r, json + valid, "text is not UTF-8", "UTF-8");
    PL_TRY(read_value(&r, v));
    skip_space(&r);
    if (r.at != r.end)
        return refuse(&r, r.at, "text after the JSON value", "the end");
    *out = v;
    return PL_OK;
}
