/* /tokenize and /detokenize, on the preparing thread. */
#include <stdlib.h>
#include <string.h>

#include "serve/body.h"

static bool reply(pl_job *job, json_t *value, pl_fault *fault)
{
    job->reply = pl_body_text(value);
    return job->reply || pl_fault_set(fault, 500, "", "out of memory");
}

static bool reply_tokens(pl_job *job, const int32_t *tokens, size_t n, pl_fault *fault)
{
    const int len = pl_plan_totals_of(pl_engine_plan(job->serve->engine)).max_model_len;

    return reply(job,
                 json_pack("{s:o,s:I,s:i}", "tokens", pl_choice_token_ids(tokens, (int32_t)n),
                           "count", (json_int_t)n, "max_model_len", len),
                 fault);
}

static bool tokenize_text(pl_job *job, pl_encoder *encoder, const json_t *text, bool bos,
                          pl_fault *fault)
{
    const size_t n_bytes = json_string_length(text);
    int32_t *tokens = malloc((n_bytes + 1) * sizeof *tokens);
    size_t n = 0;
    pl_error err;
    bool ok;

    if (!tokens)
        return pl_fault_set(fault, 500, "", "out of memory");
    tokens[0] = pl_engine_model_of(job->serve->engine).bos_token_id;
    ok = pl_tokenizer_encode(pl_engine_tokenizer(job->serve->engine), encoder,
                             json_string_value(text), n_bytes, PL_ENCODE_ADDED_TOKENS, tokens + bos,
                             n_bytes, &n, &err) == PL_OK
             ? reply_tokens(job, tokens, n + bos, fault)
             : pl_fault_from_error(fault, "prompt", &err);
    free(tokens);
    return ok;
}

static bool tokenize(pl_job *job, pl_encoder *encoder, json_t *root, pl_fault *fault)
{
    const json_t *prompt = json_object_get(root, "prompt");
    const json_t *kwargs = json_object_get(root, "chat_template_kwargs");
    bool bos = true;

    if (!pl_field_bool(root, "add_special_tokens", &bos, fault))
        return false;
    if (json_is_string(prompt))
        return tokenize_text(job, encoder, prompt, bos, fault);
    if (!json_is_array(json_object_get(root, "messages")))
        return pl_fault_set(fault, 400, "prompt",
                            "prompt: missing or not a string (want it, or messages)");
    if (!pl_field_bool(kwargs, "thinking", &job->fields.thinking, fault))
        return false;
    job->fields.root = json_incref(root);
    return pl_job_encode_chat(job, encoder, fault) &&
           reply_tokens(job, job->prompts[0].tokens, (size_t)job->prompts[0].n, fault);
}

static bool detokenize(pl_job *job, const json_t *root, pl_fault *fault)
{
    const json_t *list = json_object_get(root, "tokens");
    const pl_tokenizer *t = pl_engine_tokenizer(job->serve->engine);
    const size_t n = json_array_size(list);
    int32_t *tokens;
    bool ok = true;

    if (!json_is_array(list))
        return pl_fault_set(fault, 400, "tokens", "tokens: missing or not a list of ids");
    tokens = malloc((n + 1) * sizeof *tokens);
    if (!tokens)
        return pl_fault_set(fault, 500, "", "out of memory");
    for (size_t i = 0; i < n && ok; i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t value = json_integer_value(id);
        tokens[i] = (int32_t)value;
        if (!json_is_integer(id) || value < 0 || value >= pl_tokenizer_vocab_size(t))
            ok = pl_fault_set(fault, 400, "tokens", "tokens: entry %zu is no token id", i);
    }
    ok = ok &&
         reply(job, json_pack("{s:o}", "prompt", pl_choice_text(t, tokens, (int32_t)n, 0)), fault);
    free(tokens);
    return ok;
}

bool pl_job_text(pl_job *job, pl_encoder *encoder, pl_fault *fault)
{
    json_error_t error;
    json_t *root = json_loadb(job->body, job->n_body, JSON_ALLOW_NUL, &error);
    const char *model = NULL;
    bool ok;

    if (!json_is_object(root)) {
        json_decref(root);
        return pl_fault_set(fault, 400, "", "request: not a JSON object");
    }
    ok = pl_field_string(root, "model", &model, fault) &&
         pl_serve_check_model(job->serve, model, fault);
    if (ok && !pl_engine_tokenizer(job->serve->engine))
        ok = pl_fault_set(fault, 400, "model", "model: has no tokenizer");
    if (ok)
        ok = job->kind == PL_FIELDS_TOKENIZE ? tokenize(job, encoder, root, fault)
                                             : detokenize(job, root, fault);
    json_decref(root);
    return ok;
}
