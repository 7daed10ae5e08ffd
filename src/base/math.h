/* Elementary functions and the fused multiply-add whose bits are part of the numeric contract.
 *
 * Only +, -, *, /, square root, comparisons, selections and integer operations on bit patterns, in
 * the order docs/NUMERICS.md 6 writes down, so that vector code reaches the same bits; no libm. Results
 * are the same with and without FTZ and DAZ: denormal arguments count as zero and results below the
 * normal range are zero, both with their sign. NaN gives NaN.
 *
 * Errors measured against long double, in units in the last place of the exact value (tests/unit/
 * test_math.c holds the bounds). */
#ifndef PL_BASE_MATH_H
#define PL_BASE_MATH_H

#include "base/numfmt.h"

/* e^x. Exact at 0; +0 below -0x1.5d589ep+6, infinite above 0x1.62e42ep+6. Error below 1. */
float pl_exp_f32(float x);

/* Natural logarithm. -inf at zeros, NaN below. Error below 1. */
float pl_log_f32(float x);

/* 1 / (1 + e^-x). Error below 2.5. */
float pl_sigmoid_f32(float x);

/* ln(1 + e^x); x itself above 20 (specification section 5.1). Error below 2. */
float pl_softplus_f32(float x);

/* Error below 1.5. */
float pl_tanh_f32(float x);

/* The same in double: the f64 level rounds them once to float; sampling uses the logarithm. exp is +0
 * below -708 and infinite above 709. Errors below 1.25 (exp, log), 2.5 (sigmoid, softplus); tanh is for
 * rounding to float only (2^-43 relative). */
double pl_exp_f64(double x);
double pl_log_f64(double x);
double pl_sigmoid_f64(double x);
double pl_softplus_f64(double x);
double pl_tanh_f64(double x);

/* Sine and cosine for |x| <= 2^20, error below 2.5; beyond, the reduction loses accuracy, never its
 * determinism. */
void pl_sincos_f64(double x, double *sin, double *cos);

/* sqrtss and sqrtsd: correctly rounded by IEEE 754. */
static inline float pl_sqrt_f32(float x)
{
    return __builtin_sqrtf(x);
}

static inline double pl_sqrt_f64(double x)
{
    return __builtin_sqrt(x);
}

/* a > b ? a : b, as maxps: b where either is NaN. */
static inline float pl_max_f32(float a, float b)
{
    return a > b ? a : b;
}

/* The fma of the contract (docs/NUMERICS.md 1) in plain C: denormal inputs are zeros; a * b + c is
 * rounded once, to nearest even with an unbounded exponent, and becomes zero of its sign when that is
 * below 2^-126. The processor's fused instruction under FTZ and DAZ does exactly this.
 *
 * The first form is for products of at most 24 significant bits (bf16 x bf16, codes, a power of two
 * times anything): there the second rounding, from double, never changes the first. */
static inline float pl_fma_narrow(float a, float b, float c)
{
    double d = (double)pl_f32_flush(a) * (double)pl_f32_flush(b) + (double)pl_f32_flush(c);

    if (__builtin_fabs(d) < 0x1.ffffffp-127) /* 2^-126 - 2^-151: nearer to 2^-126 from here on */
        return (float)__builtin_copysign(0.0, d);
    return (float)d;
}

/* For any operands: the sum in double is rounded to odd, which a later rounding to 24 bits cannot
 * tell from the exact sum. */
static inline float pl_fma_f32(float a, float b, float c)
{
    double p = (double)pl_f32_flush(a) * (double)pl_f32_flush(b); /* exact: 48 bits */
    double q = (double)pl_f32_flush(c), d = p + q;
    double v = d - p, error = (p - (d - v)) + (q - v);
    uint64_t u = pl_f64_bits(d);

    if (error != 0 && (u & 1) == 0 && (u << 1) < UINT64_C(0xFFE0000000000000)) {
        u += (error > 0) == (d > 0) ? 1 : UINT64_C(-1);
        d = pl_f64_from_bits(u);
    }
    if (__builtin_fabs(d) < 0x1.ffffffp-127)
        return (float)__builtin_copysign(0.0, d);
    return (float)d;
}

#endif
