/* Chat: conversations to prompts, model output to messages.
 *
 * Encoding turns the JSON of a conversation (OpenAI's form, with DeepSeek's additions) into the exact
 * prompt the model was trained on. The prompt comes in segments that say where special tokens may be
 * recognised, so that nothing a stranger writes can become one.
 *
 * Parsing takes the model's text as it is made, in pieces of any size, and tells what it means:
 * reasoning, content, tool calls. It never fails on what a model writes.
 *
 * Texts are bytes with a length. Calls share nothing: any number of threads may encode and parse.
 *
 * Source: deepseek_v4 specification sections 7.2 and 7.3, dspark section 9; docs/CHAT.md. */
#ifndef PL_PLIMSOLL_CHAT_H
#define PL_PLIMSOLL_CHAT_H

#include <stdbool.h>

#include "plimsoll/status.h"
#include "plimsoll/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Encoding ---------------------------------------------------------------------------------- */

/* Two revisions of the encoding exist; they differ in what a reasoning effort writes. */
typedef enum pl_chat_revision {
    PL_CHAT_V4,   /* first releases: `max` writes a paragraph, others nothing */
    PL_CHAT_0731, /* Flash-0731 and Pro-0813: `high` and `max` write one each */
} pl_chat_revision;

typedef enum pl_chat_mode {
    PL_CHAT_MODE_CHAT,     /* the answer at once */
    PL_CHAT_MODE_THINKING, /* reasoning, then the answer */
} pl_chat_mode;

typedef enum pl_chat_effort {
    PL_CHAT_EFFORT_LOW, /* also what applies when nothing is said */
    PL_CHAT_EFFORT_HIGH,
    PL_CHAT_EFFORT_MAX,
} pl_chat_effort;

typedef struct pl_chat_options {
    pl_chat_revision revision;
    pl_chat_mode mode;
    pl_chat_effort effort;     /* counts in thinking mode only */
    bool drop_thinking;        /* without tools: no reasoning before the last user turn */
    bool add_bos;              /* begin with <｜begin▁of▁sentence｜> */
    bool continue_last;        /* the last message, an assistant's, is to be gone on with */
    bool trust_special_tokens; /* recognise special tokens everywhere, also in what users wrote */
    size_t max_prompt_bytes;   /* longer prompts are PL_ERR_LIMIT */
} pl_chat_options;

/* V4, thinking, low, dropping, with BOS, nobody trusted, 256 MiB. */
PL_API pl_chat_options pl_chat_options_default(void);

/* Applies the document's own "options" object, where it has one, to *options. Keys: thinking_mode
 * ("chat", "thinking"), revision ("v4", "0731"), reasoning_effort (null, "low", "high", "max"),
 * drop_thinking, add_default_bos_token. Others are PL_ERR_INVALID. */
PL_API pl_status pl_chat_options_read(const char *json, size_t json_bytes, pl_chat_options *options,
                                      pl_error *err) PL_MUST_CHECK;

/* Applies an OpenAI `reasoning_effort` as clients send it: "none" selects chat mode; "minimal", "low" and
 * "medium" mean low; "high" and "xhigh" mean high; "max" means max; all but "none" leave the mode alone. */
PL_API pl_status pl_chat_options_set_effort(pl_chat_options *options, const char *effort,
                                            pl_error *err) PL_MUST_CHECK;

/* A finished prompt; immutable. */
typedef struct pl_prompt pl_prompt;

/* A part of the prompt. Where `markup` is true, added tokens of the tokenizer are recognised
 * (PL_ENCODE_ADDED_TOKENS); elsewhere none is (PL_ENCODE_PLAIN). Every special token that the encoding
 * itself writes is markup, all else is not, and neighbours of one kind are one segment. So tokenizing
 * segment by segment gives the ids of the whole text, as long as users wrote no special tokens. */
typedef struct pl_prompt_segment {
    const char *text; /* in the prompt's text, not 0-terminated */
    size_t n_bytes;
    bool markup;
} pl_prompt_segment;

/* Encodes `json`: an array of messages, or an object with "messages" and perhaps "tools" and
 * "response_format" (which then belong to the leading system or developer message); its other keys are
 * not looked at. On success *out is the caller's to destroy; nothing of `json` is kept. What is wrong
 * with the conversation is PL_ERR_INVALID or PL_ERR_UNSUPPORTED and named by message and field:
 * "messages[2].role: unknown role (got 'foo', want system, ...)". JSON nested deeper than 128 levels
 * is refused. Needs at most 64 bytes per byte of `json` (a few KiB at least), and the prompt. */
PL_API pl_status pl_chat_encode(const char *json, size_t json_bytes, const pl_chat_options *options,
                                pl_prompt **out, pl_error *err) PL_MUST_CHECK;

/* NULL is allowed. */
PL_API void pl_prompt_destroy(pl_prompt *prompt);

/* The whole prompt: the segments one after the other. Valid until destroy; a 0 follows the text. */
PL_API const char *pl_prompt_text(const pl_prompt *prompt, size_t *n_bytes);

PL_API size_t pl_prompt_n_segments(const pl_prompt *prompt);

/* Segment i < pl_prompt_n_segments(prompt). */
PL_API pl_prompt_segment pl_prompt_get_segment(const pl_prompt *prompt, size_t i);

/* What was written by others and can be no markup, for pl_tokenizer_encode_ranges: the segments that are none and not
 * empty, ascending. `ranges` has room for pl_prompt_n_segments; returns their number. */
PL_API size_t pl_prompt_plain_ranges(const pl_prompt *prompt, pl_text_range *ranges);

/* The mode in which to parse what the model writes next: thinking where the prompt ends with <think>, else chat, as
 * in the answer to a task or behind a message that is gone on with. */
PL_API pl_chat_mode pl_prompt_output_mode(const pl_prompt *prompt);

/* ---- Parsing what the model wrote ---------------------------------------------------------------- */

/* Things worth knowing about an output. All but the last make it one that the vendor's own strict parser
 * refuses. */
#define PL_OUTPUT_NOTE_MAP(X)                                                              \
    X(MALFORMED, "malformed", "tool call is malformed")                                    \
    X(DUPLICATE, "duplicate", "duplicate parameter name")                                  \
    X(TRUNCATED, "truncated", "output ends inside the tool calls")                         \
    X(UNCLOSED_REASONING, "unclosed_reasoning", "missing </think>")                        \
    X(STRAY_TOKEN, "stray_token", "unexpected special token in the text")                  \
    X(TEXT_AFTER_CALLS, "text_after_calls", "unexpected content after the tool calls")     \
    X(TEXT_AFTER_END, "text_after_end", "unexpected content after the end of the message") \
    X(LOOSE_SPACING, "loose_spacing", "unexpected spacing around a tag")                   \
    X(NOT_JSON, "not_json", "parameter value is not JSON")

typedef enum pl_output_note {
#define PL_OUTPUT_NOTE_ENUM(name, word, text) PL_NOTE_##name,
    PL_OUTPUT_NOTE_MAP(PL_OUTPUT_NOTE_ENUM)
#undef PL_OUTPUT_NOTE_ENUM
        PL_NOTE_COUNT
} pl_output_note;

/* "malformed", "tool call is malformed". */
PL_API const char *pl_output_note_name(pl_output_note note);
PL_API const char *pl_output_note_text(pl_output_note note);

typedef enum pl_output_kind {
    PL_OUTPUT_REASONING,      /* text: more reasoning */
    PL_OUTPUT_CONTENT,        /* text: more content */
    PL_OUTPUT_CALL_START,     /* call, id, text: the function's name */
    PL_OUTPUT_CALL_ARGUMENTS, /* call, text: more of the arguments, a JSON object as text */
    PL_OUTPUT_CALL_END,       /* call: its arguments are complete */
    PL_OUTPUT_NOTE, /* note, position, call, text: what it is about (see pl_output_note) */
    PL_OUTPUT_END,  /* the last event */
} pl_output_kind;

/* An event. Texts are whole UTF-8 characters and valid during the call only.
 *
 * A call that turns out malformed after its start has no end: its arguments stay an unfinished JSON
 * object, so nobody can run half of it. A note (MALFORMED or DUPLICATE) says so, and the model's text of
 * that call then follows as content. A call cut off by the end of the output has no end either; the note
 * is TRUNCATED and holds the model's text of it. */
typedef struct pl_output_event {
    pl_output_kind kind;
    const char *text; /* not 0-terminated */
    size_t n_bytes;
    size_t call;    /* 0, 1, ...; counts started calls. NOTE: the open one, or the next */
    const char *id; /* CALL_START: id_prefix and the call's number */
    pl_output_note note;
    uint64_t position; /* NOTE: bytes of output read so far */
} pl_output_event;

typedef void pl_output_sink(void *user, const pl_output_event *event);

typedef struct pl_output_options {
    pl_chat_mode mode;     /* thinking: the output begins inside the reasoning */
    const char *id_prefix; /* of call ids, at most 64 bytes; copied */
    size_t max_call_bytes; /* a longer call counts as malformed */
} pl_output_options;

/* Thinking, "call_", 16 MiB. */
PL_API pl_output_options pl_output_options_default(void);

/* One output being parsed. It holds back only what may still turn out to be a tag, and the text of the
 * call it is in. Time is linear in the text. Which events come does not depend on how the text is cut
 * into pieces, but for the places where one run of text is cut into several events. */
typedef struct pl_output_parser pl_output_parser;

/* `sink` is called from within feed and finish. */
PL_API pl_status pl_output_parser_create(const pl_output_options *options, pl_output_sink *sink,
                                         void *user, pl_output_parser **out,
                                         pl_error *err) PL_MUST_CHECK;

/* NULL is allowed. */
PL_API void pl_output_parser_destroy(pl_output_parser *parser);

/* The next piece of text: any bytes, cut anywhere. What is not UTF-8 counts as U+FFFD, one for each maximal
 * part of an ill-formed sequence. Fails only with PL_ERR_NOMEM, for good, and with PL_ERR_STATE after
 * finish. */
PL_API pl_status pl_output_parser_feed(pl_output_parser *parser, const char *text,
                                       size_t n_bytes) PL_MUST_CHECK;

/* The output is over: releases what was held back and emits PL_OUTPUT_END. */
PL_API pl_status pl_output_parser_finish(pl_output_parser *parser) PL_MUST_CHECK;

/* A whole message put together from events: for answers that are not streamed. */
typedef struct pl_output_message pl_output_message;

PL_API pl_status pl_output_message_create(pl_output_message **out, pl_error *err) PL_MUST_CHECK;

/* NULL is allowed. */
PL_API void pl_output_message_destroy(pl_output_message *message);

/* A pl_output_sink; `message` is the pl_output_message. Malformed calls are left out (their text is in the
 * content), truncated ones stay in with what there is of their arguments. */
PL_API void pl_output_message_add(void *message, const pl_output_event *event);

/* PL_OK where memory sufficed for all events. */
PL_API pl_status pl_output_message_check(const pl_output_message *message,
                                         pl_error *err) PL_MUST_CHECK;

PL_API const char *pl_output_message_content(const pl_output_message *message, size_t *n_bytes);
PL_API const char *pl_output_message_reasoning(const pl_output_message *message, size_t *n_bytes);
PL_API size_t pl_output_message_n_calls(const pl_output_message *message);

typedef struct pl_output_call {
    const char *id; /* 0-terminated */
    const char *name, *arguments;
    size_t name_bytes, arguments_bytes;
    bool complete;
} pl_output_call;

/* Call i < pl_output_message_n_calls(message); valid until destroy. */
PL_API pl_output_call pl_output_message_get_call(const pl_output_message *message, size_t i);

/* The first note that makes the output a malformed one, as an error: PL_ERR_CORRUPT with note, place and
 * text; PL_OK where there is none. `name` stands for the output. */
PL_API pl_status pl_output_message_conforms(const pl_output_message *message, const char *name,
                                            pl_error *err) PL_MUST_CHECK;

/* The message as JSON, one line: {"role": "assistant", "content": .., "reasoning_content": ..,
 * "tool_calls": [{"type": "function", "function": {"name": .., "arguments": ..}}]}; with `notes` also
 * "notes": [{"note": .., "position": .., "text": ..}]. On success *out is malloc'ed and 0-terminated. */
PL_API pl_status pl_output_message_json(const pl_output_message *message, bool notes, char **out,
                                        size_t *n_bytes, pl_error *err) PL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
