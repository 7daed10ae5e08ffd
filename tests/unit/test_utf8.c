/* UTF-8: what is well formed, and what stands for what is not. */
#include <string.h>

#include "support/check.h"
#include "support/random_text.h"
#include "text/utf8.h"

/* Table 3-7 of the Unicode standard, one row per line: ranges of the bytes. */
static const uint8_t table_3_7[][4][2] = {
    {{0x00, 0x7F}},
    {{0xC2, 0xDF}, {0x80, 0xBF}},
    {{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}},
    {{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}},
    {{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}},
};

static size_t row_bytes(size_t row)
{
    return row == 0 ? 1 : row == 1 ? 2 : row < 6 ? 3 : 4;
}

/* How many bytes at `s` match the beginning of a row: the longest over the rows; *whole tells
 * whether that is a complete character. */
static size_t matched(const uint8_t *s, size_t n, bool *whole)
{
    size_t best = 0;

    *whole = false;
    for (size_t row = 0; row < sizeof table_3_7 / sizeof table_3_7[0]; row++) {
        size_t k = 0;

        while (k < row_bytes(row) && k < n && s[k] >= table_3_7[row][k][0] &&
               s[k] <= table_3_7[row][k][1])
            k++;
        if (k > best) {
            best = k;
            *whole = k == row_bytes(row);
        }
    }
    return best;
}

/* The definition: the longest matching beginning, or one byte, becomes U+FFFD. */
static size_t repair_by_table(const uint8_t *s, size_t n, uint8_t *out)
{
    size_t n_out = 0;

    for (size_t at = 0; at < n;) {
        bool whole;
        size_t k = matched(s + at, n - at, &whole);

        memcpy(out + n_out, whole ? (const char *)s + at : "\xEF\xBF\xBD", whole ? k : 3);
        n_out += whole ? k : 3;
        at += k ? k : 1;
    }
    return n_out;
}

static size_t valid_by_table(const uint8_t *s, size_t n)
{
    size_t at = 0;
    bool whole = true;

    while (at < n) {
        size_t k = matched(s + at, n - at, &whole);

        if (!whole)
            break;
        at += k;
    }
    return at;
}

/* At once, and cut anywhere. */
static void check_text(const uint8_t *s, size_t n)
{
    uint8_t want[256], got[256];
    size_t n_want = repair_by_table(s, n, want);

    if (pl__utf8_valid_bytes(s, n) != valid_by_table(s, n))
        fail_msg("valid bytes: got %zu, want %zu (text of %zu: %02x %02x %02x %02x)",
                 pl__utf8_valid_bytes(s, n), valid_by_table(s, n), n, s[0], s[1], s[2], s[3]);
    for (size_t cut = 0; cut <= n; cut++) {
        pl_text_stream stream = {0};
        size_t n_got = pl__utf8_push(&stream, s, cut, got);
        pl_text_stream counting = stream;
        size_t n_count = pl__utf8_push(&counting, s + cut, n - cut, NULL);
        size_t n_second = pl__utf8_push(&stream, s + cut, n - cut, got + n_got);

        assert_int_equal(n_count, n_second);
        n_got += n_second;
        n_got += pl__utf8_flush(&stream, got + n_got);
        assert_int_equal(n_got, n_want);
        check_same_bytes("repaired text", got, want, n_want);
        assert_int_equal(pl__utf8_valid_bytes(got, n_got), n_got);
    }
}

static void short_texts_of_border_bytes(void **state)
{
    static const uint8_t border[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0,
                                     0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED,
                                     0xEE, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};
    enum { N = sizeof border };
    uint8_t s[5];

    for (uint32_t i = 0; i < N * N * N * N; i++) {
        uint32_t rest = i;

        for (int k = 0; k < 4; k++) {
            s[k] = border[rest % N];
            rest /= N;
        }
        check_text(s, 4);
    }
}

static void random_bytes(void **state)
{
    random_source r = {7};
    uint8_t s[40];

    for (int i = 0; i < 20000; i++) {
        size_t n = random_below(&r, sizeof s - 3);
        uint32_t kind = random_below(&r, 3);

        for (size_t k = 0; k < n; k++)
            s[k] = (uint8_t)(kind == 0   ? random_below(&r, 256)
                             : kind == 1 ? 0x80 + random_below(&r, 0x80)
                                         : random_below(&r, 0x82));
        check_text(s, n);
    }
}

static void every_code_point_is_read(void **state)
{
    for (uint32_t c = 0; c < 0x110000; c++) {
        char s[4];
        size_t n = put_utf8(c, s);
        pl_utf8_char got = pl__utf8_char_at((const uint8_t *)s);
        bool surrogate = c >= 0xD800 && c <= 0xDFFF;

        assert_int_equal(pl__utf8_valid_bytes((const uint8_t *)s, n), surrogate ? 0 : n);
        assert_true(got.code_point == c && got.n_bytes == n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_texts_of_border_bytes),
        cmocka_unit_test(random_bytes),
        cmocka_unit_test(every_code_point_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
