/* Sums of squares with blocks of 128 in lanes (NUMERICS 7). Included by kernels only (simd/vec.h). */
#ifndef PL_OPS_SIMD_SUMS_H
#define PL_OPS_SIMD_SUMS_H

#include "ops/simd/vec.h"

/* sums[i] = the chain over the squares of the 128 bf16 numbers at blocks[i]. */
INLINE void vf_square_sums(const uint16_t *const blocks[LANES], float sums[LANES])
{
    vf acc = vf_zero();

    for (int i = 0; i < PL_QUANT_BLOCK; i += LANES) {
        vf x[LANES];
        UNROLL
        for (int b = 0; b < LANES; b++)
            x[b] = vf_load_bf16(blocks[b] + i);
        vf_transpose(x);
        UNROLL
        for (int k = 0; k < LANES; k += 2) {
            acc = vf_fma(x[k + 1], x[k + 1], acc);
            acc = vf_fma(x[k], x[k], acc);
        }
    }
    vf_store(sums, acc);
}

/* Of n bf16 numbers: chains of 128, added ascending from +0. */
INLINE float vf_sum_squares(const uint16_t *x, int64_t n)
{
    float acc = 0, sums[LANES];

    for (int64_t b = 0; b < n; b += (int64_t)LANES * PL_QUANT_BLOCK) {
        const uint16_t *blocks[LANES];
        int64_t whole = (n - b) / PL_QUANT_BLOCK;

        whole = whole > LANES ? LANES : whole;
        if (whole == 0)
            break;
        for (int i = 0; i < LANES; i++)
            blocks[i] = x + b + (i < whole ? i : 0) * PL_QUANT_BLOCK;
        vf_square_sums(blocks, sums);
        for (int i = 0; i < whole; i++)
            acc += sums[i];
    }
    if (n % PL_QUANT_BLOCK)
        acc += pl__scalar_sum_squares(x + n / PL_QUANT_BLOCK * PL_QUANT_BLOCK, n % PL_QUANT_BLOCK);
    return acc;
}

#endif
