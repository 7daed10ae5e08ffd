/* What kernels that quantise bf16 numbers share: the largest of a block, and e4m3 codes (NUMERICS 3). Included by kernels
 * only (simd/vec.h). */
#ifndef PL_OPS_SIMD_QUANTISE_H
#define PL_OPS_SIMD_QUANTISE_H

#include "ops/simd/vec.h"

/* The largest of |x| over n numbers, a multiple of 16, as bits: they order like the values, with infinities and NaNs on
 * top. */
INLINE uint32_t bf16_largest(const uint16_t *x, int n)
{
    __m256i top = _mm256_setzero_si256();
    __m128i half;

    for (int i = 0; i < n; i += 16) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(x + i));
        top = _mm256_max_epu16(top, _mm256_and_si256(v, _mm256_set1_epi16(0x7FFF)));
    }
    half = _mm_max_epu16(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    /* minpos gives the smallest. */
    half = _mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1)));
    return ~(uint32_t)_mm_cvtsi128_si32(half) & 0xFFFF;
}

/* The byte of the scale of a block whose largest is finite, and 1 / scale. */
INLINE uint8_t e4m3_scale(uint32_t largest)
{
    float amax = pl_bf16_to_f32((uint16_t)largest);
    uint32_t u = pl_f32_bits((amax > 1e-4f ? amax : 1e-4f) * (1.0f / 448.0f));

    return (uint8_t)((u >> 23) + ((u & 0x7FFFFF) != 0));
}

INLINE vf e4m3_inverse(uint8_t scale)
{
    return vf_set(pl_f32_from_bits((uint32_t)(254 - scale) << 23));
}

/* Codes in the low byte of each lane: nearest even in 3 bits of fraction, below 2^-6 in steps of 2^-9, at most 448. */
INLINE __m256i e4m3_codes(vf x, vf inverse)
{
    const __m256i one = _mm256_set1_epi32(1);
    vf y = vf_mul(x, inverse), a = _mm256_andnot_ps(vf_set(-0.0f), y);
    __m256i u = vf_bits(a), even = _mm256_and_si256(_mm256_srli_epi32(u, 20), one);
    __m256i normal = _mm256_sub_epi32(
        _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(_mm256_set1_epi32(0x7FFFF), even)),
                          20),
        _mm256_set1_epi32(120 << 3));
    __m256i small = _mm256_and_si256(vf_bits(vf_add(vf_mul(a, vf_set(512.0f)), vf_set(0x1p23f))),
                                     _mm256_set1_epi32(15));
    __m256i code = _mm256_blendv_epi8(normal, small, vf_bits(vf_gt(vf_set(0x1p-6f), a)));
    __m256i sign = _mm256_and_si256(_mm256_srli_epi32(vf_bits(y), 24), _mm256_set1_epi32(0x80));

    return _mm256_or_si256(_mm256_min_epi32(code, _mm256_set1_epi32(0x7E)), sign);
}

/* Two vectors of codes become 16 bytes. */
INLINE void e4m3_store(uint8_t *codes, __m256i a, __m256i b)
{
    __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8);

    _mm_storeu_si128((__m128i *)codes, _mm_packus_epi16(_mm256_castsi256_si128(words),
                                                        _mm256_extracti128_si256(words, 1)));
}

#endif
