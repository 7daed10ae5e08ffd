/* plimsoll encode-chat: the prompt of a conversation. Needs no model: the encoding is part of the program. */
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
    const char *encoding, *mode, *effort;
    bool keep_thinking, no_bos, trust, segments;
};

static const char *const encodings[] = {"v4", "0731", NULL};
static const char *const modes[] = {"thinking", "chat", NULL};
static const char *const efforts[] = {"low", "high", "max", NULL};

#define OFFSET(field) offsetof(struct options, field)
static const pl_option option_table[] = {
    {"--encoding", PL_OPTION_CHOICE, "v4|0731",
     "revision of the encoding; default: the input's, v4", OFFSET(encoding), 0, 0, encodings, NULL},
    {"--mode", PL_OPTION_CHOICE, "thinking|chat", "default: the input's, thinking", OFFSET(mode), 0,
     0, modes, NULL},
    {"--effort", PL_OPTION_CHOICE, "low|high|max", "reasoning effort; default: the input's, low",
     OFFSET(effort), 0, 0, efforts, NULL},
    {"--keep-thinking", PL_OPTION_FLAG, NULL, "keep the reasoning of earlier turns",
     OFFSET(keep_thinking), 0, 0, NULL, NULL},
    {"--no-bos", PL_OPTION_FLAG, NULL, "leave out the token that begins a text", OFFSET(no_bos), 0,
     0, NULL, NULL},
    {"--segments", PL_OPTION_FLAG, NULL, "print JSON that tells markup from content",
     OFFSET(segments), 0, 0, NULL, NULL},
    {"--trust-special-tokens", PL_OPTION_FLAG, NULL,
     "with --segments: special tokens that users wrote are markup too", OFFSET(trust), 0, 0, NULL,
     NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL, NULL},
};

/* The command line wins over the document. */
static void apply(const struct options *o, pl_chat_options *c)
{
    if (o->encoding)
        c->revision = strcmp(o->encoding, "v4") == 0 ? PL_CHAT_V4 : PL_CHAT_0731;
    if (o->mode)
        c->mode = strcmp(o->mode, "chat") == 0 ? PL_CHAT_MODE_CHAT : PL_CHAT_MODE_THINKING;
    if (o->effort)
        c->effort = strcmp(o->effort, "max") == 0    ? PL_CHAT_EFFORT_MAX
                    : strcmp(o->effort, "high") == 0 ? PL_CHAT_EFFORT_HIGH
                                                     : PL_CHAT_EFFORT_LOW;
    if (o->keep_thinking)
        c->drop_thinking = false;
    if (o->no_bos)
        c->add_bos = false;
    c->trust_special_tokens = o->trust;
}

static void print_json_string(const char *text, size_t n)
{
    putchar('"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20)
            printf("\\u%04x", c);
        else if (c == '"' || c == '\\')
            printf("\\%c", c);
        else
            putchar(c);
    }
    putchar('"');
}

static void print_segments(const pl_prompt *prompt)
{
    printf("{\"segments\": [");
    for (size_t i = 0; i < pl_prompt_n_segments(prompt); i++) {
        pl_prompt_segment s = pl_prompt_get_segment(prompt, i);
        printf("%s{\"kind\": \"%s\", \"text\": ", i ? ", " : "", s.markup ? "markup" : "content");
        print_json_string(s.text, s.n_bytes);
        putchar('}');
    }
    printf("]}\n");
}

static int run(int argc, char **argv)
{
    struct options o = {0};
    pl_chat_options chat = pl_chat_options_default();
    const char *args[1], *text;
    char *json = NULL;
    pl_prompt *prompt = NULL;
    pl_error err = {0};
    size_t n = 0;
    int status;

    if (!pl_options_parse(&pl_command_encode_chat, argc, argv, &o, args, &status))
        return status;
    status = pl_input_read(args[0], MAX_INPUT_BYTES, &json, &n, &err);
    if (status == PL_OK)
        status = pl_chat_options_read(json, n, &chat, &err);
    apply(&o, &chat);
    if (status == PL_OK)
        status = pl_chat_encode(json, n, &chat, &prompt, &err);
    free(json);
    if (status != PL_OK)
        return pl_report_error(&err);
    text = pl_prompt_text(prompt, &n);
    if (o.segments)
        print_segments(prompt);
    else
        fwrite(text, 1, n, stdout);
    pl_prompt_destroy(prompt);
    return PL_EXIT_OK;
}

const pl_command pl_command_encode_chat = {
    .name = "encode-chat",
    .usage = "[FILE|-] [options]",
    .summary = "print the prompt of a conversation",
    .details =
        "Reads a JSON array of messages, or an object with \"messages\" and perhaps \"tools\",\n"
        "\"response_format\" and \"options\" (thinking_mode, revision, reasoning_effort,\n"
        "drop_thinking, add_default_bos_token), from FILE or standard input. Prints the prompt\n"
        "without a newline added. No model is needed.",
    .options = option_table,
    .min_args = 0,
    .max_args = 1,
    .run = run,
};
