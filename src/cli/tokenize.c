/* plimsoll tokenize: text to token ids. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "plimsoll/text.h"

enum { MAX_INPUT_BYTES = 256 << 20 };

struct options {
    bool json, plain;
};

static const pl_option option_table[] = {
    {"--json", PL_OPTION_FLAG, NULL, "print {\"tokens\": [..]}", offsetof(struct options, json), 0,
     0, NULL, NULL},
    {"--plain", PL_OPTION_FLAG, NULL, "recognise no added tokens, for text from strangers",
     offsetof(struct options, plain), 0, 0, NULL, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL, NULL},
};

/* Ids of the text, malloc'ed. UTF-8 has at most one a byte; other text is encoded a second time. */
static pl_status encode(const pl_tokenizer *t, const char *text, size_t n_bytes,
                        pl_encode_mode mode, int32_t **ids, size_t *n_ids, pl_error *err)
{
    pl_encoder *encoder;
    pl_status status = PL_OK;
    size_t room = 0;

    *ids = NULL;
    *n_ids = n_bytes;
    if (pl_encoder_create(0, &encoder) != PL_OK)
        return pl_error_set(err, PL_ERR_NOMEM, "tokenizer: out of memory");
    while (status == PL_OK && room < *n_ids) {
        room = *n_ids;
        free(*ids);
        *ids = malloc(room * sizeof **ids);
        status = *ids ? pl_tokenizer_encode(t, encoder, text, n_bytes, mode, *ids, room, n_ids, err)
                      : pl_error_set(err, PL_ERR_NOMEM, "tokenizer: no memory for %zu ids", room);
    }
    pl_encoder_destroy(encoder);
    return status;
}

static void print_ids(const int32_t *ids, size_t n_ids, bool json)
{
    if (json)
        printf("{\"tokens\": [");
    for (size_t i = 0; i < n_ids; i++)
        printf("%s%d", i == 0 ? "" : json ? ", " : " ", ids[i]);
    if (json)
        printf("]}");
}

static pl_status convert(const struct options *o, const char *model, const char *path,
                         pl_error *err)
{
    pl_tokenizer *tokenizer = NULL;
    char *text = NULL;
    int32_t *ids = NULL;
    size_t n_bytes = 0, n_ids = 0;
    pl_status status = pl_tokenizer_open(model, &tokenizer, err);

    if (status == PL_OK)
        status = pl_input_read(path, MAX_INPUT_BYTES, &text, &n_bytes, err);
    if (status == PL_OK)
        status = encode(tokenizer, text, n_bytes,
                        o->plain ? PL_ENCODE_PLAIN : PL_ENCODE_ADDED_TOKENS, &ids, &n_ids, err);
    if (status == PL_OK)
        print_ids(ids, n_ids, o->json);
    free(ids);
    free(text);
    pl_tokenizer_close(tokenizer);
    return status;
}

static int run(int argc, char **argv)
{
    struct options o = {0};
    const char *args[2];
    pl_error err = {0};
    int status;

    if (!pl_options_parse(&pl_command_tokenize, argc, argv, &o, args, &status))
        return status;
    return convert(&o, args[0], args[1], &err) == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
}

const pl_command pl_command_tokenize = {
    .name = "tokenize",
    .usage = "MODEL|tokenizer.json [FILE|-] [options]",
    .summary = "turn text into token ids",
    .details =
        "Reads the text from FILE or standard input, byte for byte, and prints the ids separated "
        "by\n"
        "spaces, without a newline added. No token that begins a text is put in front. Bytes that\n"
        "are not UTF-8 count as U+FFFD.",
    .options = option_table,
    .min_args = 1,
    .max_args = 2,
    .run = run,
};
