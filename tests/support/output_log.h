/* Events of the output parser written down as text, and the parts of the format as macros. */
#ifndef PL_TESTS_OUTPUT_LOG_H
#define PL_TESTS_OUTPUT_LOG_H

#include <stdbool.h>

#include "plimsoll/chat.h"

#define EOS          "<｜end▁of▁sentence｜>"
#define CALLS        "\n\n<｜DSML｜tool_calls>\n"
#define END_CALLS    "</｜DSML｜tool_calls>"
#define INVOKE(name) "<｜DSML｜invoke name=\"" name "\">\n"
#define END_INVOKE   "</｜DSML｜invoke>\n"
#define STRING(key, value) \
    "<｜DSML｜parameter name=\"" key "\" string=\"true\">" value "</｜DSML｜parameter>\n"
#define OTHER(key, value) \
    "<｜DSML｜parameter name=\"" key "\" string=\"false\">" value "</｜DSML｜parameter>\n"

/* "R{..}" reasoning, "C{..}" content, "S0{id:name}" start, "A0{..}" arguments, "E0" end, "N{note@position:text}", "."
 * the end; a run of one kind is one entry, as it may be cut anywhere. {0} is empty. */
typedef struct output_log {
    char *text; /* freed by the caller */
    size_t n, capacity;
    bool open; /* the last entry is a run of `kind` */
    pl_output_kind kind;
} output_log;

/* A pl_output_sink. */
void output_log_add(void *user, const pl_output_event *e);

/* A parser whose ids begin with "id". */
pl_output_parser *output_log_parser(pl_chat_mode mode, pl_output_sink *sink, void *user);

/* Feeds a copy of its own size, so that reading past it is seen by the sanitizer. */
void output_log_feed(pl_output_parser *p, const char *text, size_t n);

/* The log of `text` fed in pieces of the given sizes, which end with 0; the last of them repeats. */
output_log output_log_parse(pl_chat_mode mode, const char *text, size_t n, const size_t *sizes);

/* Fails unless the log is the same one byte at a time, for all cuts into two and for 200 random ones. `i` names the
 * text. */
void output_log_check_cuts(pl_chat_mode mode, const char *text, size_t n, size_t i);

#endif
