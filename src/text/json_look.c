/* Looking at values that have been read: members, texts, and words for error messages. */
#include <stdio.h>
#include <string.h>

#include "text/json_value.h"

const pl_json_value *pl_json_value_get(const pl_json_value *object, const char *key)
{
    size_t n = strlen(key);

    if (!object || object->kind != PL_JSON_OBJECT)
        return NULL;
    for (const pl_json_value *m = object->first; m; m = m->next)
        if (m->key_bytes == n && memcmp(m->key, key, n) == 0)
            return m;
    return NULL;
}

bool pl_json_value_is(const pl_json_value *value, const char *text)
{
    return value && value->kind == PL_JSON_STRING && value->n == strlen(text) &&
           memcmp(value->text, text, value->n) == 0;
}

/* Copies at most `max` bytes, whole characters; NUL becomes '?'. Returns the bytes written. */
static size_t copy_words(char *words, const pl_json_value *v, size_t max)
{
    size_t n = v->n;

    if (n > max)
        for (n = max; n > 0 && ((unsigned char)v->text[n] & 0xC0) == 0x80;)
            n--;
    for (size_t i = 0; i < n; i++)
        words[i] = v->text[i] ? v->text[i] : '?';
    return n;
}

static const char *put_words(char *words, const char *text)
{
    snprintf(words, PL_JSON_WORDS_BYTES, "%s", text);
    return words;
}

const char *pl_json_value_words(const pl_json_value *value, char *words)
{
    static const char *const names[] = {
        [PL_JSON_NULL] = "null",      [PL_JSON_FALSE] = "false",      [PL_JSON_TRUE] = "true",
        [PL_JSON_ARRAY] = "an array", [PL_JSON_OBJECT] = "an object",
    };
    const char *quote;
    size_t n;

    if (!value)
        return put_words(words, "nothing");
    quote = value->kind == PL_JSON_STRING ? "'" : "";
    if (!*quote && value->kind != PL_JSON_INTEGER && value->kind != PL_JSON_REAL)
        return put_words(words, names[value->kind]);
    words[0] = *quote;
    n = strlen(quote);
    n += copy_words(words + n, value, PL_JSON_WORDS_BYTES - 8);
    snprintf(words + n, PL_JSON_WORDS_BYTES - n, "%s%s", n - strlen(quote) < value->n ? "..." : "",
             quote);
    return words;
}
