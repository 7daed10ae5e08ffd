/* Tokens to text and to JSON. */
#include "serve/choice.h"

#include <stdlib.h>
#include <string.h>

bool pl_view_init(pl_view *v, const pl_job_choice *choice)
{
    const pl_tokenizer *t = pl_engine_tokenizer(choice->job->serve->engine);

    *v = (pl_view){.choice = choice, .tokenizer = t};
    if (!t)
        return true;
    v->max_pending = PL_SERVE_MAX_STOP_BYTES + 2 * pl_text_stream_max_bytes(t) + 3;
    v->pending = malloc(v->max_pending);
    return v->pending != NULL;
}

void pl_view_free(pl_view *v)
{
    free(v->pending);
    *v = (pl_view){0};
}

pl_look pl_view_look(const pl_view *v)
{
    const pl_job_choice *c = v->choice;
    pl_look look;

    pthread_mutex_lock(&c->job->serve->lock);
    look = (pl_look){c->n_tokens, c->n_text, c->safe_bytes, c->finish};
    pthread_mutex_unlock(&c->job->serve->lock);
    return look;
}

/* Hands out what is safe of the pending bytes. */
static void give(pl_view *v, const pl_look *look, pl_view_put *put, void *user)
{
    const uint64_t safe = look->safe_bytes > v->n_given ? look->safe_bytes - v->n_given : 0;
    const size_t n = safe < v->n_pending ? (size_t)safe : v->n_pending;

    if (n == 0)
        return;
    put(user, v->pending, n);
    memmove(v->pending, v->pending + n, v->n_pending - n);
    v->n_pending -= n;
    v->n_given += n;
}

static void read_token(pl_view *v, int32_t token)
{
    const unsigned flags = v->choice->job->kind == PL_FIELDS_CHAT ? 0 : PL_DECODE_SKIP_SPECIAL;
    size_t n = 0;

    if (token < pl_tokenizer_vocab_size(v->tokenizer) &&
        pl_text_stream_push(v->tokenizer, &v->stream, token, flags, v->pending + v->n_pending,
                            v->max_pending - v->n_pending, &n, NULL) == PL_OK &&
        n <= v->max_pending - v->n_pending)
        v->n_pending += n;
}

void pl_view_read(pl_view *v, const pl_look *look, int32_t end, pl_view_put *put, void *user)
{
    for (; v->n_read < end; v->n_read++)
        if (v->tokenizer && v->n_read < look->n_text) {
            read_token(v, v->choice->tokens[v->n_read]);
            give(v, look, put, user);
        }
    if (v->n_read < look->n_tokens || look->finish == PL_FINISH_NONE)
        return;
    if (v->tokenizer) {
        v->n_pending += pl_text_stream_flush(&v->stream, v->pending + v->n_pending);
        give(v, look, put, user);
    }
    v->ended = true;
}

/* ---- JSON */

json_t *pl_choice_token_ids(const int32_t *tokens, int32_t n)
{
    json_t *list = json_array();

    for (int32_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(tokens[i]));
    return list;
}

json_t *pl_choice_text(const pl_tokenizer *t, const int32_t *tokens, int32_t n, unsigned flags)
{
    size_t n_bytes = 0, again;
    json_t *string = NULL;
    char *text;

    if (!t || pl_tokenizer_decode(t, tokens, (size_t)n, flags, NULL, 0, &n_bytes, NULL) != PL_OK)
        return json_string("");
    text = malloc(n_bytes + 1);
    if (text &&
        pl_tokenizer_decode(t, tokens, (size_t)n, flags, text, n_bytes, &again, NULL) == PL_OK)
        string = json_stringn(text, n_bytes);
    free(text);
    return string;
}

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
    return c->top + (size_t)i * (size_t)c->job->fields.n_top;
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

json_t *pl_choice_logprobs_completion(const pl_job_choice *c, int32_t begin, int32_t end,
                                      int64_t *offset)
{
    json_t *tokens = json_array(), *numbers = json_array(), *top = json_array();
    json_t *offsets = json_array();

    for (int32_t i = begin; i < end; i++) {
        json_t *text = pl_choice_text(tokenizer_of(c), &c->tokens[i], 1, 0), *best = json_object();

        set_by_text(best, tokenizer_of(c), c->tokens[i], c->logprobs[i]);
        for (int k = 0; k < c->job->fields.n_top; k++)
            set_by_text(best, tokenizer_of(c), top_at(c, i)[k].token, top_at(c, i)[k].logprob);
        json_array_append_new(offsets, json_integer(*offset));
        *offset += n_characters(text);
        json_array_append_new(tokens, text);
        json_array_append_new(numbers, number(c->logprobs[i]));
        json_array_append_new(top, best);
    }
    return json_pack("{s:o,s:o,s:o,s:o}", "tokens", tokens, "token_logprobs", numbers,
                     "top_logprobs", top, "text_offset", offsets);
}
