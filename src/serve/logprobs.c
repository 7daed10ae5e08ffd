/* Log-probabilities as JSON. Numbers are those of the engine, each the double of its float; shapes are OpenAI's, for prompts
 * vLLM's. */
#include "serve/logprobs.h"

#include <stdio.h>

#include "serve/choice.h"

static const pl_tokenizer *tokenizer_of(const pl_job_choice *c)
{
    return pl_engine_tokenizer(c->job->serve->engine);
}

/* JSON has no infinity: what cannot be chosen gets vLLM's number for it. */
static json_t *number(float logprob)
{
    return json_real(logprob >= -9999.0f ? (double)logprob : -9999.0);
}

static json_t *chat_entry(const pl_tokenizer *t, int32_t token, float logprob)
{
    json_t *entry = json_object(), *bytes = json_array();
    const char *raw;
    size_t n = 0;

    raw = t ? pl_tokenizer_token(t, token, &n) : NULL;
    for (size_t i = 0; raw && i < n; i++)
        json_array_append_new(bytes, json_integer((unsigned char)raw[i]));
    json_object_set_new(entry, "token", pl_choice_text(t, &token, 1, 0));
    json_object_set_new(entry, "logprob", number(logprob));
    json_object_set_new(entry, "bytes", bytes);
    return entry;
}

static const pl_token_logprob *top_at(const pl_job_choice *c, int32_t i)
{
    return c->top ? c->top + (size_t)i * (size_t)c->job->fields.n_top : NULL;
}

json_t *pl_choice_logprobs_chat(const pl_job_choice *c, int32_t begin, int32_t end)
{
    json_t *content = json_array();

    for (int32_t i = begin; i < end; i++) {
        json_t *entry = chat_entry(tokenizer_of(c), c->tokens[i], c->logprobs[i]);
        json_t *list = json_array();
        for (int k = 0; k < c->job->fields.n_top; k++)
            json_array_append_new(
                list, chat_entry(tokenizer_of(c), top_at(c, i)[k].token, top_at(c, i)[k].logprob));
        json_object_set_new(entry, "top_logprobs", list);
        json_array_append_new(content, entry);
    }
    return json_pack("{s:o}", "content", content);
}

static void set_by_text(json_t *object, const pl_tokenizer *t, int32_t token, float logprob)
{
    json_t *text = pl_choice_text(t, &token, 1, 0);

    if (text)
        json_object_setn_new(object, json_string_value(text), json_string_length(text),
                             number(logprob));
    json_decref(text);
}

/* Characters of UTF-8 text: what offsets of completions count. */
static int64_t n_characters(const json_t *text)
{
    const char *s = json_string_value(text);
    int64_t n = 0;

    for (size_t i = 0; i < json_string_length(text); i++)
        n += ((unsigned char)s[i] & 0xC0) != 0x80;
    return n;
}

/* The lists of completions, side by side. */
typedef struct lists {
    json_t *tokens, *numbers, *top, *offsets;
    int64_t *offset;
} lists;

static void add_to_lists(lists *l, const pl_tokenizer *t, int32_t token, json_t *logprob,
                         json_t *top)
{
    json_t *text = pl_choice_text(t, &token, 1, 0);

    json_array_append_new(l->offsets, json_integer(*l->offset));
    *l->offset += n_characters(text);
    json_array_append_new(l->tokens, text);
    json_array_append_new(l->numbers, logprob);
    json_array_append_new(l->top, top);
}

static json_t *best_by_text(const pl_tokenizer *t, int32_t token, float logprob,
                            const pl_token_logprob *top, int n_top)
{
    json_t *best = json_object();

    set_by_text(best, t, token, logprob);
    for (int k = 0; k < n_top; k++)
        set_by_text(best, t, top[k].token, top[k].logprob);
    return best;
}

static const pl_token_logprob *prompt_top(const pl_job *job, const pl_job_prompt *p, int32_t i)
{
    return p->top ? p->top + (size_t)i * (size_t)job->fields.n_prompt_top : NULL;
}

/* Nothing comes before the first token of all, so nothing is said of it. */
static void add_echo(lists *l, const pl_job_choice *c)
{
    const pl_job_prompt *p = &c->job->prompts[c->prompt];
    const pl_tokenizer *t = tokenizer_of(c);

    for (int32_t i = p->n_echo_from; i < p->n; i++)
        if (i == 0)
            add_to_lists(l, t, p->tokens[i], json_null(), json_null());
        else
            add_to_lists(l, t, p->tokens[i], number(p->told[i].logprob),
                         best_by_text(t, p->tokens[i], p->told[i].logprob, prompt_top(c->job, p, i),
                                      c->job->fields.n_top));
}

json_t *pl_choice_logprobs_completion(const pl_job_choice *c, bool echo, int32_t begin, int32_t end,
                                      int64_t *offset)
{
    lists l = {json_array(), json_array(), json_array(), json_array(), offset};
    const pl_tokenizer *t = tokenizer_of(c);

    if (echo)
        add_echo(&l, c);
    for (int32_t i = begin; i < end; i++)
        add_to_lists(
            &l, t, c->tokens[i], number(c->logprobs[i]),
            best_by_text(t, c->tokens[i], c->logprobs[i], top_at(c, i), c->job->fields.n_top));
    return json_pack("{s:o,s:o,s:o,s:o}", "tokens", l.tokens, "token_logprobs", l.numbers,
                     "top_logprobs", l.top, "text_offset", l.offsets);
}

/* ---- prompts */

static void set_by_id(json_t *object, const pl_tokenizer *t, int32_t token, float logprob,
                      int32_t rank)
{
    char key[16];

    (void)snprintf(key, sizeof key, "%d", token);
    json_object_set_new(object, key,
                        json_pack("{s:o,s:i,s:o}", "logprob", number(logprob), "rank", rank,
                                  "decoded_token", pl_choice_text(t, &token, 1, 0)));
}

json_t *pl_prompt_logprobs(const pl_job *job, int prompt)
{
    const pl_tokenizer *t = pl_engine_tokenizer(job->serve->engine);
    const pl_job_prompt *p = &job->prompts[prompt];
    json_t *list = json_array();

    json_array_append_new(list, json_null());
    for (int32_t i = 1; i < p->n; i++) {
        json_t *entry = json_object();

        set_by_id(entry, t, p->tokens[i], p->told[i].logprob, p->told[i].rank);
        for (int k = 0; k < job->fields.n_prompt_logprobs; k++)
            if (prompt_top(job, p, i)[k].token != p->tokens[i])
                set_by_id(entry, t, prompt_top(job, p, i)[k].token,
                          prompt_top(job, p, i)[k].logprob, k + 1);
        json_array_append_new(list, entry);
    }
    return list;
}
