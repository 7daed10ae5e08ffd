/* Reading single fields. What a field may be is said here and nowhere else; that fields fit together, in fields.c. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "serve/fields.h"

bool pl_fault_set(pl_fault *fault, int http, const char *param, const char *format, ...)
{
    va_list args;

    fault->http = http;
    fault->type = http == 429   ? "rate_limit_error"
                  : http >= 500 ? "server_error"
                  : http == 401 ? "authentication_error"
                                : "invalid_request_error";
    fault->code = http == 404 && strcmp(param, "model") == 0 ? "model_not_found" : NULL;
    (void)snprintf(fault->param, sizeof fault->param, "%s", param);
    va_start(args, format);
    (void)vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    pl_utf8_make_printable(fault->text);
    return false;
}

bool pl_fault_from_error(pl_fault *fault, const char *param, const pl_error *err)
{
    const bool ours = err->status == PL_ERR_NOMEM || err->status == PL_ERR_INTERNAL ||
                      err->status == PL_ERR_IO || err->status == PL_ERR_STATE;
    char field[sizeof fault->param];

    if (!param) {
        (void)snprintf(field, sizeof field, "%.*s", (int)strcspn(err->msg, ":"), err->msg);
        param = field;
    }
    (void)pl_fault_set(fault, ours ? 500 : 400, param, "%s", err->msg);
    return false;
}

static const json_t *given(const json_t *root, const char *name)
{
    const json_t *value = json_object_get(root, name);

    return json_is_null(value) ? NULL : value;
}

bool pl_field_bool(const json_t *root, const char *name, bool *out, pl_fault *fault)
{
    const json_t *v = given(root, name);

    if (v && !json_is_boolean(v))
        return pl_fault_set(fault, 400, name, "%s: not a boolean (want true or false)", name);
    if (v)
        *out = json_is_true(v);
    return true;
}

bool pl_field_int(const json_t *root, const char *name, int64_t min, int64_t max, int64_t *out,
                  pl_fault *fault)
{
    const json_t *v = given(root, name);
    int64_t value;

    if (!v)
        return true;
    if (!json_is_integer(v))
        return pl_fault_set(fault, 400, name, "%s: not a whole number", name);
    value = json_integer_value(v);
    if (value < min || value > max)
        return pl_fault_set(fault, 400, name, "%s: out of range (got %lld, want %lld to %lld)",
                            name, (long long)value, (long long)min, (long long)max);
    *out = value;
    return true;
}

bool pl_field_real(const json_t *root, const char *name, double min, double max, float *out,
                   pl_fault *fault)
{
    const json_t *v = given(root, name);
    double value;

    if (!v)
        return true;
    if (!json_is_number(v))
        return pl_fault_set(fault, 400, name, "%s: not a number", name);
    value = json_number_value(v);
    if (!(value >= min && value <= max))
        return pl_fault_set(fault, 400, name, "%s: out of range (got %g, want %g to %g)", name,
                            value, min, max);
    *out = (float)value;
    return true;
}

bool pl_field_string(const json_t *root, const char *name, const char **out, pl_fault *fault)
{
    const json_t *v = given(root, name);

    if (v && !json_is_string(v))
        return pl_fault_set(fault, 400, name, "%s: not a string", name);
    if (v)
        *out = json_string_value(v);
    return true;
}

/* ---- lists */

static bool add_stop(const json_t *v, pl_fields *f, pl_fault *fault)
{
    const size_t n = json_string_length(v);

    if (!json_is_string(v) || n == 0 || n > PL_SERVE_MAX_STOP_BYTES)
        return pl_fault_set(fault, 400, "stop", "stop: not a string of 1 to %d bytes",
                            PL_SERVE_MAX_STOP_BYTES);
    if (f->n_stop == PL_SERVE_MAX_STOPS)
        return pl_fault_set(fault, 400, "stop", "stop: too many (want at most %d)",
                            PL_SERVE_MAX_STOPS);
    f->stop[f->n_stop] = malloc(n);
    if (!f->stop[f->n_stop])
        return pl_fault_set(fault, 500, "", "out of memory");
    memcpy(f->stop[f->n_stop], json_string_value(v), n);
    f->stop_bytes[f->n_stop++] = n;
    return true;
}

bool pl_field_stops(const json_t *root, pl_fields *f, pl_fault *fault)
{
    const json_t *v = given(root, "stop");

    if (!v)
        return true;
    if (!json_is_array(v))
        return add_stop(v, f, fault);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!add_stop(json_array_get(v, i), f, fault))
            return false;
    return true;
}

bool pl_field_stop_ids(const json_t *root, pl_fields *f, pl_fault *fault)
{
    const json_t *v = given(root, "stop_token_ids");
    const size_t n = json_array_size(v);
    int32_t *ids;

    if (!v)
        return true;
    if (!json_is_array(v) || n > PL_SERVE_MAX_LIST)
        return pl_fault_set(fault, 400, "stop_token_ids",
                            "stop_token_ids: not a list of at most %d ids", PL_SERVE_MAX_LIST);
    ids = malloc((n + 1) * sizeof *ids);
    if (!ids)
        return pl_fault_set(fault, 500, "", "out of memory");
    f->params.stop_ids = ids;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(v, i);
        const json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > INT32_MAX)
            return pl_fault_set(fault, 400, "stop_token_ids",
                                "stop_token_ids: entry %zu is no token id", i);
        ids[i] = (int32_t)value;
    }
    f->params.n_stop_ids = (int32_t)n;
    return true;
}

static bool read_id(const char *text, int32_t *id)
{
    char *end;
    long value;

    errno = 0;
    value = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value > INT32_MAX)
        return false;
    *id = (int32_t)value;
    return true;
}

bool pl_field_logit_bias(const json_t *root, pl_fields *f, pl_fault *fault)
{
    json_t *v = json_object_get(root, "logit_bias");
    pl_logit_bias *bias;
    const char *key;
    json_t *value;
    size_t n = 0;

    if (!v || json_is_null(v))
        return true;
    if (!json_is_object(v) || json_object_size(v) > PL_SERVE_MAX_LIST)
        return pl_fault_set(fault, 400, "logit_bias",
                            "logit_bias: not an object of at most %d token ids", PL_SERVE_MAX_LIST);
    bias = malloc((json_object_size(v) + 1) * sizeof *bias);
    if (!bias)
        return pl_fault_set(fault, 500, "", "out of memory");
    f->params.logit_bias = bias;
    json_object_foreach(v, key, value)
    {
        const double b = json_number_value(value);
        if (!read_id(key, &bias[n].token))
            return pl_fault_set(fault, 400, "logit_bias", "logit_bias: no token id (got '%.40s')",
                                key);
        if (!json_is_number(value) || !(fabs(b) <= 100))
            return pl_fault_set(fault, 400, "logit_bias",
                                "logit_bias: not a number from -100 to 100 (token %d)",
                                bias[n].token);
        bias[n++].bias = (float)b;
    }
    f->params.n_logit_bias = (int32_t)n;
    return true;
}

/* Chat: a boolean and top_logprobs. Completions: a number. */
bool pl_field_logprobs(const json_t *root, pl_fields *f, pl_fault *fault)
{
    const json_t *v = given(root, "logprobs");
    int64_t n = 0;

    if (f->kind == PL_FIELDS_COMPLETION) {
        if (!pl_field_int(root, "logprobs", 0, PL_SERVE_MAX_TOP, &n, fault))
            return false;
        f->logprobs = v != NULL;
        f->n_top = (int)n;
        return true;
    }
    if (!pl_field_bool(root, "logprobs", &f->logprobs, fault) ||
        !pl_field_int(root, "top_logprobs", 0, PL_SERVE_MAX_TOP, &n, fault))
        return false;
    if (n > 0 && !f->logprobs)
        return pl_fault_set(fault, 400, "top_logprobs",
                            "top_logprobs: means nothing without logprobs (want logprobs true)");
    f->n_top = (int)n;
    return true;
}

/* vLLM's: how many likely tokens beside each of the prompt. */
bool pl_field_prompt_logprobs(const json_t *root, pl_fields *f, pl_fault *fault)
{
    int64_t n = 0;

    if (!pl_field_int(root, "prompt_logprobs", 0, PL_SERVE_MAX_TOP, &n, fault))
        return false;
    f->prompt_logprobs = given(root, "prompt_logprobs") != NULL;
    f->n_prompt_logprobs = f->n_prompt_top = (int)n;
    if (f->prompt_logprobs && f->stream)
        return pl_fault_set(fault, 400, "prompt_logprobs",
                            "prompt_logprobs: not in a stream (want stream false, or echo with "
                            "logprobs)");
    return true;
}
