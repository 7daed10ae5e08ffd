/* What the split patterns need to know of a character, as one byte of bits. */
#ifndef PL_TEXT_UNICODE_H
#define PL_TEXT_UNICODE_H

#include <stdint.h>

/* LETTER, PUNCT, SPACE and NUMBER exclude each other; a character may be none of them. Unicode
 * 16.0: the version is part of what the ids mean, so it must not follow the one of an installed
 * library. */
enum {
    PL_CHAR_LETTER = 1,        /* \p{L} or \p{M} */
    PL_CHAR_PUNCT = 2,         /* \p{P} or \p{S} */
    PL_CHAR_SPACE = 4,         /* \s, the property White_Space */
    PL_CHAR_NUMBER = 8,        /* \p{N} */
    PL_CHAR_CJK = 16,          /* U+4E00-9FA5, U+3040-30FF: the second pattern's range, no NUMBER */
    PL_CHAR_BREAK = 32,        /* CR, LF; SPACE too */
    PL_CHAR_ASCII_ALPHA = 64,  /* A-Z, a-z; LETTER too */
    PL_CHAR_ASCII_PUNCT = 128, /* the 32 of ASCII; PUNCT too */
};

enum { PL_CHAR_BLOCKS = 151 }; /* distinct ones among the 4,352 blocks of 256 code points */

/* Two-stage table, filled once and constant afterwards. */
typedef struct pl_char_table {
    uint8_t block_of[0x110000 >> 8];
    uint8_t classes[PL_CHAR_BLOCKS][256];
} pl_char_table;

void pl__char_table_init(pl_char_table *table);

/* code_point <= 0x10FFFF */
static inline unsigned pl__char_class(const pl_char_table *table, uint32_t code_point)
{
    return table->classes[table->block_of[code_point >> 8]][code_point & 255];
}

#endif
