/* Reading what a text command works on. */
#ifndef PL_CLI_INPUT_H
#define PL_CLI_INPUT_H

#include "plimsoll/status.h"

/* Reads the file `path` whole; NULL and "-" mean standard input. More than `max_bytes` is PL_ERR_OVERFLOW. On
 * success *text is malloc'ed and a 0 follows its *n_bytes bytes. The message names the file. */
pl_status pl_input_read(const char *path, size_t max_bytes, char **text, size_t *n_bytes,
                        pl_error *err) PL_MUST_CHECK;

/* The same name in words, for further errors: the path, or "standard input". */
const char *pl_input_name(const char *path);

#endif
