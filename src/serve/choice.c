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
    look = (pl_look){c->n_tokens, c->n_text, c->safe_bytes, c->finish,
                     pl_job_prompt_told_locked(&c->job->prompts[c->prompt])};
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
