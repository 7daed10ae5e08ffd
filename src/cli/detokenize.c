/* plimsoll detokenize: token ids to text. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/token_list.h"
#include "plimsoll/text.h"

enum { MAX_INPUT_BYTES = 256 << 20 };

struct options {
    bool skip_special, raw;
};

static const pl_option option_table[] = {
    {"--skip-special-tokens", PL_OPTION_FLAG, NULL, "leave out the tokens marked special",
     offsetof(struct options, skip_special), 0, 0, NULL, NULL},
    {"--raw", PL_OPTION_FLAG, NULL,
     "print the tokens' bytes as they are, even where they are not UTF-8",
     offsetof(struct options, raw), 0, 0, NULL, NULL},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL, NULL},
};

/* The text, malloc'ed. */
static pl_status decode(const pl_tokenizer *t, const int32_t *ids, size_t n_ids, unsigned flags,
                        char **text, size_t *n_bytes, pl_error *err)
{
    PL_TRY(pl_tokenizer_decode(t, ids, n_ids, flags, NULL, 0, n_bytes, err));
    *text = malloc(*n_bytes + 1);
    if (!*text)
        return pl_error_set(err, PL_ERR_NOMEM, "tokenizer: no memory for %zu bytes", *n_bytes);
    return pl_tokenizer_decode(t, ids, n_ids, flags, *text, *n_bytes, n_bytes, err);
}

static pl_status convert(const struct options *o, const char *model, const char *path,
                         pl_error *err)
{
    unsigned flags =
        (o->skip_special ? PL_DECODE_SKIP_SPECIAL : 0u) | (o->raw ? PL_DECODE_RAW : 0u);
    pl_tokenizer *tokenizer = NULL;
    pl_token_list_rules rules = {.json = true, .may_be_empty = true};
    char *text = NULL;
    int32_t *ids = NULL;
    size_t n_bytes = 0, n_ids = 0;
    pl_status status = pl_tokenizer_open(model, &tokenizer, err);

    if (status == PL_OK) {
        rules.vocab_size = pl_tokenizer_vocab_size(tokenizer);
        status = pl_token_list_read(path, MAX_INPUT_BYTES, &rules, &ids, &n_ids, err);
    }
    if (status == PL_OK)
        status = decode(tokenizer, ids, n_ids, flags, &text, &n_bytes, err);
    if (status == PL_OK)
        fwrite(text, 1, n_bytes, stdout);
    free(text);
    free(ids);
    pl_tokenizer_close(tokenizer);
    return status;
}

static int run(int argc, char **argv)
{
    struct options o = {0};
    const char *args[2];
    pl_error err = {0};
    int status;

    if (!pl_options_parse(&pl_command_detokenize, argc, argv, &o, args, &status))
        return status;
    return convert(&o, args[0], args[1], &err) == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
}

const pl_command pl_command_detokenize = {
    .name = "detokenize",
    .usage = "MODEL|tokenizer.json [FILE|-] [options]",
    .summary = "turn token ids into text",
    .details =
        "Reads decimal ids separated by commas or white space, or the JSON that 'tokenize --json'\n"
        "prints, from FILE or standard input. Prints the text without a newline added; what the\n"
        "tokens spell that is not UTF-8 comes out as U+FFFD.",
    .options = option_table,
    .min_args = 1,
    .max_args = 2,
    .run = run,
};
