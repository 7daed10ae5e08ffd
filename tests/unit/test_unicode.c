/* Character classes: every code point against the classes of the library that defines the ids. */
#include <string.h>

#include "support/check.h"
#include "support/lines.h"
#include "text/unicode.h"

enum { N_CODE_POINTS = 0x110000 };

static pl_char_table table;
static uint8_t want[N_CODE_POINTS];

static void mark(const json_t *classes, const char *name, uint8_t bit)
{
    const json_t *ranges = json_object_get(classes, name), *range;
    size_t i;

    assert_true(json_array_size(ranges) > 5);
    json_array_foreach(ranges, i, range)
    {
        json_int_t last = json_integer_value(json_array_get(range, 1));

        for (json_int_t c = json_integer_value(json_array_get(range, 0)); c <= last; c++)
            want[c] |= bit;
    }
}

static void mark_range(uint32_t first, uint32_t last, uint8_t bit)
{
    for (uint32_t c = first; c <= last; c++)
        want[c] |= bit;
}

static void every_code_point_has_its_class(void **state)
{
    json_t *classes = golden_json("tokenizer/unicode_classes.json");

    memset(&table, 0xAA, sizeof table);
    pl__char_table_init(&table);
    mark(classes, "L", PL_CHAR_LETTER);
    mark(classes, "M", PL_CHAR_LETTER);
    mark(classes, "P", PL_CHAR_PUNCT);
    mark(classes, "S", PL_CHAR_PUNCT);
    mark(classes, "N", PL_CHAR_NUMBER);
    mark(classes, "White_Space", PL_CHAR_SPACE);
    mark_range(0x4E00, 0x9FA5, PL_CHAR_CJK);
    mark_range(0x3040, 0x309F, PL_CHAR_CJK);
    mark_range(0x30A0, 0x30FF, PL_CHAR_CJK);
    want['\r'] |= PL_CHAR_BREAK;
    want['\n'] |= PL_CHAR_BREAK;
    for (const char *c = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"; *c; c++)
        want[(uint8_t)*c] |= PL_CHAR_ASCII_PUNCT;
    mark_range('A', 'Z', PL_CHAR_ASCII_ALPHA);
    mark_range('a', 'z', PL_CHAR_ASCII_ALPHA);
    for (uint32_t c = 0; c < N_CODE_POINTS; c++)
        if (pl__char_class(&table, c) != want[c])
            fail_msg("U+%04X: got 0x%02x, want 0x%02x", c, pl__char_class(&table, c), want[c]);
    json_decref(classes);
}

/* The scanner relies on it: only a character of no class or one class meets each pattern. */
static void classes_exclude_each_other(void **state)
{
    for (uint32_t c = 0; c < N_CODE_POINTS; c++) {
        unsigned class = pl__char_class(&table, c);
        unsigned main = class & (PL_CHAR_LETTER | PL_CHAR_PUNCT | PL_CHAR_SPACE | PL_CHAR_NUMBER);

        if (main & (main - 1) || (class & PL_CHAR_CJK && class & PL_CHAR_NUMBER))
            fail_msg("U+%04X is in two classes: 0x%02x", c, class);
    }
}

static void all_blocks_are_used(void **state)
{
    size_t last = 0;

    for (size_t i = 0; i < sizeof table.block_of; i++)
        if (table.block_of[i] > last)
            last = table.block_of[i];
    assert_int_equal(last + 1, PL_CHAR_BLOCKS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_has_its_class),
        cmocka_unit_test(classes_exclude_each_other),
        cmocka_unit_test(all_blocks_are_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
