/* JSON text exactly as Python's json module writes it, for files that are compared byte for byte. */
#ifndef PL_MODEL_PYJSON_H
#define PL_MODEL_PYJSON_H

#include <stdio.h>

#include <jansson.h>

enum { PL_PYJSON_DOUBLE_BYTES = 32 };

/* `value` as json.dump(value, file, indent=1) writes it: one item a line, keys in the order in which
 * they were inserted, everything outside ASCII escaped. Write errors stay in the FILE, as with fprintf.
 * Depth is bounded by jansson's parser. */
void pl_pyjson_write(FILE *to, const json_t *value);

/* A JSON string with its quotes. `text` is UTF-8. */
void pl_pyjson_write_string(FILE *to, const char *text);

/* repr(x) of a finite number: the shortest digits that read back as x and, of those, the nearest. */
void pl_pyjson_format_double(double x, char text[PL_PYJSON_DOUBLE_BYTES]);

#endif
