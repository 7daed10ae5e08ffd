/* Inside of a tokenizer: one block of memory, constant after open. */
#ifndef PL_TEXT_TOKENIZER_H
#define PL_TEXT_TOKENIZER_H

#include "text/bpe.h"
#include "text/source.h"
#include "text/unicode.h"

enum { PL_TOKEN_ADDED = 1, PL_TOKEN_SPECIAL = 2 };

struct pl_tokenizer {
    pl_arena arena; /* over this struct and all it points to */
    size_t block_bytes;
    pl_bpe bpe;        /* tokens[] holds added tokens too */
    uint32_t *offsets; /* by id, n_tokens + 1: where its bytes begin */
    uint8_t *bytes;
    uint8_t *flags; /* by id */
    uint32_t max_token_bytes;
    pl_trie added[2]; /* cut out of the text first and second: normalized false, true */
    int32_t role_ids[PL_TOKEN_ROLE_COUNT];
    pl_char_table chars;
};

typedef struct pl_token_bytes {
    const uint8_t *bytes;
    size_t n;
} pl_token_bytes;

/* The bytes of a token of the vocabulary. */
static inline pl_token_bytes pl__token_bytes(const pl_tokenizer *t, int32_t id)
{
    return (pl_token_bytes){t->bytes + t->offsets[id], t->offsets[id + 1] - t->offsets[id]};
}

/* Packs a source into a tokenizer. `name` stands for the file in errors. */
pl_status pl__tokenizer_build(const char *name, const pl_source *source, pl_tokenizer **out,
                              pl_error *err) PL_MUST_CHECK;

#endif
