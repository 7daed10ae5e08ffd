/* FP4 groups as integers for AVX-512, where docs/NUMERICS.md 3 permits: the chain's bits (simd/fp4_group.h). Included
 * behind avx512/linear.h by one file of each level.
 *
 * With VNNI, which every processor with bf16 products has, vpdpbusd adds a row's four products of a digit in 32 bits.
 * Without, vpmaddubsw sums in 16 bits, of which four fit: 4 * 2 * 24 * 128 = 24576. Inputs are prepared in plain
 * C, once a token: loops over 32 numbers that compilers turn into vectors. */
#ifndef PL_OPS_AVX512_FP4_EXACT_H
#define PL_OPS_AVX512_FP4_EXACT_H

#include "base/numfmt.h"
#include "ops/avx512/linear.h"
#include "ops/simd/fp4_group.h"

enum { STEPS = GROUP / 8 }; /* of 8 columns, of a group */

/* ---- inputs */

/* The codes in the order of a group's bytes: of each eight k0 k4 k1 k5 k2 k6 k3 k7. */
INLINE void order_codes(const uint8_t *codes, uint8_t ordered[GROUP])
{
    const __m256i order = _mm256_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15, 0,
                                           4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);

    _mm256_storeu_si256(
        (__m256i *)(void *)ordered,
        _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)(const void *)codes), order));
}

/* The code's value in units of 2^-9. */
INLINE int32_t whole_number(uint8_t code)
{
    int32_t exponent = code >> 3 & 15, normal = exponent > 0;
    int32_t v = ((code & 7) | normal << 3) << (exponent - normal);

    return code & 0x80 ? -v : v;
}

static int fp4_prepare_exact(const uint8_t *codes, pl_fp4_group *out)
{
    uint8_t ordered[GROUP];
    int8_t digit[3][GROUP];
    int32_t v[GROUP], all = 0, sum = 0, third = 0;
    int unit;

    order_codes(codes, ordered);
    for (int i = 0; i < GROUP; i++) {
        v[i] = whole_number(ordered[i]);
        all |= v[i];
    }
    /* Two's complement leaves the lowest set bit where it is. */
    unit = all ? __builtin_ctz((uint32_t)all) : 0;
    for (int i = 0; i < GROUP; i++) {
        int32_t left = v[i] >> unit;

        sum += left;
        for (int d = 0; d < 3; d++) { /* signed, of base 256 */
            digit[d][i] = (int8_t)(left & 0xFF);
            left = (left - digit[d][i]) >> 8;
        }
        third |= digit[2][i];
    }
    memcpy(out->digit, digit, sizeof out->digit);
    out->start = -12 * sum;
    out->unit = pl_f32_from_bits((uint32_t)(127 + unit - 10) << 23);
    return third ? 3 : 2;
}

/* ---- products */

/* k + 12 of the nibbles in the low halves of the bytes. */
INLINE __m512i shifted(__m512i nibbles)
{
    const __m512i table = _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));

    return _mm512_shuffle_epi8(table, nibbles);
}

/* The sums of a digit over a group's columns, of 16 rows; 8 registers of weights. */
INLINE __m512i digit_sum(const __m512i *k, const int32_t *digit)
{
#if PL_DOT_BF16
    __m512i sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};

    UNROLL for (int i = 0; i < 2 * STEPS; i++) sum[i & 1] =
        _mm512_dpbusd_epi32(sum[i & 1], k[i], _mm512_set1_epi32(digit[i]));
    return _mm512_add_epi32(sum[0], sum[1]);
#else
    __m512i sum[2], ones = _mm512_set1_epi16(1);

    UNROLL for (int i = 0; i < 2 * STEPS; i++)
    {
        __m512i t = _mm512_maddubs_epi16(k[i], _mm512_set1_epi32(digit[i]));
        sum[i & 1] = i < 2 ? t : _mm512_add_epi16(sum[i & 1], t);
    }
    return _mm512_add_epi32(_mm512_madd_epi16(sum[0], ones), _mm512_madd_epi16(sum[1], ones));
#endif
}

/* fma(p, scales, q) for a group of D digits. */
INLINE __m512 exact_group(int D, const uint8_t *w, const pl_fp4_group *of, __m512 scales, __m512 q)
{
    const __m512i low = _mm512_set1_epi8(15);
    __m512i p = _mm512_set1_epi32(of->start), k[2 * STEPS];

    UNROLL for (int s = 0; s < STEPS; s++)
    {
        __m512i d = _mm512_loadu_si512(w + s * STEP);
        _mm_prefetch((const char *)w + s * STEP + PREFETCH, _MM_HINT_T0);
        k[2 * s] = shifted(_mm512_and_si512(d, low));
        k[2 * s + 1] = shifted(_mm512_and_si512(_mm512_srli_epi16(d, 4), low));
    }
    p = _mm512_add_epi32(p, digit_sum(k, of->digit[0]));
    p = _mm512_add_epi32(p, _mm512_slli_epi32(digit_sum(k, of->digit[1]), 8));
    if (D == 3)
        p = _mm512_add_epi32(p, _mm512_slli_epi32(digit_sum(k, of->digit[2]), 16));
    return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(p), _mm512_set1_ps(of->unit)), scales,
                           q);
}

/* A group as the chain. */
INLINE __m512 chain_group(const uint8_t *w, const float *x, __m512 scales, __m512 q)
{
    __m512 p = _mm512_setzero_ps();

    chain_few(FP4, 1, 1, &w, x, STEPS, &p);
    return _mm512_fmadd_ps(p, scales, q);
}

INLINE void fp4_exact(int T, const pl_simd_few *a)
{
    for (int64_t b = 0; b < a->n_blocks; b++) {
        __m512 q[PL_SIMD_IN_FLIGHT];

        UNROLL for (int t = 0; t < T; t++) q[t] = _mm512_setzero_ps();
        for (int g = 0; g < GROUPS; g++) {
            const int64_t at = b * GROUPS + g;
            const int digits = a->digits[at];

            UNROLL for (int t = 0; t < T; t++)
            {
                const uint8_t *w = a->w[t] + at * STEPS * STEP;
                __m512 scales = e8m0(a->gs[t] + at * LANES);

                if (__builtin_expect(digits == 2, 1))
                    q[t] = exact_group(2, w, a->group + at, scales, q[t]);
                else if (digits == 3)
                    q[t] = exact_group(3, w, a->group + at, scales, q[t]);
                else
                    q[t] = chain_group(w, a->x + at * X_WORDS / GROUPS, scales, q[t]);
            }
        }
        UNROLL for (int t = 0; t < T; t++)
            add_block(a->acc + t * LANES, a->xs[b] * a->ws[t][b], q[t]);
    }
}

static void fp4_exact_1(const pl_simd_few *a)
{
    fp4_exact(1, a);
}

/* Reading weights is latency-bound with fewer in flight. */
static void fp4_exact_4(const pl_simd_few *a)
{
    fp4_exact(4, a);
}

#endif
