/* The parser outside of tool calls: repairs UTF-8, tells reasoning from content, finds the end and the
 * beginning of calls, and collects text into events.
 *
 * It judges nothing: what the vendor's parser would refuse is noted and passed on as text. */
#include "text/output_parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/chat_tokens.h"
#include "text/utf8.h"

#define BIT(pattern) (1u << (pattern))

static const char *const scan_texts[PL_SCAN_COUNT] = {
    [PL_SCAN_THINK_END] = PL_TOK_THINK_END,
    [PL_SCAN_EOS] = PL_TOK_EOS,
    [PL_SCAN_CALLS] = "\n\n<" PL_TOK_DSML "tool_calls",
    [PL_SCAN_CALLS_BARE] = "<" PL_TOK_DSML "tool_calls",
    [PL_SCAN_NAME_END] = "\">",
    [PL_SCAN_KEY_END] = "\" string=\"",
    [PL_SCAN_VALUE_END] = "</" PL_TOK_DSML "parameter",
    [PL_SCAN_VALUE_END_BARE] = "/" PL_TOK_DSML "parameter",
    [PL_SCAN_TAG] = "<" PL_TOK_DSML,
    [PL_SCAN_CLOSE_TAG] = "</" PL_TOK_DSML,
};

static const char *const stray_texts[] = {PL_TOK_BOS, PL_TOK_EOS, PL_TOK_THINK_BEGIN,
                                          PL_TOK_THINK_END, PL_TOK_DSML};

static const char *const note_names[] = {
#define PL_OUTPUT_NOTE_NAME(name, word, text) word,
    PL_OUTPUT_NOTE_MAP(PL_OUTPUT_NOTE_NAME)
#undef PL_OUTPUT_NOTE_NAME
};

static const char *const note_texts[] = {
#define PL_OUTPUT_NOTE_TEXT(name, word, text) text,
    PL_OUTPUT_NOTE_MAP(PL_OUTPUT_NOTE_TEXT)
#undef PL_OUTPUT_NOTE_TEXT
};

const char *pl_output_note_name(pl_output_note note)
{
    return (unsigned)note < PL_NOTE_COUNT ? note_names[note] : "unknown";
}

const char *pl_output_note_text(pl_output_note note)
{
    return (unsigned)note < PL_NOTE_COUNT ? note_texts[note] : "unknown note";
}

/* ---- events ---- */

static void emit_run(pl_output_parser *p)
{
    pl_output_event event = {.kind = p->run_kind, .text = p->run.bytes, .n_bytes = p->run.n};

    if (p->run.n == 0)
        return;
    if (event.kind == PL_OUTPUT_CALL_ARGUMENTS)
        event.call = p->n_calls - 1;
    p->sink(p->user, &event);
    pl_json_buffer_clear(&p->run);
}

void pl__output_emit(pl_output_parser *p, pl_output_event event)
{
    emit_run(p);
    if (!event.text)
        event.text = "";
    p->sink(p->user, &event);
}

pl_json_buffer *pl__output_run(pl_output_parser *p, pl_output_kind kind)
{
    if (kind != p->run_kind)
        emit_run(p);
    p->run_kind = kind;
    return &p->run;
}

void pl__output_note(pl_output_parser *p, pl_output_note note, const char *text, size_t n)
{
    p->noted[note] = true;
    pl__output_emit(p, (pl_output_event){
                           .kind = PL_OUTPUT_NOTE,
                           .text = text,
                           .n_bytes = n,
                           .call = p->n_calls - p->call_open,
                           .note = note,
                           .position = p->position,
                       });
}

void pl__output_note_once(pl_output_parser *p, pl_output_note note)
{
    if (!p->noted[note])
        pl__output_note(p, note, NULL, 0);
}

/* ---- text ---- */

/* Text of the message, watched for tokens that have no business there. */
static void put_text(pl_output_parser *p, const char *text, size_t n)
{
    if (n == 0)
        return;
    if (p->ended)
        pl__output_note_once(p, PL_NOTE_TEXT_AFTER_END);
    else if (p->calls_done)
        pl__output_note_once(p, PL_NOTE_TEXT_AFTER_CALLS);
    for (size_t i = 0; i < n; i++) {
        pl_dsml_step step = pl__dsml_scan_push(&p->stray, text[i]);
        pl_json_buffer_put_char(pl__output_run(p, p->text_kind), text[i]);
        if (step.match >= 0)
            pl__output_note(p, PL_NOTE_STRAY_TOKEN, stray_texts[step.match],
                            strlen(stray_texts[step.match]));
    }
}

void pl__output_enter_text(pl_output_parser *p)
{
    unsigned look_for = BIT(PL_SCAN_EOS);

    if (!p->ended)
        look_for |= BIT(PL_SCAN_CALLS) | BIT(PL_SCAN_CALLS_BARE);
    if (!p->ended && p->text_kind == PL_OUTPUT_REASONING)
        look_for |= BIT(PL_SCAN_THINK_END);
    p->state = PL_STATE_TEXT;
    pl__dsml_scan_look_for(&p->scan, look_for);
    pl__dsml_scan_look_for(&p->stray, p->stray.active);
}

static void end_message(pl_output_parser *p)
{
    if (p->ended)
        pl__output_note_once(p, PL_NOTE_TEXT_AFTER_END);
    else if (p->text_kind == PL_OUTPUT_REASONING)
        pl__output_note_once(p, PL_NOTE_UNCLOSED_REASONING);
    p->ended = true;
    p->text_kind = PL_OUTPUT_CONTENT;
    pl__output_enter_text(p);
}

void pl__output_text_byte(pl_output_parser *p, char byte)
{
    pl_dsml_step step = pl__dsml_scan_push(&p->scan, byte);

    put_text(p, step.held, step.n_held);
    if (step.byte_too)
        put_text(p, &byte, 1);
    switch (step.match) {
    case PL_SCAN_THINK_END:
        p->text_kind = PL_OUTPUT_CONTENT;
        pl__output_enter_text(p);
        return;
    case PL_SCAN_EOS:
        end_message(p);
        return;
    case PL_SCAN_CALLS:
    case PL_SCAN_CALLS_BARE:
        pl__dsml_block_enter(p, scan_texts[step.match]);
        return;
    default:
        return;
    }
}

/* ---- life ---- */

pl_output_options pl_output_options_default(void)
{
    return (pl_output_options){
        .mode = PL_CHAT_MODE_THINKING,
        .id_prefix = "call_",
        .max_call_bytes = (size_t)16 << 20,
    };
}

pl_status pl_output_parser_create(const pl_output_options *options, pl_output_sink *sink,
                                  void *user, pl_output_parser **out, pl_error *err)
{
    const char *prefix = options->id_prefix ? options->id_prefix : "";
    pl_output_parser *p;

    *out = NULL;
    PL_CHECK(strlen(prefix) <= PL_OUTPUT_MAX_PREFIX, err,
             "id_prefix: too long (got %zu bytes, want at most %d)", strlen(prefix),
             PL_OUTPUT_MAX_PREFIX);
    p = calloc(1, sizeof *p);
    if (!p)
        return pl_error_set(err, PL_ERR_NOMEM, "output parser: out of memory");
    p->options = *options;
    snprintf(p->id_prefix, sizeof p->id_prefix, "%s", prefix);
    p->sink = sink;
    p->user = user;
    p->run.max_bytes = p->raw.max_bytes = SIZE_MAX;
    p->space.max_bytes = p->name.max_bytes = p->keys.max_bytes = SIZE_MAX;
    pl__dsml_scan_init(&p->scan, scan_texts, PL_SCAN_COUNT);
    pl__dsml_scan_init(&p->stray, stray_texts, sizeof stray_texts / sizeof stray_texts[0]);
    p->text_kind = options->mode == PL_CHAT_MODE_THINKING ? PL_OUTPUT_REASONING : PL_OUTPUT_CONTENT;
    pl__output_enter_text(p);
    *out = p;
    return PL_OK;
}

void pl_output_parser_destroy(pl_output_parser *parser)
{
    if (!parser)
        return;
    pl_json_buffer_fini(&parser->run);
    pl_json_buffer_fini(&parser->raw);
    pl_json_buffer_fini(&parser->space);
    pl_json_buffer_fini(&parser->name);
    pl_json_buffer_fini(&parser->keys);
    free(parser);
}

uint64_t pl__output_parser_steps(const pl_output_parser *parser)
{
    return parser->position + parser->scan.steps + parser->stray.steps;
}

/* ---- feeding ---- */

/* A buffer that could not grow has lost text: the parser stops for good. */
static void check_buffers(pl_output_parser *p)
{
    if (p->run.failed || p->raw.failed || p->space.failed || p->name.failed || p->keys.failed)
        p->failed = PL_ERR_NOMEM;
}

static void take(pl_output_parser *p, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        p->position++;
        if (p->state == PL_STATE_TEXT)
            pl__output_text_byte(p, text[i]);
        else
            pl__dsml_block_byte(p, text[i]);
    }
}

pl_status pl_output_parser_feed(pl_output_parser *parser, const char *text, size_t n_bytes)
{
    enum { SLICE = 4096 };

    if (parser->finished)
        return PL_ERR_STATE;
    while (n_bytes && parser->failed == PL_OK) {
        size_t n = n_bytes < SLICE ? n_bytes : SLICE;
        uint8_t clean[3 * SLICE + 3];
        size_t n_clean = pl__utf8_push(&parser->utf8, (const uint8_t *)text, n, clean);
        take(parser, (const char *)clean, n_clean);
        check_buffers(parser);
        text += n;
        n_bytes -= n;
    }
    if (parser->failed == PL_OK)
        emit_run(parser);
    return parser->failed;
}

pl_status pl_output_parser_finish(pl_output_parser *parser)
{
    uint8_t clean[3];
    pl_dsml_step step;

    if (parser->finished)
        return PL_ERR_STATE;
    if (parser->failed != PL_OK)
        return parser->failed;
    take(parser, (const char *)clean, pl__utf8_flush(&parser->utf8, clean));
    if (parser->state != PL_STATE_TEXT) {
        pl__dsml_block_finish(parser);
    } else {
        step = pl__dsml_scan_flush(&parser->scan);
        put_text(parser, step.held, step.n_held);
        if (parser->text_kind == PL_OUTPUT_REASONING)
            pl__output_note_once(parser, PL_NOTE_UNCLOSED_REASONING);
    }
    check_buffers(parser);
    if (parser->failed != PL_OK)
        return parser->failed;
    parser->finished = true;
    pl__output_emit(parser, (pl_output_event){.kind = PL_OUTPUT_END});
    return PL_OK;
}
