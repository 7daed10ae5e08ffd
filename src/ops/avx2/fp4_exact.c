/* FP4 groups as integers for AVX2, where docs/NUMERICS.md 3 permits: the chain's bits at three fifths of its price.
 *
 * Weights k + 12 come from one shuffle of 32 nibbles. vpmaddubsw sums products of a digit in 16 bits, of which four fit:
 * 4 * 2 * 24 * 128 = 24576. The digits meet in 32 bits (simd/fp4_group.h). */
#include "ops/avx2/linear.h"
#include "ops/simd/fp4_group.h"

enum { STEPS = GROUP / 8 }; /* of 8 columns, of a group */

/* Keeps the compiler from adding in another order, which is exact too but wants more registers than there are. */
#define KEEP_ORDER(v) __asm__("" : "+x"(v))

/* ---- inputs */

/* The codes' values in units of 2^-9. */
INLINE __m256i whole_numbers(const uint8_t *codes)
{
    __m256i c = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)codes));
    __m256i magnitude = _mm256_and_si256(c, _mm256_set1_epi32(0x7F));
    __m256i fraction = _mm256_and_si256(c, _mm256_set1_epi32(7));
    __m256i exponent = _mm256_srli_epi32(magnitude, 3);
    __m256i is_normal = _mm256_cmpgt_epi32(exponent, _mm256_setzero_si256());
    __m256i v = _mm256_or_si256(fraction, _mm256_and_si256(is_normal, _mm256_set1_epi32(8)));
    /* Subnormal codes: exponent -1 plus 1 shifts by nothing. */
    __m256i shift = _mm256_add_epi32(exponent, is_normal);

    v = _mm256_sllv_epi32(v, shift);
    return _mm256_sign_epi32(
        v, _mm256_sub_epi32(_mm256_set1_epi32(1),
                            _mm256_srli_epi32(_mm256_slli_epi32(_mm256_srli_epi32(c, 7), 31), 30)));
}

/* Takes a signed digit of base 256 from v. */
INLINE __m256i take_digit(__m256i *v)
{
    __m256i d = _mm256_srai_epi32(_mm256_slli_epi32(*v, 24), 24);

    *v = _mm256_srai_epi32(_mm256_sub_epi32(*v, d), 8);
    return d;
}

/* The low bytes of k0 .. k7 in the order k0 k4 k1 k5 | k2 k6 k3 k7. */
INLINE void store_digits(int32_t *to, __m256i d)
{
    const __m256i low =
        _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12,
                         -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    __m256i bytes = _mm256_shuffle_epi8(d, low);

    _mm_storel_epi64((__m128i *)to, _mm_unpacklo_epi8(_mm256_castsi256_si128(bytes),
                                                      _mm256_extracti128_si256(bytes, 1)));
}

INLINE int32_t sum_of(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

INLINE uint32_t or_of(__m256i v)
{
    __m128i s = _mm_or_si128(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

    s = _mm_or_si128(s, _mm_shuffle_epi32(s, 0x4E));
    return (uint32_t)_mm_cvtsi128_si32(_mm_or_si128(s, _mm_shuffle_epi32(s, 0xB1)));
}

int pl__avx2_fp4_prepare_exact(const uint8_t *codes, pl_fp4_group *out)
{
    __m256i v[STEPS], all = _mm256_setzero_si256(), sum = _mm256_setzero_si256(), third = sum;
    pl_fp4_group r = {0};
    uint32_t bits;
    int unit;

    for (int s = 0; s < STEPS; s++) {
        v[s] = whole_numbers(codes + 8 * s);
        all = _mm256_or_si256(all, v[s]);
    }
    /* Two's complement leaves the lowest set bit where it is. */
    bits = or_of(all);
    unit = bits ? __builtin_ctz(bits) : 0;
    for (int s = 0; s < STEPS; s++) {
        __m256i left = _mm256_sra_epi32(v[s], _mm_cvtsi32_si128(unit));
        sum = _mm256_add_epi32(sum, left);
        for (int d = 0; d < 3; d++) {
            __m256i digit = take_digit(&left);
            store_digits(&r.digit[d][2 * s], digit);
            third = d == 2 ? _mm256_or_si256(third, digit) : third;
        }
    }
    r.start = -12 * sum_of(sum);
    r.unit = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((127 + unit - 10) << 23)));
    *out = r;
    return _mm256_testz_si256(third, third) ? 2 : 3;
}

/* ---- products */

/* k + 12 of the nibbles in the low halves of the bytes. */
INLINE __m256i shifted(__m256i nibbles)
{
    const __m256i table =
        _mm256_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0, 12, 13, 14, 15,
                         16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    return _mm256_shuffle_epi8(table, nibbles);
}

/* sum[digit][half of the columns][vector of rows] of a group, 16 bits each. Step by step, so that two digits' sums, the
 * weights of a step and an input fit the registers. */
INLINE void sum_digits(int D, const uint8_t *w, const pl_fp4_group *of, __m256i sum[3][2][2])
{
    const __m256i low = _mm256_set1_epi8(15);

    UNROLL for (int s = 0; s < STEPS; s++)
    {
        __m256i d[2] = {load(w + s * STEP), load(w + s * STEP + 32)};

        _mm_prefetch((const char *)w + s * STEP + PREFETCH, _MM_HINT_T0);
        UNROLL for (int h = 0; h < 2; h++)
        {
            __m256i k[2];

            UNROLL for (int v = 0; v < 2; v++) k[v] =
                shifted(_mm256_and_si256(h ? _mm256_srli_epi16(d[v], 4) : d[v], low));
            UNROLL for (int i = 0; i < D; i++)
            {
                __m256i x = _mm256_set1_epi32(of->digit[i][2 * s + h]);

                UNROLL for (int v = 0; v < 2; v++)
                {
                    __m256i t = _mm256_maddubs_epi16(k[v], x);
                    sum[i][h][v] = s == 0 ? t : _mm256_add_epi16(sum[i][h][v], t);
                    KEEP_ORDER(sum[i][h][v]);
                }
            }
        }
    }
}

/* q = fma(p, scales, q) for a group of D digits. */
INLINE void exact_group(int D, const uint8_t *w, const pl_fp4_group *of, __m256 s0, __m256 s1,
                        __m256 *q)
{
    __m256i sum[3][2][2];

    sum_digits(D, w, of, sum);
    UNROLL for (int v = 0; v < 2; v++)
    {
        __m256i p = _mm256_set1_epi32(of->start);

        UNROLL for (int i = 0; i < 2 * D; i++)
        {
            __m256i t = _mm256_madd_epi16(sum[i / 2][i & 1][v],
                                          _mm256_set1_epi16((short)(i / 2 == 1 ? 256 : 1)));
            p = _mm256_add_epi32(p, i / 2 == 2 ? _mm256_slli_epi32(t, 16) : t);
        }
        q[v] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(p), _mm256_set1_ps(of->unit)),
                               v ? s1 : s0, q[v]);
    }
}

/* A group as the chain. */
INLINE void chain_group(const uint8_t *w, const float *x, __m256 s0, __m256 s1, __m256 *q)
{
    __m256 p[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};

    chain_few(FP4, 1, 1, &w, x, STEPS, p);
    for (int i = 0; i < 2; i++)
        p[i] = _mm256_mul_ps(p[i], _mm256_set1_ps(take_back(FP4)));
    add_group(1, p, s0, s1, q);
}

void pl__avx2_fp4_exact(const pl_simd_few *a)
{
    for (int64_t b = 0; b < a->n_blocks; b++) {
        const uint8_t *w = a->w[0] + b * GROUPS * STEPS * STEP, *gs = a->gs[0] + b * GROUPS * LANES;
        const float *x = a->x + b * BLOCK;
        __m256 q[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};

        for (int g = 0; g < GROUPS; g++, w += STEPS * STEP, gs += LANES, x += GROUP) {
            __m256 s0 = e8m0(gs), s1 = e8m0(gs + 8);
            const pl_fp4_group *of = a->group + b * GROUPS + g;
            int digits = a->digits[b * GROUPS + g];
            if (__builtin_expect(digits == 2, 1))
                exact_group(2, w, of, s0, s1, q);
            else if (digits == 3)
                exact_group(3, w, of, s0, s1, q);
            else
                chain_group(w, x, s0, s1, q);
        }
        add_block(a->acc, a->xs[b] * a->ws[0][b], q[0], q[1]);
    }
}
