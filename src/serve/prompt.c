/* Token ids of a body: of a conversation, as the model's prompt is written, and of texts and lists of ids as they stand. Runs on
 * the preparing thread, one body at a time, so that the work of encoding is held once. Whether they fit is admission.c's. */
#include <stdlib.h>
#include <string.h>

#include "serve/job.h"

static bool out_of_memory(pl_fault *fault)
{
    return pl_fault_set(fault, 500, "", "out of memory");
}

bool pl_job_need_tokenizer(const pl_job *job, const char *param, pl_fault *fault)
{
    if (pl_engine_tokenizer(job->serve->engine))
        return true;
    return pl_fault_set(fault, 400, param,
                        "%s: the model has no tokenizer (want token ids, by /v1/completions)",
                        param);
}

/* Ids of a text of n bytes: at most n, for it is UTF-8; one more for a BOS. */
static bool allocate(pl_job_prompt *p, size_t n, pl_fault *fault)
{
    p->tokens = malloc((n + 1) * sizeof *p->tokens);
    return p->tokens || out_of_memory(fault);
}

static void shrink(pl_job_prompt *p, size_t n)
{
    int32_t *smaller = realloc(p->tokens, (n ? n : 1) * sizeof *p->tokens);

    p->tokens = smaller ? smaller : p->tokens;
    p->n = (int32_t)n;
}

/* ---- chat */

static bool encode_prompt(pl_job *job, pl_encoder *encoder, const pl_prompt *prompt,
                          pl_fault *fault)
{
    const pl_tokenizer *t = pl_engine_tokenizer(job->serve->engine);
    pl_text_range *ranges = malloc((pl_prompt_n_segments(prompt) + 1) * sizeof *ranges);
    pl_job_prompt *p = &job->prompts[0];
    size_t n_bytes, n = 0;
    const char *text = pl_prompt_text(prompt, &n_bytes);
    pl_error err;
    pl_status s;

    if (!ranges || !allocate(p, n_bytes, fault)) {
        free(ranges);
        return out_of_memory(fault);
    }
    s = pl_tokenizer_encode_ranges(t, encoder, text, n_bytes, ranges,
                                   pl_prompt_plain_ranges(prompt, ranges), p->tokens, n_bytes + 1,
                                   &n, &err);
    free(ranges);
    if (s != PL_OK)
        return pl_fault_from_error(fault, "messages", &err);
    shrink(p, n);
    return true;
}

static bool chat_options(const pl_job *job, pl_chat_options *o, pl_fault *fault)
{
    const pl_fields *f = &job->fields;
    pl_error err;

    *o = pl_chat_options_default();
    o->revision = pl_engine_model_of(job->serve->engine).is_refresh ? PL_CHAT_0731 : PL_CHAT_V4;
    o->mode = f->thinking ? PL_CHAT_MODE_THINKING : PL_CHAT_MODE_CHAT;
    o->continue_last = f->continue_last;
    o->max_prompt_bytes = 2 * job->serve->params.max_body_bytes;
    if (f->effort && pl_chat_options_set_effort(o, f->effort, &err) != PL_OK)
        return pl_fault_from_error(fault, "reasoning_effort", &err);
    return true;
}

/* The body as it came, unless it says something that must not reach the prompt. The caller frees *own. */
static bool conversation(pl_job *job, const char **json, size_t *n, char **own, pl_fault *fault)
{
    json_t *root = job->fields.root;

    *own = NULL;
    *json = job->body;
    *n = job->n_body;
    if (!job->fields.without_tools && !json_object_get(root, "response_format"))
        return true;
    if (job->fields.without_tools)
        (void)json_object_del(root, "tools");
    (void)json_object_del(root, "response_format");
    *own = json_dumps(root, JSON_COMPACT);
    if (!*own)
        return out_of_memory(fault);
    *json = *own;
    *n = strlen(*own);
    return true;
}

bool pl_job_encode_chat(pl_job *job, pl_encoder *encoder, pl_fault *fault)
{
    pl_chat_options options;
    pl_prompt *prompt = NULL;
    const char *json;
    char *own;
    size_t n;
    pl_error err;
    pl_status s;
    bool ok;

    if (!pl_job_need_tokenizer(job, "messages", fault) || !chat_options(job, &options, fault) ||
        !conversation(job, &json, &n, &own, fault))
        return false;
    json_decref(job->fields.root);
    job->fields.root = NULL;
    s = pl_chat_encode(json, n, &options, &prompt, &err);
    free(own);
    if (s != PL_OK)
        return pl_fault_from_error(fault, NULL, &err);
    job->output_mode = pl_prompt_output_mode(prompt);
    job->n_prompts = 1;
    job->prompts = calloc(1, sizeof *job->prompts);
    ok = job->prompts ? encode_prompt(job, encoder, prompt, fault) : out_of_memory(fault);
    pl_prompt_destroy(prompt);
    return ok;
}

/* ---- completions */

static bool encode_text(pl_job *job, pl_encoder *encoder, const json_t *text, pl_job_prompt *p,
                        pl_fault *fault)
{
    const size_t n_bytes = json_string_length(text);
    size_t n = 0;
    pl_error err;

    if (!pl_job_need_tokenizer(job, "prompt", fault) || !allocate(p, n_bytes, fault))
        return false;
    p->tokens[0] = pl_engine_model_of(job->serve->engine).bos_token_id;
    p->n_echo_from = 1;
    if (pl_tokenizer_encode(pl_engine_tokenizer(job->serve->engine), encoder,
                            json_string_value(text), n_bytes, PL_ENCODE_ADDED_TOKENS, p->tokens + 1,
                            n_bytes, &n, &err) != PL_OK)
        return pl_fault_from_error(fault, "prompt", &err);
    shrink(p, n + 1);
    return true;
}

static bool take_ids(const json_t *list, pl_job_prompt *p, pl_fault *fault)
{
    const size_t n = json_array_size(list);

    if (!allocate(p, n, fault))
        return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > INT32_MAX)
            return pl_fault_set(fault, 400, "prompt", "prompt: entry %zu is no token id", i);
        p->tokens[i] = (int32_t)value;
    }
    p->n = (int32_t)n;
    return true;
}

bool pl_job_encode_completion(pl_job *job, pl_encoder *encoder, pl_fault *fault)
{
    const json_t *prompt = job->fields.prompt;
    const bool one = json_is_string(prompt) || json_is_integer(json_array_get(prompt, 0));
    const size_t n = one ? 1 : json_array_size(prompt);

    if (n * (size_t)job->fields.n > PL_SERVE_MAX_CHOICES)
        return pl_fault_set(fault, 400, "prompt",
                            "prompt: too many completions (got %zu prompts, n %d, want at most %d)",
                            n, job->fields.n, PL_SERVE_MAX_CHOICES);
    job->prompts = calloc(n, sizeof *job->prompts);
    if (!job->prompts)
        return out_of_memory(fault);
    job->n_prompts = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *p = one ? prompt : json_array_get(prompt, i);
        if (!json_is_string(p) && !json_is_array(p))
            return pl_fault_set(fault, 400, "prompt",
                                "prompt: entry %zu is neither a text nor a list of token ids", i);
        if (!(json_is_string(p) ? encode_text(job, encoder, p, &job->prompts[i], fault)
                                : take_ids(p, &job->prompts[i], fault)))
            return false;
    }
    json_decref(job->fields.root);
    job->fields.root = NULL;
    return true;
}
