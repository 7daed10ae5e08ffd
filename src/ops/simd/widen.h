/* Cached keys as floats, for attention kernels (simd/vec.h). A NaN code gives a NaN whatever its scale. */
#ifndef PL_OPS_SIMD_WIDEN_H
#define PL_OPS_SIMD_WIDEN_H

#include "ops/simd/vec.h"

/* 64 codes with their scale byte. Code times scale is a bf16 number, or out of the range of floats. */
INLINE void wide_e8m0(const uint8_t *codes, uint8_t scale, float *out)
{
    const __m128i magnitude = _mm_set1_epi8(0x7F);
    /* 2^8 undoes the conversion; together with the scale where that is a float. */
    bool joint = scale > 0 && scale <= 246;
    vf s = joint ? vf_set(pl_f32_from_bits((uint32_t)(scale + 8) << 23)) : vf_set(0x1p8f);
    vf s2 = joint ? s : vf_set(scale == 255 ? NAN : pl_f32_from_bits((uint32_t)scale << 23));
    __m128i is_nan = _mm_setzero_si128();

    for (int i = 0; i < PL_KV_BLOCK; i += 2 * LANES) {
        vf lo, hi;
        __m128i c = _mm_loadu_si128((const __m128i *)(codes + i));
        is_nan = _mm_or_si128(is_nan, _mm_cmpeq_epi8(_mm_and_si128(c, magnitude), magnitude));
        vf_load_e4m3(codes + i, &lo, &hi);
        lo = vf_mul(lo, s);
        hi = vf_mul(hi, s);
        vf_store(out + i, joint ? lo : vf_mul(lo, s2));
        vf_store(out + i + LANES, joint ? hi : vf_mul(hi, s2));
    }
    if (!_mm_testz_si128(is_nan, is_nan))
        for (int i = 0; i < PL_KV_BLOCK; i++)
            if ((codes[i] & 0x7F) == 0x7F)
                out[i] = NAN;
}

/* n codes with a scale that is any float: the product is rounded to bf16. */
INLINE void wide_f32(const uint8_t *codes, int n, float scale, float *out)
{
    const __m128i magnitude = _mm_set1_epi8(0x7F);
    const vf up = vf_set(0x1p8f), s = vf_set(scale); /* 2^8 undoes the conversion */
    __m128i is_nan = _mm_setzero_si128();

    for (int i = 0; i < n; i += 2 * LANES) {
        vf lo, hi;
        __m128i c = _mm_loadu_si128((const __m128i *)(codes + i));
        is_nan = _mm_or_si128(is_nan, _mm_cmpeq_epi8(_mm_and_si128(c, magnitude), magnitude));
        vf_load_e4m3(codes + i, &lo, &hi);
        vf_store(out + i, vf_round_bf16(vf_mul(vf_mul(lo, up), s)));
        vf_store(out + i + LANES, vf_round_bf16(vf_mul(vf_mul(hi, up), s)));
    }
    if (!_mm_testz_si128(is_nan, is_nan))
        for (int i = 0; i < n; i++)
            if ((codes[i] & 0x7F) == 0x7F)
                out[i] = NAN;
}

INLINE void wide_bf16(const uint8_t *x, int n, float *out)
{
    for (int i = 0; i < n; i += LANES)
        vf_store(out + i, vf_load_bf16((const uint16_t *)(const void *)x + i));
}

#endif
