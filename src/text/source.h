/* What a tokenizer.json says, checked and resolved, before it is packed into a tokenizer.
 * Everything is on the heap and lives only while a file is being opened. */
#ifndef PL_TEXT_SOURCE_H
#define PL_TEXT_SOURCE_H

#include "text/bpe.h"

enum {
    PL_SOURCE_MAX_BYTES = 64 << 20, /* of a tokenizer.json; V4's has 6.4 million */
    PL_SOURCE_MAX_VALUES = 4 << 20, /* JSON values in it: bounds what parsing allocates */
};

typedef struct pl_source_token {
    const uint8_t *bytes; /* n_bytes > 0 */
    uint32_t n_bytes;
    bool by_merges;  /* spelled in the byte alphabet: a byte or something merges may make */
    bool added;      /* cut out of the text before anything else */
    bool normalized; /* added: searched for after those that are not */
    bool special;    /* added: dropped by skip_special_tokens */
} pl_source_token;

typedef struct pl_source {
    pl_source_token *tokens; /* by id */
    int32_t n_tokens;
    pl_merge *merges; /* by rank */
    int32_t *made;    /* token that each makes */
    int32_t n_merges;
    bool ignore_merges; /* a piece that is a token becomes that token, whatever the merges say */
    uint8_t *pool;      /* the tokens' bytes */
} pl_source;

/* Reads the file's text. `name` stands for the file in errors. On failure nothing is left to free. */
pl_status pl__source_read(const char *name, const char *json, size_t json_bytes, pl_source *out,
                          pl_error *err) PL_MUST_CHECK;
void pl__source_free(pl_source *source);

#endif
