/* Byte-pair encoding as it is defined, carried out literally on strings: an oracle for
 * src/text/bpe.c. Shares nothing with it, not even the way a file is read. */
#ifndef PL_TESTS_REFERENCE_BPE_H
#define PL_TESTS_REFERENCE_BPE_H

#include <jansson.h>

typedef struct reference_bpe reference_bpe;

/* `root` is a tokenizer.json, borrowed until close. */
reference_bpe *reference_bpe_open(const json_t *root);
void reference_bpe_close(reference_bpe *r);

/* Encodes one piece of at least one byte; `ids` has room for n. Time grows with the square of n. */
size_t reference_bpe_run(const reference_bpe *r, const char *piece, size_t n, int32_t *ids);

/* The byte as a character of the byte alphabet, UTF-8 in out; returns its bytes. */
size_t reference_alphabet(unsigned char byte, char out[2]);

#endif
