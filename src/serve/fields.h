/* The fields of a request, read from JSON and checked as far as that goes without a model.
 *
 * Source: OpenAI's API; names beyond it are vLLM's. docs/SERVING.md lists them. */
#ifndef PL_SERVE_FIELDS_H
#define PL_SERVE_FIELDS_H

#include <jansson.h>

#include "plimsoll/engine.h"

enum {
    PL_SERVE_MAX_N = 128,          /* choices of one prompt */
    PL_SERVE_MAX_CHOICES = 1024,   /* of a request: prompts times n */
    PL_SERVE_MAX_STOPS = 16,       /* stop strings */
    PL_SERVE_MAX_STOP_BYTES = 256, /* of one */
    PL_SERVE_MAX_TOP = 20,
    PL_SERVE_MAX_LIST = 4096 /* stop_token_ids, logit_bias */
};

/* What is wrong with a request, in OpenAI's terms. `param` is the field, "" where it is none. */
typedef struct pl_fault {
    int http;
    const char *type, *code; /* static; code may be NULL */
    char param[64];
    char text[PL_ERROR_MSG_BYTES];
} pl_fault;

/* Fills *fault and returns false, so that a refusal is one statement. */
bool pl_fault_set(pl_fault *fault, int http, const char *param, const char *format, ...)
    PL_PRINTF(4, 5);
/* From an error of the library. param NULL: the field that its text begins with. */
bool pl_fault_from_error(pl_fault *fault, const char *param, const pl_error *err);

typedef enum pl_fields_kind {
    PL_FIELDS_CHAT,
    PL_FIELDS_COMPLETION,
    PL_FIELDS_TOKENIZE, /* http_text.c reads the fields of these two */
    PL_FIELDS_DETOKENIZE
} pl_fields_kind;

typedef struct pl_fields {
    pl_fields_kind kind;
    json_t *
        root; /* owned; texts below but those of `stop` lie in it. May be dropped before the rest */
    const char *model;
    /* Without tokens; logit_bias and stop_ids are owned. max_tokens is 0 where it was not given. */
    pl_request_params params;
    int n, priority;
    bool has_seed;
    bool stream, include_usage;
    bool logprobs;
    int n_top;
    bool echo, echo_only; /* echo_only: max_tokens 0: one token is chosen that nobody sees */
    bool prompt_logprobs; /* a list of them was asked for, with n_prompt_logprobs others each */
    int n_prompt_logprobs;
    int n_prompt_top; /* as many as the list or the echo needs */
    bool return_token_ids, return_digest;
    char *stop[PL_SERVE_MAX_STOPS]; /* owned */
    size_t stop_bytes[PL_SERVE_MAX_STOPS];
    int n_stop;
    json_t *prompt; /* completion */
    bool thinking, without_tools, continue_last;
    const char *effort; /* NULL: not said */
    /* The form that is enforced. */
    bool json_form, calls_form, one_call;
    const char *call_name; /* NULL: any */
    char unknown[128];     /* names that are ignored, with commas; "" */
} pl_fields;

/* Reads `json`. On failure *fields is empty. */
bool pl_fields_parse(pl_fields_kind kind, const char *json, size_t n_bytes, pl_fields *fields,
                     pl_fault *fault);
void pl_fields_free(pl_fields *fields);

/* Log-probabilities of the prompt go into the echo, or into a list of their own, or both. */
static inline bool pl_fields_echo_logprobs(const pl_fields *f)
{
    return f->echo && f->logprobs;
}

static inline bool pl_fields_tell_prompt(const pl_fields *f)
{
    return f->prompt_logprobs || pl_fields_echo_logprobs(f);
}

/* ---- fields_read.c: one field each. Absent and null leave *out as it is. */

bool pl_field_bool(const json_t *root, const char *name, bool *out, pl_fault *fault);
bool pl_field_int(const json_t *root, const char *name, int64_t min, int64_t max, int64_t *out,
                  pl_fault *fault);
bool pl_field_real(const json_t *root, const char *name, double min, double max, float *out,
                   pl_fault *fault);
bool pl_field_string(const json_t *root, const char *name, const char **out, pl_fault *fault);
bool pl_field_stops(const json_t *root, pl_fields *fields, pl_fault *fault);
bool pl_field_stop_ids(const json_t *root, pl_fields *fields, pl_fault *fault);
bool pl_field_logit_bias(const json_t *root, pl_fields *fields, pl_fault *fault);
bool pl_field_logprobs(const json_t *root, pl_fields *fields, pl_fault *fault);
bool pl_field_prompt_logprobs(const json_t *root, pl_fields *fields, pl_fault *fault);

#endif
