/* The fma of the contract against the C library's (IEEE, scaled away from the denormals), against the
 * processor's fused instruction under FTZ and DAZ, and against the forms that docs/NUMERICS.md 1 calls
 * wrong, which must be seen to be wrong. */
#include <math.h>
#include <stdbool.h>

#include "base/math.h"
#include "support/check.h"
#include "support/fpmode.h"

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 32);
}

/* By section 1. Where the terms are small they are scaled by 2^60, so that fmaf rounds to 24 bits
 * wherever the result may survive the flush. */
static float want_fma(float a, float b, float c)
{
    float r;

    a = pl_f32_flush(a);
    b = pl_f32_flush(b);
    c = pl_f32_flush(c);
    if (!(fabs((double)a * (double)b) < 0x1p30 && fabsf(c) < 0x1p30f))
        return fmaf(a, b, c);
    if (fabsf(a) < fabsf(b))
        a *= 0x1p60f;
    else
        b *= 0x1p60f;
    r = fmaf(a, b, c * 0x1p60f);
    return fabsf(r) < 0x1p-66f ? copysignf(0, r) : r * 0x1p-60f;
}

enum { KIND_BITS, KIND_BF16, KIND_CANCEL, KIND_EDGE, KIND_WIDE, KIND_TIE, KIND_COUNT };

static float short_float(uint32_t r, int exponent)
{
    return pl_f32_from_bits((r & 0x807F0000u) | (uint32_t)(exponent + 127) << 23);
}

/* Operands of a kind; true where the product has at most 24 bits. */
static bool operands(int kind, uint64_t *seed, float *a, float *b, float *c)
{
    uint32_t r = next_random(seed), s = next_random(seed), t = next_random(seed);
    int e = (int)(r % 60) - 30;

    *a = short_float(r, e);
    *b = short_float(s, (int)(s % 30) - 15);
    *c = short_float(t, (int)(t % 60) - 30);
    switch (kind) {
    case KIND_BITS: /* any bits: denormals, infinities, NaN */
        *a = pl_f32_from_bits(r);
        *b = pl_f32_from_bits(s);
        *c = pl_f32_from_bits(t);
        return false;
    case KIND_BF16:
        *c = pl_f32_from_bits((t & 0x807FFFFFu) | (pl_f32_bits(*a * *b) & 0x7F800000u));
        return true;
    case KIND_CANCEL: /* c is the negative product, a few steps off */
        *c = pl_f32_from_bits(pl_f32_bits(-(*a * *b)) + t % 5);
        return true;
    case KIND_EDGE: /* sums just above and below 2^-126 */
        *a = short_float(r, -60);
        *b = short_float(s, -66 - (int)(s % 34));
        *c = pl_f32_from_bits((t & 0x80000000u) | (0x800000u + t % 3));
        return true;
    case KIND_WIDE: /* full floats */
        *a = pl_f32_from_bits((r & 0x807FFFFFu) | (uint32_t)(127 + e) << 23);
        *b = pl_f32_from_bits((s & 0x807FFFFFu) | 127u << 23);
        *c = pl_f32_from_bits((t & 0x807FFFFFu) | (uint32_t)(127 + e + (int)(t % 50) - 25) << 23);
        return false;
    default: /* half a last place of c, but for 2^-46 of it that the sum in double loses */
        e = (int)(t % 20);
        *c = ldexpf(1 + (float)(s % 16) * 0x1p-23f, e + 24);
        *a = ldexpf(1 + 0x1p-23f, e);
        *b = r & 1 ? 1 - 0x1p-23f : 1 + 0x1p-23f;
        return false;
    }
}

static void fma_rounds_once_and_flushes(void **state)
{
    uint64_t seed = 11;

    for (int n = 0; n < 1200000; n++) {
        float a, b, c, want, got;
        bool narrow = operands(n % KIND_COUNT, &seed, &a, &b, &c);
        fpmode_ieee(NULL);
        want = want_fma(a, b, c);
        for (int mode = 0; mode < 2; mode++) {
            (mode ? fpmode_flush : fpmode_ieee)(NULL);
            got = pl_fma_f32(a, b, c);
            check_same_f32("pl_fma_f32", &got, &want, 1);
            if (narrow) {
                got = pl_fma_narrow(a, b, c);
                check_same_f32("pl_fma_narrow", &got, &want, 1);
            }
        }
    }
    fpmode_ieee(NULL);
}

__attribute__((noinline)) static float double_form(float a, float b, float c)
{
    return (float)((double)a * (double)b + (double)c);
}

/* Otherwise the distinctions of section 1 would be idle, or these tests blind to them. */
static void the_wrong_forms_are_seen_to_be_wrong(void **state)
{
    uint64_t seed = 13;
    int early_flush = 0, double_rounding = 0;

    for (int n = 0; n < 600000; n++) {
        float a, b, c, plain;
        bool narrow = operands(n % 2 ? KIND_EDGE : KIND_TIE, &seed, &a, &b, &c);
        plain = double_form(a, b, c);
        if (pl_f32_bits(pl_f32_flush(plain)) != pl_f32_bits(pl_fma_f32(a, b, c))) {
            early_flush += narrow;
            double_rounding += !narrow;
        }
    }
    assert_in_range(early_flush, 1, 600000);
    assert_in_range(double_rounding, 1, 600000);
}

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((noinline, target("fma"))) static float processor_fma(float a, float b, float c)
{
    return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}

/* In the workers' environment the fused instruction and, for narrow products, the bare double form are
 * the definition. */
static void the_processor_agrees_under_ftz_and_daz(void **state)
{
    uint64_t seed = 17;
    bool fused = __builtin_cpu_supports("fma");

    if (!fpmode_flush_works())
        skip();
    fpmode_flush(NULL);
    for (int n = 0; n < 3000000; n++) {
        float a, b, c, want, got;
        bool narrow = operands(n % KIND_COUNT, &seed, &a, &b, &c);
        want = pl_fma_f32(a, b, c);
        if (fused) {
            got = processor_fma(a, b, c);
            check_same_f32("vfmadd", &got, &want, 1);
        }
        if (narrow) {
            got = double_form(a, b, c);
            check_same_f32("double form", &got, &want, 1);
        }
    }
    fpmode_ieee(NULL);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fma_rounds_once_and_flushes),
        cmocka_unit_test(the_wrong_forms_are_seen_to_be_wrong),
#if defined(__x86_64__)
        cmocka_unit_test(the_processor_agrees_under_ftz_and_daz),
#endif
    };
    return cmocka_run_group_tests(tests, fpmode_ieee, NULL);
}
