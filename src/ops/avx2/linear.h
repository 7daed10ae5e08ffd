/* What the linear layers of AVX2 share: expansion of codes, and the chain for few tokens. Only for files that are
 * compiled for AVX2.
 *
 * Codes become floats by moving their bits to where fp32 has exponent and fraction; the exponent's bias is left
 * as it is, so that weights come out times 2^-120 (e4m3) or 2^-126 (e2m1), subnormal codes as denormal floats. */
#ifndef PL_OPS_AVX2_LINEAR_H
#define PL_OPS_AVX2_LINEAR_H

#include <immintrin.h>

#include "ops/avx2/avx2.h"
#include "ops/simd/linear.h"
#include "ops/tile.h"

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { LANES = PL_TILE_ROWS, BLOCK = PL_QUANT_BLOCK, STEP = PL_TILE_STEP_BYTES };
enum { GROUPS = 4, GROUP = BLOCK / GROUPS, PREFETCH = 1536 };

typedef enum kind { FP8, FP8_A16, FP4, BF16 } kind;

/* Two columns of 8 rows. */
typedef struct pair {
    __m256 even, odd;
} pair;

/* Pairs of columns in the dword of a row. */
INLINE int n_pairs(kind k)
{
    return k == BF16 ? 1 : k == FP4 ? 4 : 2;
}

/* What a block's sum has to be multiplied with. */
INLINE float take_back(kind k)
{
    return k == FP8 ? 0x1p60f : k == FP4 ? 0x1p54f : 1.0f;
}

/* ---- expansion */

/* The two bf16 numbers of each dword. */
INLINE pair split(__m256i v)
{
    const __m256i up = _mm256_setr_epi8(-1, -1, 0, 1, -1, -1, 4, 5, -1, -1, 8, 9, -1, -1, 12, 13,
                                        -1, -1, 0, 1, -1, -1, 4, 5, -1, -1, 8, 9, -1, -1, 12, 13);
    pair p;

    p.even = _mm256_castsi256_ps(_mm256_shuffle_epi8(v, up));
    p.odd = _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xFFFF0000)));
    return p;
}

/* Moves the low byte of each 16 bits up. */
INLINE __m256i low_up(__m256i v)
{
    const __m256i up = _mm256_setr_epi8(-1, 0, -1, 2, -1, 4, -1, 6, -1, 8, -1, 10, -1, 12, -1, 14,
                                        -1, 0, -1, 2, -1, 4, -1, 6, -1, 8, -1, 10, -1, 12, -1, 14);
    return _mm256_shuffle_epi8(v, up);
}

/* Where e4m3 and e2m1 codes land in the upper half of a float, once their sign was spread over the bits between. */
enum { E4M3_BITS = 0x87F0, E2M1_BITS = 0x81C0 };

/* The code in the upper byte of each 16 bits as the upper half of a float, times 2^-120. */
INLINE __m256i e4m3_up(__m256i v)
{
    return _mm256_and_si256(_mm256_srai_epi16(v, 4), _mm256_set1_epi16((short)E4M3_BITS));
}

/* The code in the upper nibble of each 16 bits, times 2^-126. */
INLINE __m256i e2m1_up(__m256i v)
{
    return _mm256_and_si256(_mm256_srai_epi16(v, 6), _mm256_set1_epi16((short)E2M1_BITS));
}

/* Moves nibble i of each 16 bits up. */
INLINE __m256i nibble_up(__m256i d, int i)
{
    return i == 0   ? _mm256_slli_epi16(d, 12)
           : i == 1 ? low_up(d)
           : i == 2 ? _mm256_slli_epi16(d, 4)
                    : d;
}

INLINE pair times(pair p, float s)
{
    p.even = _mm256_mul_ps(p.even, _mm256_set1_ps(s));
    p.odd = _mm256_mul_ps(p.odd, _mm256_set1_ps(s));
    return p;
}

/* Pair i of the dwords d. */
INLINE pair expand(kind k, __m256i d, int i)
{
    switch (k) {
    case FP8:
        return split(e4m3_up(i == 0 ? low_up(d) : d));
    case FP8_A16:
        return times(split(e4m3_up(i == 0 ? low_up(d) : d)), 0x1p120f);
    case FP4:
        return split(e2m1_up(nibble_up(d, i)));
    default:
        return split(d);
    }
}

/* e8m0 bytes of 8 rows; 255 is NaN. */
INLINE __m256 e8m0(const uint8_t *bytes)
{
    __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)bytes));
    __m256i is_nan = _mm256_cmpeq_epi32(b, _mm256_set1_epi32(255));

    return _mm256_castsi256_ps(_mm256_or_si256(
        _mm256_slli_epi32(b, 23), _mm256_and_si256(is_nan, _mm256_set1_epi32(0x00400000))));
}

INLINE __m256i load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* ---- few tokens: weights expanded in registers */

/* n steps of the chains of T tiles and R tokens; p is [tile][token][2] of 8 rows. A tile's two registers share
 * the broadcasts of the inputs. */
INLINE void chain_few(kind k, int R, int T, const uint8_t *const *w, const float *x, int n,
                      __m256 *p)
{
    for (int s = 0; s < n; s++, x += 2 * n_pairs(k)) {
        UNROLL for (int t = 0; t < T; t++)
        {
            const uint8_t *d = w[t] + s * STEP;
            _mm_prefetch((const char *)d + PREFETCH, _MM_HINT_T0);
            UNROLL for (int i = 0; i < n_pairs(k); i++)
            {
                pair e0 = expand(k, load(d), i), e1 = expand(k, load(d + 32), i);
                UNROLL for (int r = 0; r < R; r++)
                {
                    __m256 *c = p + (t * R + r) * 2;
                    __m256 odd = _mm256_broadcast_ss(x + r * BLOCK + 2 * i + 1);
                    __m256 even = _mm256_broadcast_ss(x + r * BLOCK + 2 * i);
                    c[0] = _mm256_fmadd_ps(e0.odd, odd, c[0]);
                    c[1] = _mm256_fmadd_ps(e1.odd, odd, c[1]);
                    c[0] = _mm256_fmadd_ps(e0.even, even, c[0]);
                    c[1] = _mm256_fmadd_ps(e1.even, even, c[1]);
                }
            }
        }
    }
}

/* q = fma(p, scales of 16 rows, q) for R tokens of a tile. */
INLINE void add_group(int R, const __m256 *p, __m256 s0, __m256 s1, __m256 *q)
{
    UNROLL for (int r = 0; r < R; r++)
    {
        q[2 * r] = _mm256_fmadd_ps(p[2 * r], s0, q[2 * r]);
        q[2 * r + 1] = _mm256_fmadd_ps(p[2 * r + 1], s1, q[2 * r + 1]);
    }
}

/* acc = fma(q, s, acc) for the 16 rows of a token. */
INLINE void add_block(float *acc, float s, __m256 q0, __m256 q1)
{
    __m256 v = _mm256_set1_ps(s);

    _mm256_storeu_ps(acc, _mm256_fmadd_ps(q0, v, _mm256_loadu_ps(acc)));
    _mm256_storeu_ps(acc + 8, _mm256_fmadd_ps(q1, v, _mm256_loadu_ps(acc + 8)));
}

/* ---- FP4 in integers (fp4_exact.c), in the shape of pl_simd_kind */

pl_simd_prepare_exact_fn pl__avx2_fp4_prepare_exact;
pl_simd_few_fn pl__avx2_fp4_exact;

#endif
