/* Quantisers: golden files, the constants of specification appendix A, a second formulation in double
 * over random blocks, lost blocks, and the test that permits integer products. Run with and without
 * FTZ and DAZ. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/numfmt.h"
#include "ops/quant.h"
#include "support/check.h"
#include "support/fpmode.h"
#include "support/golden.h"

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 32);
}

static void codes_and_scales_equal_the_golden_ones(void **state)
{
    golden *g = golden_open("ops.safetensors");
    golden_tensor in = golden_get(g, "BF16", "quant.in");
    uint8_t *codes = malloc(in.n), *scale = malloc(in.n);

    for (int block = 64; block <= 128; block *= 2) {
        golden_tensor want = golden_get(g, "F8_E4M3", "quant.e4m3.%d.codes", block);
        golden_tensor want_scale = golden_get(g, "F8_E8M0", "quant.e4m3.%d.scale", block);
        assert_int_equal(want.n, in.n);
        pl_quant_e4m3(in.data, (int64_t)in.n, block, codes, scale);
        check_same_bytes("e4m3 codes", codes, want.data, in.n);
        check_same_bytes("e4m3 scales", scale, want_scale.data, in.n / (size_t)block);
    }
    pl_quant_e2m1(in.data, (int64_t)in.n, codes, scale);
    check_same_bytes("e2m1", codes, golden_get(g, "I8", "quant.e2m1.packed").data, in.n / 2);
    check_same_bytes("e2m1 scales", scale, golden_get(g, "F8_E8M0", "quant.e2m1.scale").data,
                     in.n / 32);
    free(codes);
    free(scale);
    golden_close(g);
}

static uint8_t e4m3_byte(float amax)
{
    uint16_t x[64] = {0};
    uint8_t codes[64], scale;

    x[17] = pl_f32_to_bf16(-amax);
    pl_quant_e4m3(x, 64, 64, codes, &scale);
    return scale;
}

static uint8_t e2m1_byte(float amax)
{
    uint16_t x[32] = {0};
    uint8_t packed[16], scale;

    x[31] = pl_f32_to_bf16(amax);
    pl_quant_e2m1(x, 32, packed, &scale);
    return scale;
}

/* 5.9 and 6.1 are no bf16 values; their neighbours on the same side of 6 are. */
static void scale_bytes_of_the_specification(void **state)
{
    assert_int_equal(e4m3_byte(0), 105);
    assert_int_equal(e4m3_byte(0x1p-14f), 105);
    assert_int_equal(e4m3_byte(0.5f), 118);
    assert_int_equal(e4m3_byte(1), 119);
    assert_int_equal(e4m3_byte(3.5f), 120);
    assert_int_equal(e4m3_byte(100), 125);
    assert_int_equal(e4m3_byte(448), 127);
    assert_int_equal(e4m3_byte(450), 128);
    assert_int_equal(e4m3_byte(0x1.fep127f), 247);
    assert_int_equal(e2m1_byte(0), 1);
    assert_int_equal(e2m1_byte(0.5f), 124);
    assert_int_equal(e2m1_byte(3), 126);
    assert_int_equal(e2m1_byte(5.9f), 127);
    assert_int_equal(e2m1_byte(6), 127);
    assert_int_equal(e2m1_byte(6.1f), 128);
    assert_int_equal(e2m1_byte(0x1.fep127f), 253);
}

/* One block by the specification's text, in double: the scale by frexp, the codes by search. */
static double want_scale(const double *x, int block, double floor, float inv_qmax)
{
    double a = floor;
    int e;

    for (int i = 0; i < block; i++)
        a = fmax(a, fabs(x[i]));
    a = (double)((float)a * inv_qmax);
    return frexp(a, &e) == 0.5 ? ldexp(1, e - 1) : ldexp(1, e);
}

static double nearest_value(float (*value)(uint8_t), uint8_t top, double x)
{
    double best = 0, a = fabs(x);
    bool even = true;

    for (unsigned c = 1; c <= top; c++) {
        double v = (double)value((uint8_t)c);
        if (fabs(v - a) < fabs(best - a) || (fabs(v - a) == fabs(best - a) && !even)) {
            best = v;
            even = c % 2 == 0;
        }
    }
    return copysign(best, x);
}

static void fill_block(uint16_t *x, double *value, int n, uint64_t *seed)
{
    int spread = (int)(next_random(seed) % 40) + 1, centre = 30 + (int)(next_random(seed) % 170);

    for (int i = 0; i < n; i++) {
        int e = centre + (int)(next_random(seed) % (uint32_t)spread);
        x[i] = (uint16_t)((next_random(seed) & 0x807F) | (uint32_t)e << 7);
        if (next_random(seed) % 16 == 0)
            x[i] &= 0x8000;
        value[i] = (double)pl_bf16_to_f32(x[i]);
    }
}

static void fake_forms_equal_a_search_in_double(void **state)
{
    uint64_t seed = 7;
    uint16_t x[128], out[128];
    double value[128], out64[128];

    for (int round = 0; round < 600; round++) {
        fill_block(x, value, 128, &seed);
        for (int block = 64; block <= 128; block *= 2) {
            pl_quant_e4m3_fake(x, 128, block, out);
            pl_quant_e4m3_fake_f64(value, 128, block, out64);
            for (int i = 0; i < 128; i++) {
                double s = want_scale(value + i / block * block, block, (double)1e-4f, 1 / 448.0f);
                double want = nearest_value(pl_e4m3_to_f32, 0x7E, value[i] / s) * s;
                if (out64[i] != want || (double)pl_bf16_to_f32(out[i]) != want)
                    fail_msg("e4m3 of %a: got %a and %a, want %a", value[i],
                             (double)pl_bf16_to_f32(out[i]), out64[i], want);
            }
        }
        pl_quant_e2m1_fake(x, 128, out);
        pl_quant_e2m1_fake_f64(value, 128, out64);
        for (int i = 0; i < 128; i++) {
            double s = want_scale(value + i / 32 * 32, 32, 0x1.8p-124, 1 / 6.0f);
            double want = nearest_value(pl_e2m1_to_f32, 7, value[i] / s) * s;
            if (out64[i] != want || (double)pl_bf16_to_f32(out[i]) != want)
                fail_msg("e2m1 of %a: got %a and %a, want %a", value[i],
                         (double)pl_bf16_to_f32(out[i]), out64[i], want);
        }
    }
}

static void fake_forms_equal_codes_times_scales(void **state)
{
    golden *g = golden_open("ops.safetensors");
    golden_tensor in = golden_get(g, "BF16", "quant.in");
    golden_tensor codes = golden_get(g, NULL, "quant.e4m3.128.codes");
    golden_tensor scale = golden_get(g, NULL, "quant.e4m3.128.scale");
    golden_tensor packed = golden_get(g, NULL, "quant.e2m1.packed");
    golden_tensor scale4 = golden_get(g, NULL, "quant.e2m1.scale");
    uint16_t *out = malloc(in.bytes);

    memcpy(out, in.data, in.bytes);
    pl_quant_e4m3_fake(out, (int64_t)in.n, 128, out);
    for (size_t i = 0; i < in.n; i++)
        assert_int_equal(out[i],
                         pl_f32_to_bf16(pl_e4m3_to_f32(((const uint8_t *)codes.data)[i]) *
                                        pl_e8m0_to_f32(((const uint8_t *)scale.data)[i / 128])));
    memcpy(out, in.data, in.bytes);
    pl_quant_e2m1_fake(out, (int64_t)in.n, out);
    for (size_t i = 0; i < in.n; i++)
        assert_int_equal(
            out[i], pl_f32_to_bf16(
                        pl_e2m1_to_f32(((const uint8_t *)packed.data)[i / 2] >> (i % 2 * 4) & 15) *
                        pl_e8m0_to_f32(((const uint8_t *)scale4.data)[i / 32])));
    free(out);
    golden_close(g);
}

/* Only the block that holds it is lost. */
static void nan_and_infinity_lose_their_block(void **state)
{
    static const uint16_t bad[] = {0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xFFFF};

    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
        uint16_t x[256], out[256];
        double value[256], out64[256];
        uint8_t codes[256], scale[8];
        for (int i = 0; i < 256; i++)
            x[i] = pl_f32_to_bf16((float)(i - 100));
        x[128 + 5] = bad[b];
        for (int i = 0; i < 256; i++)
            value[i] = (double)pl_f32_from_bits((uint32_t)x[i] << 16);
        pl_quant_e4m3(x, 256, 128, codes, scale);
        assert_int_equal(scale[0], 125);
        assert_int_equal(scale[1], 255);
        pl_quant_e4m3_fake(x, 256, 128, out);
        pl_quant_e4m3_fake_f64(value, 256, 128, out64);
        for (int i = 0; i < 256; i++) {
            assert_true(isnan(pl_e4m3_to_f32(codes[i])) == (i >= 128));
            assert_true(isnan(pl_bf16_to_f32(out[i])) == (i >= 128));
            assert_true(isnan(out64[i]) == (i >= 128));
        }
        pl_quant_e2m1(x, 256, codes, scale);
        pl_quant_e2m1_fake(x, 256, out);
        pl_quant_e2m1_fake_f64(value, 256, out64);
        for (int i = 0; i < 256; i++) {
            assert_true((scale[i / 32] == 255) == (i / 32 == 4));
            assert_true(i / 32 != 4 || codes[i / 2] == 0);
            assert_true(isnan(pl_bf16_to_f32(out[i])) == (i / 32 == 4));
            assert_true(isnan(out64[i]) == (i / 32 == 4));
        }
    }
}

/* Denormal elements: zero with their sign in the product's form, themselves in the f64 level's. */
static void denormals_are_flushed_except_at_level_f64(void **state)
{
    uint16_t x[32] = {0x0060, 0x8060}, out[32];
    double value[32] = {0x1.8p-127, -0x1.8p-127}, out64[32];
    uint8_t packed[16], scale;

    pl_quant_e2m1(x, 32, packed, &scale);
    assert_int_equal(scale, 1);
    assert_int_equal(packed[0], 0x80);
    pl_quant_e2m1_fake(x, 32, out);
    assert_int_equal(out[0], 0);
    assert_int_equal(out[1], 0x8000);
    pl_quant_e2m1_fake_f64(value, 32, out64);
    assert_true(out64[0] == 0x1p-126 && out64[1] == -0x1p-126);
}

/* 256 * 2^120 is past the largest number. */
static void largest_bf16_overflows_in_the_fake_form(void **state)
{
    uint16_t x[64] = {0x7F7F, 0xFF7F}, out[64];
    double value[64] = {0x1.fep127, -0x1.fep127}, out64[64];
    uint8_t codes[64], scale;

    pl_quant_e4m3(x, 64, 64, codes, &scale);
    assert_int_equal(scale, 247);
    assert_true(pl_e4m3_to_f32(codes[0]) == 256.0f);
    pl_quant_e4m3_fake(x, 64, 64, out);
    pl_quant_e4m3_fake_f64(value, 64, 64, out64);
    assert_int_equal(out[0], 0x7F80);
    assert_int_equal(out[1], 0xFF80);
    assert_true(out64[0] == INFINITY && out64[1] == -INFINITY);
}

/* Codes whose integers (units of 2^-9, code 1 among them) add up to `sum`. */
static void fill_group(uint8_t *codes, uint32_t sum)
{
    int n = 1;

    memset(codes, 0, 32);
    codes[0] = 1;
    for (sum -= 1; sum > 0; n++) {
        uint8_t best = 1;
        assert_true(n < 32);
        for (uint8_t c = 1; c < 0x7F; c++)
            if (pl_e4m3_to_f32(c) * 512 <= (float)sum)
                best = c;
        codes[n] = best | (n % 2 ? 0x80 : 0);
        sum -= (uint32_t)(pl_e4m3_to_f32(best) * 512);
    }
}

static void integer_permission_below_at_and_above_the_limit(void **state)
{
    const uint32_t limit = (1u << 24) / 12; /* 1,398,101 */
    uint8_t codes[32];
    int32_t unit;

    for (uint32_t sum = limit - 40; sum <= limit + 40; sum++) {
        fill_group(codes, sum);
        assert_int_equal(pl_quant_group_is_exact(codes, &unit), sum <= limit);
        assert_int_equal(unit, -9);
    }
    memset(codes, 0x7E, 32); /* 448 is 7 units of 64 */
    assert_true(pl_quant_group_is_exact(codes, &unit));
    assert_int_equal(unit, 6);
    codes[9] = 0x01;
    assert_false(pl_quant_group_is_exact(codes, &unit));
    assert_int_equal(unit, -9);
    memset(codes, 0xF8, 32); /* -256 */
    assert_true(pl_quant_group_is_exact(codes, &unit));
    assert_int_equal(unit, 8);
    memset(codes, 0x80, 32);
    assert_true(pl_quant_group_is_exact(codes, &unit));
    assert_int_equal(unit, 0);
    codes[31] = 0xFF;
    assert_false(pl_quant_group_is_exact(codes, &unit));
}

static void masks_hold_one_bit_per_group(void **state)
{
    uint8_t codes[33 * 32];
    uint32_t mask[2] = {~0u, ~0u};

    memset(codes, 0x38, sizeof codes);
    codes[5 * 32 + 7] = 0x7F;
    codes[32 * 32] = 0x7F;
    pl_quant_exact_groups(codes, sizeof codes, mask);
    assert_int_equal(mask[0], ~(1u << 5));
    assert_int_equal(mask[1], 0);
    codes[32 * 32] = 0x38;
    pl_quant_exact_groups(codes, sizeof codes, mask);
    assert_int_equal(mask[1], 1);
}

/* The chain of docs/NUMERICS.md over a permuted group; every product is exact, so the double form is the
 * fma. */
static float chain(const uint8_t *x, const uint8_t *w, const uint8_t *order)
{
    float c = 0;

    for (int i = 0; i < 32; i++)
        c = (float)((double)pl_e4m3_to_f32(x[order[i]]) * (double)pl_e2m1_to_f32(w[order[i]]) +
                    (double)c);
    return c;
}

static double exact_dot(const uint8_t *x, const uint8_t *w)
{
    double c = 0;

    for (int i = 0; i < 32; i++)
        c += (double)pl_e4m3_to_f32(x[i]) * (double)pl_e2m1_to_f32(w[i]);
    return c;
}

/* Where integers are permitted the chain is exact in every order; beyond, it really does round. */
static void permission_means_that_no_order_rounds(void **state)
{
    uint64_t seed = 3;
    int rounded = 0, permitted = 0;

    for (int round = 0; round < 20000; round++) {
        uint8_t x[32], w[32], order[32];
        int32_t unit;
        for (int i = 0; i < 32; i++) {
            uint32_t r = next_random(&seed);
            x[i] = (uint8_t)(r % 4 ? 0x7E - (r >> 8) % 8 : (r >> 8) % (round % 2 ? 8 : 0x7F));
            x[i] |= r >> 24 & 0x80;
            w[i] = (uint8_t)(r % 3 ? 7 - (r >> 16 & 1) : r >> 16 & 7) | (r >> 20 & 8);
            order[i] = (uint8_t)i;
        }
        bool exact = pl_quant_group_is_exact(x, &unit);
        permitted += exact;
        for (int turn = 0; turn < 3; turn++) {
            bool same = (double)chain(x, w, order) == exact_dot(x, w);
            if (exact && !same)
                fail_msg("round %d: a permitted group rounds", round);
            rounded += !same;
            for (int i = 31; i > 0; i--) {
                uint32_t j = next_random(&seed) % (uint32_t)(i + 1);
                uint8_t swap = order[i];
                order[i] = order[j];
                order[j] = swap;
            }
        }
    }
    assert_in_range(permitted, 2000, 18000);
    assert_in_range(rounded, 1, 60000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_and_scales_equal_the_golden_ones),
        cmocka_unit_test(scale_bytes_of_the_specification),
        cmocka_unit_test(fake_forms_equal_a_search_in_double),
        cmocka_unit_test(fake_forms_equal_codes_times_scales),
        cmocka_unit_test(nan_and_infinity_lose_their_block),
        cmocka_unit_test(denormals_are_flushed_except_at_level_f64),
        cmocka_unit_test(largest_bf16_overflows_in_the_fake_form),
        cmocka_unit_test(integer_permission_below_at_and_above_the_limit),
        cmocka_unit_test(masks_hold_one_bit_per_group),
        cmocka_unit_test(permission_means_that_no_order_rounds),
    };
    return RUN_IN_BOTH_FPMODES(tests);
}
