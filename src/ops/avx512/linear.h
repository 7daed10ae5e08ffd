/* Linear layers for AVX-512, the 16 rows of a tile in one register: expansion of codes and the kernels around it.
 * Included by one file of each level, compiled for that level, which has defined before
 *
 *     PL_DOT_BF16   whether a pair of columns is multiplied by vdpbf16ps or by two fmas
 *
 * Every format comes to the same thing: dwords of two bf16 numbers, even column low, true values and no denormals.
 * e4m3 codes are shifted into place and get their exponent's bias by an addition; subnormal codes look the summand
 * up in a table of 32 words, by which they become normal numbers. e2m1 codes are looked up whole. vdpbf16ps is the
 * chain of docs/NUMERICS.md 1, odd column first, flushing whatever MXCSR says; the fmas do the same under FTZ
 * and DAZ, with the halves of the dwords as floats.
 *
 * No masked loads or stores: the driver gives whole blocks. Loads do not ask for alignment, so rows that were packed
 * and tiles take the same way. Every loop over registers has constant bounds and is unrolled. */
#ifndef PL_OPS_AVX512_LINEAR_H
#define PL_OPS_AVX512_LINEAR_H

#include <immintrin.h>
#include <string.h>

#include "ops/avx512/avx512.h"
#include "ops/simd/linear.h"
#include "ops/tile.h"

/* Where intrinsics are emulated, inlining everything would only cost. */
#ifdef PL_EMULATED
#define INLINE static inline
#define UNROLL
#else
#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#endif

enum { LANES = PL_TILE_ROWS, BLOCK = PL_QUANT_BLOCK, STEP = PL_TILE_STEP_BYTES };
enum { GROUPS = 4, GROUP = BLOCK / GROUPS, PREFETCH = 2048 };
/* Words that hold a pair: of an input, and of each row in a panel. */
enum { PAIR = PL_DOT_BF16 ? 1 : 2, X_WORDS = PAIR * BLOCK / 2 };

typedef enum kind { FP8, FP4, BF16 } kind;

/* Pairs of columns in the dword of a row. */
INLINE int n_pairs(kind k)
{
    return k == BF16 ? 1 : k == FP4 ? 4 : 2;
}

/* ---- expansion */

/* e4m3 codes, one in the low byte of each word, as bf16; what the upper bytes hold does not matter. NaN codes come
 * out as 480. */
INLINE __m512i e4m3_words(__m512i low)
{
    /* bf16 of M * 2^-9 less the M * 16 that is there already; only codes with exponent 0 get here. */
    const __m512i table =
        _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                         0x3C60 - 0x70, 0x3C40 - 0x60, 0x3C20 - 0x50, 0x3C00 - 0x40, 0x3BC0 - 0x30,
                         0x3B80 - 0x20, 0x3B00 - 0x10, 0);
    __m512i up = _mm512_slli_epi16(low, 8);
    __m512i bits = _mm512_and_si512(_mm512_srai_epi16(up, 4), _mm512_set1_epi16((short)0x87F0));
    __mmask32 subnormal = _mm512_testn_epi16_mask(low, _mm512_set1_epi16(0x78));

    return _mm512_add_epi16(
        bits, _mm512_mask_permutexvar_epi16(_mm512_set1_epi16(0x3C00), subnormal, low, table));
}

/* e2m1 codes in the low nibble of each word as bf16; the nibbles above do not matter. */
INLINE __m512i e2m1_words(__m512i low)
{
    const __m512i table = _mm512_broadcast_i64x4(_mm256_setr_epi16(
        0, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0, (short)0x8000, (short)0xBF00,
        (short)0xBF80, (short)0xBFC0, (short)0xC000, (short)0xC040, (short)0xC080, (short)0xC0C0));

    return _mm512_permutexvar_epi16(low, table);
}

/* Pair i of the dwords d. */
INLINE __m512i expand_pair(kind k, __m512i d, int i)
{
    switch (k) {
    case FP8:
        return e4m3_words(i == 0 ? d : _mm512_srli_epi16(d, 8));
    case FP4:
        /* Shifts of the instruction itself: a count that is an expression is none to every compiler. */
        return e2m1_words(i == 0   ? d
                          : i == 1 ? _mm512_srli_epi16(d, 4)
                          : i == 2 ? _mm512_srli_epi16(d, 8)
                                   : _mm512_srli_epi16(d, 12));
    default:
        return d;
    }
}

/* e8m0 bytes of 16 rows; 255 is NaN. */
INLINE __m512 e8m0(const uint8_t *bytes)
{
    __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)bytes));
    __mmask16 is_nan = _mm512_cmpeq_epi32_mask(b, _mm512_set1_epi32(255));
    __m512i v = _mm512_slli_epi32(b, 23);

    return _mm512_castsi512_ps(_mm512_mask_or_epi32(v, is_nan, v, _mm512_set1_epi32(0x00400000)));
}

/* ---- a pair of columns */

typedef struct weights {
#if PL_DOT_BF16
    __m512i both;
#else
    __m512 even, odd;
#endif
} weights;

INLINE weights weights_of(__m512i pair)
{
    weights w;

#if PL_DOT_BF16
    w.both = pair;
#else
    w.even = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
    w.odd = _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32((int)0xFFFF0000)));
#endif
    return w;
}

INLINE void store_weights(float *to, weights w)
{
#if PL_DOT_BF16
    _mm512_storeu_si512(to, w.both);
#else
    _mm512_storeu_ps(to, w.even);
    _mm512_storeu_ps(to + LANES, w.odd);
#endif
}

INLINE weights load_weights(const float *from)
{
    weights w;

#if PL_DOT_BF16
    w.both = _mm512_loadu_si512(from);
#else
    w.even = _mm512_loadu_ps(from);
    w.odd = _mm512_loadu_ps(from + LANES);
#endif
    return w;
}

/* The input's pair for all rows. */
INLINE weights load_input(const float *x)
{
    weights v;

#if PL_DOT_BF16
    v.both = _mm512_castps_si512(_mm512_set1_ps(x[0]));
#else
    v.even = _mm512_set1_ps(x[0]);
    v.odd = _mm512_set1_ps(x[1]);
#endif
    return v;
}

/* Two steps of 16 chains. */
INLINE __m512 step(__m512 c, weights w, weights x)
{
#if PL_DOT_BF16
    return _mm512_dpbf16_ps(c, (__m512bh)w.both, (__m512bh)x.both);
#else
    return _mm512_fmadd_ps(w.even, x.even, _mm512_fmadd_ps(w.odd, x.odd, c));
#endif
}

/* ---- inputs */

/* 32 bf16 numbers as words of an input. */
INLINE void store_input(float *out, __m512i words)
{
#if PL_DOT_BF16
    _mm512_storeu_si512(out, words);
#else
    __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(words));
    __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(words, 1));
    _mm512_storeu_si512(out, _mm512_slli_epi32(low, 16));
    _mm512_storeu_si512(out + LANES, _mm512_slli_epi32(high, 16));
#endif
}

static void prepare_codes(const void *x, float *out)
{
    const uint8_t *codes = x;

    for (int i = 0; i < BLOCK; i += 32) {
        __m512i c =
            _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(codes + i)));
        __mmask32 is_nan = _mm512_cmpeq_epi16_mask(_mm512_and_si512(c, _mm512_set1_epi16(0x7F)),
                                                   _mm512_set1_epi16(0x7F));
        __m512i words = _mm512_mask_mov_epi16(e4m3_words(c), is_nan, _mm512_set1_epi16(0x7FC0));
        store_input(out + i * PAIR / 2, words);
    }
}

/* Denormal inputs are left to DAZ, which vdpbf16ps has built in. */
static void prepare_bf16(const void *x, float *out)
{
    for (int i = 0; i < BLOCK; i += 32)
        store_input(out + i * PAIR / 2, _mm512_loadu_si512((const uint16_t *)x + i));
}

/* ---- few tokens: weights expanded in registers */

/* n steps of the chains of T tiles and R tokens; p is [tile][token]. */
INLINE void chain_few(kind k, int R, int T, const uint8_t *const *w, const float *x, int n,
                      __m512 *p)
{
    for (int s = 0; s < n; s++, x += PAIR * n_pairs(k)) {
        UNROLL for (int t = 0; t < T; t++)
        {
            const uint8_t *d = w[t] + s * STEP;
            _mm_prefetch((const char *)d + PREFETCH, _MM_HINT_T0);
            UNROLL for (int i = 0; i < n_pairs(k); i++)
            {
                weights v = weights_of(expand_pair(k, _mm512_loadu_si512(d), i));
                UNROLL for (int r = 0; r < R; r++) p[t * R + r] =
                    step(p[t * R + r], v, load_input(x + r * X_WORDS + PAIR * i));
            }
        }
    }
}

/* acc = fma(q, s, acc) for the 16 rows of a token. */
INLINE void add_block(float *acc, float s, __m512 q)
{
    _mm512_storeu_ps(acc, _mm512_fmadd_ps(q, _mm512_set1_ps(s), _mm512_loadu_ps(acc)));
}

INLINE void few(kind k, int R, int T, const pl_simd_few *a)
{
    const int steps = BLOCK / 2 / n_pairs(k), group_steps = steps / GROUPS, n = R * T;

    for (int64_t b = 0; b < a->n_blocks; b++) {
        const float *x = a->x + b * R * X_WORDS;
        const uint8_t *w[PL_SIMD_IN_FLIGHT];
        __m512 p[PL_SIMD_IN_FLIGHT * PL_SIMD_FEW], q[PL_SIMD_IN_FLIGHT * PL_SIMD_FEW];

        UNROLL for (int t = 0; t < T; t++) w[t] = a->w[t] + b * steps * STEP;
        UNROLL for (int i = 0; i < n; i++) q[i] = _mm512_setzero_ps();
        if (k == FP4) {
            for (int g = 0; g < GROUPS; g++) {
                UNROLL for (int i = 0; i < n; i++) p[i] = _mm512_setzero_ps();
                chain_few(k, R, T, w, x + g * X_WORDS / GROUPS, group_steps, p);
                UNROLL for (int t = 0; t < T; t++)
                {
                    __m512 s = e8m0(a->gs[t] + (b * GROUPS + g) * LANES);
                    w[t] += group_steps * STEP;
                    UNROLL for (int r = 0; r < R; r++) q[t * R + r] =
                        _mm512_fmadd_ps(p[t * R + r], s, q[t * R + r]);
                }
            }
        } else {
            chain_few(k, R, T, w, x, steps, q);
        }
        UNROLL for (int t = 0; t < T; t++) UNROLL for (int r = 0; r < R; r++)
            add_block(a->acc + (t * R + r) * LANES, a->xs[b * R + r] * a->ws[t][b], q[t * R + r]);
    }
}

/* ---- panels */

INLINE void expand_block(kind k, const uint8_t *w, float *out)
{
    for (int s = 0; s < BLOCK / 2 / n_pairs(k); s++) {
        __m512i d = _mm512_loadu_si512(w + s * STEP);
        UNROLL for (int i = 0; i < n_pairs(k); i++) store_weights(
            out + (s * n_pairs(k) + i) * PAIR * LANES, weights_of(expand_pair(k, d, i)));
    }
}

/* n pairs of the chains of T tiles and R tokens from word 0 of w and x; p is [tile][token]. An input is loaded once
 * for both tiles. */
INLINE void chain_panel(int R, int T, const float *const *w, const float *x, int n, __m512 *p)
{
    for (int i = 0; i < n; i++) {
        weights v[PL_SIMD_PANEL_TILES];
        UNROLL for (int t = 0; t < T; t++) v[t] = load_weights(w[t] + i * PAIR * LANES);
        UNROLL for (int r = 0; r < R; r++)
        {
            weights in = load_input(x + r * X_WORDS + i * PAIR);
            UNROLL for (int t = 0; t < T; t++) p[t * R + r] = step(p[t * R + r], v[t], in);
        }
    }
}

/* FP4's sums of a block stay in memory: they are needed once a group, and the registers are full. */
INLINE void panel(kind k, int R, int T, const pl_simd_panel *a)
{
    __m512 p[PL_SIMD_PANEL_TILES * PL_SIMD_GROUP];
    _Alignas(64) float q[PL_SIMD_PANEL_TILES * PL_SIMD_GROUP][LANES];
    const float *w[PL_SIMD_PANEL_TILES] = {a->w[0], a->w[1]};

    for (int i = 0; k == FP4 && i < R * T; i++)
        _mm512_store_ps(q[i], _mm512_setzero_ps());
    for (int g = 0; k == FP4 && g < GROUPS; g++) {
        UNROLL for (int i = 0; i < R * T; i++) p[i] = _mm512_setzero_ps();
        chain_panel(R, T, w, a->x + g * X_WORDS / GROUPS, GROUP / 2, p);
        UNROLL for (int t = 0; t < T; t++)
        {
            __m512 s = _mm512_loadu_ps(a->gs[t] + g * LANES);
            w[t] += GROUP / 2 * PAIR * LANES;
            UNROLL for (int r = 0; r < R; r++)
            {
                float *to = q[t * R + r];
                _mm512_store_ps(to, _mm512_fmadd_ps(p[t * R + r], s, _mm512_load_ps(to)));
            }
        }
    }
    if (k == FP4) {
        UNROLL for (int i = 0; i < R * T; i++) p[i] = _mm512_load_ps(q[i]);
    } else {
        UNROLL for (int i = 0; i < R * T; i++) p[i] = _mm512_setzero_ps();
        chain_panel(R, T, w, a->x, BLOCK / 2, p);
    }
    UNROLL for (int t = 0; t < T; t++) UNROLL for (int r = 0; r < R; r++)
        add_block(a->acc + r * a->acc_stride + t * LANES, a->xs[r] * a->ws[t], p[t * R + r]);
}

/* ---- one function for each number of tokens and tiles */

/* clang-format off */
#define FEW(k, R, T) \
    static void few_##k##_##R##_##T(const pl_simd_few *a) \
    { \
        few(k, R, T, a); \
    }
#define PANEL(k, R) \
    static void panel_##k##_##R##_1(const pl_simd_panel *a) \
    { \
        panel(k, R, 1, a); \
    } \
    static void panel_##k##_##R##_2(const pl_simd_panel *a) \
    { \
        panel(k, R, 2, a); \
    }
#define FUNCTIONS(k) \
    FEW(k, 1, 1) FEW(k, 1, 4) FEW(k, 2, 1) FEW(k, 2, 2) FEW(k, 3, 1) FEW(k, 3, 2) FEW(k, 4, 1) \
    FEW(k, 4, 2) FEW(k, 5, 1) FEW(k, 5, 2) \
    PANEL(k, 1) PANEL(k, 2) PANEL(k, 3) PANEL(k, 4) PANEL(k, 5) PANEL(k, 6) \
    PANEL(k, 7) PANEL(k, 8) PANEL(k, 9) PANEL(k, 10) PANEL(k, 11) PANEL(k, 12) \
    static void expand_##k(const uint8_t *w, const uint8_t *gs, float *out, float *gs_out) \
    { \
        expand_block(k, w, out); \
        for (int i = 0; k == FP4 && i < GROUPS * LANES; i += LANES) \
            _mm512_storeu_ps(gs_out + i, e8m0(gs + i)); \
    }
#define PANELS(k, R) {panel_##k##_##R##_1, panel_##k##_##R##_2}
#define KIND(k) \
    .few = PL_SIMD_FEW, .group = 12, .x_words = X_WORDS, .panel_tiles = 2, .expand = expand_##k, \
    .few_tokens = {{few_##k##_1_1, NULL, NULL, few_##k##_1_4}, {few_##k##_2_1, few_##k##_2_2}, \
                   {few_##k##_3_1, few_##k##_3_2}, {few_##k##_4_1, few_##k##_4_2}, \
                   {few_##k##_5_1, few_##k##_5_2}}, \
    .panel = {PANELS(k, 1), PANELS(k, 2), PANELS(k, 3), PANELS(k, 4), PANELS(k, 5), PANELS(k, 6), \
              PANELS(k, 7), PANELS(k, 8), PANELS(k, 9), PANELS(k, 10), PANELS(k, 11), PANELS(k, 12)}
/* The four operators of a level; behind avx512/fp4_exact.h. */
#define LEVEL(of) \
    FUNCTIONS(FP8) \
    FUNCTIONS(FP4) \
    FUNCTIONS(BF16) \
    static const pl_simd_kind fp8 = {KIND(FP8), .prepare = prepare_codes, \
                                     .scalar = pl__scalar_linear_fp8}; \
    static const pl_simd_kind fp8_a16 = {KIND(FP8), .prepare = prepare_bf16, \
                                         .scalar = pl__scalar_linear_fp8_a16}; \
    static const pl_simd_kind fp4 = {KIND(FP4), .prepare = prepare_codes, \
                                     .exact_token = {fp4_exact_1, NULL, NULL, fp4_exact_4}, \
                                     .prepare_exact = fp4_prepare_exact}; \
    static const pl_simd_kind bf16 = {KIND(BF16), .prepare = prepare_bf16}; \
    LINEAR(of, fp8) \
    LINEAR(of, fp8_a16) \
    LINEAR(of, fp4) \
    LINEAR(of, bf16)
#define LINEAR(of, format) \
    void pl__##of##_linear_##format(const pl_op_env *env, const pl_linear_job *job, int64_t begin, \
                                    int64_t end) \
    { \
        pl__simd_linear(&format, env, job, begin, end); \
    }
/* clang-format on */

#endif
