/* Prompts from options. Token lists are read as they are; texts go through the tokenizer, chats through the encoding of
 * conversations first. */
#include "cli/run_prompts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/input.h"
#include "cli/token_list.h"

enum { MAX_FILE_BYTES = 256 << 20 };

static pl_status add(pl_run_prompts *p, const char *where, pl_run_prompt_kind kind,
                     const char *value, pl_error *err)
{
    PL_CHECK(p->n < PL_RUN_MAX_PROMPTS, err, "%s: too many prompts (want at most %d)", where,
             PL_RUN_MAX_PROMPTS);
    if (p->n == 0) {
        p->prompt = calloc(PL_RUN_MAX_PROMPTS, sizeof *p->prompt);
        if (!p->prompt)
            return pl_error_set(err, PL_ERR_NOMEM, "%s: out of memory", where);
    }
    p->prompt[p->n++] = (pl_run_prompt){.kind = kind, .value = value};
    return PL_OK;
}

pl_status pl_run_prompts_add(pl_run_prompts *p, const char *option, const char *value,
                             pl_error *err)
{
    static const struct {
        const char *option;
        pl_run_prompt_kind kind;
    } kinds[] = {
        {"--prompt", PL_RUN_TEXT},
        {"--chat", PL_RUN_CHAT},
        {"--tokens", PL_RUN_TOKENS},
        {"--tokens-file", PL_RUN_TOKENS_FILE},
    };
    size_t k = 0;

    while (strcmp(kinds[k].option, option) != 0)
        k++;
    return add(p, option, kinds[k].kind, value, err);
}

pl_status pl_run_prompts_add_input(pl_run_prompts *p, pl_error *err)
{
    size_t n_bytes;
    char *text;
    pl_status s;

    PL_TRY(pl_input_read(NULL, MAX_FILE_BYTES, &text, &n_bytes, err));
    if (n_bytes == 0)
        s = pl_error_set(err, PL_ERR_INVALID,
                         "run: no prompt, and standard input is empty (want --prompt, --chat, "
                         "--tokens, --tokens-file or a text there)");
    else if (strlen(text) != n_bytes)
        s = pl_error_set_at(err, PL_ERR_INVALID, strlen(text),
                            "standard input: zero byte at %zu (want text)", strlen(text));
    else
        s = add(p, "standard input", PL_RUN_INPUT, text, err);
    if (s != PL_OK)
        free(text);
    return s;
}

static pl_status out_of_memory(pl_error *err)
{
    return pl_error_set(err, PL_ERR_NOMEM, "run: out of memory for a prompt");
}

/* ---- lists of ids */

static pl_status take_ids(pl_run_prompt *p, pl_error *err)
{
    const pl_token_list_rules rules = {.max_ids =
                                           INT32_MAX}; /* the engine compares with its vocabulary */
    size_t n = 0;

    if (p->kind == PL_RUN_TOKENS_FILE)
        PL_TRY(pl_token_list_read(p->value, MAX_FILE_BYTES, &rules, &p->tokens, &n, err));
    else
        PL_TRY(pl_token_list_parse("--tokens", p->value, strlen(p->value), &rules, &p->tokens, &n,
                                   err));
    p->n_tokens = (int32_t)n;
    return PL_OK;
}

/* ---- texts */

typedef struct texts {
    pl_tokenizer *tokenizer;
    pl_encoder *encoder;
    const pl_engine_model *model;
} texts;

/* A text of n bytes has at most 3 n ids (plimsoll/text.h); one more for what stands in front. */
static pl_status allocate(size_t n_bytes, pl_run_prompt *p, pl_error *err)
{
    p->tokens = malloc((3 * n_bytes + 1) * sizeof *p->tokens);
    return p->tokens ? PL_OK : out_of_memory(err);
}

static void shrink(pl_run_prompt *p, size_t n)
{
    int32_t *smaller = realloc(p->tokens, n * sizeof *p->tokens);

    p->tokens = smaller ? smaller : p->tokens;
    p->n_tokens = (int32_t)n;
}

static pl_status encode_text(const texts *t, pl_run_prompt *p, pl_error *err)
{
    size_t n_bytes = strlen(p->value), n;

    p->tokens[0] = t->model->bos_token_id;
    PL_TRY(pl_tokenizer_encode(t->tokenizer, t->encoder, p->value, n_bytes, PL_ENCODE_ADDED_TOKENS,
                               p->tokens + 1, 3 * n_bytes, &n, err));
    shrink(p, n + 1);
    return PL_OK;
}

/* [{"role": "user", "content": TEXT}]; the caller frees it. */
static char *conversation(const char *text)
{
    static const char before[] = "[{\"role\": \"user\", \"content\": \"", after[] = "\"}]";
    size_t n = strlen(text);
    char *json = malloc(6 * n + sizeof before + sizeof after), *to = json;

    if (!json)
        return NULL;
    to = stpcpy(to, before);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            *to++ = '\\';
        if (c < 0x20)
            to += sprintf(to, "\\u%04x", c);
        else
            *to++ = (char)c;
    }
    (void)stpcpy(to, after);
    return json;
}

static pl_status encode_chat(const texts *t, pl_run_prompt *p, pl_error *err)
{
    pl_text_range *ranges = malloc((pl_prompt_n_segments(p->chat) + 1) * sizeof *ranges);
    size_t n_bytes, n = 0;
    const char *text = pl_prompt_text(p->chat, &n_bytes);
    pl_status s = PL_OK;

    if (!ranges)
        return out_of_memory(err);
    s = pl_tokenizer_encode_ranges(t->tokenizer, t->encoder, text, n_bytes, ranges,
                                   pl_prompt_plain_ranges(p->chat, ranges), p->tokens,
                                   3 * n_bytes + 1, &n, err);
    if (s == PL_OK)
        shrink(p, n);
    free(ranges);
    pl_prompt_destroy(p->chat);
    p->chat = NULL;
    return s;
}

static pl_status prepare_chat(const pl_engine_model *model, pl_run_prompt *p, pl_error *err)
{
    pl_chat_options options = pl_chat_options_default();
    char *json = conversation(p->value);
    size_t n_bytes = 0;
    pl_status s;

    if (!json)
        return out_of_memory(err);
    options.revision = model->is_refresh ? PL_CHAT_0731 : PL_CHAT_V4;
    s = pl_chat_encode(json, strlen(json), &options, &p->chat, err);
    free(json);
    if (s != PL_OK) {
        pl_error_prefix(err, "--chat");
        return s;
    }
    (void)pl_prompt_text(p->chat, &n_bytes);
    return allocate(n_bytes, p, err);
}

/* All but the tokenizer's work. What is kept is allocated here: behind the tokenizer's memory it would keep that
 * in the heap. */
static pl_status prepare(const pl_engine_model *model, pl_run_prompt *p, pl_error *err)
{
    switch (p->kind) {
    case PL_RUN_TEXT:
    case PL_RUN_INPUT:
        return allocate(strlen(p->value), p, err);
    case PL_RUN_CHAT:
        return prepare_chat(model, p, err);
    case PL_RUN_TOKENS:
    case PL_RUN_TOKENS_FILE:
        return take_ids(p, err);
    }
    return pl_error_set(err, PL_ERR_INTERNAL, "run: prompt of unknown kind");
}

static bool is_text(const pl_run_prompt *p)
{
    return p->kind != PL_RUN_TOKENS && p->kind != PL_RUN_TOKENS_FILE;
}

static pl_status encode(const texts *t, pl_run_prompt *p, pl_error *err)
{
    if (!is_text(p))
        return PL_OK;
    return p->kind == PL_RUN_CHAT ? encode_chat(t, p, err) : encode_text(t, p, err);
}

static bool needs_tokenizer(const pl_run_prompts *p)
{
    for (int i = 0; i < p->n; i++)
        if (is_text(&p->prompt[i]))
            return true;
    return false;
}

pl_status pl_run_prompts_read(pl_run_prompts *p, const char *dir, const pl_engine_model *model,
                              pl_error *err)
{
    texts t = {.model = model};
    pl_status s = PL_OK;

    for (int i = 0; i < p->n; i++)
        PL_TRY(prepare(model, &p->prompt[i], err));
    if (!needs_tokenizer(p))
        return PL_OK;
    PL_TRY(pl_tokenizer_open(dir, &t.tokenizer, err));
    s = pl_encoder_create(0, &t.encoder);
    if (s != PL_OK)
        (void)out_of_memory(err);
    for (int i = 0; i < p->n && s == PL_OK; i++)
        s = encode(&t, &p->prompt[i], err);
    pl_encoder_destroy(t.encoder);
    pl_tokenizer_close(t.tokenizer);
    return s;
}

int32_t pl_run_prompts_longest(const pl_run_prompts *p)
{
    int32_t longest = 0;

    for (int i = 0; i < p->n; i++)
        if (p->prompt[i].n_tokens > longest)
            longest = p->prompt[i].n_tokens;
    return longest;
}

uint64_t pl_run_prompts_bytes(const pl_run_prompts *p)
{
    uint64_t bytes = 0;

    for (int i = 0; i < p->n; i++)
        bytes += (uint64_t)p->prompt[i].n_tokens * sizeof(int32_t);
    return bytes;
}

void pl_run_prompts_free(pl_run_prompts *p)
{
    for (int i = 0; i < p->n; i++) {
        if (p->prompt[i].kind == PL_RUN_INPUT)
            free((char *)p->prompt[i].value);
        pl_prompt_destroy(p->prompt[i].chat);
        free(p->prompt[i].tokens);
    }
    free(p->prompt);
    *p = (pl_run_prompts){0};
}
