/* Requests: which fields there are, which of them exclude each other, and which are refused rather than ignored because
 * ignoring them would give another answer than was asked for. */
#include "serve/fields.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is read; whatever else comes is named in the log and ignored. */
static const char *const known[] = {
    "model",
    "messages",
    "prompt",
    "n",
    "stop",
    "stop_token_ids",
    "seed",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "ignore_eos",
    "logit_bias",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "chat_template_kwargs",
    "reasoning_effort",
    "echo",
    "best_of",
    "suffix",
    "priority",
    "return_token_ids",
    "return_digest",
    "continue_final_message",
    "user",
};

static bool is_among(const char *key, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], key) == 0)
            return true;
    return false;
}

/* Members of an object that are none of `names`, each behind `prefix`. */
static void note_others(pl_fields *f, json_t *object, const char *prefix, const char *const *names,
                        size_t n)
{
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value)
    {
        const size_t used = strlen(f->unknown);

        if (!is_among(key, names, n))
            (void)snprintf(f->unknown + used, sizeof f->unknown - used, "%s%s%.40s",
                           used ? "," : "", prefix, key);
    }
}

static void note_unknown(pl_fields *f)
{
    static const char *const kwargs[] = {"thinking", "reasoning_effort"};
    static const char *const options[] = {"include_usage"};

    note_others(f, f->root, "", known, sizeof known / sizeof known[0]);
    note_others(f, json_object_get(f->root, "chat_template_kwargs"), "chat_template_kwargs.",
                kwargs, sizeof kwargs / sizeof kwargs[0]);
    note_others(f, json_object_get(f->root, "stream_options"), "stream_options.", options,
                sizeof options / sizeof options[0]);
    /* Names are others' words: none may look like a word of the log. */
    for (char *c = f->unknown; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == '=' || *c == '"')
            *c = '_';
}

static bool read_sampling(pl_fields *f, pl_fault *fault)
{
    pl_request_params *p = &f->params;
    int64_t top_k = 0, seed = 0;
    const json_t *r = f->root;

    p->temperature = 1;
    if (!pl_field_real(r, "temperature", 0, 1000, &p->temperature, fault) ||
        !pl_field_real(r, "top_p", 0, 1, &p->top_p, fault) ||
        !pl_field_real(r, "min_p", 0, 1, &p->min_p, fault) ||
        !pl_field_int(r, "top_k", -1, INT32_MAX, &top_k, fault) ||
        !pl_field_int(r, "seed", INT64_MIN, INT64_MAX, &seed, fault) ||
        !pl_field_real(r, "presence_penalty", -2, 2, &p->presence_penalty, fault) ||
        !pl_field_real(r, "frequency_penalty", -2, 2, &p->frequency_penalty, fault) ||
        !pl_field_real(r, "repetition_penalty", 0, 1000, &p->repetition_penalty, fault))
        return false;
    p->top_k = top_k < 0 ? 0 : (int32_t)top_k;
    p->seed = (uint64_t)seed;
    f->has_seed = json_is_integer(json_object_get(r, "seed"));
    return true;
}

/* An echo may be all that is wanted. */
static bool read_max_tokens(pl_fields *f, int64_t *max, pl_fault *fault)
{
    const json_t *given = json_object_get(f->root, "max_tokens");

    f->echo_only = f->kind == PL_FIELDS_COMPLETION &&
                   json_is_true(json_object_get(f->root, "echo")) && json_is_integer(given) &&
                   json_integer_value(given) == 0;
    if (f->echo_only) {
        *max = 1;
        return true;
    }
    return pl_field_int(f->root, "max_tokens", 1, INT32_MAX, max, fault) &&
           pl_field_int(f->root, "max_completion_tokens", 1, INT32_MAX, max, fault);
}

static bool read_lengths(pl_fields *f, pl_fault *fault)
{
    int64_t max = 0, min = 0, n = 1, priority = 0;
    const json_t *r = f->root;

    if (!read_max_tokens(f, &max, fault) ||
        !pl_field_int(r, "min_tokens", 0, INT32_MAX, &min, fault) ||
        !pl_field_int(r, "n", 1, PL_SERVE_MAX_N, &n, fault) ||
        !pl_field_int(r, "priority", -INT_MAX, INT_MAX, &priority, fault) ||
        !pl_field_bool(r, "ignore_eos", &f->params.ignore_eos, fault))
        return false;
    if (max && min > max)
        return pl_fault_set(fault, 400, "min_tokens",
                            "min_tokens: more than max_tokens (got %lld, want at most %lld)",
                            (long long)min, (long long)max);
    f->params.max_tokens = (int32_t)max;
    f->params.min_tokens = (int32_t)min;
    f->n = (int)n;
    f->priority = (int)priority;
    return true;
}

static bool read_output(pl_fields *f, pl_fault *fault)
{
    const json_t *options = json_object_get(f->root, "stream_options"), *r = f->root;

    if (!pl_field_bool(r, "stream", &f->stream, fault) ||
        !pl_field_bool(r, "return_token_ids", &f->return_token_ids, fault) ||
        !pl_field_bool(r, "return_digest", &f->return_digest, fault) ||
        !pl_field_stops(r, f, fault) || !pl_field_stop_ids(r, f, fault) ||
        !pl_field_logit_bias(r, f, fault) || !pl_field_logprobs(r, f, fault) ||
        !pl_field_prompt_logprobs(r, f, fault))
        return false;
    if (options && !json_is_null(options) && !json_is_object(options))
        return pl_fault_set(fault, 400, "stream_options", "stream_options: not an object");
    return pl_field_bool(options, "include_usage", &f->include_usage, fault);
}

/* What would change the answer and cannot be done. */
static bool refuse_unsupported(const pl_fields *f, pl_fault *fault)
{
    const json_t *suffix = json_object_get(f->root, "suffix");

    if (f->kind == PL_FIELDS_COMPLETION && suffix && !json_is_null(suffix))
        return pl_fault_set(fault, 400, "suffix", "suffix: not supported (want none)");
    return true;
}

/* ---- chat */

static bool read_tool_choice(pl_fields *f, pl_fault *fault)
{
    const json_t *choice = json_object_get(f->root, "tool_choice");
    const char *text = json_string_value(choice);

    if (!choice || json_is_null(choice) || (text && strcmp(text, "auto") == 0))
        return true;
    if (text && strcmp(text, "none") == 0) {
        f->without_tools = true;
        return true;
    }
    f->call_name = json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    f->calls_form = f->call_name || (text && strcmp(text, "required") == 0);
    return f->calls_form || pl_fault_set(fault, 400, "tool_choice",
                                         "tool_choice: unknown (want 'auto', 'none', 'required' or "
                                         "{\"type\": \"function\", \"function\": {\"name\": ..}})");
}

static bool read_response_format(pl_fields *f, pl_fault *fault)
{
    const json_t *format = json_object_get(f->root, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));

    if (!format || json_is_null(format) || (type && strcmp(type, "text") == 0))
        return true;
    if (type && strcmp(type, "json_schema") == 0)
        return pl_fault_set(fault, 400, "response_format",
                            "response_format: type json_schema cannot be enforced (want "
                            "'json_object' or 'text')");
    f->json_form = type && strcmp(type, "json_object") == 0;
    return f->json_form || pl_fault_set(fault, 400, "response_format",
                                        "response_format: unknown type (want 'text' or "
                                        "'json_object')");
}

/* Behind a complete answer only its end may come. */
static bool check_form(const pl_fields *f, pl_fault *fault)
{
    if (f->json_form && f->calls_form)
        return pl_fault_set(fault, 400, "response_format",
                            "response_format: json_object excludes an enforced call (want "
                            "tool_choice 'auto' or 'none')");
    if ((f->json_form || f->calls_form) && f->params.ignore_eos)
        return pl_fault_set(fault, 400, "ignore_eos",
                            "ignore_eos: an answer of an enforced form ends where it is complete "
                            "(want false)");
    return true;
}

static bool read_chat(pl_fields *f, pl_fault *fault)
{
    const json_t *messages = json_object_get(f->root, "messages");
    const json_t *kwargs = json_object_get(f->root, "chat_template_kwargs");
    bool parallel = true;

    if (!json_is_array(messages))
        return pl_fault_set(fault, 400, "messages", "messages: missing or not a list");
    if (json_array_size(messages) == 0)
        return pl_fault_set(fault, 400, "messages", "messages: empty (want at least one message)");
    if (kwargs && !json_is_null(kwargs) && !json_is_object(kwargs))
        return pl_fault_set(fault, 400, "chat_template_kwargs",
                            "chat_template_kwargs: not an object");
    if (!pl_field_bool(f->root, "parallel_tool_calls", &parallel, fault))
        return false;
    f->one_call = !parallel;
    return pl_field_bool(kwargs, "thinking", &f->thinking, fault) &&
           pl_field_string(f->root, "reasoning_effort", &f->effort, fault) &&
           pl_field_string(kwargs, "reasoning_effort", &f->effort, fault) &&
           pl_field_bool(f->root, "continue_final_message", &f->continue_last, fault) &&
           read_tool_choice(f, fault) && read_response_format(f, fault) && check_form(f, fault);
}

static bool read_completion(pl_fields *f, pl_fault *fault)
{
    int64_t best_of = f->n;

    f->prompt = json_object_get(f->root, "prompt");
    if (!json_is_string(f->prompt) && json_array_size(f->prompt) == 0)
        return pl_fault_set(fault, 400, "prompt",
                            "prompt: missing or empty (want a text, token ids, or a list of them)");
    if (!pl_field_int(f->root, "best_of", 1, PL_SERVE_MAX_N, &best_of, fault) ||
        !pl_field_bool(f->root, "echo", &f->echo, fault))
        return false;
    if (best_of != f->n)
        return pl_fault_set(fault, 400, "best_of", "best_of: not supported (want n, %d)", f->n);
    if (pl_fields_echo_logprobs(f) && f->n_prompt_top < f->n_top)
        f->n_prompt_top = f->n_top;
    if (!f->params.max_tokens)
        f->params.max_tokens = f->params.min_tokens > 16 ? f->params.min_tokens : 16;
    return true;
}

static bool read_all(pl_fields *f, pl_fault *fault)
{
    if (!json_is_object(f->root))
        return pl_fault_set(fault, 400, "", "request: not a JSON object");
    if (!pl_field_string(f->root, "model", &f->model, fault))
        return false;
    if (!read_sampling(f, fault) || !read_lengths(f, fault) || !read_output(f, fault))
        return false;
    if (!(f->kind == PL_FIELDS_CHAT ? read_chat(f, fault) : read_completion(f, fault)))
        return false;
    note_unknown(f);
    return refuse_unsupported(f, fault);
}

bool pl_fields_parse(pl_fields_kind kind, const char *json, size_t n_bytes, pl_fields *f,
                     pl_fault *fault)
{
    json_error_t error;

    *f = (pl_fields){.kind = kind, .n = 1, .params = pl_request_params_default()};
    f->root = json_loadb(json, n_bytes, JSON_ALLOW_NUL, &error);
    if (!f->root)
        return pl_fault_set(fault, 400, "", "request: not JSON: %s (line %d, column %d)",
                            error.text, error.line, error.column);
    if (read_all(f, fault))
        return true;
    pl_fields_free(f);
    return false;
}

void pl_fields_free(pl_fields *f)
{
    json_decref(f->root);
    for (int i = 0; i < f->n_stop; i++)
        free(f->stop[i]);
    free((void *)f->params.logit_bias);
    free((void *)f->params.stop_ids);
    *f = (pl_fields){0};
}
