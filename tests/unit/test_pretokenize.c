/* The scanner against PCRE2 and against the piece ends of the reference library. */
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/lines.h"
#include "support/random_text.h"
#include "support/reference_split.h"
#include "text/pretokenize.h"

static pl_char_table table;
static reference_split *oracle;

static int set_up(void **state)
{
    pl__char_table_init(&table);
    oracle = reference_split_open();
    return 0;
}

static int tear_down(void **state)
{
    reference_split_close(oracle);
    return 0;
}

static size_t split(const char *text, size_t n, size_t *ends)
{
    size_t n_ends = 0;

    for (size_t at = 0; at < n;) {
        at = pl__pretokenize(&table, (const uint8_t *)text, at, n);
        ends[n_ends++] = at;
    }
    return n_ends;
}

static void fail_with_text(const char *text, size_t n, size_t piece, size_t got, size_t want)
{
    char *hex = calloc(1, 2 * n + 1);

    for (size_t i = 0; i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", (uint8_t)text[i]);
    fail_msg("piece %zu ends at %zu, want %zu; text: %s", piece, got, want, hex);
}

static void check_against_oracle(const char *text, size_t n)
{
    size_t *got = calloc(n + 1, sizeof *got), *want = calloc(n + 1, sizeof *want);

    split(text, n, got);
    reference_split_run(oracle, text, n, want);
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_with_text(text, n, i, got[i], want[i]);
    free(got);
    free(want);
}

/* Rows show a text with bars between its pieces. */
static void pieces_by_hand(void **state)
{
    static const char *const rows[] = {
        "Hello|,| world|!",
        "a|  |1", /* the number is a piece before spaces are looked at: they see the end of theirs */
        "a| | b",
        "a|\n\n|  | x",
        "  \n \n|  | x",
        "don|'t|.$_|x",
        "a|123|456|7|b",
        "日本語かな|・|カナ|。",
        "x| |中文",
        "e\xCC\x81\xCC\x81|2",
        "\x01|\x02"
        "a",
        "!!!\n\n|a",
        " !?\r\n|\t|\tx",
        "b|\xE1\xA0\x8E" /* U+180E is no space any more: the letter takes it */
        "a",
        "\xE3\x82\x98|\xE9\xBE\xA6", /* U+3098 has no class; U+9FA6 is outside the CJK pattern */
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[64], shown[64] = "";
        size_t n = 0, n_ends, ends[64], at = 0, n_shown = 0;

        for (const char *c = rows[i]; *c; c++)
            if (*c != '|')
                text[n++] = *c;
        n_ends = split(text, n, ends);
        for (size_t k = 0; k < n_ends; k++) {
            memcpy(shown + n_shown, text + at, ends[k] - at);
            n_shown += ends[k] - at;
            shown[n_shown++] = k + 1 < n_ends ? '|' : 0;
            at = ends[k];
        }
        assert_string_equal(shown, rows[i]);
    }
}

static void golden_texts_equal_pcre2(void **state)
{
    static const char *const files[] = {"cases", "random_first", "random_new_first"};

    if (!oracle)
        skip();
    for (size_t f = 0; f < 3; f++) {
        char name[64];
        json_t *rows, *row;
        size_t i;

        snprintf(name, sizeof name, "tokenizer/%s.jsonl", files[f]);
        rows = golden_lines(name);
        json_array_foreach(rows, i, row)
        {
            const json_t *text = json_object_get(row, "text");

            check_against_oracle(json_string_value(text), json_string_length(text));
        }
        json_decref(rows);
    }
}

/* Ranges chosen so that every class, both CJK ends, and characters of Unicode 15 and 16 meet. */
static void random_texts_equal_pcre2(void **state)
{
    static const code_block blocks[] = {
        {0x00, 0x7F},       {0x20, 0x20},       {0x20, 0x20},       {0x0A, 0x0D},
        {0x61, 0x7A},       {0x21, 0x2F},       {0x30, 0x39},       {0x80, 0xFF},
        {0x100, 0x24F},     {0x300, 0x36F},     {0x660, 0x669},     {0x1680, 0x1680},
        {0x180B, 0x180F},   {0x2000, 0x206F},   {0x2150, 0x218B},   {0x3000, 0x3006},
        {0x303D, 0x3041},   {0x3095, 0x30A1},   {0x30FA, 0x3101},   {0x4DFE, 0x4E01},
        {0x9FA3, 0x9FA8},   {0xA640, 0xA6FF},   {0xE000, 0xE003},   {0xFDD0, 0xFE0F},
        {0xFFF9, 0xFFFF},   {0x10D40, 0x10D8F}, {0x11F00, 0x11F5A}, {0x1F600, 0x1F64F},
        {0x1FA70, 0x1FAFF}, {0x20000, 0x20003}, {0x2EBF0, 0x2EC0F}, {0xE0001, 0xE007F},
        {0x0, 0xD7FF},      {0xE000, 0xFFFF},   {0x10000, 0x10FFFF}};
    random_source r = {20};
    char text[RANDOM_TEXT_BYTES];

    if (!oracle)
        skip();
    for (int i = 0; i < 60000; i++)
        check_against_oracle(text, random_text(&r, blocks, sizeof blocks / sizeof blocks[0], text));
}

/* All texts of up to six characters over one of each kind: no interplay of classes is left out. */
static void short_texts_equal_pcre2(void **state)
{
    static const char *const alphabet[] = {"a",  " ",  "\n",   "!",       "1",
                                           "中", "・", "\x01", "\xC2\xA0"};
    enum { KINDS = sizeof alphabet / sizeof alphabet[0] };

    if (!oracle)
        skip();
    for (int length = 1, count = KINDS; length <= 6; length++, count *= KINDS)
        for (int i = 0; i < count; i++) {
            char text[32] = "";

            for (int k = 0, rest = i; k < length; k++, rest /= KINDS)
                strcat(text, alphabet[rest % KINDS]);
            check_against_oracle(text, strlen(text));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_by_hand),
        cmocka_unit_test(golden_texts_equal_pcre2),
        cmocka_unit_test(random_texts_equal_pcre2),
        cmocka_unit_test(short_texts_equal_pcre2),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
