/* A tokenizer's life and its table of tokens. */
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file_text.h"

pl_status pl_tokenizer_open_memory(const char *name, const char *json, size_t json_bytes,
                                   pl_tokenizer **out, pl_error *err)
{
    pl_source source;
    pl_status status;

    *out = NULL;
    PL_TRY(pl__source_read(name, json, json_bytes, &source, err));
    status = pl__tokenizer_build(name, &source, out, err);
    pl__source_free(&source);
    return status;
}

pl_status pl_tokenizer_open(const char *path, pl_tokenizer **out, pl_error *err)
{
    struct stat st;
    char *inside = NULL, *text;
    size_t n_bytes;
    pl_status status;

    *out = NULL;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (asprintf(&inside, "%s/tokenizer.json", path) < 0)
            return pl_error_set(err, PL_ERR_NOMEM, "%s: out of memory", path);
        path = inside;
    }
    status = pl_file_text_read(path, PL_SOURCE_MAX_BYTES, &text, &n_bytes, err);
    if (status == PL_OK)
        status = pl_tokenizer_open_memory(path, text, n_bytes, out, err);
    free(text);
    free(inside);
    return status;
}

void pl_tokenizer_close(pl_tokenizer *tokenizer)
{
    pl_arena arena;

    if (!tokenizer)
        return;
    arena = tokenizer->arena; /* it lies in the block that it covers */
    pl_arena_fini(&arena);
    free(tokenizer);
}

int32_t pl_tokenizer_vocab_size(const pl_tokenizer *tokenizer)
{
    return tokenizer->bpe.n_tokens;
}

size_t pl_tokenizer_memory_bytes(const pl_tokenizer *tokenizer)
{
    return tokenizer->block_bytes;
}

const char *pl_tokenizer_token(const pl_tokenizer *tokenizer, int32_t id, size_t *n_bytes)
{
    pl_token_bytes t = {NULL, 0};

    if (id >= 0 && id < tokenizer->bpe.n_tokens)
        t = pl__token_bytes(tokenizer, id);
    *n_bytes = t.n;
    return (const char *)t.bytes;
}

int32_t pl_tokenizer_find(const pl_tokenizer *tokenizer, const char *text, size_t n_bytes)
{
    int32_t found = -1;

    for (int32_t id = 0; id < tokenizer->bpe.n_tokens; id++) {
        pl_token_bytes t = pl__token_bytes(tokenizer, id);

        if (t.n != n_bytes || memcmp(t.bytes, text, n_bytes) != 0)
            continue;
        if (tokenizer->flags[id] & PL_TOKEN_ADDED)
            return id;
        found = id;
    }
    return found;
}

bool pl_tokenizer_is_special(const pl_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->bpe.n_tokens && tokenizer->flags[id] & PL_TOKEN_SPECIAL;
}

int32_t pl_tokenizer_role_id(const pl_tokenizer *tokenizer, pl_token_role role)
{
    return (unsigned)role < PL_TOKEN_ROLE_COUNT ? tokenizer->role_ids[role] : -1;
}
