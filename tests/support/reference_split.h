/* The split patterns carried out by PCRE2, as an oracle for the scanner in src/text/pretokenize.c. */
#ifndef PL_TESTS_REFERENCE_SPLIT_H
#define PL_TESTS_REFERENCE_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct reference_split reference_split;

/* Compiles the golden pattern set "full" (Unicode 16 on a PCRE2 of Unicode 14 or later). NULL, with
 * a line on standard output that says why, where the installed PCRE2 is newer than Unicode 16: its
 * classes then hold characters that the file's meaning does not. */
reference_split *reference_split_open(void);
void reference_split_close(reference_split *r);

/* Ends of the pieces of text[0 .. n), well-formed UTF-8 without added tokens; `ends` has room for
 * n. */
size_t reference_split_run(reference_split *r, const char *text, size_t n, size_t *ends);

#endif
