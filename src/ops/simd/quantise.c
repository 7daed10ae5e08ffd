/* e4m3 quantisation of activations for vector levels (NUMERICS 3). */
#include <string.h>

#include "ops/simd/quantise.h"

enum { GROUP = 32 };

/* Magnitudes of codes in units of 2^-9. */
INLINE __m256i units_of(__m256i code)
{
    const __m256i seven = _mm256_set1_epi32(7), eight = _mm256_set1_epi32(8);
    __m256i m = _mm256_and_si256(code, _mm256_set1_epi32(0x7F)), e = _mm256_srli_epi32(m, 3);
    __m256i is_small = _mm256_cmpgt_epi32(eight, m);
    __m256i normal = _mm256_sllv_epi32(_mm256_add_epi32(_mm256_and_si256(m, seven), eight),
                                       _mm256_sub_epi32(e, _mm256_set1_epi32(1)));

    return _mm256_blendv_epi8(normal, m, is_small);
}

/* Whether the group's products may be summed in integers (quant.h). */
INLINE bool is_exact(__m256i sums, __m256i bits)
{
    uint32_t s[LANES], b[LANES], sum = 0, all = 0;

    _mm256_storeu_si256((__m256i *)s, sums);
    _mm256_storeu_si256((__m256i *)b, bits);
    for (int i = 0; i < LANES; i++) {
        sum += s[i];
        all |= b[i];
    }
    return 12 * (uint64_t)(all ? sum >> __builtin_ctz(all) : 0) <= 1u << 24;
}

/* 32 numbers; returns whether they are exact. */
INLINE bool quantise_group(const uint16_t *x, vf inverse, uint8_t *codes)
{
    __m256i sums = _mm256_setzero_si256(), bits = sums;

    for (int i = 0; i < GROUP; i += 2 * LANES) {
        __m256i c[2];
        UNROLL
        for (int k = 0; k < 2; k++) {
            __m256i v;
            c[k] = e4m3_codes(vf_load_bf16(x + i + k * LANES), inverse);
            v = units_of(c[k]);
            sums = _mm256_add_epi32(sums, v);
            bits = _mm256_or_si256(bits, v);
        }
        e4m3_store(codes + i, c[0], c[1]);
    }
    return is_exact(sums, bits);
}

/* *exact gets a bit for each group of 32. */
INLINE void quantise_block(const uint16_t *x, uint8_t *codes, uint8_t *scale, uint8_t *exact)
{
    const uint32_t top = bf16_largest(x, PL_QUANT_BLOCK);
    vf inverse;

    *exact = 0;
    if (top >= 0x7F80) {
        memset(codes, 0x7F, PL_QUANT_BLOCK);
        *scale = 255;
        return;
    }
    *scale = e4m3_scale(top);
    inverse = e4m3_inverse(*scale);
    for (int g = 0; g < PL_QUANT_BLOCK / GROUP; g++)
        *exact |= (uint8_t)(quantise_group(x + g * GROUP, inverse, codes + g * GROUP) << g);
}

void PL__AT(quantise)(const pl_op_env *env, const pl_quantise_args *a, int64_t begin, int64_t end)
{
    int64_t nb = a->dim / PL_QUANT_BLOCK, row_dim = a->row_dim ? a->row_dim : a->dim;
    int64_t row_nb = row_dim / PL_QUANT_BLOCK;

    for (int64_t r = begin; r < end; r++) {
        const uint16_t *x =
            (const uint16_t *)(const void *)((const uint8_t *)a->x + r * a->x_stride);
        uint8_t *q = (uint8_t *)a->q + r * a->q_stride, *codes = q + a->first;
        uint8_t *scale = q + row_dim + a->first / PL_QUANT_BLOCK;

        for (int64_t b = 0; b < nb; b++)
            quantise_block(x + b * PL_QUANT_BLOCK, codes + b * PL_QUANT_BLOCK, scale + b,
                           scale + row_nb + b);
    }
}
