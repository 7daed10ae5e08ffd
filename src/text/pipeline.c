/* Tables of what each key of a tokenizer.json may hold.
 *
 * A key that is not listed is refused, for it may change ids; so is every value with an effect that
 * is not implemented. What is listed with several values has no effect on ids or decoded text, as
 * the reference library treats it. */
#include "text/pipeline.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "text/pretokenize.h"

/* What a value may be; OPTIONAL: the key may be missing, which means null or the format's default. */
enum {
    V_NULL = 1,
    V_FALSE = 2,
    V_TRUE = 4,
    V_EMPTY = 8, /* "" */
    V_TEXT = 16, /* exactly rule.text; any string where that is NULL */
    V_INTEGER = 32,
    V_ARRAY = 64,
    V_OBJECT = 128,
    OPTIONAL = 256,
    V_BOOL = V_FALSE | V_TRUE,
};

typedef struct rule {
    const char *key;
    unsigned allowed;
    const char *text;
} rule;

static const rule file_rules[] = {
    {"version", V_TEXT | OPTIONAL, "1.0"},
    {"truncation", V_NULL | OPTIONAL},
    {"padding", V_NULL | OPTIONAL},
    {"added_tokens", V_ARRAY},
    {"normalizer", V_NULL | V_OBJECT | OPTIONAL},
    {"pre_tokenizer", V_OBJECT},
    {"post_processor", V_NULL | V_OBJECT | OPTIONAL},
    {"decoder", V_OBJECT},
    {"model", V_OBJECT},
    {NULL},
};

static const rule added_rules[] = {
    {"id", V_INTEGER},
    {"content", V_TEXT},
    {"single_word", V_FALSE | OPTIONAL},
    {"lstrip", V_FALSE | OPTIONAL},
    {"rstrip", V_FALSE | OPTIONAL},
    {"normalized", V_BOOL},
    {"special", V_BOOL},
    {NULL},
};

static const rule normalizer_rules[] = {
    {"type", V_TEXT, "Sequence"},
    {"normalizers", V_ARRAY},
    {NULL},
};

static const rule pre_tokenizer_rules[] = {
    {"type", V_TEXT, "Sequence"},
    {"pretokenizers", V_ARRAY},
    {NULL},
};

static const rule split_rules[] = {
    {"type", V_TEXT, "Split"},
    {"pattern", V_OBJECT},
    {"behavior", V_TEXT, "Isolated"},
    {"invert", V_FALSE},
    {NULL},
};

static const rule byte_level_rules[] = {
    {"type", V_TEXT, "ByteLevel"},
    {"add_prefix_space", V_FALSE},
    {"trim_offsets", V_BOOL | OPTIONAL},
    {"use_regex", V_FALSE}, /* missing means true */
    {NULL},
};

/* As post-processor and as decoder its options touch neither ids nor text. */
static const rule byte_level_after_rules[] = {
    {"type", V_TEXT, "ByteLevel"},
    {"add_prefix_space", V_BOOL | OPTIONAL},
    {"trim_offsets", V_BOOL | OPTIONAL},
    {"use_regex", V_BOOL | OPTIONAL},
    {NULL},
};

static const rule model_rules[] = {
    {"type", V_TEXT, "BPE"},
    {"dropout", V_NULL | OPTIONAL},
    {"unk_token", V_NULL | OPTIONAL}, /* nothing is unknown: all bytes are tokens */
    {"continuing_subword_prefix", V_NULL | V_EMPTY | OPTIONAL},
    {"end_of_word_suffix", V_NULL | V_EMPTY | OPTIONAL},
    {"fuse_unk", V_BOOL | OPTIONAL},
    {"byte_fallback", V_FALSE | OPTIONAL},
    {"ignore_merges", V_BOOL | OPTIONAL},
    {"vocab", V_OBJECT},
    {"merges", V_ARRAY},
    {NULL},
};

static bool matches(const json_t *value, const rule *r)
{
    switch (json_typeof(value)) {
    case JSON_NULL:
        return r->allowed & V_NULL;
    case JSON_FALSE:
        return r->allowed & V_FALSE;
    case JSON_TRUE:
        return r->allowed & V_TRUE;
    case JSON_INTEGER:
        return r->allowed & V_INTEGER;
    case JSON_ARRAY:
        return r->allowed & V_ARRAY;
    case JSON_OBJECT:
        return r->allowed & V_OBJECT;
    case JSON_STRING:
        if (r->allowed & V_EMPTY && json_string_length(value) == 0)
            return true;
        return r->allowed & V_TEXT && (!r->text || strcmp(json_string_value(value), r->text) == 0);
    default:
        return false;
    }
}

/* "null or false" */
static void describe_wanted(const rule *r, char *out, size_t out_bytes)
{
    static const char *const names[] = {"null",     "false",    "true",     "\"\"",
                                        "a string", "a number", "an array", "an object"};
    size_t n = 0;

    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *name = (1u << i) == V_TEXT && r->text ? r->text : names[i];

        if (r->allowed & 1u << i && n < out_bytes)
            n += (size_t)snprintf(out + n, out_bytes - n, "%s%s", n ? " or " : "", name);
    }
}

/* The value as JSON, or the beginning of a string. */
static void describe_value(const json_t *value, char out[64])
{
    size_t n;

    if (json_is_array(value) || json_is_object(value)) {
        snprintf(out, 64, "%s", json_is_array(value) ? "an array" : "an object");
    } else if (json_is_string(value)) {
        snprintf(out, 64, "\"%.56s\"", json_string_value(value));
    } else { /* a number, true, false, null */
        n = json_dumpb(value, out, 63, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        out[n < 63 ? n : 0] = 0;
    }
}

/* `path` is the object's own key in the file, "" for the file itself. */
static pl_status check_object(const char *name, const char *path, const json_t *object,
                              const rule *rules, pl_error *err)
{
    const char *dot = path[0] ? "." : "", *key;
    json_t *value;
    char got[64], want[64];

    json_object_foreach((json_t *)object, key, value)
    {
        const rule *r = rules;

        while (r->key && strcmp(r->key, key) != 0)
            r++;
        if (!r->key)
            return pl_error_set(err, PL_ERR_UNSUPPORTED, "%s: %s%s%.60s: unknown key", name, path,
                                dot, key);
        if (!matches(value, r)) {
            describe_value(value, got);
            describe_wanted(r, want, sizeof want);
            return pl_error_set(err, PL_ERR_UNSUPPORTED,
                                "%s: %s%s%s: not supported (got %s, want %s)", name, path, dot, key,
                                got, want);
        }
    }
    for (const rule *r = rules; r->key; r++)
        if (!(r->allowed & OPTIONAL) && !json_object_get(object, r->key))
            return pl_error_set(err, PL_ERR_CORRUPT, "%s: %s%s%s: missing", name, path, dot,
                                r->key);
    return PL_OK;
}

static pl_status check_split(const char *name, int index, const json_t *split, pl_error *err)
{
    char path[64];
    const json_t *pattern;
    const char *key;
    json_t *regex;

    snprintf(path, sizeof path, "pre_tokenizer.pretokenizers[%d]", index);
    PL_TRY(check_object(name, path, split, split_rules, err));
    pattern = json_object_get(split, "pattern");
    regex = json_object_get(pattern, "Regex");
    if (json_object_size(pattern) != 1 || !json_is_string(regex)) {
        key = json_object_iter_key(json_object_iter((json_t *)pattern));
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "%s: %s.pattern: not supported (got %s, want Regex)", name, path,
                            key ? key : "no key");
    }
    if (strcmp(json_string_value(regex), pl__split_patterns[index]) != 0)
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "%s: %s.pattern.Regex: unknown split pattern (got '%.80s', want that "
                            "of DeepSeek-V3 and V4)",
                            name, path, json_string_value(regex));
    return PL_OK;
}

static pl_status check_pre_tokenizer(const char *name, const json_t *pre, pl_error *err)
{
    const json_t *list;

    PL_TRY(check_object(name, "pre_tokenizer", pre, pre_tokenizer_rules, err));
    list = json_object_get(pre, "pretokenizers");
    if (json_array_size(list) != PL_SPLIT_PATTERNS + 1)
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "%s: pre_tokenizer.pretokenizers: not supported (got %zu steps, want 3 "
                            "of Split and ByteLevel)",
                            name, json_array_size(list));
    for (int i = 0; i <= PL_SPLIT_PATTERNS; i++)
        if (!json_is_object(json_array_get(list, (size_t)i)))
            return pl_error_set(err, PL_ERR_CORRUPT,
                                "%s: pre_tokenizer.pretokenizers[%d]: not an object", name, i);
    for (int i = 0; i < PL_SPLIT_PATTERNS; i++)
        PL_TRY(check_split(name, i, json_array_get(list, (size_t)i), err));
    return check_object(name, "pre_tokenizer.pretokenizers[3]",
                        json_array_get(list, PL_SPLIT_PATTERNS), byte_level_rules, err);
}

pl_status pl__pipeline_check(const char *name, const json_t *root, pl_error *err)
{
    const json_t *normalizer, *post;

    if (!json_is_object(root))
        return pl_error_set(err, PL_ERR_CORRUPT, "%s: not a JSON object", name);
    PL_TRY(check_object(name, "", root, file_rules, err));
    normalizer = json_object_get(root, "normalizer");
    if (json_is_object(normalizer)) {
        size_t n = json_array_size(json_object_get(normalizer, "normalizers"));

        PL_TRY(check_object(name, "normalizer", normalizer, normalizer_rules, err));
        if (n > 0)
            return pl_error_set(err, PL_ERR_UNSUPPORTED,
                                "%s: normalizer.normalizers: not supported (got %zu steps, want "
                                "none)",
                                name, n);
    }
    PL_TRY(check_pre_tokenizer(name, json_object_get(root, "pre_tokenizer"), err));
    post = json_object_get(root, "post_processor");
    if (json_is_object(post))
        PL_TRY(check_object(name, "post_processor", post, byte_level_after_rules, err));
    PL_TRY(check_object(name, "decoder", json_object_get(root, "decoder"), byte_level_after_rules,
                        err));
    return check_object(name, "model", json_object_get(root, "model"), model_rules, err);
}

pl_status pl__pipeline_check_added(const char *name, size_t index, const json_t *token,
                                   pl_error *err)
{
    char path[64];

    snprintf(path, sizeof path, "added_tokens[%zu]", index);
    if (!json_is_object(token))
        return pl_error_set(err, PL_ERR_CORRUPT, "%s: %s: not an object", name, path);
    return check_object(name, path, token, added_rules, err);
}
