/* UTF-8 as far as every folder needs it: is it well formed, and can it be shown on one line. */
#ifndef PL_BASE_UTF8_H
#define PL_BASE_UTF8_H

#include <stddef.h>
#include <stdio.h>

/* Bytes of the character at `text`, of which `n_bytes` (at least 1) may be read; 0 where no well-formed one starts:
 * overlong forms, surrogates and code points above U+10FFFF are not well formed. */
size_t pl_utf8_length(const char *text, size_t n_bytes);

/* Replaces what does not print by '?', in place: control characters, U+0080..U+009F among them, and bytes that
 * are not UTF-8, such as half a character at a cut. */
void pl_utf8_make_printable(char *text);

/* Writes `text` in that form. Write errors are left to ferror(). */
void pl_utf8_print(FILE *to, const char *text);

#endif
