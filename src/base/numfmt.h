/* Number formats: bf16, e4m3, e2m1, e8m0, and their exact conversions.
 *
 * Bits are held in uint16_t (bf16) and uint8_t (the others); values in float, which represents every
 * one of them exactly except e8m0 code 0 (2^-127, below the normal range: reads as +0, see
 * docs/NUMERICS.md). Denormal floats count as zero of their sign on input and are flushed on output,
 * as the processor does under FTZ and DAZ, so that integer code and vector code agree.
 *
 * Source: specification section 0.3. */
#ifndef PL_BASE_NUMFMT_H
#define PL_BASE_NUMFMT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t pl_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float pl_f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline uint64_t pl_f64_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline double pl_f64_from_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

#define PL_F64_SIGN UINT64_C(0x8000000000000000)
#define PL_F64_INF  ((double)INFINITY)

/* Zero of the same sign for a denormal, else x. */
static inline float pl_f32_flush(float x)
{
    uint32_t u = pl_f32_bits(x);
    return (u & 0x7F800000u) == 0 ? pl_f32_from_bits(u & 0x80000000u) : x;
}

/* Denormal codes read as zero of their sign. */
static inline float pl_bf16_to_f32(uint16_t b)
{
    return pl_f32_flush(pl_f32_from_bits((uint32_t)b << 16));
}

/* Round to nearest even; a NaN stays one (quiet, upper payload bits kept); denormals become zero. */
static inline uint16_t pl_f32_to_bf16(float x)
{
    uint32_t u = pl_f32_bits(x);

    if ((u & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    if ((u & 0x7F800000u) == 0)
        return (uint16_t)(u >> 16 & 0x8000u);
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}

static inline float pl_bf16_round(float x)
{
    return pl_bf16_to_f32(pl_f32_to_bf16(x));
}

/* e4m3fn: bias 7, largest 448, no infinity, 0x7F and 0xFF are NaN. */
float pl_e4m3_to_f32(uint8_t code);
/* Round to nearest even, saturating at 448; NaN -> 0x7F; the sign of zero is kept. */
uint8_t pl_f32_to_e4m3(float x);

/* e2m1: 0, .5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign. `code` is 0..15. */
float pl_e2m1_to_f32(uint8_t code);
/* Round to nearest even, saturating at 6. NaN is not representable and gives 7 (6.0); callers that
 * must tell check before. */
uint8_t pl_f32_to_e2m1(float x);

/* 2^(byte - 127); 255 is NaN, 0 reads as +0. */
float pl_e8m0_to_f32(uint8_t byte);
/* The same value in double, where byte 0 is exact (for the f64 level). */
double pl_e8m0_to_f64(uint8_t byte);

/* Rounding of the f64 level, values held in double: to the nearest float, and through it to the
 * nearest bf16 (two roundings, as an fp32 accumulator would see them). Nearest even, overflow to
 * infinity, the sign of zero kept; unlike the functions above nothing is flushed, whatever MXCSR says
 * (docs/NUMERICS.md 14). */
double pl_f64_round_f32(double x);
double pl_f64_round_bf16(double x);

#endif
