/* Weight tiles: every element of 16 rows has one place, the one that pl_tile_index says, and comes back. */
#include <string.h>

#include "ops/tile.h"
#include "support/check.h"

enum { COLS = 384, ROWS = 16 };

static const pl_weight_format formats[] = {PL_WEIGHT_BF16, PL_WEIGHT_FP8_E8M0, PL_WEIGHT_FP8_F32,
                                           PL_WEIGHT_FP4};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

static uint8_t byte_at(int64_t i)
{
    uint32_t v = (uint32_t)i * 2654435761u;

    return (uint8_t)(v >> 13);
}

/* Element `at` of a packed buffer, whatever its width. */
static unsigned element(pl_weight_format format, const uint8_t *p, int64_t at)
{
    if (format == PL_WEIGHT_BF16)
        return (unsigned)(p[2 * at] | p[2 * at + 1] << 8);
    if (format == PL_WEIGHT_FP4)
        return p[at / 2] >> at % 2 * 4 & 15u;
    return p[at];
}

static void packing_is_a_permutation(void **state)
{
    for (int f = 0; f < N_FORMATS; f++) {
        static uint8_t rows[ROWS * (2 * COLS + 6)], tile[ROWS * 2 * COLS], back[sizeof rows];
        static uint8_t taken[ROWS * COLS];
        int64_t row_bytes = pl_tile_row_bytes(formats[f], COLS), stride = row_bytes + 6;

        for (size_t i = 0; i < sizeof rows; i++)
            rows[i] = byte_at((int64_t)i);
        memset(back, 0, sizeof back);
        memset(taken, 0, sizeof taken);
        pl_tile_pack(formats[f], rows, stride, ROWS, COLS, COLS, tile);
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t k = 0; k < COLS; k++) {
                int64_t at = pl_tile_index(formats[f], r, k);
                assert_in_range(at, 0, ROWS * COLS - 1);
                assert_int_equal(taken[at]++, 0);
                assert_int_equal(element(formats[f], tile, at),
                                 element(formats[f], rows + r * stride, k));
            }
        pl_tile_unpack(formats[f], tile, COLS, back, stride);
        for (int64_t r = 0; r < ROWS; r++)
            check_same_bytes("unpacked", back + r * stride, rows + r * stride, (size_t)row_bytes);
        assert_int_equal(back[row_bytes], 0); /* nothing between the rows */
    }
}

/* The way that loading takes: the same bytes, none beside them, at aligned and unaligned places, for rows of whole
 * and of half cache lines. */
static void past_the_cache_is_the_same(void **state)
{
    static uint8_t rows[ROWS * (2 * COLS + 6)];
    static _Alignas(64) uint8_t want[ROWS * 2 * COLS], got[ROWS * 2 * COLS + 64 + 16];

    for (size_t i = 0; i < sizeof rows; i++)
        rows[i] = byte_at((int64_t)i);
    for (int f = 0; f < N_FORMATS; f++)
        for (int64_t cols = 32; cols <= COLS; cols += 32)
            for (int at = 0; at <= 16; at += 8) {
                int64_t row_bytes = pl_tile_row_bytes(formats[f], cols), stride = row_bytes + 6;
                size_t n = (size_t)(ROWS * row_bytes);

                pl_tile_pack(formats[f], rows, stride, ROWS, cols, cols, want);
                memset(got, 0xA5, sizeof got);
                pl_tile_pack_past_cache(formats[f], rows, stride, cols, got + 16 + at);
                check_same_bytes("tile", got + 16 + at, want, n);
                assert_int_equal(got[16 + at - 1], 0xA5);
                assert_int_equal(got[16 + at + n], 0xA5);
            }
}

/* Rows that stay rows: any length and place, and nothing beside them. */
static void copies_past_the_cache_are_copies(void **state)
{
    static uint8_t rows[3000];
    static _Alignas(64) uint8_t got[sizeof rows + 64];

    for (size_t i = 0; i < sizeof rows; i++)
        rows[i] = byte_at((int64_t)i);
    for (size_t n = 0; n + 3 <= sizeof rows; n += n < 200 ? 1 : 173)
        for (size_t at = 16; at <= 48; at += 8) {
            memset(got, 0xA5, sizeof got);
            pl_tile_copy_past_cache(rows + 3, n, got + at);
            check_same_bytes("copy", got + at, rows + 3, n);
            assert_int_equal(got[at - 1], 0xA5);
            assert_int_equal(got[at + n], 0xA5);
        }
}

/* What vector kernels rely on, spelt out. */
static void dwords_are_the_documented_ones(void **state)
{
    static const uint8_t fp8[4] = {0, 2, 1, 3}, fp4[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    uint8_t rows[ROWS * 4], tile[ROWS * 4];

    memset(rows, 0, sizeof rows);
    for (int k = 0; k < 4; k++)
        rows[5 * 4 + k] = (uint8_t)k;
    pl_tile_pack(PL_WEIGHT_FP8_E8M0, rows, 4, ROWS, 4, 4, tile);
    check_same_bytes("fp8", tile + 5 * 4, fp8, 4);
    for (int k = 0; k < 4; k++)
        rows[5 * 4 + k] = (uint8_t)(2 * k | (2 * k + 1) << 4);
    pl_tile_pack(PL_WEIGHT_FP4, rows, 4, ROWS, 8, 8, tile);
    for (int i = 0; i < 8; i++)
        assert_int_equal(tile[5 * 4 + i / 2] >> i % 2 * 4 & 15, fp4[i]);
}

/* Odd numbers of rows and columns: the rest is zeros, and nothing is read beyond. */
static void missing_rows_and_columns_are_zeros(void **state)
{
    for (int64_t n_rows = 1; n_rows <= ROWS; n_rows += 5)
        for (int64_t cols = 1; cols <= 128; cols += 9) {
            uint16_t rows[ROWS * 128], tile[ROWS * 128];

            for (int i = 0; i < ROWS * 128; i++)
                rows[i] = (uint16_t)(i + 1);
            memset(tile, 0xA5, sizeof tile);
            pl_tile_pack(PL_WEIGHT_BF16, rows, 2 * cols, n_rows, cols, 128, tile);
            for (int64_t r = 0; r < ROWS; r++)
                for (int64_t k = 0; k < 128; k++)
                    assert_int_equal(tile[pl_tile_index(PL_WEIGHT_BF16, r, k)],
                                     r < n_rows && k < cols ? rows[r * cols + k] : 0);
        }
}

/* Groups that are moved 16 at a time, the rest of them, and both. */
static void scales_lie_by_group(void **state)
{
    enum { MOST = 50 };
    static const int counts[] = {1, 7, 16, 32, 37, MOST};

    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        uint8_t rows[ROWS * (MOST + 1)], tile[ROWS * MOST], back[ROWS * (MOST + 1)];
        const int n = counts[c], stride = n + 1;

        for (size_t i = 0; i < sizeof rows; i++)
            rows[i] = back[i] = byte_at((int64_t)i);
        pl_tile_pack_scales(rows, stride, ROWS, n, tile);
        for (int r = 0; r < ROWS; r++)
            for (int g = 0; g < n; g++)
                assert_int_equal(tile[g * ROWS + r], rows[r * stride + g]);
        for (int r = 0; r < ROWS; r++)
            memset(back + r * stride, 0, (size_t)n);
        pl_tile_unpack_scales(tile, n, back, stride);
        check_same_bytes("scales", back, rows, sizeof rows);
        pl_tile_pack_scales(rows, stride, 3, n, tile);
        assert_int_equal(tile[2], rows[2 * stride]);
        assert_int_equal(tile[3], 0);
    }
}

static void shapes_and_nan_codes(void **state)
{
    uint8_t codes[100] = {0};

    assert_true(pl_tile_possible(PL_WEIGHT_FP4, 16, 128));
    assert_false(pl_tile_possible(PL_WEIGHT_FP4, 24, 128));
    assert_false(pl_tile_possible(PL_WEIGHT_BF16, 16, 192));
    assert_false(pl_tile_possible(PL_WEIGHT_F32, 16, 128));
    assert_false(pl_tile_possible(PL_WEIGHT_BF16, 0, 128));
    assert_false(pl_tile_has_nan(codes, sizeof codes));
    codes[99] = 0x7E;
    assert_false(pl_tile_has_nan(codes, sizeof codes));
    codes[99] = 0x7F;
    assert_true(pl_tile_has_nan(codes, sizeof codes));
    assert_false(pl_tile_has_nan(codes, 99));
    codes[99] = 0;
    codes[0] = 0xFF;
    assert_true(pl_tile_has_nan(codes, sizeof codes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packing_is_a_permutation),
        cmocka_unit_test(past_the_cache_is_the_same),
        cmocka_unit_test(copies_past_the_cache_are_copies),
        cmocka_unit_test(dwords_are_the_documented_ones),
        cmocka_unit_test(missing_rows_and_columns_are_zeros),
        cmocka_unit_test(scales_lie_by_group),
        cmocka_unit_test(shapes_and_nan_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
