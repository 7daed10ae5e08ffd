/* Events of a stream: first the role (or the echo), then what is new, choice by choice, then the usage, then [DONE]. */
#include "serve/stream.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#include "serve/logprobs.h"

enum { TOKENS_AT_ONCE = 64 };

typedef struct stream_choice {
    pl_view view;
    pl_output_parser *parser; /* chat */
    json_t *delta;            /* of the event being made */
    bool begun, has_calls;
    int64_t offset; /* characters */
} stream_choice;

struct pl_stream {
    pl_job *job;
    stream_choice *choices;
    int next;
    char *out; /* an event being sent */
    size_t n_out, n_sent;
    bool usage_sent, done;
};

/* ---- deltas */

/* Adds to a string member. */
static void extend(json_t *object, const char *key, const char *text, size_t n)
{
    const json_t *old = json_object_get(object, key);
    const size_t n_old = json_string_length(old);
    char *both = malloc(n_old + n + 1);

    if (!both)
        return;
    if (n_old)
        memcpy(both, json_string_value(old), n_old);
    memcpy(both + n_old, text, n);
    json_object_set_new(object, key, json_stringn(both, n_old + n));
    free(both);
}

/* The entry of a call in this delta, made where there is none. */
static json_t *call_entry(json_t *delta, size_t call)
{
    json_t *calls = json_object_get(delta, "tool_calls"), *last;

    if (!calls) {
        json_object_set_new(delta, "tool_calls", json_array());
        calls = json_object_get(delta, "tool_calls");
    }
    last = json_array_get(calls, json_array_size(calls) - 1);
    if (last && json_integer_value(json_object_get(last, "index")) == (json_int_t)call)
        return last;
    json_array_append_new(calls, json_pack("{s:I,s:{}}", "index", (json_int_t)call, "function"));
    return json_array_get(calls, json_array_size(calls) - 1);
}

static void on_event(void *user, const pl_output_event *e)
{
    stream_choice *c = user;
    json_t *call;

    switch (e->kind) {
    case PL_OUTPUT_REASONING:
        extend(c->delta, "reasoning_content", e->text, e->n_bytes);
        break;
    case PL_OUTPUT_CONTENT:
        extend(c->delta, "content", e->text, e->n_bytes);
        break;
    case PL_OUTPUT_CALL_START:
        c->has_calls = true;
        call = call_entry(c->delta, e->call);
        json_object_set_new(call, "id", json_string(e->id));
        json_object_set_new(call, "type", json_string("function"));
        json_object_set_new(json_object_get(call, "function"), "name",
                            json_stringn(e->text, e->n_bytes));
        json_object_set_new(json_object_get(call, "function"), "arguments", json_string(""));
        break;
    case PL_OUTPUT_CALL_ARGUMENTS:
        call = call_entry(c->delta, e->call);
        extend(json_object_get(call, "function"), "arguments", e->text, e->n_bytes);
        break;
    case PL_OUTPUT_CALL_END:
    case PL_OUTPUT_NOTE:
    case PL_OUTPUT_END:
        break;
    }
}

static void put_chat(void *user, const char *text, size_t n)
{
    stream_choice *c = user;

    (void)!pl_output_parser_feed(c->parser, text, n);
}

static void put_completion(void *user, const char *text, size_t n)
{
    extend(((stream_choice *)user)->delta, "text", text, n);
}

/* ---- events */

static void send_json(pl_stream *s, json_t *value)
{
    char *text = pl_body_text(value);
    const size_t n = text ? strlen(text) : 0;

    free(s->out);
    s->n_out = s->n_sent = 0;
    s->out = text ? malloc(n + 8) : NULL;
    if (s->out) {
        memcpy(s->out, "data: ", 6);
        memcpy(s->out + 6, text, n);
        memcpy(s->out + 6 + n, "\n\n", 2);
        s->n_out = n + 8;
    } else {
        s->done = true; /* memory is out: the connection ends */
    }
    free(text);
}

static json_t *event_head(const pl_stream *s)
{
    json_t *root = pl_body_head(s->job, s->job->kind == PL_FIELDS_CHAT ? "chat.completion.chunk"
                                                                       : "text_completion");

    if (s->job->fields.include_usage)
        json_object_set_new(root, "usage", json_null());
    return root;
}

static void send_choice(pl_stream *s, stream_choice *c, int32_t begin, const pl_look *look)
{
    const pl_job_choice *of = c->view.choice;
    const pl_fields *f = &s->job->fields;
    const bool is_chat = s->job->kind == PL_FIELDS_CHAT, echo = !c->begun && f->echo;
    json_t *root = event_head(s), *choice = json_pack("{s:i}", "index", of->index);
    json_t *logprobs = json_null();

    if (is_chat)
        json_object_set(choice, "delta", c->delta);
    else
        json_object_set(choice, "text", json_object_get(c->delta, "text"));
    if (f->logprobs && (c->view.n_read > begin || echo))
        logprobs = is_chat
                       ? pl_choice_logprobs_chat(of, begin, c->view.n_read)
                       : pl_choice_logprobs_completion(of, echo, begin, c->view.n_read, &c->offset);
    json_object_set_new(choice, "logprobs", logprobs);
    json_object_set_new(
        choice, "finish_reason",
        pl_body_finish(c->view.ended ? look->finish : PL_FINISH_NONE, c->has_calls));
    if (f->return_token_ids)
        json_object_set_new(choice, "token_ids",
                            pl_choice_token_ids(of->tokens + begin, c->view.n_read - begin));
    if (f->return_digest && c->view.ended)
        json_object_set_new(choice, "digest", json_string(of->digest));
    json_object_set_new(root, "choices", json_pack("[o]", choice));
    if (!c->begun)
        json_object_set_new(root, "seed", json_integer((json_int_t)f->params.seed));
    send_json(s, root);
}

/* What is new of one choice; false where nothing is. */
static bool send_news(pl_stream *s, stream_choice *c)
{
    const pl_look look = pl_view_look(&c->view);
    const bool is_chat = s->job->kind == PL_FIELDS_CHAT;
    const int32_t begin = c->view.n_read;
    const int32_t end =
        look.n_tokens - begin > TOKENS_AT_ONCE ? begin + TOKENS_AT_ONCE : look.n_tokens;
    const bool over = look.finish != PL_FINISH_NONE && !c->view.ended;

    if (look.finish == PL_FINISH_CANCELLED || (end == begin && !over) || !look.prompt_told)
        return false;
    c->delta = is_chat ? json_object() : json_pack("{s:s}", "text", "");
    if (!c->begun && is_chat) {
        json_object_set_new(c->delta, "role", json_string("assistant"));
        json_object_set_new(c->delta, "content", json_string(""));
    } else if (!c->begun && s->job->fields.echo) {
        json_object_set_new(c->delta, "text", pl_body_echo(c->view.choice));
    }
    if (c->begun) {
        pl_view_read(&c->view, &look, end, is_chat ? put_chat : put_completion, c);
        if (c->view.ended && is_chat)
            (void)!pl_output_parser_finish(c->parser);
    }
    send_choice(s, c, begin, &look);
    json_decref(c->delta);
    c->delta = NULL;
    c->begun = true;
    return true;
}

static void send_usage(pl_stream *s)
{
    json_t *root = event_head(s);

    json_object_set_new(root, "choices", json_array());
    json_object_set_new(root, "usage", pl_body_usage(s->job));
    send_json(s, root);
}

static void send_end(pl_stream *s)
{
    static const char done[] = "data: [DONE]\n\n";

    if (s->job->fault.http && !s->usage_sent) {
        send_json(s, pl_body_error(&s->job->fault));
        s->usage_sent = true;
    } else if (s->job->fields.include_usage && !s->usage_sent) {
        send_usage(s);
        s->usage_sent = true;
    } else {
        free(s->out);
        s->out = malloc(sizeof done);
        s->n_out = s->out ? sizeof done - 1 : 0;
        s->n_sent = 0;
        if (s->out)
            memcpy(s->out, done, sizeof done);
        s->done = true;
    }
}

/* Choices take turns. */
static bool send_some(pl_stream *s)
{
    bool ended;

    pthread_mutex_lock(&s->job->serve->lock);
    ended = s->job->state == PL_JOB_ENDED;
    pthread_mutex_unlock(&s->job->serve->lock);
    for (int i = 0; i < s->job->n_choices; i++) {
        stream_choice *c = &s->choices[s->next];
        s->next = (s->next + 1) % s->job->n_choices;
        if (send_news(s, c))
            return true;
    }
    if (ended)
        send_end(s);
    return ended;
}

/* ---- libmicrohttpd */

static bool has_news_locked(const pl_stream *s)
{
    for (int i = 0; i < s->job->n_choices; i++) {
        const stream_choice *c = &s->choices[i];
        const pl_job_choice *of = c->view.choice;
        if (of->finish == PL_FINISH_CANCELLED ||
            !pl_job_prompt_told_locked(&s->job->prompts[of->prompt]))
            continue;
        if (of->n_tokens > c->view.n_read || (of->finish && !c->view.ended))
            return true;
    }
    return s->job->state == PL_JOB_ENDED;
}

/* Whoever brings news wakes the connection. */
static void wait_for_news(pl_stream *s)
{
    pl_job *job = s->job;

    pthread_mutex_lock(&job->serve->lock);
    if (job->connection && !has_news_locked(s)) {
        job->suspended = true;
        MHD_suspend_connection(job->connection);
    }
    pthread_mutex_unlock(&job->serve->lock);
}

ssize_t pl_stream_read(void *stream, uint64_t pos, char *buf, size_t max)
{
    pl_stream *s = stream;
    size_t n;

    if (s->n_sent == s->n_out && s->done)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (s->n_sent == s->n_out && !send_some(s)) {
        wait_for_news(s);
        return 0;
    }
    n = s->n_out - s->n_sent < max ? s->n_out - s->n_sent : max;
    if (n == 0)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    memcpy(buf, s->out + s->n_sent, n);
    s->n_sent += n;
    return (ssize_t)n;
}

pl_stream *pl_stream_create(pl_job *job)
{
    pl_stream *s = calloc(1, sizeof *s);
    bool ok;

    if (!s)
        return NULL;
    pthread_mutex_lock(&job->serve->lock);
    pl_job_ref_locked(job);
    pthread_mutex_unlock(&job->serve->lock);
    s->job = job;
    s->choices = calloc((size_t)job->n_choices, sizeof *s->choices);
    ok = s->choices != NULL;
    for (int i = 0; i < job->n_choices && ok; i++) {
        stream_choice *c = &s->choices[i];
        ok = pl_view_init(&c->view, &job->choices[i]);
        if (ok && job->kind == PL_FIELDS_CHAT)
            ok = (c->parser = pl_body_parser(&job->choices[i], on_event, c)) != NULL;
    }
    if (ok)
        return s;
    pl_stream_destroy(s);
    return NULL;
}

void pl_stream_destroy(void *stream)
{
    pl_stream *s = stream;

    for (int i = 0; i < s->job->n_choices && s->choices; i++) {
        pl_view_free(&s->choices[i].view);
        pl_output_parser_destroy(s->choices[i].parser);
    }
    free(s->choices);
    free(s->out);
    pl_job_unref(s->job);
    free(s);
}
