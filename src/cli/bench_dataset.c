/* The requests of plimsoll bench serve: random ids, or prompts of a file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/philox.h"
#include "cli/bench_dataset.h"
#include "cli/input.h"

enum { MAX_FILE_BYTES = 1 << 30 };

static uint32_t draw(uint64_t seed, uint32_t request, uint32_t index)
{
    const uint32_t counter[4] = {index, request, 3, 0},
                   key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];

    pl_philox4x32(counter, key, out);
    return out[0];
}

/* Uniform in length (1 - ratio) to length (1 + ratio). */
static int64_t draw_length(const pl_bench_dataset *d, int64_t length, uint32_t request,
                           uint32_t index)
{
    const int64_t low = (int64_t)ceil((double)length * (1 - d->range_ratio)),
                  high = (int64_t)floor((double)length * (1 + d->range_ratio)),
                  at = low + (int64_t)(draw(d->seed, request, index) % (uint64_t)(high - low + 1));

    return at < 1 ? 1 : at;
}

/* The body; takes `prompt`. */
static char *body_of(const pl_bench_dataset *d, json_t *prompt, int64_t max_tokens, bool ignore_eos)
{
    json_t *root = json_pack("{s:s,s:I,s:b,s:{s:b},s:f}", "model", d->model, "max_tokens",
                             (json_int_t)max_tokens, "stream", 1, "stream_options", "include_usage",
                             1, "temperature", d->temperature);
    char *text = NULL;

    if (root && ignore_eos)
        json_object_set_new(root, "ignore_eos", json_true());
    if (root && prompt && d->chat)
        json_object_set_new(root, "messages",
                            json_pack("[{s:s,s:o}]", "role", "user", "content", prompt));
    else if (root && prompt)
        json_object_set_new(root, "prompt", prompt);
    if (root && prompt)
        text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

/* Ids for completions; words for a chat, whose ids only the server knows. */
static json_t *random_prompt(const pl_bench_dataset *d, uint32_t request, int64_t n)
{
    json_t *ids = d->chat ? NULL : json_array(), *words;
    char *text = d->chat ? malloc((size_t)n * 12 + 1) : NULL;
    size_t used = 0;

    for (int64_t i = 0; i < n && (ids || text); i++) {
        const uint32_t value = draw(d->seed, request, (uint32_t)i + 2) % (uint32_t)d->vocab_size;

        if (ids)
            json_array_append_new(ids, json_integer(value));
        else
            used += (size_t)snprintf(text + used, 12, " w%u", value % 1000000);
    }
    if (!text)
        return ids;
    words = json_stringn(text, used);
    free(text);
    return words;
}

static pl_status make_random(const pl_bench_dataset *d, pl_bench_request *r, int n, pl_error *err)
{
    for (int i = 0; i < n; i++) {
        const int64_t input = draw_length(d, d->input_len, (uint32_t)i, 0),
                      output = draw_length(d, d->output_len, (uint32_t)i, 1);

        r[i].body = body_of(d, random_prompt(d, (uint32_t)i, input), output, true);
        if (!r[i].body)
            return pl_error_set(err, PL_ERR_NOMEM, "bench serve: out of memory for prompts");
    }
    return PL_OK;
}

/* {"prompt"}, or ShareGPT's {"conversations": [{"value"}, ..]}, or a plain string. */
static json_t *prompt_of(const json_t *record)
{
    json_t *text =
        json_is_string(record) ? (json_t *)(uintptr_t)record : json_object_get(record, "prompt");

    if (!text)
        text =
            json_object_get(json_array_get(json_object_get(record, "conversations"), 0), "value");
    return json_is_string(text) && json_string_length(text) ? json_incref(text) : NULL;
}

static json_t *parse_lines(const char *text, size_t n, const char *name, pl_error *err)
{
    json_t *all = json_array();
    size_t line = 1;

    for (size_t at = 0; all && at < n; line++) {
        const char *end = memchr(text + at, '\n', n - at);
        const size_t length = end ? (size_t)(end - text) - at : n - at;

        if (strspn(text + at, " \t\r") < length) {
            json_t *record = json_loadb(text + at, length, JSON_DECODE_ANY, NULL);

            if (!record) {
                (void)pl_error_set(err, PL_ERR_INVALID,
                                   "%s: line %zu is no JSON (want an array, or one object a line)",
                                   name, line);
                json_decref(all);
                return NULL;
            }
            json_array_append_new(all, record);
        }
        at += length + 1;
    }
    return all;
}

static pl_status make_from(const pl_bench_dataset *d, const json_t *records, pl_bench_request *r,
                           int n, pl_error *err)
{
    const size_t n_records = json_array_size(records);
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        json_t *prompt = NULL;
        const json_t *record = NULL;
        json_int_t output;

        for (size_t tried = 0; tried < n_records && !prompt; tried++) {
            record = json_array_get(records, at++ % n_records);
            prompt = prompt_of(record);
        }
        PL_CHECK(prompt, err, "%s: no prompt (want records with \"prompt\" or \"conversations\")",
                 d->file);
        output = json_integer_value(json_object_get(record, "output_tokens"));
        r[i].body = body_of(d, prompt, output > 0 ? output : d->output_len, d->ignore_eos);
        if (!r[i].body)
            return pl_error_set(err, PL_ERR_NOMEM, "bench serve: out of memory for prompts");
    }
    return PL_OK;
}

pl_status pl_bench_dataset_make(const pl_bench_dataset *d, pl_bench_request *r, int n,
                                pl_error *err)
{
    json_t *records;
    size_t n_bytes;
    char *text;
    pl_status s;

    if (!d->file)
        return make_random(d, r, n, err);
    PL_TRY(pl_input_read(d->file, MAX_FILE_BYTES, &text, &n_bytes, err));
    records = json_loadb(text, n_bytes, 0, NULL);
    if (!json_is_array(records)) {
        json_decref(records);
        records = parse_lines(text, n_bytes, d->file, err);
    }
    s = records ? make_from(d, records, r, n, err) : PL_ERR_INVALID;
    json_decref(records);
    free(text);
    return s;
}
