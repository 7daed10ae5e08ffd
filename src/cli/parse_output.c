/* plimsoll parse-output: the message that a model's text means. Needs no model. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "plimsoll/chat.h"

enum { MAX_INPUT_BYTES = 256 << 20 };

struct options {
    const char *mode;
    bool lenient;
};

static const char *const modes[] = {"thinking", "chat", NULL};

static const pl_option option_table[] = {
    {"--mode", PL_OPTION_CHOICE, "thinking|chat",
     "thinking: the text begins inside the reasoning; default thinking",
     offsetof(struct options, mode), 0, 0, modes, NULL},
    {"--lenient", PL_OPTION_FLAG, NULL,
     "print what can be understood of a malformed text, with \"notes\"",
     offsetof(struct options, lenient), 0, 0, NULL, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL, NULL},
};

static pl_status parse(const struct options *o, const char *text, size_t n,
                       pl_output_message *message, pl_error *err)
{
    pl_output_options options = pl_output_options_default();
    pl_output_parser *parser = NULL;
    pl_status status;

    if (strcmp(o->mode, "chat") == 0)
        options.mode = PL_CHAT_MODE_CHAT;
    PL_TRY(pl_output_parser_create(&options, pl_output_message_add, message, &parser, err));
    status = pl_output_parser_feed(parser, text, n);
    if (status == PL_OK)
        status = pl_output_parser_finish(parser);
    pl_output_parser_destroy(parser);
    if (status != PL_OK)
        return pl_error_set(err, status, "output: %s", pl_status_text(status));
    return pl_output_message_check(message, err);
}

/* Reads `path` and prints its message. */
static pl_status convert(const struct options *o, const char *path, pl_error *err)
{
    char *text = NULL, *json = NULL;
    pl_output_message *message = NULL;
    size_t n = 0;
    pl_status status = pl_input_read(path, MAX_INPUT_BYTES, &text, &n, err);

    if (status == PL_OK)
        status = pl_output_message_create(&message, err);
    if (status == PL_OK)
        status = parse(o, text, n, message, err);
    if (status == PL_OK && !o->lenient)
        status = pl_output_message_conforms(message, pl_input_name(path), err);
    if (status == PL_OK)
        status = pl_output_message_json(message, o->lenient, &json, &n, err);
    if (status == PL_OK)
        fwrite(json, 1, n, stdout);
    free(json);
    pl_output_message_destroy(message);
    free(text);
    return status;
}

static int run(int argc, char **argv)
{
    struct options o = {.mode = "thinking"};
    const char *args[1];
    pl_error err = {0};
    int status;

    if (!pl_options_parse(&pl_command_parse_output, argc, argv, &o, args, &status))
        return status;
    return convert(&o, args[0], &err) == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
}

const pl_command pl_command_parse_output = {
    .name = "parse-output",
    .usage = "[FILE|-] [options]",
    .summary = "print the message that a model's text means",
    .details = "Reads the text from FILE or standard input and prints the message as JSON: role, "
               "content,\n"
               "reasoning_content, tool_calls. A text that does not follow the format is an error "
               "(status 2)\n"
               "unless --lenient is given. The end token may be missing. No model is needed.",
    .options = option_table,
    .min_args = 0,
    .max_args = 1,
    .run = run,
};
