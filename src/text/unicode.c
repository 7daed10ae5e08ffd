/* Character classes: the ranges of unicode_ranges.h spread into a two-stage table at open.
 *
 * Ranges are what a reader can check against the standard; the table is what the splitter can
 * afford to read for every character. Equal blocks are stored once. */
#include "text/unicode.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "text/unicode_ranges.h"

static const pl_char_range cjk_ranges[] = {{0x3040, 0x30FF}, {0x4E00, 0x9FA5}};
static const pl_char_range break_ranges[] = {{'\n', '\n'}, {'\r', '\r'}};
static const pl_char_range ascii_alpha_ranges[] = {{'A', 'Z'}, {'a', 'z'}};
static const pl_char_range ascii_punct_ranges[] = {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}};

/* The ranges of one class and how far the blocks have come in them. */
typedef struct class_cursor {
    const pl_char_range *range, *end;
    uint8_t bit;
} class_cursor;

static void add_class(class_cursor *c, uint32_t block_first, uint8_t classes[256])
{
    for (; c->range < c->end && c->range->first < block_first + 256; c->range++) {
        uint32_t first = c->range->first > block_first ? c->range->first - block_first : 0;
        uint32_t last = c->range->last - block_first;

        for (uint32_t i = first; i <= last && i < 256; i++)
            classes[i] |= c->bit;
        if (last >= 256)
            return; /* goes on in the next block */
    }
}

/* Index of a block with these contents among the n stored; n where there is none. */
static size_t find_block(const pl_char_table *table, size_t n, const uint8_t classes[256])
{
    for (size_t i = n; i-- > 0;) /* from the end: neighbours are mostly equal */
        if (memcmp(table->classes[i], classes, 256) == 0)
            return i;
    return n;
}

void pl__char_table_init(pl_char_table *table)
{
#define CLASS(ranges, bit) {ranges, ranges + sizeof ranges / sizeof *ranges, bit}
    class_cursor cursors[] = {
        CLASS(letter_ranges, PL_CHAR_LETTER),
        CLASS(punct_ranges, PL_CHAR_PUNCT),
        CLASS(number_ranges, PL_CHAR_NUMBER),
        CLASS(space_ranges, PL_CHAR_SPACE),
        CLASS(cjk_ranges, PL_CHAR_CJK),
        CLASS(break_ranges, PL_CHAR_BREAK),
        CLASS(ascii_alpha_ranges, PL_CHAR_ASCII_ALPHA),
        CLASS(ascii_punct_ranges, PL_CHAR_ASCII_PUNCT),
    };
#undef CLASS
    size_t n_blocks = 0;

    for (size_t block = 0; block < sizeof table->block_of; block++) {
        uint8_t classes[256] = {0};
        size_t i;

        for (size_t c = 0; c < sizeof cursors / sizeof cursors[0]; c++)
            add_class(&cursors[c], (uint32_t)block << 8, classes);
        i = find_block(table, n_blocks, classes);
        if (i == n_blocks) {
            assert(n_blocks < PL_CHAR_BLOCKS);
            memcpy(table->classes[n_blocks++], classes, sizeof classes);
        }
        table->block_of[block] = (uint8_t)i;
    }
}
