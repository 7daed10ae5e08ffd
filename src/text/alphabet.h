/* The byte alphabet of byte-level vocabularies: every byte stands as one printable character. Bytes
 * 21-7E, A1-AC, AE-FF are the characters of the same number, the other 68 are U+0100 onwards. */
#ifndef PL_TEXT_ALPHABET_H
#define PL_TEXT_ALPHABET_H

#include "plimsoll/status.h"

/* Bytes that `text` (well-formed UTF-8) spells, written to `out` (n_bytes are enough; may be `text`
 * itself). Returns how many, or SIZE_MAX where a character is not of the alphabet. */
size_t pl__alphabet_bytes(const uint8_t *text, size_t n_bytes, uint8_t *out);

#endif
