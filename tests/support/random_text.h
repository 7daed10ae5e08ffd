/* Random strings as the golden digests use them (tests/oracle/tokenizer/README.md, "Random
 * strings"). */
#ifndef PL_TESTS_RANDOM_TEXT_H
#define PL_TESTS_RANDOM_TEXT_H

#include <stddef.h>
#include <stdint.h>

typedef struct random_source {
    uint64_t state; /* the seed at first */
} random_source;

uint64_t random_next(random_source *r); /* splitmix64 */
uint32_t random_below(random_source *r, uint32_t n);

typedef struct code_block {
    uint32_t first, last;
} code_block;

enum { RANDOM_TEXT_BYTES = 256 }; /* at most 64 characters of 4 */

/* The next string as UTF-8; returns its bytes. */
size_t random_text(random_source *r, const code_block *blocks, uint32_t n_blocks, char *out);

size_t put_utf8(uint32_t code_point, char *out);

#endif
