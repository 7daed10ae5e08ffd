/* Number formats whose conversion is more than a shift.
 *
 * Everything works on integers and on normal floats only, so the results do not depend on the
 * rounding helpers of the compiler, on FTZ or on DAZ. Blocks and scales are elsewhere: ops/quant.c. */
#include "base/numfmt.h"

#define F32_INF_BITS 0x7F800000u

float pl_e4m3_to_f32(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80) << 24, magnitude = code & 0x7F;

    if (magnitude == 0x7F)
        return pl_f32_from_bits(sign | 0x7FC00000u);
    if (magnitude < 8) /* subnormal: multiples of 2^-9 */
        return pl_f32_from_bits(sign | pl_f32_bits((float)magnitude * 0x1p-9f));
    return pl_f32_from_bits(sign | ((magnitude << 20) + ((127u - 7u) << 23)));
}

uint8_t pl_f32_to_e4m3(float x)
{
    uint32_t u = pl_f32_bits(x), sign = u >> 24 & 0x80u, a = u & 0x7FFFFFFFu, code;

    if (a > F32_INF_BITS)
        return 0x7F;
    if (a < pl_f32_bits(0x1p-6f)) /* adding 2^14 leaves the multiple of 2^-9 in the low bits */
        code = pl_f32_bits(pl_f32_from_bits(a) + 0x1p14f) & 0xFu;
    else
        code = ((a + 0x7FFFFu + (a >> 20 & 1u)) >> 20) - ((127u - 7u) << 3);
    return (uint8_t)(sign | (code < 0x7E ? code : 0x7E));
}

float pl_e2m1_to_f32(uint8_t code)
{
    static const float values[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    float v = values[code & 7];

    return code & 8 ? -v : v;
}

/* A tie goes to the even code, so every second comparison includes its midpoint. */
uint8_t pl_f32_to_e2m1(float x)
{
    uint32_t u = pl_f32_bits(x);
    float a = pl_f32_from_bits(u & 0x7FFFFFFFu);

    if ((u & 0x7FFFFFFFu) > F32_INF_BITS)
        return 7;
    return (uint8_t)((u >> 28 & 8u) |
                     (uint32_t)((a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) +
                                (a > 2.5f) + (a >= 3.5f) + (a > 5.0f)));
}

float pl_e8m0_to_f32(uint8_t byte)
{
    return pl_f32_from_bits(byte == 255 ? 0x7FC00000u : (uint32_t)byte << 23);
}

double pl_e8m0_to_f64(uint8_t byte)
{
    if (byte == 255)
        return pl_f64_from_bits(0x7FF8000000000000u);
    return pl_f64_from_bits((uint64_t)(byte + 1023 - 127) << 52);
}

/* |x| < 2^-126 to the nearest multiple of 2^-grid: adding 1.5 * 2^(52 - grid) rounds there. */
static double round_below_normal(double x, double magic)
{
    uint64_t u = pl_f64_bits(x), sign = u & PL_F64_SIGN;
    double a = (pl_f64_from_bits(u ^ sign) + magic) - magic;

    return pl_f64_from_bits(sign | pl_f64_bits(a));
}

double pl_f64_round_f32(double x)
{
    if ((pl_f64_bits(x) & ~PL_F64_SIGN) < pl_f64_bits(0x1p-126))
        return round_below_normal(x, 0x1.8p-97);
    return (double)(float)x;
}

double pl_f64_round_bf16(double x)
{
    double f = pl_f64_round_f32(x);
    uint64_t u = pl_f64_bits(f), a = u & ~PL_F64_SIGN;

    if (a >= pl_f64_bits(PL_F64_INF))
        return f;
    if (a < pl_f64_bits(0x1p-126))
        return round_below_normal(f, 0x1.8p-81);
    a = (a + ((UINT64_C(1) << 44) - 1) + (a >> 45 & 1)) & ~((UINT64_C(1) << 45) - 1);
    if (a >= pl_f64_bits(0x1p128))
        a = pl_f64_bits(PL_F64_INF);
    return pl_f64_from_bits((u & PL_F64_SIGN) | a);
}
