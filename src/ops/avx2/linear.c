/* Linear layers for AVX2 and FMA: one block of 128 columns at a time, the chain of NUMERICS 4 on 8 rows a register.
 *
 * Codes become floats by moving their bits to where fp32 has exponent and fraction; the exponent's bias is
 * left as it is, so that weights come out times 2^-120 (e4m3) or 2^-126 (e2m1), subnormal codes as denormal
 * floats. That is exact, costs 9 and 10 simple instructions for 32 weights, and needs DAZ off. Inputs are
 * prepared times 2^60 or 2^72, which keeps every non-zero sum of a block far inside the normal range: the chain
 * rounds as it would on the true values, and the power of two is taken back before the scale. Inputs in bf16
 * are looked at first: those far from 1 get weights that are multiplied back, at the price of time.
 *
 * Every loop over registers has constant bounds and is unrolled; the number of tokens is a constant of each
 * function. */
#include "ops/avx2/linear.h"

#include <math.h>

#include "ops/scalar/scalar.h"

enum { TILES = 2, TOKENS = 6 }; /* at most, of a kernel for few tokens and of a panel kernel */

/* ---- inputs */

/* Through fp16, whose bits an e4m3 code has one place further up: 2^-8 of its value, subnormal ones too. */
INLINE void prepare_codes(const void *x, float scale, float *out)
{
    const uint8_t *codes = x;
    const __m128i zero = _mm_setzero_si128(), mask = _mm_set1_epi16((short)0xBFFF),
                  magnitude = _mm_set1_epi8(0x7F);
    const __m256 by = _mm256_set1_ps(scale * 0x1p8f);
    __m128i is_nan = zero;

    for (int i = 0; i < BLOCK; i += 16) {
        __m128i c = _mm_loadu_si128((const __m128i *)(codes + i));
        __m128i lo = _mm_and_si128(_mm_srai_epi16(_mm_unpacklo_epi8(zero, c), 1), mask);
        __m128i hi = _mm_and_si128(_mm_srai_epi16(_mm_unpackhi_epi8(zero, c), 1), mask);
        is_nan = _mm_or_si128(is_nan, _mm_cmpeq_epi8(_mm_and_si128(c, magnitude), magnitude));
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_cvtph_ps(lo), by));
        _mm256_storeu_ps(out + i + 8, _mm256_mul_ps(_mm256_cvtph_ps(hi), by));
    }
    if (!_mm_testz_si128(is_nan, is_nan))
        for (int i = 0; i < BLOCK; i++)
            out[i] = (codes[i] & 0x7F) == 0x7F ? NAN : out[i];
}

static void prepare_fp8(const void *x, float *out)
{
    prepare_codes(x, 0x1p60f, out);
}

static void prepare_fp4(const void *x, float *out)
{
    prepare_codes(x, 0x1p72f, out);
}

/* Denormals become zeros here, since DAZ may be off. */
INLINE __m256i load_bf16(const uint16_t *x)
{
    __m256i v = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)x)), 16);
    __m256i exponent = _mm256_and_si256(v, _mm256_set1_epi32(0x7F800000));
    __m256i is_small = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());

    return _mm256_andnot_si256(_mm256_and_si256(is_small, _mm256_set1_epi32(0x007FFFFF)), v);
}

static void prepare_bf16(const void *x, float *out)
{
    for (int i = 0; i < BLOCK; i += 8)
        _mm256_storeu_si256((__m256i *)(out + i), load_bf16((const uint16_t *)x + i));
}

/* For inputs that near_one() lets pass. */
static void prepare_near(const void *x, float *out)
{
    for (int i = 0; i < BLOCK; i += 8)
        _mm256_storeu_ps(out + i,
                         _mm256_mul_ps(_mm256_castsi256_ps(load_bf16((const uint16_t *)x + i)),
                                       _mm256_set1_ps(0x1p60f)));
}

/* Whether all inputs are zero (or denormal) or in [2^-50, 2^67). Then all products are multiples of 2^-66 and
 * sums stay below 2^83: neither the true chain nor the one times 2^-60 flushes or overflows, so they round
 * alike, and bf16 inputs can do with the weights as they are expanded for e4m3 inputs. */
static bool near_one(const pl_linear_job *job)
{
    const __m256i low = _mm256_set1_epi16((127 - 50) << 7),
                  high = _mm256_set1_epi16((127 + 67) << 7);
    const __m256i magnitude = _mm256_set1_epi16(0x7FFF), denormal = _mm256_set1_epi16(0x7F);
    __m256i far = _mm256_setzero_si256();

    for (int64_t t = 0; t < job->n; t++) {
        int64_t row = job->rows ? job->rows[t] : t;
        const uint8_t *x = (const uint8_t *)job->x + row * job->x_stride;
        for (int64_t i = 0; i < job->w.cols; i += 16) {
            __m256i v = _mm256_and_si256(load(x + 2 * i), magnitude);
            __m256i small =
                _mm256_and_si256(_mm256_cmpgt_epi16(low, v), _mm256_cmpgt_epi16(v, denormal));
            __m256i large = _mm256_xor_si256(_mm256_cmpgt_epi16(high, v), _mm256_set1_epi16(-1));
            far = _mm256_or_si256(far, _mm256_or_si256(small, large));
        }
    }
    return _mm256_testz_si256(far, far);
}

/* ---- few tokens: weights expanded in registers */

INLINE void few(kind k, int R, int T, const pl_simd_few *a)
{
    const int steps = BLOCK / 2 / n_pairs(k), group_steps = steps / GROUPS, n = 2 * R * T;
    const __m256 back = _mm256_set1_ps(take_back(k));

    for (int64_t b = 0; b < a->n_blocks; b++) {
        const float *x = a->x + b * R * BLOCK;
        const uint8_t *w[TILES];
        __m256 p[2 * TILES * PL_SIMD_FEW], q[2 * TILES * PL_SIMD_FEW];

        UNROLL for (int t = 0; t < T; t++) w[t] = a->w[t] + b * steps * STEP;
        UNROLL for (int i = 0; i < n; i++) p[i] = q[i] = _mm256_setzero_ps();
        if (k == FP4) {
            for (int g = 0; g < GROUPS; g++) {
                UNROLL for (int i = 0; i < n; i++) p[i] = _mm256_setzero_ps();
                chain_few(k, R, T, w, x + g * GROUP, group_steps, p);
                UNROLL for (int i = 0; i < n; i++) p[i] = _mm256_mul_ps(p[i], back);
                UNROLL for (int t = 0; t < T; t++)
                {
                    const uint8_t *gs = a->gs[t] + (b * GROUPS + g) * LANES;
                    w[t] += group_steps * STEP;
                    add_group(R, p + 2 * R * t, e8m0(gs), e8m0(gs + 8), q + 2 * R * t);
                }
            }
        } else {
            chain_few(k, R, T, w, x, steps, p);
            UNROLL for (int i = 0; i < n; i++) q[i] = _mm256_mul_ps(p[i], back);
        }
        UNROLL for (int t = 0; t < T; t++) UNROLL for (int r = 0; r < R; r++)
            add_block(a->acc + (t * R + r) * LANES, a->xs[b * R + r] * a->ws[t][b],
                      q[(t * R + r) * 2], q[(t * R + r) * 2 + 1]);
    }
}

/* ---- panels */

/* Pair i of the dwords d, as expand() has it. Stores keep the port of the shifts busy, so codes move by products. */
INLINE pair expand_for_store(kind k, __m256i d, int i)
{
    switch (k) {
    case FP8:
        return split(
            _mm256_and_si256(_mm256_mulhi_epi16(i == 0 ? low_up(d) : d, _mm256_set1_epi16(1 << 12)),
                             _mm256_set1_epi16((short)E4M3_BITS)));
    case FP4:
        return split(
            _mm256_and_si256(_mm256_mulhi_epi16(nibble_up(d, i), _mm256_set1_epi16(1 << 10)),
                             _mm256_set1_epi16((short)E2M1_BITS)));
    default:
        return expand(k, d, i);
    }
}

INLINE void expand_block(kind k, const uint8_t *w, float *out)
{
    for (int s = 0; s < BLOCK / 2 / n_pairs(k); s++)
        UNROLL for (int v = 0; v < 2; v++)
        {
            __m256i d = load(w + s * STEP + v * 32);
            UNROLL for (int i = 0; i < n_pairs(k); i++)
            {
                pair e = expand_for_store(k, d, i);
                float *to = out + (s * n_pairs(k) + i) * 2 * LANES + v * 8;
                _mm256_storeu_ps(to, e.even);
                _mm256_storeu_ps(to + LANES, e.odd);
            }
        }
}

/* FP4's scales as floats times its power of two, which is taken back so; where a scale is too large for that, the
 * weights are multiplied. */
static void scale_block(const uint8_t *gs, float *w, float *gs_out)
{
    const __m256 back = _mm256_set1_ps(take_back(FP4));
    const __m256i most = _mm256_set1_epi8((char)(254 - 54));
    __m256i a = load(gs), b = load(gs + 32), top = _mm256_max_epu8(a, b);
    bool fits = _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(top, most), most)) == -1;

    for (int i = 0; i < GROUPS * LANES; i += 8) {
        __m256 s = e8m0(gs + i);
        _mm256_storeu_ps(gs_out + i, fits ? _mm256_mul_ps(s, back) : s);
    }
    for (int i = 0; !fits && i < BLOCK * LANES; i += 8)
        _mm256_storeu_ps(w + i, _mm256_mul_ps(_mm256_loadu_ps(w + i), back));
}

/* The chains over n columns. */
INLINE void chain_panel(int R, const float *w, const float *x, int n, __m256 *p)
{
    for (int i = 0; i < n; i += 2, w += 2 * LANES, x += 2)
        UNROLL for (int odd = 1; odd >= 0; odd--)
        {
            __m256 w0 = _mm256_loadu_ps(w + odd * LANES), w1 = _mm256_loadu_ps(w + odd * LANES + 8);
            UNROLL for (int r = 0; r < R; r++)
            {
                __m256 v = _mm256_broadcast_ss(x + r * BLOCK + odd);
                p[2 * r] = _mm256_fmadd_ps(w0, v, p[2 * r]);
                p[2 * r + 1] = _mm256_fmadd_ps(w1, v, p[2 * r + 1]);
            }
        }
}

INLINE void panel(kind k, int R, const pl_simd_panel *a)
{
    const __m256 back = _mm256_set1_ps(take_back(k));
    __m256 p[2 * TOKENS], q[2 * TOKENS];

    UNROLL for (int i = 0; i < 2 * R; i++) p[i] = q[i] = _mm256_setzero_ps();
    if (k == FP4) {
        UNROLL for (int g = 0; g < GROUPS; g++)
        {
            const float *gs = a->gs[0] + g * LANES;
            UNROLL for (int i = 0; i < 2 * R; i++) p[i] = _mm256_setzero_ps();
            chain_panel(R, a->w[0] + g * GROUP * LANES, a->x + g * GROUP, GROUP, p);
            add_group(R, p, _mm256_loadu_ps(gs), _mm256_loadu_ps(gs + 8), q);
        }
    } else {
        chain_panel(R, a->w[0], a->x, BLOCK, p);
        UNROLL for (int i = 0; i < 2 * R; i++) q[i] = _mm256_mul_ps(p[i], back);
    }
    UNROLL for (int r = 0; r < R; r++)
        add_block(a->acc + r * a->acc_stride, a->xs[r] * a->ws[0], q[2 * r], q[2 * r + 1]);
}

/* ---- one function for each number of tokens */

/* clang-format off */
#define FEW(k, R, T) \
    static void few_##k##_##R##_##T(const pl_simd_few *a) \
    { \
        few(k, R, T, a); \
    }
#define PANEL(k, R) \
    static void panel_##k##_##R(const pl_simd_panel *a) \
    { \
        panel(k, R, a); \
    }
#define FUNCTIONS(k) \
    FEW(k, 1, 1) FEW(k, 2, 1) FEW(k, 3, 1) FEW(k, 4, 1) FEW(k, 5, 1) \
    PANEL(k, 1) PANEL(k, 2) PANEL(k, 3) PANEL(k, 4) PANEL(k, 5) PANEL(k, 6) \
    static void expand_##k(const uint8_t *w, const uint8_t *gs, float *out, float *gs_out) \
    { \
        expand_block(k, w, out); \
        if (k == FP4) \
            scale_block(gs, out, gs_out); \
    }
#define KIND(k, one_token_two_tiles) \
    .few = PL_SIMD_FEW, .group = TOKENS, .panel_tiles = 1, .x_words = BLOCK, .expand = expand_##k, \
    .few_tokens = {{few_##k##_1_1, one_token_two_tiles}, {few_##k##_2_1}, {few_##k##_3_1}, \
                   {few_##k##_4_1}, {few_##k##_5_1}}, \
    .panel = {{panel_##k##_1}, {panel_##k##_2}, {panel_##k##_3}, {panel_##k##_4}, {panel_##k##_5}, \
              {panel_##k##_6}}

FUNCTIONS(FP8)
FUNCTIONS(FP8_A16)
FUNCTIONS(FP4)
FUNCTIONS(BF16)
/* One token gains from a second tile where little is done to a weight (measured). */
FEW(FP8, 1, 2)
FEW(BF16, 1, 2)
/* clang-format on */

static const pl_simd_kind fp8 = {KIND(FP8, few_FP8_1_2), .keeps_denormals = true,
                                 .prepare = prepare_fp8, .scalar = pl__scalar_linear_fp8};
static const pl_simd_kind fp8_a16 = {KIND(FP8_A16, NULL), .keeps_denormals = true,
                                     .prepare = prepare_bf16, .scalar = pl__scalar_linear_fp8_a16};
static const pl_simd_kind fp8_a16_near = {KIND(FP8, few_FP8_1_2), .keeps_denormals = true,
                                          .prepare = prepare_near,
                                          .scalar = pl__scalar_linear_fp8_a16};
static const pl_simd_kind fp4 = {
    KIND(FP4, NULL),
    .keeps_denormals = true,
    .prepare = prepare_fp4,
    .exact_token = {pl__avx2_fp4_exact},
    .prepare_exact = pl__avx2_fp4_prepare_exact,
};
static const pl_simd_kind bf16 = {KIND(BF16, few_BF16_1_2), .prepare = prepare_bf16};

void pl__avx2_linear_fp8(const pl_op_env *env, const pl_linear_job *job, int64_t begin, int64_t end)
{
    pl__simd_linear(&fp8, env, job, begin, end);
}

void pl__avx2_linear_fp8_a16(const pl_op_env *env, const pl_linear_job *job, int64_t begin,
                             int64_t end)
{
    pl__simd_linear(near_one(job) ? &fp8_a16_near : &fp8_a16, env, job, begin, end);
}

void pl__avx2_linear_fp4(const pl_op_env *env, const pl_linear_job *job, int64_t begin, int64_t end)
{
    pl__simd_linear(&fp4, env, job, begin, end);
}

void pl__avx2_linear_bf16(const pl_op_env *env, const pl_linear_job *job, int64_t begin,
                          int64_t end)
{
    pl__simd_linear(&bf16, env, job, begin, end);
}
