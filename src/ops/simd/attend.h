/* The inner part of every attention kernel: a group of query rows against blocks of 64 keys (NUMERICS 9).
 *
 * Rows lie in lanes for the scores, with one key's dim broadcast; dims lie in lanes for the sum of values, with one
 * row's P broadcast: every chain stays whole and nothing is transposed. Keys are widened to floats once for all rows
 * of the group. What a register tile walks over lies in one piece where it can, so that it neither meets itself in the
 * cache nor asks for a page per row. Included by kernels only (simd/vec.h). */
#ifndef PL_OPS_SIMD_ATTEND_H
#define PL_OPS_SIMD_ATTEND_H

#include "ops/simd/vec.h"

/* Query rows of a group, a multiple of ATT_SLICE; a kernel that wants more says so before it includes this. */
#ifndef ATT_ROWS
#define ATT_ROWS 32
#endif

enum {
    ATT_BLOCK = 64, /* slots */
    ATT_SLICE = 16, /* rows that share a register tile of scores */
    ATT_STEP = 128, /* dims between two visits of the scores' tile */
    ATT_PAD =
        16, /* floats behind a widened row, so that rows do not fall into the same cache sets */
    ATT_VALUE_ROWS = 4, /* rows that share a register tile of values */
    ATT_CHUNK = 16,     /* its dims */
    ATT_EXP = 4,        /* slots whose exponentials are computed side by side */
};

typedef struct attend {
    float *q; /* [ATT_ROWS / ATT_SLICE][dim][ATT_SLICE]; rows past n are zero */
    float *k; /* [ATT_BLOCK][k_stride]; zero where not visible */
    float *
        v; /* [value_dim / ATT_CHUNK, v_chunk apart][ATT_BLOCK, v_stride apart][ATT_CHUNK]; likewise */
    float *o; /* [value_dim / ATT_CHUNK, o_chunk apart][ATT_ROWS][ATT_CHUNK] */
    int64_t k_stride, v_stride, v_chunk, o_chunk;
    int32_t dim, value_dim, n;
    float scale;
    float *s;             /* [ATT_ROWS / ATT_SLICE][ATT_BLOCK][ATT_SLICE] scores, then P */
    float *m, *l, *alpha; /* [ATT_ROWS] */
} attend;

INLINE float *att_q(const attend *a, int row, int64_t d)
{
    return a->q + ((int64_t)(row / ATT_SLICE) * a->dim + d) * ATT_SLICE + row % ATT_SLICE;
}

INLINE float *att_s(const attend *a, int row, int64_t j)
{
    return a->s + ((int64_t)(row / ATT_SLICE) * ATT_BLOCK + j) * ATT_SLICE + row % ATT_SLICE;
}

INLINE float *att_o(const attend *a, int row, int64_t d)
{
    return a->o + d / ATT_CHUNK * a->o_chunk + (int64_t)row * ATT_CHUNK + d % ATT_CHUNK;
}

INLINE const float *att_v(const attend *a, int64_t j, int64_t d)
{
    return a->v + d / ATT_CHUNK * a->v_chunk + j * a->v_stride + d % ATT_CHUNK;
}

INLINE int att_round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

INLINE void att_start(attend *a)
{
    int rows = att_round_up(a->n, ATT_VALUE_ROWS);

    for (int i = 0; i < ATT_ROWS; i++) {
        a->m[i] = -INFINITY;
        a->l[i] = 0;
    }
    for (int64_t d = 0; d < a->value_dim; d += ATT_CHUNK)
        for (int i = 0; i < rows * ATT_CHUNK; i++)
            att_o(a, 0, d)[i] = 0;
}

/* Scores of `vectors` * LANES rows of a slice against n keys, dims d0 .. d1 - 1, added to what s has. */
INLINE void att_scores_tile(const attend *a, const float *q, int row, int vectors, int j, int n,
                            int64_t d0, int64_t d1)
{
    const float *k[8];
    vf acc[2][8];

    UNROLL
    for (int c = 0; c < n; c++) {
        k[c] = a->k + (j + c) * a->k_stride;
        UNROLL
        for (int v = 0; v < vectors; v++)
            acc[v][c] = d0 == 0 ? vf_zero() : vf_load(att_s(a, row, j + c) + v * LANES);
    }
    for (int64_t d = d0; d < d1; d += 2)
        UNROLL
    for (int odd = 1; odd >= 0; odd--) {
        vf x[2];
        UNROLL
        for (int v = 0; v < vectors; v++)
            x[v] = vf_load(q + (d + odd) * ATT_SLICE + v * LANES);
        UNROLL
        for (int c = 0; c < n; c++) {
            vf y = vf_at(k[c] + d + odd);
            UNROLL
            for (int v = 0; v < vectors; v++)
                acc[v][c] = vf_fma(x[v], y, acc[v][c]);
        }
    }
    UNROLL
    for (int c = 0; c < n; c++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        vf_store(att_s(a, row, j + c) + v * LANES,
                 d1 == a->dim ? vf_mul(acc[v][c], vf_set(a->scale)) : acc[v][c]);
}

/* Asks for row i of what the next block needs. */
typedef void att_ahead_fn(const void *user, int i);

INLINE void att_no_ahead(const void *user, int i) {}

/* Scores of rows `from` (of a slice the first) .. `to` - 1 against the block's keys. One vector of rows takes more keys at once, so that there are
 * as many chains as hide a multiply-add's latency. Meanwhile the n_ahead rows of the next block are asked for, the same
 * number after each tile, so that neither requests pile up nor branches are guessed wrong. */
INLINE void att_scores(const attend *a, int from, int to, att_ahead_fn *ahead, const void *user,
                       int n_ahead)
{
    const int rows = att_round_up(to, LANES);
    const int slices = (rows - from + ATT_SLICE - 1) / ATT_SLICE;
    const int tiles = slices * (ATT_BLOCK / 8) * (a->dim + ATT_STEP - 1) / ATT_STEP;
    const int share = tiles > 0 ? (n_ahead + tiles - 1) / tiles : 0;
    int asked = 0;

    for (int row = from; row < rows; row += ATT_SLICE)
        for (int64_t d = 0; d < a->dim; d += ATT_STEP) {
            const int64_t end = d + ATT_STEP < a->dim ? d + ATT_STEP : a->dim;

            for (int j = 0; j < ATT_BLOCK; j += 8) {
                if (rows - row > LANES) {
                    att_scores_tile(a, att_q(a, row, 0), row, ATT_SLICE / LANES, j, 4, d, end);
                    att_scores_tile(a, att_q(a, row, 0), row, ATT_SLICE / LANES, j + 4, 4, d, end);
                } else {
                    att_scores_tile(a, att_q(a, row, 0), row, 1, j, 8, d, end);
                }
                for (int i = 0; i < share && asked < n_ahead; i++)
                    ahead(user, asked++);
            }
        }
}

INLINE vf att_base(vf m)
{
    return vf_select(vf_eq(m, vf_set(-INFINITY)), vf_zero(), m);
}

#define ATT_EACH \
    UNROLL       \
    for (int i = 0; i < ATT_EXP; i++)

/* x = exp(x) with the bits of vf_exp, for numbers that are not above 0, and NaNs: several side by side, one step
 * after the other, since what one waits for is longer than what a processor looks ahead. */
INLINE void att_exp(vf x[ATT_EXP])
{
    const vf magic = vf_set(0x1.8p23f);
    vf t[ATT_EXP], r[ATT_EXP], p[ATT_EXP];

    ATT_EACH t[i] = vf_add(vf_mul(x[i], vf_set(0x1.715476p+0f)), magic);
    ATT_EACH p[i] = vf_sub(t[i], magic);
    ATT_EACH r[i] = vf_sub(x[i], vf_mul(p[i], vf_set(0x1.62e4p-1f)));
    ATT_EACH r[i] = vf_sub(r[i], vf_mul(p[i], vf_set(0x1.7f7d1cp-20f)));
    ATT_EACH p[i] = vf_add(vf_mul(vf_set(0x1.6a1ff2p-10f), r[i]), vf_set(0x1.1239f2p-7f));
    ATT_EACH p[i] = vf_add(vf_mul(p[i], r[i]), vf_set(0x1.5558f8p-5f));
    ATT_EACH p[i] = vf_add(vf_mul(p[i], r[i]), vf_set(0x1.555492p-3f));
    ATT_EACH p[i] = vf_add(vf_mul(p[i], r[i]), vf_set(0x1.fffffcp-2f));
    ATT_EACH p[i] = vf_mul(vf_mul(r[i], r[i]), p[i]);
    ATT_EACH p[i] = vf_add(vf_add(r[i], p[i]), vf_set(1.0f));
    ATT_EACH p[i] =
        vf_from_bits(_mm256_add_epi32(vf_bits(p[i]), _mm256_slli_epi32(vf_bits(t[i]), 23)));
    ATT_EACH p[i] = _mm256_andnot_ps(vf_gt(vf_set(-0x1.5d589ep+6f), x[i]), p[i]);
    ATT_EACH x[i] = vf_select(vf_is_nan(x[i]), vf_set(NAN), p[i]);
}

/* Keeps the compiler from turning steps that stand side by side into one chain after another. */
INLINE vf att_here(vf x)
{
    __asm__("" : "+x"(x));
    return x;
}

/* The same for numbers of which none gives zero: -0x1.5d589ep+6 .. 0, and NaNs whose low 9 bits are zero, as those
 * of arithmetic on narrow numbers are. n * 0x1.62e4p-1 is exact here, so its subtraction may be fused. */
INLINE void att_exp_near(vf x[ATT_EXP])
{
    const float by[] = {0x1.1239f2p-7f, 0x1.5558f8p-5f, 0x1.555492p-3f, 0x1.fffffcp-2f};
    const vf magic = vf_set(0x1.8p23f);
    vf t[ATT_EXP], r[ATT_EXP], p[ATT_EXP];

    ATT_EACH t[i] = att_here(vf_mul(x[i], vf_set(0x1.715476p+0f)));
    ATT_EACH t[i] = att_here(vf_add(t[i], magic));
    ATT_EACH p[i] = att_here(vf_sub(t[i], magic));
    ATT_EACH t[i] = att_here(vf_from_bits(_mm256_slli_epi32(vf_bits(t[i]), 23)));
    ATT_EACH r[i] = att_here(_mm256_fnmadd_ps(p[i], vf_set(0x1.62e4p-1f), x[i]));
    ATT_EACH p[i] = att_here(vf_mul(p[i], vf_set(0x1.7f7d1cp-20f)));
    ATT_EACH r[i] = att_here(vf_sub(r[i], p[i]));
    ATT_EACH p[i] = vf_set(0x1.6a1ff2p-10f);
    UNROLL
    for (int k = 0; k < 4; k++) {
        ATT_EACH p[i] = att_here(vf_mul(p[i], r[i]));
        ATT_EACH p[i] = att_here(vf_add(p[i], vf_set(by[k])));
    }
    ATT_EACH p[i] = att_here(vf_mul(att_here(vf_mul(r[i], r[i])), p[i]));
    ATT_EACH p[i] = att_here(vf_add(r[i], p[i]));
    ATT_EACH p[i] = att_here(vf_add(p[i], vf_set(1.0f)));
    ATT_EACH x[i] = vf_from_bits(_mm256_add_epi32(vf_bits(p[i]), vf_bits(t[i])));
}

/* Whether no lane of x, a smallest score less base, is one whose exponential is zero. */
INLINE bool att_is_near(vf x)
{
    return _mm256_movemask_ps(vf_gt(vf_set(-0x1.5d589ep+6f), x)) == 0;
}

/* bf16(P) of a P in 0 .. 1 that is no denormal, or NaN. */
INLINE vf att_round_bf16(vf p)
{
    const vi low = _mm256_set1_epi32(0x7FFF), one = _mm256_set1_epi32(1);
    vi u = vf_bits(p), even = _mm256_and_si256(_mm256_srli_epi32(u, 16), one);

    u = _mm256_add_epi32(u, _mm256_add_epi32(low, even));
    return vf_from_bits(_mm256_and_si256(u, _mm256_set1_epi32((int)0xFFFF0000)));
}

/* P of LANES rows, rounded, in place of their scores; their sum. */
INLINE vf att_weigh(const attend *a, int row, uint64_t visible, vf base, bool near)
{
    vf sum = vf_zero();

    for (int j = 0; j < ATT_BLOCK; j += ATT_EXP) {
        vf p[ATT_EXP];

        ATT_EACH p[i] = vf_sub(vf_load(att_s(a, row, j + i)), base);
        if (near)
            att_exp_near(p);
        else
            att_exp(p);
        if ((visible >> j & ((1 << ATT_EXP) - 1)) != (1 << ATT_EXP) - 1)
            for (int i = 0; i < ATT_EXP; i++)
                p[i] = visible >> (j + i) & 1 ? p[i] : vf_zero();
        ATT_EACH sum = i + j == 0 ? p[i] : vf_add(sum, p[i]);
        ATT_EACH vf_store(att_s(a, row, j + i), att_round_bf16(p[i]));
    }
    return sum;
}

/* New maximum, denominator and P; bit j of `visible` is slot j. */
INLINE void att_softmax(const attend *a, uint64_t visible)
{
    for (int row = 0; row < a->n; row += LANES) {
        vf m = vf_load(a->m + row), before = m, least = vf_set(INFINITY), base, alpha, sum;

        for (int j = 0; j < ATT_BLOCK; j++)
            if (visible >> j & 1) {
                m = vf_max(vf_load(att_s(a, row, j)), m);
                least = vf_min(vf_load(att_s(a, row, j)), least);
            }
        base = att_base(m);
        alpha = vf_exp(vf_sub(before, base));
        if (att_is_near(vf_sub(least, base)))
            sum = att_weigh(a, row, visible, base, true);
        else
            sum = att_weigh(a, row, visible, base, false);
        vf_store(a->l + row, vf_add(vf_mul(vf_load(a->l + row), alpha), sum));
        vf_store(a->m + row, m);
        vf_store(a->alpha + row, alpha);
    }
}

/* o = chain(o * alpha; P, v) of 4 rows and `vectors` * LANES dims. */
INLINE void att_values_tile(const attend *a, int row, int64_t c, int vectors)
{
    float *o = att_o(a, row, c);
    vf acc[ATT_VALUE_ROWS][2];

    UNROLL
    for (int r = 0; r < ATT_VALUE_ROWS; r++)
        UNROLL
    for (int i = 0; i < vectors; i++)
        acc[r][i] = vf_mul(vf_load(o + r * ATT_CHUNK + i * LANES), vf_at(a->alpha + row + r));
    for (int j = 0; j < ATT_BLOCK; j += 2)
        UNROLL
    for (int odd = 1; odd >= 0; odd--) {
        const float *v = att_v(a, j + odd, c);
        vf x[2];
        UNROLL
        for (int i = 0; i < vectors; i++)
            x[i] = vf_load(v + i * LANES);
        UNROLL
        for (int r = 0; r < ATT_VALUE_ROWS; r++) {
            vf p = vf_at(att_s(a, row, j + odd) + r);
            UNROLL
            for (int i = 0; i < vectors; i++)
                acc[r][i] = vf_fma(p, x[i], acc[r][i]);
        }
    }
    UNROLL
    for (int r = 0; r < ATT_VALUE_ROWS; r++)
        UNROLL
    for (int i = 0; i < vectors; i++)
        vf_store(o + r * ATT_CHUNK + i * LANES, acc[r][i]);
}

/* All rows, all dims; value_dim is a multiple of ATT_CHUNK. */
INLINE void att_values(const attend *a)
{
    for (int64_t c = 0; c < a->value_dim; c += ATT_CHUNK)
        for (int row = 0; row < a->n; row += ATT_VALUE_ROWS)
            att_values_tile(a, row, c, 2);
}

#endif
