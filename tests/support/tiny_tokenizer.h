/* tokenizer.json texts for tests, small and changeable. */
#ifndef PL_TESTS_TINY_TOKENIZER_H
#define PL_TESTS_TINY_TOKENIZER_H

#include <jansson.h>

#include "plimsoll/text.h"

/* The structure of V4's file with the 256 byte tokens (id = byte), tokens made by `merges` ("a b",
 * printable ASCII; ids from 256), and added tokens after them: <bos> (special, not normalized),
 * <think> (neither), <user> (normalized), <user>x (normalized). The caller changes and frees it. */
json_t *tiny_tokenizer(const char *const *merges, size_t n_merges);

/* The value at "key.key[3].key"; fails the test where there is none. */
json_t *at_path(json_t *root, const char *path);

/* Sets the value at `path` to the JSON text `value`, or removes it where `value` is NULL. */
void change(json_t *root, const char *path, const char *value);

/* Opens the text of `root` under the name "tiny.json". */
pl_status open_tiny(const json_t *root, pl_tokenizer **out, pl_error *err);

#endif
