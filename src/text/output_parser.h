/* Inside of pl_output_parser, shared by output_parser.c (text) and dsml_block.c (tool calls). */
#ifndef PL_TEXT_OUTPUT_PARSER_H
#define PL_TEXT_OUTPUT_PARSER_H

#include "plimsoll/chat.h"
#include "plimsoll/text.h"
#include "text/dsml_scan.h"
#include "text/json_buffer.h"

enum {
    PL_OUTPUT_MAX_NAME = 1024,       /* bytes of a function's or parameter's name */
    PL_OUTPUT_MAX_PARAMETERS = 1024, /* of one call: bounds the search for repeated names */
    PL_OUTPUT_MAX_PREFIX = 64,       /* bytes of id_prefix */
};

/* Patterns of the scan, in its order. */
enum {
    PL_SCAN_THINK_END,
    PL_SCAN_EOS,
    PL_SCAN_CALLS,      /* the tag that opens a block of calls, with the empty line before it */
    PL_SCAN_CALLS_BARE, /* and without */
    PL_SCAN_NAME_END,   /* of a function */
    PL_SCAN_KEY_END,    /* of a parameter */
    PL_SCAN_VALUE_END,
    PL_SCAN_VALUE_END_BARE, /* without its '<' */
    PL_SCAN_TAG,            /* the beginning of a tag: what no name holds */
    PL_SCAN_CLOSE_TAG,      /* and of a closing one */
    PL_SCAN_COUNT
};

/* Where the parser is; all but the first inside a block of calls. */
typedef enum pl_output_state {
    PL_STATE_TEXT,
    PL_STATE_BRACKET,         /* the '>' of a tag whose name has been read */
    PL_STATE_SPACE,           /* white space before a tag */
    PL_STATE_TAG,             /* a tag up to its name's end */
    PL_STATE_ATTRIBUTE_SPACE, /* white space before ` name="` */
    PL_STATE_ATTRIBUTE,
    PL_STATE_NAME,
    PL_STATE_KEY,
    PL_STATE_TYPE, /* true"> or false"> */
    PL_STATE_VALUE,
} pl_output_state;

/* Two fixed texts, one of which must come. */
typedef struct pl_output_choice {
    const char *texts[2];
    size_t matched;
    unsigned possible; /* bit i: texts[i] fits so far */
} pl_output_choice;

struct pl_output_parser {
    pl_output_options options;
    char id_prefix[PL_OUTPUT_MAX_PREFIX + 1];
    pl_output_sink *sink;
    void *user;
    pl_status failed; /* NOMEM, for good */
    bool finished;

    pl_text_stream utf8;
    uint64_t position; /* bytes of clean text so far */

    pl_json_buffer run; /* text of the event being collected */
    pl_output_kind run_kind;
    pl_dsml_scan stray; /* special tokens in emitted text */

    pl_output_state state;
    pl_output_kind text_kind; /* PL_OUTPUT_REASONING, then PL_OUTPUT_CONTENT */
    pl_dsml_scan scan;
    bool ended;      /* the end token was seen */
    bool calls_done; /* a block of calls was closed */
    bool noted[PL_NOTE_COUNT];

    size_t n_calls;     /* started */
    bool call_open;     /* the last of them has no end yet */
    pl_json_buffer raw; /* the model's text since the last call that is complete */
    pl_output_choice choice;
    bool in_call;         /* the tags that may come are those inside a call */
    bool named;           /* the last tag was the one that names the call */
    bool between;         /* the last tag ended a call */
    pl_json_buffer space; /* white space before a tag */
    pl_json_buffer name;  /* of function or parameter */
    bool is_parameter;    /* whose attribute is being read */
    pl_json_buffer keys;  /* names of this call's parameters, one after the other */
    struct {
        uint64_t hash;
        uint32_t begin, n;
    } key_index[PL_OUTPUT_MAX_PARAMETERS];
    size_t n_keys;
    bool value_is_string;
    size_t value_begin; /* in raw */
};

/* ---- output_parser.c ---- */

/* Emits what has been collected; then the event. */
void pl__output_emit(pl_output_parser *p, pl_output_event event);

/* The run of `kind` to add to. It is emitted when another kind or the end of the piece comes. */
pl_json_buffer *pl__output_run(pl_output_parser *p, pl_output_kind kind);

/* A note here; `text` is what it is about. */
void pl__output_note(pl_output_parser *p, pl_output_note note, const char *text, size_t n);

/* The same, once per output. */
void pl__output_note_once(pl_output_parser *p, pl_output_note note);

/* Back to plain text, looking for what may follow. */
void pl__output_enter_text(pl_output_parser *p);

/* A byte of plain text. */
void pl__output_text_byte(pl_output_parser *p, char byte);

/* ---- dsml_block.c ---- */

/* The tag that opens a block has been read; it is `tag`. */
void pl__dsml_block_enter(pl_output_parser *p, const char *tag);

/* A byte inside a block. */
void pl__dsml_block_byte(pl_output_parser *p, char byte);

/* The output ends inside a block. */
void pl__dsml_block_finish(pl_output_parser *p);

/* Comparisons made so far: for the test of linear time. */
uint64_t pl__output_parser_steps(const pl_output_parser *parser);

#endif
