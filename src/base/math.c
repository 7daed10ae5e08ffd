/* Elementary functions: range reduction, one polynomial, reconstruction; every line is one operation
 * that a vector unit has. docs/NUMERICS.md 6 states the same formulas; change both or neither.
 *
 * Adding and subtracting 1.5 * 2^23 (2^52 in double) rounds to an integer and leaves that integer in
 * the low bits of the sum. Special arguments are selected at the end: the formulas run on anything. */
#include "base/math.h"

#define LN2_HI_F32 0x1.62e4p-1f /* 15 bits: its product with an exponent is exact */
#define LN2_LO_F32 0x1.7f7d1cp-20f
#define LN2_HI_F64 0x1.62e42fefa38p-1 /* 42 bits */
#define LN2_LO_F64 0x1.ef35793c7673p-45

#define SQRT_HALF_F32 0x3F3504F3u /* bits of the float, of the double below 2^-1/2 */
#define SQRT_HALF_F64 UINT64_C(0x3FE6A09E667F3BCD)
#define SQRT2_MINUS_1 0x1.a8279ap-2

float pl_exp_f32(float x)
{
    float t = x * 0x1.715476p+0f + 0x1.8p23f;
    float n = t - 0x1.8p23f;
    float r = (x - n * LN2_HI_F32) - n * LN2_LO_F32;
    float p = 0x1.6a1ff2p-10f;
    float y;

    p = p * r + 0x1.1239f2p-7f;
    p = p * r + 0x1.5558f8p-5f;
    p = p * r + 0x1.555492p-3f;
    p = p * r + 0x1.fffffcp-2f;
    y = (r + (r * r) * p) + 1.0f;
    y = pl_f32_from_bits(pl_f32_bits(y) + (pl_f32_bits(t) << 23));
    if (x < -0x1.5d589ep+6f)
        return 0.0f;
    if (x > 0x1.62e42ep+6f)
        return INFINITY;
    return x != x ? x : y;
}

/* ln(1 + f) for f between 1/sqrt(2) - 1 and sqrt(2) - 1, by 2 atanh(s), s = f / (2 + f). */
static float log1p_core_f32(float f)
{
    float s = f / (2.0f + f);
    float z = s * s;
    float p = 0x1.c71c72p-3f;

    p = p * z + 0x1.24924ap-2f;
    p = p * z + 0x1.99999ap-2f;
    p = p * z + 0x1.555556p-1f;
    return f - s * (f - z * p);
}

float pl_log_f32(float x)
{
    uint32_t u = pl_f32_bits(x), k = (u - SQRT_HALF_F32) & 0xFF800000u;
    int32_t exponent = (int32_t)k / (1 << 23); /* exact */
    float e = (float)exponent;
    float w = log1p_core_f32(pl_f32_from_bits(u - k) - 1.0f);
    float y = (w + e * LN2_LO_F32) + e * LN2_HI_F32;

    if ((u & 0x7F800000u) == 0)
        return -INFINITY;
    if (u > 0x7F800000u) /* negative, or a NaN */
        return pl_f32_from_bits(0x7FC00000u);
    return u == 0x7F800000u ? x : y;
}

float pl_sigmoid_f32(float x)
{
    return pl_f32_flush(1.0f / (1.0f + pl_exp_f32(-x)));
}

/* max(x, 0) + ln(1 + e^-|x|). */
float pl_softplus_f32(float x)
{
    float t = pl_exp_f32(pl_f32_from_bits(pl_f32_bits(x) | 0x80000000u));
    float upper = t > (float)SQRT2_MINUS_1 ? 1.0f : 0.0f;
    float f = t > (float)SQRT2_MINUS_1 ? (t - 1.0f) * 0.5f : t;
    float w = log1p_core_f32(f);
    float y = ((w + upper * LN2_LO_F32) + upper * LN2_HI_F32) + (x > 0.0f ? x : 0.0f);

    return x > 20.0f || x != x ? x : y;
}

float pl_tanh_f32(float x)
{
    uint32_t sign = pl_f32_bits(x) & 0x80000000u;
    float a = pl_f32_flush(pl_f32_from_bits(pl_f32_bits(x) ^ sign));
    float z = a * a, p = -0x1.75e1dp-8f, y;

    p = p * z + 0x1.52269cp-6f;
    p = p * z + -0x1.b83c5ap-5f;
    p = p * z + 0x1.110726p-3f;
    p = p * z + -0x1.555532p-2f;
    y = a < 0.625f ? a + a * (z * p) : 1.0f - 2.0f / (pl_exp_f32(2.0f * a) + 1.0f);
    return x != x ? x : pl_f32_from_bits(pl_f32_bits(y) | sign);
}

double pl_exp_f64(double x)
{
    static const double c[] = {/* 1 / 13! .. 1 / 2! */
                               0x1.6124613a86d09p-33, 0x1.1eed8eff8d898p-29, 0x1.ae64567f544e4p-26,
                               0x1.27e4fb7789f5cp-22, 0x1.71de3a556c734p-19, 0x1.a01a01a01a01ap-16,
                               0x1.a01a01a01a01ap-13, 0x1.6c16c16c16c17p-10, 0x1.1111111111111p-7,
                               0x1.5555555555555p-5,  0x1.5555555555555p-3,  0x1p-1};
    double t = x * 0x1.71547652b82fep+0 + 0x1.8p52;
    double n = t - 0x1.8p52;
    double r = (x - n * LN2_HI_F64) - n * LN2_LO_F64;
    double p = c[0], y;

    for (int i = 1; i < 12; i++)
        p = p * r + c[i];
    y = (r + (r * r) * p) + 1.0;
    y = pl_f64_from_bits(pl_f64_bits(y) + (pl_f64_bits(t) << 52));
    if (x < -708.0)
        return 0.0;
    if (x > 709.0)
        return PL_F64_INF;
    return x != x ? x : y;
}

static double log1p_core_f64(double f)
{
    static const double c[] = {/* 2 / 21 .. 2 / 3 */
                               0x1.8618618618618p-4, 0x1.af286bca1af28p-4, 0x1.e1e1e1e1e1e1ep-4,
                               0x1.1111111111111p-3, 0x1.3b13b13b13b14p-3, 0x1.745d1745d1746p-3,
                               0x1.c71c71c71c71cp-3, 0x1.2492492492492p-2, 0x1.999999999999ap-2,
                               0x1.5555555555555p-1};
    double s = f / (2.0 + f);
    double z = s * s;
    double p = c[0];

    for (int i = 1; i < 10; i++)
        p = p * z + c[i];
    return f - s * (f - z * p);
}

double pl_log_f64(double x)
{
    uint64_t u = pl_f64_bits(x), k = (u - SQRT_HALF_F64) & UINT64_C(0xFFF0000000000000);
    double e = (double)(int32_t)((int64_t)k / (INT64_C(1) << 52));
    double w = log1p_core_f64(pl_f64_from_bits(u - k) - 1.0);
    double y = (w + e * LN2_LO_F64) + e * LN2_HI_F64;

    if ((u & UINT64_C(0x7FF0000000000000)) == 0)
        return -PL_F64_INF;
    if (u > UINT64_C(0x7FF0000000000000))
        return pl_f64_from_bits(UINT64_C(0x7FF8000000000000));
    return u == UINT64_C(0x7FF0000000000000) ? x : y;
}

double pl_sigmoid_f64(double x)
{
    return x < -708.0 ? 0.0 : 1.0 / (1.0 + pl_exp_f64(-x));
}

double pl_softplus_f64(double x)
{
    double t = pl_exp_f64(pl_f64_from_bits(pl_f64_bits(x) | PL_F64_SIGN));
    double upper = t > SQRT2_MINUS_1 ? 1.0 : 0.0;
    double f = t > SQRT2_MINUS_1 ? (t - 1.0) * 0.5 : t;
    double w = log1p_core_f64(f);
    double y = ((w + upper * LN2_LO_F64) + upper * LN2_HI_F64) + (x > 0.0 ? x : 0.0);

    return x > 20.0 || x != x ? x : y;
}

double pl_tanh_f64(double x)
{
    uint64_t sign = pl_f64_bits(x) & PL_F64_SIGN;
    double a = pl_f64_from_bits(pl_f64_bits(x) ^ sign), z = a * a, y;

    if (a < 0x1p-10)
        y = a - a * (z * (0x1.5555555555555p-2 - z * 0x1.1111111111111p-3));
    else
        y = 1.0 - 2.0 / (pl_exp_f64(2.0 * a) + 1.0);
    return x != x ? x : pl_f64_from_bits(pl_f64_bits(y) | sign);
}

void pl_sincos_f64(double x, double *sin, double *cos)
{
    static const double cs[] = {/* 1 / 17!, -1 / 15!, .. -1 / 3! */
                                0x1.952c77030ad4ap-49, -0x1.ae7f3e733b81fp-41,
                                0x1.6124613a86d09p-33, -0x1.ae64567f544e4p-26,
                                0x1.71de3a556c734p-19, -0x1.a01a01a01a01ap-13,
                                0x1.1111111111111p-7,  -0x1.5555555555555p-3};
    static const double cc[] = {/* 1 / 16!, -1 / 14!, .. 1 / 4! */
                                0x1.ae7f3e733b81fp-45, -0x1.93974a8c07c9dp-37,
                                0x1.1eed8eff8d898p-29, -0x1.27e4fb7789f5cp-22,
                                0x1.a01a01a01a01ap-16, -0x1.6c16c16c16c17p-10,
                                0x1.5555555555555p-5};
    double t = x * 0x1.45f306dc9c883p-1 + 0x1.8p52;
    double n = t - 0x1.8p52;
    double r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
    double z = r * r, p = cs[0], q = cc[0], s, c;
    uint64_t quarter = pl_f64_bits(t);

    for (int i = 1; i < 8; i++)
        p = p * z + cs[i];
    for (int i = 1; i < 7; i++)
        q = q * z + cc[i];
    s = r + r * (z * p);
    c = (1.0 - 0.5 * z) + (z * z) * q;
    *sin = pl_f64_from_bits(pl_f64_bits(quarter & 1 ? c : s) ^ (quarter & 2) << 62);
    *cos = pl_f64_from_bits(pl_f64_bits(quarter & 1 ? s : c) ^ ((quarter + 1) & 2) << 62);
}
