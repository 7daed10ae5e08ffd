/* Golden files that are text or JSON, read whole. */
#ifndef PL_TESTS_TEXTFILE_H
#define PL_TESTS_TEXTFILE_H

#include <jansson.h>
#include <stddef.h>

/* The bytes of PL_GOLDEN_DIR/name with a 0 behind them; fails the test when there is no such file. The caller
 * frees them. */
char *textfile_read(const char *name, size_t *n_bytes);

/* The same parsed as JSON; the caller drops the reference. */
json_t *textfile_json(const char *name);

#endif
