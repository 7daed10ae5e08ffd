/* A conversation on a terminal. The whole of it is encoded again for each turn, as the model was trained on; what an
 * answer reasoned is shown but not kept. An answer is decoded, parsed and printed token by token. A turn that
 * fails is taken back and said, and the conversation goes on. It keeps no file and knows no tools. */
#include "cli/run_chat.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

enum { MAX_LINE_BYTES = 1 << 16, BYTES_PER_TOKEN = 8 };

/* Set by Ctrl-C. */
static volatile sig_atomic_t interrupted;

typedef struct chat {
    pl_engine *engine;
    const pl_tokenizer *tokenizer;
    pl_encoder *encoder;
    json_t *messages;
    pl_chat_options options;
    int32_t *tokens; /* max_model_len of them */
    int max_model_len;
    char *line, *piece;
    size_t piece_bytes;

    /* Of the answer being made. */
    pl_text_stream stream;
    pl_output_parser *parser;
    char *content;
    size_t n_content;
    bool reasoning, color, failed;
} chat;

uint64_t pl_run_chat_bytes(int max_model_len)
{
    /* Encoding takes up to 64 bytes a byte of JSON (plimsoll/chat.h). */
    const uint64_t json = (uint64_t)max_model_len * BYTES_PER_TOKEN + MAX_LINE_BYTES;

    return 70 * json + (uint64_t)max_model_len * sizeof(int32_t);
}

/* ---- the answer */

/* Text of a model on a terminal: control characters could move the cursor or worse. */
static void show(const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        const bool c1 = c == 0xc2 && i + 1 < n_bytes && (unsigned char)text[i + 1] < 0xa0;

        putchar((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f || c1 ? '?' : c);
        i += c1;
    }
    (void)fflush(stdout);
}

static void set_reasoning(chat *c, bool on)
{
    if (c->reasoning == on)
        return;
    c->reasoning = on;
    if (!on)
        putchar('\n');
    if (c->color)
        fputs(on ? "\033[2m" : "\033[0m", stdout);
}

static void keep(chat *c, const char *text, size_t n_bytes)
{
    char *larger = realloc(c->content, c->n_content + n_bytes + 1);

    if (!larger) {
        c->failed = true;
        return;
    }
    memcpy(larger + c->n_content, text, n_bytes);
    c->content = larger;
    c->n_content += n_bytes;
}

static void on_output(void *user, const pl_output_event *event)
{
    chat *c = user;

    switch (event->kind) {
    case PL_OUTPUT_REASONING:
        set_reasoning(c, true);
        show(event->text, event->n_bytes);
        break;
    case PL_OUTPUT_CONTENT:
        set_reasoning(c, false);
        show(event->text, event->n_bytes);
        keep(c, event->text, event->n_bytes);
        break;
    case PL_OUTPUT_CALL_START:
        set_reasoning(c, false);
        fputs("[calls ", stdout);
        show(event->text, event->n_bytes);
        putchar(' ');
        break;
    case PL_OUTPUT_CALL_ARGUMENTS:
        show(event->text, event->n_bytes);
        break;
    case PL_OUTPUT_CALL_END:
        fputs("]\n", stdout);
        break;
    case PL_OUTPUT_NOTE: /* what it is about is shown anyway */
    case PL_OUTPUT_END:
        break;
    }
}

static void on_token(void *user, pl_request *request, const pl_token_event *event)
{
    chat *c = user;
    const int32_t id = event->token;
    pl_error err;
    size_t n;

    if (interrupted)
        pl_request_cancel(request);
    /* A model may have more ids than its tokenizer; those have no text, and the last of an answer is none. */
    if (id >= pl_tokenizer_vocab_size(c->tokenizer) ||
        pl_request_state_of(request) == PL_REQUEST_STOPPED)
        return;
    if (pl_text_stream_push(c->tokenizer, &c->stream, id, 0, c->piece, c->piece_bytes, &n, &err) !=
            PL_OK ||
        pl_output_parser_feed(c->parser, c->piece, n) != PL_OK)
        c->failed = true;
}

static pl_status answer(chat *c, const pl_request_params *ask, int32_t n_tokens, pl_error *err)
{
    pl_request_params p = *ask;
    pl_request *r = NULL;
    bool busy = true;
    pl_status s;

    p.tokens = c->tokens;
    p.n_tokens = n_tokens;
    if (p.max_tokens == 0)
        p.max_tokens = c->max_model_len - n_tokens;
    p.on_token = on_token;
    p.user = c;
    s = pl_engine_submit(c->engine, &p, &r, err);
    while (s == PL_OK && busy) {
        s = pl_engine_step(c->engine, &busy, err);
        if (interrupted)
            pl_request_cancel(r);
    }
    if (s == PL_OK && pl_request_state_of(r) == PL_REQUEST_LENGTH)
        fputs(" [cut: --max-tokens or --max-model-len]", stdout);
    pl_request_release(r);
    return s;
}

/* ---- the prompt */

static pl_status tokenize(chat *c, const pl_prompt *prompt, int32_t *n_tokens, pl_error *err)
{
    pl_text_range *ranges = malloc((pl_prompt_n_segments(prompt) + 1) * sizeof *ranges);
    size_t n_bytes, n = 0;
    const char *text = pl_prompt_text(prompt, &n_bytes);
    pl_status s;

    if (!ranges)
        return pl_error_set(err, PL_ERR_NOMEM, "chat: out of memory");
    s = pl_tokenizer_encode_ranges(c->tokenizer, c->encoder, text, n_bytes, ranges,
                                   pl_prompt_plain_ranges(prompt, ranges), c->tokens,
                                   (size_t)c->max_model_len, &n, err);
    free(ranges);
    PL_TRY(s);
    if (n >= (size_t)c->max_model_len)
        return pl_error_set(err, PL_ERR_LIMIT,
                            "chat: the conversation is full (got %zu tokens, want fewer than "
                            "--max-model-len, %d); /clear begins another",
                            n, c->max_model_len);
    *n_tokens = (int32_t)n;
    return PL_OK;
}

static pl_status encode(chat *c, pl_chat_mode *mode, int32_t *n_tokens, pl_error *err)
{
    char *json = json_dumps(c->messages, JSON_COMPACT);
    pl_prompt *prompt = NULL;
    pl_status s;

    if (!json)
        return pl_error_set(err, PL_ERR_NOMEM, "chat: out of memory");
    s = pl_chat_encode(json, strlen(json), &c->options, &prompt, err);
    free(json);
    if (s == PL_OK)
        s = tokenize(c, prompt, n_tokens, err);
    if (s == PL_OK)
        *mode = pl_prompt_output_mode(prompt);
    pl_prompt_destroy(prompt);
    return s;
}

/* ---- turns */

static pl_status append(chat *c, const char *role, const char *text, size_t n_bytes, pl_error *err)
{
    json_t *message = json_pack("{s:s, s:s%}", "role", role, "content", text, n_bytes);

    PL_CHECK(message != NULL, err, "chat: what was typed is not UTF-8 text");
    if (json_array_append_new(c->messages, message) != 0)
        return pl_error_set(err, PL_ERR_NOMEM, "chat: out of memory");
    return PL_OK;
}

static pl_status speak(chat *c, const pl_request_params *ask, pl_error *err)
{
    pl_output_options options = pl_output_options_default();
    int32_t n_tokens = 0;
    char end[3];
    pl_status s;

    PL_TRY(encode(c, &options.mode, &n_tokens, err));
    PL_TRY(pl_output_parser_create(&options, on_output, c, &c->parser, err));
    c->stream = (pl_text_stream){0};
    s = answer(c, ask, n_tokens, err);
    if (pl_output_parser_feed(c->parser, end, pl_text_stream_flush(&c->stream, end)) != PL_OK ||
        pl_output_parser_finish(c->parser) != PL_OK || c->failed)
        s = s == PL_OK ? pl_error_set(err, PL_ERR_NOMEM, "chat: out of memory for the answer") : s;
    set_reasoning(c, false);
    puts(interrupted ? "\n(ended by Ctrl-C)" : "");
    return s;
}

/* Both messages of a turn or none. */
static pl_status turn(chat *c, const pl_request_params *ask, size_t n_bytes, pl_error *err)
{
    const size_t before = json_array_size(c->messages);
    pl_status s;

    interrupted = 0;
    c->failed = false;
    c->n_content = 0;
    s = append(c, "user", c->line, n_bytes, err);
    if (s == PL_OK)
        s = speak(c, ask, err);
    if (s == PL_OK)
        s = append(c, "assistant", c->content ? c->content : "", c->n_content, err);
    pl_output_parser_destroy(c->parser);
    c->parser = NULL;
    while (s != PL_OK && json_array_size(c->messages) > before)
        (void)json_array_remove(c->messages, json_array_size(c->messages) - 1);
    return s;
}

/* ---- lines */

/* The next line without its end; false at the end of input. Longer ones are said and dropped. */
static bool read_line(chat *c, size_t *n_bytes)
{
    for (;;) {
        bool dropped = false;

        fputs("> ", stdout);
        (void)fflush(stdout);
        for (;;) {
            errno = 0;
            if (!fgets(c->line, MAX_LINE_BYTES, stdin)) {
                if (!interrupted || errno != EINTR)
                    return false;
                clearerr(stdin);
                interrupted = 0;
                fputs("\n(Ctrl-D ends, /help explains)\n", stdout);
                break;
            }
            *n_bytes = strcspn(c->line, "\n");
            if (c->line[*n_bytes] == '\n' || feof(stdin)) {
                c->line[*n_bytes] = 0;
                if (!dropped && *n_bytes)
                    return true;
                if (dropped)
                    fprintf(stderr, "plimsoll: chat: line is too long (want at most %d bytes)\n",
                            MAX_LINE_BYTES - 2);
                break;
            }
            dropped = true;
        }
    }
}

/* Whether the line was a command; *quit tells which. */
static bool command(chat *c, bool *quit)
{
    if (strcmp(c->line, "/quit") == 0 || strcmp(c->line, "/exit") == 0) {
        *quit = true;
    } else if (strcmp(c->line, "/clear") == 0) {
        (void)json_array_clear(c->messages);
        puts("(a new conversation)");
    } else if (strcmp(c->line, "/help") == 0) {
        puts("/clear   begin a new conversation\n/quit    leave, as Ctrl-D does\n"
             "Ctrl-C   end an answer");
    } else {
        return false;
    }
    return true;
}

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static pl_status loop(chat *c, const pl_request_params *ask, pl_error *err)
{
    bool quit = false;
    size_t n_bytes;

    printf("%s\n", "A conversation; /help explains, Ctrl-D ends.");
    while (!quit && read_line(c, &n_bytes)) {
        pl_status s;

        if (command(c, &quit))
            continue;
        s = turn(c, ask, n_bytes, err);
        if (s == PL_ERR_INVALID || s == PL_ERR_LIMIT)
            fprintf(stderr, "plimsoll: %s\n", err->msg);
        else
            PL_TRY(s);
    }
    if (!quit)
        putchar('\n');
    return PL_OK;
}

static pl_status begin(chat *c, pl_error *err)
{
    PL_TRY(pl_encoder_create(0, &c->encoder));
    c->messages = json_array();
    c->tokens = calloc((size_t)c->max_model_len, sizeof *c->tokens);
    c->line = malloc(MAX_LINE_BYTES);
    c->piece_bytes = pl_text_stream_max_bytes(c->tokenizer);
    c->piece = malloc(c->piece_bytes);
    if (!c->messages || !c->tokens || !c->line || !c->piece)
        return pl_error_set(err, PL_ERR_NOMEM, "chat: out of memory");
    return PL_OK;
}

pl_status pl_run_chat(pl_engine *engine, const pl_request_params *ask, pl_error *err)
{
    const struct sigaction on = {.sa_handler = on_interrupt};
    struct sigaction before;
    chat c = {
        .engine = engine,
        .tokenizer = pl_engine_tokenizer(engine),
        .options = pl_chat_options_default(),
        .max_model_len = pl_plan_totals_of(pl_engine_plan(engine)).max_model_len,
        .color = isatty(STDOUT_FILENO),
    };
    pl_status s;

    if (!c.tokenizer)
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "run: a conversation needs a tokenizer.json (want one in MODEL, or "
                            "--tokens)");
    c.options.revision = pl_engine_model_of(engine).is_refresh ? PL_CHAT_0731 : PL_CHAT_V4;
    /* No SA_RESTART: a line that waits is to be left. */
    if (sigaction(SIGINT, &on, &before) != 0)
        return pl_error_set(err, PL_ERR_IO, "chat: sigaction: %s", strerror(errno));
    s = begin(&c, err);
    if (s == PL_OK)
        s = loop(&c, ask, err);
    (void)sigaction(SIGINT, &before, NULL);
    json_decref(c.messages);
    pl_encoder_destroy(c.encoder);
    free(c.tokens);
    free(c.line);
    free(c.piece);
    free(c.content);
    return s;
}
