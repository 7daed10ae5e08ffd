/* Token ids as users write them: the one reader of such lists. */
#ifndef PL_CLI_TOKEN_LIST_H
#define PL_CLI_TOKEN_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plimsoll/status.h"

typedef struct pl_token_list_rules {
    int32_t
        vocab_size; /* every id is below it; 0: whoever uses them checks, up to 2^31 - 1 are fine */
    size_t max_ids; /* 0: any number */
    bool json;      /* also an array of ids, or an object with one under "tokens" */
    bool may_be_empty;
} pl_token_list_rules;

/* Reads decimal ids separated by white space or one comma; a comma may stand behind the last. `name` stands for the
 * text in errors: INVALID, with the byte where there is one. On success *ids is malloc'ed, else NULL. */
pl_status pl_token_list_parse(const char *name, const char *text, size_t n_bytes,
                              const pl_token_list_rules *rules, int32_t **ids, size_t *n_ids,
                              pl_error *err) PL_MUST_CHECK;

/* The same from a file, "-" or NULL: standard input, of at most max_bytes; errors as pl_input_read. */
pl_status pl_token_list_read(const char *path, size_t max_bytes, const pl_token_list_rules *rules,
                             int32_t **ids, size_t *n_ids, pl_error *err) PL_MUST_CHECK;

#endif
