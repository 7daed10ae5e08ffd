/* JSON files of the golden folder. */
#ifndef PL_TESTS_LINES_H
#define PL_TESTS_LINES_H

#include <jansson.h>

/* PL_GOLDEN_DIR/name, one JSON document; strings may hold U+0000. Fails the test when it cannot be
 * read. */
json_t *golden_json(const char *name);

/* The same for a file with one document a line: an array of them. */
json_t *golden_lines(const char *name);

/* Array of whole numbers as int32; *n is its length. The caller frees it. */
int32_t *json_ids(const json_t *array, size_t *n);

#endif
