/* A group of 32 activations as whole numbers, for the kernels that multiply FP4 weights as integers where
 * docs/NUMERICS.md 3 permits it.
 *
 * X, in units of the largest power of two that divides all of the group, is cut into two or three signed digits of base
 * 256. Weights become k + 12 with k = twice their value, 0 .. 24; `start` takes back what was added. The sum over
 * the digits is twice the dot product in that unit, at most 2^24: its conversion is exact, so that only the scale's
 * fma rounds, as in the chain. A sum of zero is +0 in both. */
#ifndef PL_OPS_SIMD_FP4_GROUP_H
#define PL_OPS_SIMD_FP4_GROUP_H

#include <stdint.h>

/* Dword i of a digit belongs to columns 8 (i / 2) ..: even i to k0 k4 k1 k5, the low nibbles of the tile's step, odd i to
 * k2 k6 k3 k7. */
typedef struct pl_fp4_group {
    int32_t digit[3][8];
    int32_t start; /* -12 sum X */
    float unit;    /* of half a weight times X */
    int32_t unused[6];
} pl_fp4_group;

#endif
