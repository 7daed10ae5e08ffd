/* Whole answers, and the parts that streams share with them. */
#include "serve/body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/logprobs.h"

char *pl_body_text(json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

    json_decref(value);
    return text;
}

json_t *pl_body_head(const pl_job *job, const char *object)
{
    return json_pack("{s:s,s:s,s:I,s:s,s:s}", "id", job->id, "object", object, "created",
                     (json_int_t)job->created, "model", job->serve->params.model_name,
                     "system_fingerprint", job->serve->fingerprint);
}

json_t *pl_body_usage(const pl_job *job)
{
    json_int_t prompt = 0, completion = 0, cached = 0;

    for (int i = 0; i < job->n_prompts; i++)
        prompt += job->prompts[i].n;
    for (int i = 0; i < job->n_choices; i++)
        completion += job->choices[i].n_tokens;
    /* A prompt counts once, whatever the number of its choices: so do those of its tokens that its first found. */
    for (int i = 0; i < job->n_choices; i += job->fields.n)
        cached += job->choices[i].n_cached;
    return json_pack("{s:I,s:I,s:I,s:{s:I}}", "prompt_tokens", prompt, "completion_tokens",
                     completion, "total_tokens", prompt + completion, "prompt_tokens_details",
                     "cached_tokens", cached);
}

json_t *pl_body_error(const pl_fault *fault)
{
    json_t *param = fault->param[0] ? json_string(fault->param) : json_null();
    json_t *code = fault->code ? json_string(fault->code) : json_null();

    return json_pack("{s:{s:s,s:s,s:o,s:o}}", "error", "message", fault->text, "type", fault->type,
                     "param", param, "code", code);
}

json_t *pl_body_finish(pl_finish finish, bool has_calls)
{
    if (finish == PL_FINISH_NONE)
        return json_null();
    if (finish == PL_FINISH_STOP && has_calls)
        return json_string("tool_calls");
    return json_string(pl_finish_name(finish));
}

pl_output_parser *pl_body_parser(const pl_job_choice *c, pl_output_sink *sink, void *user)
{
    pl_output_options options = pl_output_options_default();
    pl_output_parser *parser = NULL;
    char prefix[64];

    (void)snprintf(prefix, sizeof prefix, "call_%llx%06llx_%d_", (long long)c->job->created,
                   (unsigned long long)c->job->number, c->index);
    options.mode = c->job->output_mode;
    options.id_prefix = prefix;
    return pl_output_parser_create(&options, sink, user, &parser, NULL) == PL_OK ? parser : NULL;
}

json_t *pl_body_echo(const pl_job_choice *c)
{
    const pl_job_prompt *p = &c->job->prompts[c->prompt];

    return pl_choice_text(pl_engine_tokenizer(c->job->serve->engine), p->tokens + p->n_echo_from,
                          p->n - p->n_echo_from, 0);
}

/* ---- texts */

typedef struct text {
    char *bytes;
    size_t n, max;
    bool failed;
} text;

static void add(void *user, const char *bytes, size_t n)
{
    text *t = user;

    if (t->max - t->n < n) {
        const size_t max = 2 * (t->n + n);
        char *more = t->failed ? NULL : realloc(t->bytes, max);
        if (!more) {
            t->failed = true;
            return;
        }
        t->bytes = more;
        t->max = max;
    }
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
}

/* The whole text of a choice that has finished. */
static bool read_whole(const pl_job_choice *c, text *t)
{
    pl_view v;
    pl_look look;

    *t = (text){0};
    if (!pl_view_init(&v, c))
        return false;
    look = pl_view_look(&v);
    pl_view_read(&v, &look, look.n_tokens, add, t);
    pl_view_free(&v);
    return !t->failed;
}

/* ---- choices */

static json_t *calls_of(const pl_output_message *m)
{
    json_t *calls = json_array();

    for (size_t i = 0; i < pl_output_message_n_calls(m); i++) {
        const pl_output_call c = pl_output_message_get_call(m, i);
        json_array_append_new(calls, json_pack("{s:s,s:s,s:{s:s%,s:s%}}", "id", c.id, "type",
                                               "function", "function", "name", c.name, c.name_bytes,
                                               "arguments", c.arguments, c.arguments_bytes));
    }
    return calls;
}

static json_t *message_of(const pl_output_message *m)
{
    size_t n_content, n_reasoning, n_calls = pl_output_message_n_calls(m);
    const char *content = pl_output_message_content(m, &n_content);
    const char *reasoning = pl_output_message_reasoning(m, &n_reasoning);
    json_t *message = json_pack("{s:s}", "role", "assistant");

    json_object_set_new(message, "content",
                        n_content || !n_calls ? json_stringn(content, n_content) : json_null());
    if (n_reasoning)
        json_object_set_new(message, "reasoning_content", json_stringn(reasoning, n_reasoning));
    if (n_calls)
        json_object_set_new(message, "tool_calls", calls_of(m));
    return message;
}

static json_t *chat_message(const pl_job_choice *c, const text *t, bool *has_calls)
{
    pl_output_message *m = NULL;
    pl_output_parser *p;
    json_t *message = NULL;

    *has_calls = false;
    if (pl_output_message_create(&m, NULL) != PL_OK)
        return NULL;
    p = pl_body_parser(c, pl_output_message_add, m);
    if (p && pl_output_parser_feed(p, t->bytes ? t->bytes : "", t->n) == PL_OK &&
        pl_output_parser_finish(p) == PL_OK && pl_output_message_check(m, NULL) == PL_OK) {
        message = message_of(m);
        *has_calls = pl_output_message_n_calls(m) > 0;
    }
    pl_output_parser_destroy(p);
    pl_output_message_destroy(m);
    return message;
}

static json_t *completion_text(const pl_job_choice *c, const text *t)
{
    json_t *echo = c->job->fields.echo ? pl_body_echo(c) : json_string(""), *whole;
    const size_t n = json_string_length(echo);
    char *both = malloc(n + t->n + 1);

    if (!both || !echo) {
        free(both);
        json_decref(echo);
        return NULL;
    }
    memcpy(both, json_string_value(echo), n);
    if (t->n)
        memcpy(both + n, t->bytes, t->n);
    whole = json_stringn(both, n + t->n);
    free(both);
    json_decref(echo);
    return whole;
}

static void add_extras(json_t *choice, const pl_job_choice *c)
{
    const pl_fields *f = &c->job->fields;
    const pl_job_prompt *p = &c->job->prompts[c->prompt];

    if (f->return_token_ids) {
        json_object_set_new(choice, "token_ids", pl_choice_token_ids(c->tokens, c->n_tokens));
        json_object_set_new(choice, "prompt_token_ids", pl_choice_token_ids(p->tokens, p->n));
    }
    if (f->return_digest)
        json_object_set_new(choice, "digest", json_string(c->digest));
}

static json_t *choice_of(const pl_job_choice *c, const text *t)
{
    const pl_fields *f = &c->job->fields;
    const bool is_chat = c->job->kind == PL_FIELDS_CHAT;
    json_t *choice = json_pack("{s:i}", "index", c->index), *logprobs = json_null(), *content;
    bool has_calls = false;
    int64_t offset = 0;

    content = is_chat ? chat_message(c, t, &has_calls) : completion_text(c, t);
    json_object_set_new(choice, is_chat ? "message" : "text", content);
    if (f->logprobs)
        logprobs = is_chat ? pl_choice_logprobs_chat(c, 0, c->n_tokens)
                           : pl_choice_logprobs_completion(c, f->echo, 0, c->n_tokens, &offset);
    json_object_set_new(choice, "logprobs", logprobs);
    json_object_set_new(choice, "finish_reason", pl_body_finish(c->finish, has_calls));
    if (f->prompt_logprobs && !is_chat)
        json_object_set_new(choice, "prompt_logprobs", pl_prompt_logprobs(c->job, c->prompt));
    add_extras(choice, c);
    if (content)
        return choice;
    json_decref(choice);
    return NULL;
}

char *pl_body_answer(pl_job *job)
{
    json_t *root =
        pl_body_head(job, job->kind == PL_FIELDS_CHAT ? "chat.completion" : "text_completion");
    json_t *choices = json_array();
    bool ok = root && choices;

    for (int i = 0; i < job->n_choices && ok; i++) {
        text t;
        ok = read_whole(&job->choices[i], &t) &&
             json_array_append_new(choices, choice_of(&job->choices[i], &t)) == 0;
        free(t.bytes);
    }
    json_object_set_new(root, "choices", choices);
    if (ok && job->kind == PL_FIELDS_CHAT && job->fields.prompt_logprobs)
        json_object_set_new(root, "prompt_logprobs", pl_prompt_logprobs(job, 0));
    json_object_set_new(root, "usage", pl_body_usage(job));
    json_object_set_new(root, "seed", json_integer((json_int_t)job->fields.params.seed));
    if (ok)
        return pl_body_text(root);
    json_decref(root);
    return NULL;
}
