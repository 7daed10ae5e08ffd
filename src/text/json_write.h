/* JSON as Python's json.dumps(value, ensure_ascii=False) writes it: ", " and ": " between, whole numbers in
 * full, reals as Python's repr, only what must be escaped escaped. */
#ifndef PL_TEXT_JSON_WRITE_H
#define PL_TEXT_JSON_WRITE_H

#include "text/json_buffer.h"
#include "text/json_value.h"

/* The value; recursion is bounded by PL_JSON_MAX_DEPTH. */
void pl_json_write(pl_json_buffer *out, const pl_json_value *value);

/* Text as a JSON string with its quotes, and the same without them: pieces of a text escaped one by one give
 * the whole escaped. */
void pl_json_write_string(pl_json_buffer *out, const char *text, size_t n);
void pl_json_write_escaped(pl_json_buffer *out, const char *text, size_t n);

#endif
