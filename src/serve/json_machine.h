/* A JSON value, byte by byte: what may come next, and how far it is to the end.
 *
 * What it accepts is JSON that parsers without special favours read: escapes of surrogates only in pairs, whole numbers of at
 * most 18 digits, exponents of two, nesting of at most 64, no more than 128 bytes of white space in a row. In
 * strings U+FF5C is left out (an escape can say it): special tokens are spelt with it. Source: RFC 8259. */
#ifndef PL_SERVE_JSON_MACHINE_H
#define PL_SERVE_JSON_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

enum { PL_JSON_MACHINE_DEPTH = 64 };

typedef struct pl_json_machine {
    uint8_t state, in_key, n_space, n_digits, bar, depth;
    const char *word; /* what is left of true, false or null */
    uint64_t objects; /* bit d: the container at depth d is an object */
} pl_json_machine;

/* Any value, or an object alone. */
pl_json_machine pl_json_machine_value(void);
pl_json_machine pl_json_machine_object(void);

/* False where the byte may not come; the machine is then of no use. */
bool pl_json_machine_push(pl_json_machine *m, unsigned char byte);

/* Whether the value may end here. */
bool pl_json_machine_may_end(const pl_json_machine *m);

/* Whether it is inside a string, where a text without quotes, backslashes, control characters and bytes of U+FF5C
 * changes nothing. */
bool pl_json_machine_in_string(const pl_json_machine *m);

/* Bytes of the shortest end; 0: it may end here. Wherever it is more than 0 some byte makes it less. */
int pl_json_machine_distance(const pl_json_machine *m);

#endif
