/* Token ids as users write them. */
#ifndef PL_CLI_TOKEN_LIST_H
#define PL_CLI_TOKEN_LIST_H

#include "plimsoll/status.h"

/* Reads decimal ids separated by commas or white space, or JSON: an array of ids, or an object with
 * one under "tokens" (what `tokenize --json` prints). Every id must be below `vocab_size`. `name`
 * stands for the text in errors. On success *ids is malloc'ed; it may be empty. */
pl_status pl_token_list_parse(const char *name, const char *text, size_t n_bytes,
                              int32_t vocab_size, int32_t **ids, size_t *n_ids,
                              pl_error *err) PL_MUST_CHECK;

#endif
