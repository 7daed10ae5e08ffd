/* Vectors of floats for kernels that are written once and compiled for each level: lanes never meet, except in
 * vf_transpose, so the number of lanes changes no bit.
 *
 * Everything runs in the environment of base/fpenv.h (FTZ, DAZ). The elementary functions are those of
 * docs/NUMERICS.md 6, one operation after the other. Included only by files that are compiled for a level: all
 * functions are forced inline, so that none of them can serve the rest of the program. */
#ifndef PL_OPS_SIMD_VEC_H
#define PL_OPS_SIMD_VEC_H

#include <immintrin.h>

#include "ops/scalar/scalar.h"
#include "ops/simd/kernels.h"

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* The name of an operator at the level that this file is compiled for: PL__AT(attention). */
#define PL__AT(name) PL__JOIN(PL__LEVEL, name)

PL__SIMD_PROTOTYPES(PL__LEVEL);

enum { LANES = 8 };

typedef __m256 vf;
typedef __m256i vi;

INLINE vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

INLINE void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}

INLINE vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}

INLINE vf vf_at(const float *p)
{
    return _mm256_broadcast_ss(p);
}

INLINE vf vf_zero(void)
{
    return _mm256_setzero_ps();
}

INLINE vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

INLINE vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

INLINE vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

INLINE vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* a > b ? a : b */
INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

/* a < b ? a : b */
INLINE vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

/* Masks: all bits of a lane or none. Comparisons are false where an operand is NaN. */
INLINE vf vf_gt(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
}

INLINE vf vf_eq(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}

INLINE vf vf_is_nan(vf a)
{
    return _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
}

/* mask ? a : b */
INLINE vf vf_select(vf mask, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, mask);
}

INLINE vi vf_bits(vf x)
{
    return _mm256_castps_si256(x);
}

INLINE vf vf_from_bits(vi x)
{
    return _mm256_castsi256_ps(x);
}

/* LANES bf16 numbers. A denormal one counts as zero in every operation that follows (DAZ). */
INLINE vf vf_load_bf16(const uint16_t *p)
{
    __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));

    return vf_from_bits(_mm256_slli_epi32(v, 16));
}

/* The bits of bf16(x) in the lower half of each lane: nearest even, a NaN stays one, denormals become zero. */
INLINE vi vf_bf16_bits(vf x)
{
    const vi low = _mm256_set1_epi32(0x7FFF), one = _mm256_set1_epi32(1);
    vi u = vf_bits(x), even = _mm256_and_si256(_mm256_srli_epi32(u, 16), one);
    vi rounded = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(low, even)), 16);
    vi kept = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
    vi exponent = _mm256_and_si256(u, _mm256_set1_epi32(0x7F800000));
    vi tiny = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());

    rounded = _mm256_blendv_epi8(rounded, kept, vf_bits(vf_is_nan(x)));
    return _mm256_and_si256(rounded,
                            _mm256_or_si256(_mm256_andnot_si256(tiny, _mm256_set1_epi32(0xFFFF)),
                                            _mm256_and_si256(tiny, _mm256_set1_epi32(0x8000))));
}

INLINE void vf_store_bf16(uint16_t *p, vf x)
{
    vi b = vf_bf16_bits(x);

    _mm_storeu_si128((__m128i *)p,
                     _mm_packus_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1)));
}

INLINE vf vf_round_bf16(vf x)
{
    return vf_from_bits(_mm256_slli_epi32(vf_bf16_bits(x), 16));
}

INLINE vf vf_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

INLINE void vf_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

INLINE vf vf_round_f16(vf x)
{
    return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

INLINE vf vf_exp(vf x)
{
    const vf magic = vf_set(0x1.8p23f);
    vf t = vf_add(vf_mul(x, vf_set(0x1.715476p+0f)), magic), n = vf_sub(t, magic);
    vf r = vf_sub(vf_sub(x, vf_mul(n, vf_set(0x1.62e4p-1f))), vf_mul(n, vf_set(0x1.7f7d1cp-20f)));
    vf p = vf_add(vf_mul(vf_set(0x1.6a1ff2p-10f), r), vf_set(0x1.1239f2p-7f)), y;

    p = vf_add(vf_mul(p, r), vf_set(0x1.5558f8p-5f));
    p = vf_add(vf_mul(p, r), vf_set(0x1.555492p-3f));
    p = vf_add(vf_mul(p, r), vf_set(0x1.fffffcp-2f));
    y = vf_add(vf_add(r, vf_mul(vf_mul(r, r), p)), vf_set(1.0f));
    y = vf_from_bits(_mm256_add_epi32(vf_bits(y), _mm256_slli_epi32(vf_bits(t), 23)));
    y = vf_select(vf_gt(x, vf_set(0x1.62e42ep+6f)), vf_set(INFINITY), y);
    y = vf_select(vf_gt(vf_set(-0x1.5d589ep+6f), x), vf_zero(), y);
    return vf_select(vf_is_nan(x), x, y);
}

INLINE vf vf_negate(vf x)
{
    return _mm256_xor_ps(x, vf_set(-0.0f));
}

INLINE vf vf_sigmoid(vf x)
{
    const vf one = vf_set(1.0f);

    return vf_div(one, vf_add(one, vf_exp(vf_negate(x))));
}

INLINE vf vf_tanh(vf x)
{
    vf sign = _mm256_and_ps(x, vf_set(-0.0f)), a = _mm256_andnot_ps(vf_set(-0.0f), x);
    vf z = vf_mul(a, a), p = vf_set(-0x1.75e1dp-8f), y, one = vf_set(1.0f);

    a = vf_mul(a, one); /* flushes */
    p = vf_add(vf_mul(p, z), vf_set(0x1.52269cp-6f));
    p = vf_add(vf_mul(p, z), vf_set(-0x1.b83c5ap-5f));
    p = vf_add(vf_mul(p, z), vf_set(0x1.110726p-3f));
    p = vf_add(vf_mul(p, z), vf_set(-0x1.555532p-2f));
    y = vf_sub(one, vf_div(vf_set(2.0f), vf_add(vf_exp(vf_mul(vf_set(2.0f), a)), one)));
    y = vf_select(vf_gt(vf_set(0.625f), a), vf_add(a, vf_mul(a, vf_mul(z, p))), y);
    return vf_select(vf_is_nan(x), x, _mm256_or_ps(y, sign));
}

/* Neighbours change places: lanes 1, 0, 3, 2, .. */
INLINE vf vf_swap(vf x)
{
    return _mm256_permute_ps(x, 0xB1);
}

/* Lane i of r[k] and lane k of r[i] change places. */
INLINE void vf_transpose(vf r[LANES])
{
    vf a[LANES], b[LANES];

    UNROLL
    for (int i = 0; i < LANES; i += 2) {
        a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    UNROLL
    for (int i = 0; i < LANES; i += 4) {
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xEE);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xEE);
    }
    UNROLL
    for (int i = 0; i < LANES / 2; i++) {
        r[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}

/* Two times LANES e4m3 codes as numbers times 2^-8; NaN codes (0x7F, 0xFF) come out as 480 * 2^-8. */
INLINE void vf_load_e4m3(const uint8_t *p, vf *lo, vf *hi)
{
    __m128i c = _mm_loadu_si128((const __m128i *)p), zero = _mm_setzero_si128();
    __m128i mask = _mm_set1_epi16((short)0xBFFF);
    __m128i a = _mm_and_si128(_mm_srai_epi16(_mm_unpacklo_epi8(zero, c), 1), mask);
    __m128i b = _mm_and_si128(_mm_srai_epi16(_mm_unpackhi_epi8(zero, c), 1), mask);

    *lo = _mm256_cvtph_ps(a);
    *hi = _mm256_cvtph_ps(b);
}

#endif
