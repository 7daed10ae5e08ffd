/* A whole small file in memory: configurations, indexes, vocabularies. */
#ifndef PL_BASE_FILE_TEXT_H
#define PL_BASE_FILE_TEXT_H

#include <stddef.h>

#include "plimsoll/status.h"

/* Reads the regular file `path` into *text, which the caller frees, with a zero byte behind its *n_bytes bytes. On error
 * *text is NULL: PL_ERR_NOT_FOUND where there is no such file, PL_ERR_INVALID for what is not a regular file,
 * PL_ERR_CORRUPT above max_bytes, PL_ERR_IO, PL_ERR_NOMEM. */
pl_status pl_file_text_read(const char *path, size_t max_bytes, char **text, size_t *n_bytes,
                            pl_error *err);

#endif
