/* Number formats, exhaustively: every code of every format, every bf16, and the neighbourhood of every
 * rounding point, against formulas written another way than numfmt.c. Run with and without FTZ and DAZ. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/numfmt.h"
#include "support/check.h"
#include "support/fpmode.h"

/* By the definition of the format; in double, where nothing is denormal. */
static double e4m3_value(unsigned code)
{
    double sign = code >= 128 ? -1 : 1;
    int e = (int)(code / 8 % 16), m = (int)(code % 8);

    if (e == 15 && m == 7)
        return NAN;
    return e == 0 ? sign * ldexp(m, -9) : sign * ldexp(8 + m, e - 10);
}

static double e2m1_value(unsigned code)
{
    double sign = code >= 8 ? -1 : 1;
    int e = (int)(code / 2 % 4), m = (int)(code % 2);

    return e == 0 ? sign * m / 2 : sign * ldexp(2 + m, e - 2);
}

/* Nearest of the codes 0 .. top by search; on a tie the even one. `a` is not negative; beyond the top
 * it saturates. */
static unsigned nearest_code(double (*value)(unsigned), unsigned top, double a)
{
    unsigned best = 0;

    if (a >= value(top))
        return top;
    for (unsigned c = 1; c <= top; c++) {
        double d = fabs(value(c) - a), d_best = fabs(value(best) - a);
        if (d < d_best || (d == d_best && c % 2 == 0))
            best = c;
    }
    return best;
}

static unsigned want_e4m3(double x)
{
    if (isnan(x))
        return 0x7F;
    return nearest_code(e4m3_value, 0x7E, fabs(x)) | (signbit(x) ? 0x80 : 0);
}

static unsigned want_e2m1(double x)
{
    if (isnan(x))
        return 7;
    return nearest_code(e2m1_value, 7, fabs(x)) | (signbit(x) ? 8 : 0);
}

/* The value of float bits without touching denormal floats. */
static double f32_value(uint32_t u)
{
    double sign = u >> 31 ? -1 : 1;
    int e = (int)(u >> 23 & 255);
    uint32_t m = u & 0x7FFFFF;

    if (e == 255)
        return m ? NAN : sign * INFINITY;
    return e == 0 ? sign * ldexp(m, -149) : sign * ldexp(0x800000 + m, e - 150);
}

static void check_value(const char *what, unsigned code, float got, double want)
{
    if (isnan(want) ? !isnan(got)
                    : f32_value(pl_f32_bits(got)) != want ||
                          (pl_f32_bits(got) >> 31) != (unsigned)(signbit(want) != 0))
        fail_msg("%s 0x%02x reads as %a, want %a", what, code, (double)got, want);
}

static void check_code(const char *what, uint32_t bits, unsigned got, unsigned want)
{
    if (got != want)
        fail_msg("%s of 0x%08x: got 0x%04x, want 0x%04x", what, bits, got, want);
}

static void every_code_reads_as_its_value(void **state)
{
    for (unsigned c = 0; c < 256; c++)
        check_value("e4m3", c, pl_e4m3_to_f32((uint8_t)c), e4m3_value(c));
    for (unsigned c = 0; c < 16; c++)
        check_value("e2m1", c, pl_e2m1_to_f32((uint8_t)c), e2m1_value(c));
    check_value("e8m0", 0, pl_e8m0_to_f32(0), 0);
    check_value("e8m0", 255, pl_e8m0_to_f32(255), NAN);
    for (unsigned c = 1; c < 255; c++)
        check_value("e8m0", c, pl_e8m0_to_f32((uint8_t)c), ldexp(1, (int)c - 127));
    for (unsigned c = 0; c < 255; c++)
        assert_true(pl_e8m0_to_f64((uint8_t)c) == ldexp(1, (int)c - 127));
    assert_true(isnan(pl_e8m0_to_f64(255)));
}

static void every_code_survives_a_round_trip(void **state)
{
    for (unsigned c = 0; c < 256; c++)
        check_code("e4m3", c, pl_f32_to_e4m3(pl_e4m3_to_f32((uint8_t)c)),
                   (c & 0x7F) == 0x7F ? 0x7F : c);
    for (unsigned c = 0; c < 16; c++)
        check_code("e2m1", c, pl_f32_to_e2m1(pl_e2m1_to_f32((uint8_t)c)), c);
}

static void every_bf16_survives_a_round_trip(void **state)
{
    for (uint32_t b = 0; b < 65536; b++) {
        uint32_t a = b & 0x7FFF, want = a < 0x80 ? b & 0x8000 : a > 0x7F80 ? b | 0x40 : b;
        float x = pl_bf16_to_f32((uint16_t)b);
        check_value("bf16", b, x, a < 0x80 ? (b >> 15 ? -0.0 : 0.0) : f32_value(b << 16));
        check_code("bf16", b, pl_f32_to_bf16(x), want);
    }
}

/* Below, at and above the middle of every pair of neighbours. Denormals become zero before they are
 * rounded, so the largest of them does not reach 2^-126. */
static void bf16_rounds_to_nearest_even(void **state)
{
    for (uint32_t b = 0; b < 0x7F80; b++)
        for (int d = -1; d <= 1; d++)
            for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
                uint32_t u = (b << 16) + 0x8000 + (uint32_t)d;
                uint32_t want = d < 0 ? b : d > 0 ? b + 1 : b + (b & 1);
                if (u < 0x800000)
                    want = 0;
                check_code("bf16", u | sign << 16, pl_f32_to_bf16(pl_f32_from_bits(u | sign << 16)),
                           want | sign);
            }
    check_code("bf16", 0x7F800001, pl_f32_to_bf16(pl_f32_from_bits(0x7F800001)), 0x7FC0);
    check_code("bf16", 0xFFBFFFFF, pl_f32_to_bf16(pl_f32_from_bits(0xFFBFFFFF)), 0xFFFF);
}

static void encoding_equals_a_search_for_every_bf16(void **state)
{
    for (uint32_t b = 0; b < 65536; b++) {
        float x = pl_f32_from_bits(b << 16);
        double v = f32_value(b << 16);
        check_code("e4m3", b << 16, pl_f32_to_e4m3(x), want_e4m3(v));
        check_code("e2m1", b << 16, pl_f32_to_e2m1(x), want_e2m1(v));
    }
}

/* Floats around every code and every midpoint. */
static void encoding_is_right_beside_every_rounding_point(void **state)
{
    for (unsigned c = 0; c < 0x7E; c++)
        for (int half = 0; half < 2; half++)
            for (int d = -2; d <= 2; d++) {
                float mid = (float)((e4m3_value(c) + e4m3_value(c + (unsigned)half)) / 2);
                uint32_t u = pl_f32_bits(mid) + (uint32_t)(mid > 0 ? d : 0);
                check_code("e4m3", u, pl_f32_to_e4m3(pl_f32_from_bits(u)), want_e4m3(f32_value(u)));
                u |= 0x80000000u;
                check_code("e4m3", u, pl_f32_to_e4m3(pl_f32_from_bits(u)), want_e4m3(f32_value(u)));
            }
    for (unsigned c = 0; c < 7; c++)
        for (int half = 0; half < 2; half++)
            for (int d = -2; d <= 2; d++) {
                float mid = (float)((e2m1_value(c) + e2m1_value(c + (unsigned)half)) / 2);
                uint32_t u = pl_f32_bits(mid) + (uint32_t)(mid > 0 ? d : 0);
                check_code("e2m1", u, pl_f32_to_e2m1(pl_f32_from_bits(u)), want_e2m1(f32_value(u)));
                u |= 0x80000000u;
                check_code("e2m1", u, pl_f32_to_e2m1(pl_f32_from_bits(u)), want_e2m1(f32_value(u)));
            }
}

/* Specification appendix A. */
static void rounding_samples_of_the_specification(void **state)
{
    static const float samples[][2] = {{0.3f, 0.3125f}, {1.0625f, 1.0f},   {1.1875f, 1.25f},
                                       {17, 16},        {19, 20},          {447, 448},
                                       {0x1p-10f, 0},   {0.001f, 0x1p-9f}, {3 * 0x1p-10f, 0x1p-8f}};

    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        check_value("sample", (unsigned)i, pl_e4m3_to_f32(pl_f32_to_e4m3(samples[i][0])),
                    (double)samples[i][1]);
}

/* Nearest multiple of 2^grid within a format of `digits` significant bits, by scaling to integers. */
static double want_rounded(double x, int digits, int min_grid)
{
    int e, grid;
    double r;

    if (x == 0 || isnan(x) || isinf(x))
        return x;
    frexp(x, &e);
    grid = e - digits > min_grid ? e - digits : min_grid;
    r = ldexp(nearbyint(ldexp(x, -grid)), grid);
    return fabs(r) >= 0x1p128 ? copysign(INFINITY, x) : copysign(r, x);
}

static void check_f64(const char *what, double x, double got, double want)
{
    if (isnan(want) ? !isnan(got) : pl_f64_bits(got) != pl_f64_bits(want))
        fail_msg("%s of %a: got %a, want %a", what, x, got, want);
}

static void f64_rounding_flushes_nothing(void **state)
{
    static const double edges[] = {
        0,          0x1p-149,       0x1p-150,         0x1.8p-150,      0x1p-126,
        0x1p-133,   0x1p-134,       0x1p127,          0x1p128,         INFINITY,
        NAN,        0x1p-1000,      0x1.fffffefp127,  0x1.fffffffp127, 0x1.fep127,
        0x1.ffp127, 0x1.feffffp127, 0x1.fffffffp-127, 0x1.fep-127};
    uint64_t seed = 1;

    for (size_t i = 0; i < 400000 + 4 * sizeof edges / sizeof *edges; i++) {
        double x, f;
        if (i < 4 * sizeof edges / sizeof *edges) {
            x = edges[i / 4] * (i % 2 ? -1 : 1) * (i % 4 / 2 ? 1 + 0x1p-52 : 1);
        } else { /* exponents -160 .. 130, and often few digits so that ties occur */
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            x = ldexp(1 + (double)(seed >> 12 & ~(i % 3 ? 0 : (UINT64_C(1) << 43) - 1)) * 0x1p-52,
                      (int)(i % 291) - 160);
            x = i % 2 ? -x : x;
        }
        f = want_rounded(x, 24, -149);
        check_f64("f32", x, pl_f64_round_f32(x), f);
        check_f64("bf16", x, pl_f64_round_bf16(x), want_rounded(f, 8, -133));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_reads_as_its_value),
        cmocka_unit_test(every_code_survives_a_round_trip),
        cmocka_unit_test(every_bf16_survives_a_round_trip),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(encoding_equals_a_search_for_every_bf16),
        cmocka_unit_test(encoding_is_right_beside_every_rounding_point),
        cmocka_unit_test(rounding_samples_of_the_specification),
        cmocka_unit_test(f64_rounding_flushes_nothing),
    };
    return RUN_IN_BOTH_FPMODES(tests);
}
