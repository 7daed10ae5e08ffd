/* Rotary tables and the Hadamard transform: golden files, the specification's frequencies, long double. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/numfmt.h"
#include "ops/hadamard.h"
#include "ops/rope_table.h"
#include "support/check.h"
#include "support/fpmode.h"
#include "support/golden.h"

static const pl_rope_yarn v4_yarn = {16, 65536, 32, 1};

static void table(int compressed, float freq[32])
{
    if (compressed)
        pl_rope_table_freq(160000, &v4_yarn, freq);
    else
        pl_rope_table_freq(10000, NULL, freq);
}

static const char *const names[] = {"plain", "comp"};

static void frequencies_equal_the_golden_ones(void **state)
{
    golden *g = golden_open("ops.safetensors");

    for (int comp = 0; comp < 2; comp++) {
        float freq[32];
        table(comp, freq);
        check_same_f32(names[comp], freq, golden_get(g, "F32", "rope.%s.freq", names[comp]).data,
                       32);
    }
    golden_close(g);
}

/* Appendix A prints nine digits of the doubles: the nearest float, or its neighbour. */
static void frequencies_equal_the_specification(void **state)
{
    static const float want[32] = {1.0f,
                                   0.687656022f,
                                   0.472870805f,
                                   0.325172456f,
                                   0.223606798f,
                                   0.153764561f,
                                   0.105737126f,
                                   0.0727107717f,
                                   0.05f,
                                   0.0343828011f,
                                   0.0236435402f,
                                   0.0162586228f,
                                   0.0111803399f,
                                   0.00768822805f,
                                   0.00528685632f,
                                   0.00363553858f,
                                   0.002265625f,
                                   0.00139680129f,
                                   0.000849689727f,
                                   0.000508081963f,
                                   0.000296977778f,
                                   0.000168179989f,
                                   9.0867843e-05f,
                                   4.54442323e-05f,
                                   1.953125e-05f,
                                   5.37231267e-06f,
                                   3.69430316e-06f,
                                   2.54040981e-06f,
                                   1.74692811e-06f,
                                   1.20128563e-06f,
                                   8.260713e-07f,
                                   5.68052904e-07f};
    float freq[32];

    table(1, freq);
    for (int i = 0; i < 32; i++)
        assert_in_range(pl_f32_bits(freq[i]) - pl_f32_bits(want[i]) + 1, 0, 2);
    table(0, freq);
    for (int i = 0; i < 32; i++)
        assert_true(freq[i] == (float)powl(10, -(long double)i / 8));
}

static void rotations_equal_the_golden_ones(void **state)
{
    golden *g = golden_open("ops.safetensors");
    golden_tensor in = golden_get(g, "BF16", "rope.in"), pos = golden_get(g, "I64", "rope.pos");
    const uint16_t *x = in.data;

    for (int comp = 0; comp < 2; comp++)
        for (int inverse = 0; inverse < 2; inverse++) {
            golden_tensor out = golden_get(g, "F32", "rope.%s.%d", names[comp], inverse);
            const float *want = out.data;
            float freq[32], c[32], s[32];
            table(comp, freq);
            for (size_t r = 0; r < pos.n; r++) {
                pl_rope_table_row(freq, (int32_t)((const int64_t *)pos.data)[r], c, s);
                for (size_t i = 0; i < 32; i++) {
                    size_t at = r * 512 + 448 + 2 * i;
                    float a = pl_bf16_to_f32(x[at]), b = pl_bf16_to_f32(x[at + 1]);
                    float sine = inverse ? -s[i] : s[i];
                    assert_int_equal(pl_f32_to_bf16(a * c[i] - b * sine), pl_f32_to_bf16(want[at]));
                    assert_int_equal(pl_f32_to_bf16(a * sine + b * c[i]),
                                     pl_f32_to_bf16(want[at + 1]));
                }
            }
        }
    golden_close(g);
}

/* The fp32 product is the angle; its sine and cosine are the nearest floats. */
static void rows_are_correctly_rounded(void **state)
{
    if (!long_double_is_wide())
        skip();
    for (int comp = 0; comp < 2; comp++) {
        float freq[32], c[32], s[32];
        double c64[32], s64[32];
        table(comp, freq);
        for (int32_t n = 0; n < 1500; n++) {
            int32_t position = n < 500 ? n : n < 1000 ? 1048575 - (n - 500) : n * 697 % 1048576;
            pl_rope_table_row(freq, position, c, s);
            pl_rope_table_row_f64(freq, position, c64, s64);
            for (int i = 0; i < 32; i++) {
                long double angle = (long double)((float)position * freq[i]);
                assert_true(c[i] == (float)cosl(angle) && s[i] == (float)sinl(angle));
                assert_true(fabsl((long double)c64[i] - cosl(angle)) < 0x1p-52L);
                assert_true(fabsl((long double)s64[i] - sinl(angle)) < 0x1p-52L);
            }
        }
    }
}

/* Limits that meet make a step, not a division by zero. */
static void equal_yarn_limits_make_a_step(void **state)
{
    const pl_rope_yarn y = {4, 65536, 1e9, 1e9}; /* both corrections are far below 0 */
    float freq[32], plain[32];

    pl_rope_table_freq(10000, &y, freq);
    pl_rope_table_freq(10000, NULL, plain);
    for (int i = 0; i < 32; i++)
        assert_true(isfinite(freq[i]) && freq[i] <= plain[i] && freq[i] >= plain[i] / 4);
}

static void hadamard_equals_the_golden_one(void **state)
{
    golden *g = golden_open("ops.safetensors");
    golden_tensor in = golden_get(g, "BF16", "hadamard.in");
    golden_tensor out = golden_get(g, "F32", "hadamard.out");
    const float *want = out.data;

    for (size_t r = 0; r < in.n / 128; r++) {
        float x[128];
        double rounded[128], exact[128];
        for (size_t i = 0; i < 128; i++) {
            x[i] = pl_bf16_to_f32(((const uint16_t *)in.data)[r * 128 + i]);
            rounded[i] = exact[i] = (double)x[i];
        }
        pl_hadamard128(x);
        pl_hadamard128_f64(rounded, false);
        pl_hadamard128_f64(exact, true);
        for (size_t i = 0; i < 128; i++) {
            assert_int_equal(pl_f32_to_bf16(x[i]), pl_f32_to_bf16(want[r * 128 + i]));
            assert_true((double)x[i] == rounded[i]);
            assert_true((float)exact[i] == want[r * 128 + i]);
        }
    }
    golden_close(g);
}

/* One input at a time: row j of the Sylvester matrix times the factor of appendix A. */
static void hadamard_of_unit_vectors(void **state)
{
    const float factor = (float)0.08838834764831845;

    for (int j = 0; j < 128; j++) {
        float x[128] = {0};
        x[j] = 1;
        pl_hadamard128(x);
        for (int i = 0; i < 128; i++)
            assert_true(x[i] == (__builtin_popcount((unsigned)(i & j)) % 2 ? -factor : factor));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_equal_the_golden_ones),
        cmocka_unit_test(frequencies_equal_the_specification),
        cmocka_unit_test(rotations_equal_the_golden_ones),
        cmocka_unit_test(rows_are_correctly_rounded),
        cmocka_unit_test(equal_yarn_limits_make_a_step),
        cmocka_unit_test(hadamard_equals_the_golden_one),
        cmocka_unit_test(hadamard_of_unit_vectors),
    };
    return RUN_IN_BOTH_FPMODES(tests);
}
