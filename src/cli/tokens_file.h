/* Files of token ids: decimal numbers separated by commas or white space, one sequence. */
#ifndef PL_CLI_TOKENS_FILE_H
#define PL_CLI_TOKENS_FILE_H

#include "plimsoll/status.h"

/* Reads them all; the caller frees *tokens. NOT_FOUND or IO for the file, INVALID (with file and byte) for
 * what is no id, an id above 2^31 - 1, no id at all, or more than max_tokens. Ids are not compared with a
 * vocabulary. */
pl_status pl_tokens_read(const char *path, int32_t max_tokens, int32_t **tokens, int32_t *n,
                         pl_error *err) PL_MUST_CHECK;

/* The same from text, as in an argument; `name` stands for it in errors. */
pl_status pl_tokens_parse(const char *name, const char *text, size_t length, int32_t max_tokens,
                          int32_t **tokens, int32_t *n, pl_error *err) PL_MUST_CHECK;

#endif
