/* Small tokenizers, built with jansson as a reader would write them by hand. */
#include "support/tiny_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/reference_bpe.h"

static const char skeleton[] =
    "{'version': '1.0', 'truncation': null, 'padding': null, 'added_tokens': [],"
    " 'normalizer': {'type': 'Sequence', 'normalizers': []},"
    " 'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': ["
    "  {'type': 'Split', 'pattern': {'Regex': '\\\\p{N}{1,3}'},"
    "   'behavior': 'Isolated', 'invert': false},"
    "  {'type': 'Split', 'pattern': {'Regex': '[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+'},"
    "   'behavior': 'Isolated', 'invert': false},"
    "  {'type': 'Split', 'pattern': {'Regex': "
    "'[!\\\"#$%&\\u0027()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`"
    "{|}~][A-Za-z]+|[^\\r\\n\\\\p{L}\\\\p{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| "
    "?[\\\\p{P}\\\\p{S}]+[\\r\\n]*"
    "|\\\\s*[\\r\\n]+|\\\\s+(?!\\\\S)|\\\\s+'}, 'behavior': 'Isolated', 'invert': false},"
    "  {'type': 'ByteLevel', 'add_prefix_space': false, 'trim_offsets': true, 'use_regex': "
    "false}]},"
    " 'post_processor': {'type': 'ByteLevel', 'add_prefix_space': true, 'trim_offsets': false,"
    "  'use_regex': true},"
    " 'decoder': {'type': 'ByteLevel', 'add_prefix_space': true, 'trim_offsets': true,"
    "  'use_regex': true},"
    " 'model': {'type': 'BPE', 'dropout': null, 'unk_token': null,"
    "  'continuing_subword_prefix': null, 'end_of_word_suffix': null, 'fuse_unk': false,"
    "  'byte_fallback': false, 'vocab': {}, 'merges': []}}";

/* JSON with ' for ", for C sources. */
static json_t *parse(const char *text)
{
    char *copy = strdup(text);
    json_error_t err;
    json_t *value;

    for (char *p = copy; *p; p++)
        if (*p == '\'')
            *p = '"';
    value = json_loads(copy, JSON_DECODE_ANY, &err);
    free(copy);
    if (!value)
        fail_msg("%s: %s", text, err.text);
    return value;
}

static void add_token(json_t *root, const char *content, bool special, bool normalized)
{
    json_t *added = json_object_get(root, "added_tokens");
    json_int_t id =
        (json_int_t)(json_object_size(at_path(root, "model.vocab")) + json_array_size(added));

    json_array_append_new(added, json_pack("{s:I,s:s,s:b,s:b,s:b,s:b,s:b}", "id", id, "content",
                                           content, "single_word", 0, "lstrip", 0, "rstrip", 0,
                                           "normalized", (int)normalized, "special", (int)special));
}

json_t *tiny_tokenizer(const char *const *merges, size_t n_merges)
{
    json_t *root = parse(skeleton), *vocab = at_path(root, "model.vocab");

    for (int b = 0; b < 256; b++) {
        char name[3] = "";

        reference_alphabet((unsigned char)b, name);
        json_object_set_new(vocab, name, json_integer(b));
    }
    for (size_t i = 0; i < n_merges; i++) {
        const char *space = strchr(merges[i], ' ');
        char name[256];

        snprintf(name, sizeof name, "%.*s%s", (int)(space - merges[i]), merges[i], space + 1);
        if (!json_object_get(vocab, name))
            json_object_set_new(vocab, name, json_integer((json_int_t)json_object_size(vocab)));
        json_array_append_new(at_path(root, "model.merges"), json_string(merges[i]));
    }
    add_token(root, "<bos>", true, false);
    add_token(root, "<think>", false, false);
    add_token(root, "<user>", false, true);
    add_token(root, "<user>x", false, true);
    return root;
}

/* Steps into one key or index; *path moves behind it. */
static json_t *step(json_t *value, const char **path, char key[64], size_t *index)
{
    size_t n = strcspn(*path, ".[]");

    *index = SIZE_MAX;
    snprintf(key, 64, "%.*s", (int)n, *path);
    if (json_is_array(value))
        *index = strtoul(key, NULL, 10);
    *path += n;
    *path += strspn(*path, ".[]");
    return json_is_array(value) ? json_array_get(value, *index) : json_object_get(value, key);
}

json_t *at_path(json_t *root, const char *path)
{
    const char *rest = path;
    char key[64];
    size_t index;

    while (*rest && root)
        root = step(root, &rest, key, &index);
    if (!root)
        fail_msg("no value at %s", path);
    return root;
}

void change(json_t *root, const char *path, const char *value)
{
    json_t *parent = root, *next;
    const char *rest = path;
    char key[64];
    size_t index;

    for (;;) {
        next = step(parent, &rest, key, &index);
        if (!*rest)
            break;
        if (!next)
            fail_msg("no value at %s", path);
        parent = next;
    }
    if (json_is_array(parent) && value && index == json_array_size(parent))
        json_array_append_new(parent, parse(value));
    else if (json_is_array(parent) && value)
        json_array_set_new(parent, index, parse(value));
    else if (json_is_array(parent))
        json_array_remove(parent, index);
    else if (value)
        json_object_set_new(parent, key, parse(value));
    else
        json_object_del(parent, key);
}

pl_status open_tiny(const json_t *root, pl_tokenizer **out, pl_error *err)
{
    char *text = json_dumps(root, JSON_COMPACT);
    pl_status status = pl_tokenizer_open_memory("tiny.json", text, strlen(text), out, err);

    free(text);
    return status;
}
