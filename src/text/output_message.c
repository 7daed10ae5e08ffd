/* A message put together from events, for answers that are not streamed, and its JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/json_write.h"
#include "text/output_parser.h"

typedef struct call {
    char id[PL_OUTPUT_MAX_PREFIX + 24];
    pl_json_buffer name, arguments;
    bool complete;
} call;

typedef struct note {
    pl_output_note note;
    uint64_t position;
    size_t text, n; /* in note_text */
} note;

struct pl_output_message {
    pl_json_buffer content, reasoning, note_text;
    pl_json_buffer calls; /* of call */
    pl_json_buffer notes; /* of note */
};

pl_status pl_output_message_create(pl_output_message **out, pl_error *err)
{
    pl_output_message *m = calloc(1, sizeof *m);

    *out = m;
    if (!m)
        return pl_error_set(err, PL_ERR_NOMEM, "message: out of memory");
    m->content.max_bytes = m->reasoning.max_bytes = m->note_text.max_bytes = SIZE_MAX;
    m->calls.max_bytes = m->notes.max_bytes = SIZE_MAX;
    return PL_OK;
}

static size_t n_calls(const pl_output_message *m)
{
    return m->calls.n / sizeof(call);
}

static call *get_call(const pl_output_message *m, size_t i)
{
    return (call *)(void *)m->calls.bytes + i;
}

static size_t n_notes(const pl_output_message *m)
{
    return m->notes.n / sizeof(note);
}

static const note *get_note(const pl_output_message *m, size_t i)
{
    return (const note *)(const void *)m->notes.bytes + i;
}

/* What a note is about; not NULL. */
static const char *text_of_note(const pl_output_message *m, const note *n)
{
    return n->n ? m->note_text.bytes + n->text : "";
}

static void free_call(call *c)
{
    pl_json_buffer_fini(&c->name);
    pl_json_buffer_fini(&c->arguments);
}

void pl_output_message_destroy(pl_output_message *message)
{
    if (!message)
        return;
    for (size_t i = 0; i < n_calls(message); i++)
        free_call(get_call(message, i));
    pl_json_buffer_fini(&message->content);
    pl_json_buffer_fini(&message->reasoning);
    pl_json_buffer_fini(&message->note_text);
    pl_json_buffer_fini(&message->calls);
    pl_json_buffer_fini(&message->notes);
    free(message);
}

/* ---- from events ---- */

static void start_call(pl_output_message *m, const pl_output_event *event)
{
    call c = {.name.max_bytes = SIZE_MAX, .arguments.max_bytes = SIZE_MAX};

    snprintf(c.id, sizeof c.id, "%s", event->id ? event->id : "");
    pl_json_buffer_put(&c.name, event->text, event->n_bytes);
    pl_json_buffer_put(&m->calls, &c, sizeof c);
    if (m->calls.failed)
        free_call(&c);
}

/* The call that has not ended; it is always the last. */
static call *open_call(const pl_output_message *m)
{
    call *c = n_calls(m) ? get_call(m, n_calls(m) - 1) : NULL;

    return c && !c->complete ? c : NULL;
}

static void add_note(pl_output_message *m, const pl_output_event *event)
{
    note n = {event->note, event->position, m->note_text.n, event->n_bytes};
    call *c = open_call(m);

    pl_json_buffer_put(&m->note_text, event->text, event->n_bytes);
    pl_json_buffer_put(&m->notes, &n, sizeof n);
    if (c && (event->note == PL_NOTE_MALFORMED || event->note == PL_NOTE_DUPLICATE)) {
        free_call(c);
        m->calls.n -= sizeof *c;
    }
}

void pl_output_message_add(void *message, const pl_output_event *event)
{
    pl_output_message *m = message;
    call *c = open_call(m);

    switch (event->kind) {
    case PL_OUTPUT_REASONING:
        pl_json_buffer_put(&m->reasoning, event->text, event->n_bytes);
        break;
    case PL_OUTPUT_CONTENT:
        pl_json_buffer_put(&m->content, event->text, event->n_bytes);
        break;
    case PL_OUTPUT_CALL_START:
        start_call(m, event);
        break;
    case PL_OUTPUT_CALL_ARGUMENTS:
        if (c)
            pl_json_buffer_put(&c->arguments, event->text, event->n_bytes);
        break;
    case PL_OUTPUT_CALL_END:
        if (c)
            c->complete = true;
        break;
    case PL_OUTPUT_NOTE:
        add_note(m, event);
        break;
    case PL_OUTPUT_END:
        break;
    }
}

pl_status pl_output_message_check(const pl_output_message *message, pl_error *err)
{
    bool failed = message->content.failed || message->reasoning.failed ||
                  message->note_text.failed || message->calls.failed || message->notes.failed;

    for (size_t i = 0; i < n_calls(message); i++)
        failed =
            failed || get_call(message, i)->name.failed || get_call(message, i)->arguments.failed;
    return failed ? pl_error_set(err, PL_ERR_NOMEM, "message: out of memory") : PL_OK;
}

/* ---- looking at it ---- */

static const char *text_of(const pl_json_buffer *b, size_t *n_bytes)
{
    *n_bytes = b->n;
    return b->n ? b->bytes : "";
}

const char *pl_output_message_content(const pl_output_message *message, size_t *n_bytes)
{
    return text_of(&message->content, n_bytes);
}

const char *pl_output_message_reasoning(const pl_output_message *message, size_t *n_bytes)
{
    return text_of(&message->reasoning, n_bytes);
}

size_t pl_output_message_n_calls(const pl_output_message *message)
{
    return n_calls(message);
}

pl_output_call pl_output_message_get_call(const pl_output_message *message, size_t i)
{
    const call *c = get_call(message, i);
    pl_output_call out = {.id = c->id, .complete = c->complete};

    out.name = text_of(&c->name, &out.name_bytes);
    out.arguments = text_of(&c->arguments, &out.arguments_bytes);
    return out;
}

pl_status pl_output_message_conforms(const pl_output_message *message, const char *name,
                                     pl_error *err)
{
    for (size_t i = 0; i < n_notes(message); i++) {
        const note *n = get_note(message, i);
        pl_json_value about = {.kind = PL_JSON_STRING, .text = text_of_note(message, n)};
        char words[PL_JSON_WORDS_BYTES], got[PL_JSON_WORDS_BYTES + 16];
        about.n = n->n;
        if (n->note == PL_NOTE_NOT_JSON)
            continue;
        snprintf(got, sizeof got, " (got %s)", pl_json_value_words(&about, words));
        if (n->note == PL_NOTE_MALFORMED)
            snprintf(got, sizeof got, ": %.*s", (int)n->n, about.text);
        return pl_error_set_at(err, PL_ERR_CORRUPT, n->position, "%s: %s at byte %llu%s", name,
                               pl_output_note_text(n->note), (unsigned long long)n->position,
                               n->n ? got : "");
    }
    return PL_OK;
}

/* ---- JSON ---- */

static void put_member(pl_json_buffer *b, const char *head, const char *text, size_t n)
{
    pl_json_buffer_put_text(b, head);
    pl_json_write_string(b, text, n);
}

static void put_calls(pl_json_buffer *b, const pl_output_message *m)
{
    for (size_t i = 0; i < n_calls(m); i++) {
        pl_output_call c = pl_output_message_get_call(m, i);
        pl_json_buffer_put_text(b, i ? ", " : "");
        put_member(b, "{\"type\": \"function\", \"function\": {\"name\": ", c.name, c.name_bytes);
        put_member(b, ", \"arguments\": ", c.arguments, c.arguments_bytes);
        pl_json_buffer_put_text(b, "}}");
    }
}

static void put_notes(pl_json_buffer *b, const pl_output_message *m)
{
    for (size_t i = 0; i < n_notes(m); i++) {
        const note *n = get_note(m, i);
        char position[48];
        snprintf(position, sizeof position, ", \"position\": %llu",
                 (unsigned long long)n->position);
        pl_json_buffer_put_text(b, i ? ", " : "");
        put_member(b, "{\"note\": ", pl_output_note_name(n->note),
                   strlen(pl_output_note_name(n->note)));
        pl_json_buffer_put_text(b, position);
        put_member(b, ", \"text\": ", text_of_note(m, n), n->n);
        pl_json_buffer_put_text(b, "}");
    }
}

pl_status pl_output_message_json(const pl_output_message *message, bool notes, char **out,
                                 size_t *n_bytes, pl_error *err)
{
    pl_json_buffer b = {.max_bytes = SIZE_MAX};
    const char *text;
    size_t n;

    text = pl_output_message_content(message, &n);
    put_member(&b, "{\"role\": \"assistant\", \"content\": ", text, n);
    text = pl_output_message_reasoning(message, &n);
    put_member(&b, ", \"reasoning_content\": ", text, n);
    pl_json_buffer_put_text(&b, ", \"tool_calls\": [");
    put_calls(&b, message);
    pl_json_buffer_put_text(&b, "]");
    if (notes) {
        pl_json_buffer_put_text(&b, ", \"notes\": [");
        put_notes(&b, message);
        pl_json_buffer_put_text(&b, "]");
    }
    pl_json_buffer_put(&b, "}", 2);
    *out = b.bytes;
    *n_bytes = b.n - 1;
    if (b.failed == PL_OK)
        return PL_OK;
    pl_json_buffer_fini(&b);
    *out = NULL;
    *n_bytes = 0;
    return pl_error_set(err, PL_ERR_NOMEM, "message: out of memory");
}
