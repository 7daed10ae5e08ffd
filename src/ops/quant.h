/* Activation and cache quantisation: blocks along the last dimension with a power-of-two scale.
 *
 * The scale of a block is 2^e, e = exp_ceil(max(amax, floor) * fp32(1 / qmax)), stored as the e8m0
 * byte e + 127; a code is the nearest even value of x / 2^e. Elements are independent of everything
 * outside their block.
 *
 * x and out are bf16 bits. Denormal elements count as zero of their sign. A block that holds a NaN or
 * an infinity is lost whole: scale byte 255, e4m3 codes 0x7F, e2m1 codes 0, fake form NaN; so every
 * product with it is NaN, whether a kernel reads byte 255 as NaN or, by a shift, as infinity.
 *
 * Nothing is allocated, nothing fails; shapes are the caller's duty. x and out may be the same.
 * Source: specification sections 0.4 and 0.5; docs/NUMERICS.md 3. */
#ifndef PL_OPS_QUANT_H
#define PL_OPS_QUANT_H

#include <stdbool.h>
#include <stdint.h>

enum { PL_E2M1_GROUP = 32 };

/* x[n] -> codes[n], scale[n / block]; block is 64 or 128 and divides n. Floor of amax 1e-4. */
void pl_quant_e4m3(const uint16_t *x, int64_t n, int32_t block, uint8_t *codes, uint8_t *scale);

/* x[n] -> packed[n / 2] (even k in the low nibble), scale[n / 32]; 32 divides n. Floor 6 * 2^-126. */
void pl_quant_e2m1(const uint16_t *x, int64_t n, uint8_t *packed, uint8_t *scale);

/* The same and back, out[n] = bf16(code * scale): exact, except that 256 * 2^120 is infinite and that
 * a result below 2^-126 is flushed. */
void pl_quant_e4m3_fake(const uint16_t *x, int64_t n, int32_t block, uint16_t *out);
void pl_quant_e2m1_fake(const uint16_t *x, int64_t n, uint16_t *out);

/* The fake forms of the f64 level: x holds bf16 numbers in double; nothing is flushed. */
void pl_quant_e4m3_fake_f64(const double *x, int64_t n, int32_t block, double *out);
void pl_quant_e2m1_fake_f64(const double *x, int64_t n, double *out);

/* Whether the FP4 product of these 32 e4m3 codes (a group of a token's quantised row) may be formed
 * in integers: no NaN, and 12 * sum |x| <= 2^24 with x in units of the largest power of two that
 * divides all of them. Then no partial sum in any order rounds, for any e2m1 weights.
 *
 * *unit_log2 (always set) is that unit's exponent, -9 .. 8; 0 when all are zero. It is not meaningful
 * beside a NaN. */
bool pl_quant_group_is_exact(const uint8_t *codes, int32_t *unit_log2);

/* One bit per group of 32, group g in bit g % 32 of mask[g / 32]; mask has ceil(n / 1024) words, bits
 * past the last group are 0. 32 divides n. */
void pl_quant_exact_groups(const uint8_t *codes, int64_t n, uint32_t *mask);

#endif
