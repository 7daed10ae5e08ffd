/* The three split patterns of DeepSeek-V3 and V4 as one scanner.
 *
 *     1  \p{N}{1,3}
 *     2  [U+4E00-9FA5 U+3040-309F U+30A0-30FF]+
 *     3  [ASCII punctuation][A-Za-z]+ | [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ | ?[\p{P}\p{S}]+[\r\n]*
 *        | \s*[\r\n]+ | \s+(?!\S) | \s+
 *
 * run one after the other, each on every piece the one before left, matched or not; what lies
 * between matches is a piece too. Source: specification section 7.1. */
#ifndef PL_TEXT_PRETOKENIZE_H
#define PL_TEXT_PRETOKENIZE_H

#include <stddef.h>

#include "text/unicode.h"

/* The patterns as they stand in tokenizer.json, UTF-8. */
enum { PL_SPLIT_PATTERNS = 3 };
extern const char *const pl__split_patterns[PL_SPLIT_PATTERNS];

/* End of the piece that begins at `begin` in text[.. end), a segment without added tokens; `begin`
 * is the segment's first byte or the end of the piece before. begin < end; the text is well-formed
 * UTF-8. Walking a segment this way takes time linear in its bytes. */
size_t pl__pretokenize(const pl_char_table *table, const uint8_t *text, size_t begin, size_t end);

#endif
