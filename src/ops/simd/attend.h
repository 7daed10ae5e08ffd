/* The inner part of every attention kernel: a group of query rows against blocks of 64 keys (NUMERICS 9).
 *
 * Rows lie in lanes for the scores, with one key's dim broadcast; dims lie in lanes for the sum of values, with one
 * row's P broadcast: every chain stays whole and nothing is transposed. Keys are widened to floats once for all rows
 * of the group. Included by kernels only (simd/vec.h). */
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
};

typedef struct attend {
    float *q;     /* [ATT_ROWS / ATT_SLICE][dim][ATT_SLICE]; rows past n are zero */
    float *k, *v; /* [ATT_BLOCK][stride]; zero where not visible */
    float *o;     /* [ATT_ROWS][value_dim] */
    int64_t k_stride, v_stride;
    int32_t dim, value_dim, n;
    float scale;
    float (*s)[ATT_ROWS]; /* [ATT_BLOCK] scores, then P */
    float *m, *l, *alpha; /* [ATT_ROWS] */
} attend;

INLINE float *att_q(const attend *a, int row, int64_t d)
{
    return a->q + ((int64_t)(row / ATT_SLICE) * a->dim + d) * ATT_SLICE + row % ATT_SLICE;
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
    for (int64_t i = 0; i < (int64_t)rows * a->value_dim; i++)
        a->o[i] = 0;
}

/* Scores of `vectors` * LANES rows of a slice against 4 keys, dims d0 .. d1 - 1, added to what s has. */
INLINE void att_scores_tile(const attend *a, const float *q, int row, int vectors, int j,
                            int64_t d0, int64_t d1)
{
    const float *k[4];
    vf acc[2][4];

    UNROLL
    for (int c = 0; c < 4; c++) {
        k[c] = a->k + (j + c) * a->k_stride;
        UNROLL
        for (int v = 0; v < vectors; v++)
            acc[v][c] = d0 == 0 ? vf_zero() : vf_load(&a->s[j + c][row + v * LANES]);
    }
    for (int64_t d = d0; d < d1; d += 2)
        UNROLL
    for (int odd = 1; odd >= 0; odd--) {
        vf x[2];
        UNROLL
        for (int v = 0; v < vectors; v++)
            x[v] = vf_load(q + (d + odd) * ATT_SLICE + v * LANES);
        UNROLL
        for (int c = 0; c < 4; c++) {
            vf y = vf_at(k[c] + d + odd);
            UNROLL
            for (int v = 0; v < vectors; v++)
                acc[v][c] = vf_fma(x[v], y, acc[v][c]);
        }
    }
    UNROLL
    for (int c = 0; c < 4; c++)
        UNROLL
    for (int v = 0; v < vectors; v++)
        vf_store(&a->s[j + c][row + v * LANES],
                 d1 == a->dim ? vf_mul(acc[v][c], vf_set(a->scale)) : acc[v][c]);
}

/* Scores of all rows against keys 0 .. n_keys - 1, n_keys a multiple of 4. */
INLINE void att_scores(const attend *a, int n_keys)
{
    int rows = att_round_up(a->n, LANES);

    for (int row = 0; row < rows; row += ATT_SLICE)
        for (int64_t d = 0; d < a->dim; d += ATT_STEP) {
            int64_t end = d + ATT_STEP < a->dim ? d + ATT_STEP : a->dim;
            for (int j = 0; j < n_keys; j += 4)
                if (rows - row > LANES)
                    att_scores_tile(a, att_q(a, row, 0), row, ATT_SLICE / LANES, j, d, end);
                else
                    att_scores_tile(a, att_q(a, row, 0), row, 1, j, d, end);
        }
}

INLINE vf att_base(vf m)
{
    return vf_select(vf_eq(m, vf_set(-INFINITY)), vf_zero(), m);
}

/* New maximum, denominator and P; bit j of `visible` is slot j. */
INLINE void att_softmax(const attend *a, uint64_t visible)
{
    for (int row = 0; row < a->n; row += LANES) {
        vf m = vf_load(a->m + row), before = m, base, alpha, sum = vf_zero();

        for (int j = 0; j < ATT_BLOCK; j++)
            if (visible >> j & 1)
                m = vf_max(vf_load(&a->s[j][row]), m);
        base = att_base(m);
        alpha = vf_exp(vf_sub(before, base));
        for (int j = 0; j < ATT_BLOCK; j++) {
            vf p = vf_zero();
            if (visible >> j & 1)
                p = vf_exp(vf_sub(vf_load(&a->s[j][row]), base));
            sum = j == 0 ? p : vf_add(sum, p);
            vf_store(&a->s[j][row], vf_round_bf16(p));
        }
        vf_store(a->l + row, vf_add(vf_mul(vf_load(a->l + row), alpha), sum));
        vf_store(a->m + row, m);
        vf_store(a->alpha + row, alpha);
    }
}

/* o = chain(o * alpha; P, v) of 4 rows and `vectors` * LANES dims. */
INLINE void att_values_tile(const attend *a, int row, int64_t c, int vectors)
{
    vf acc[ATT_VALUE_ROWS][2];

    UNROLL
    for (int r = 0; r < ATT_VALUE_ROWS; r++)
        UNROLL
    for (int i = 0; i < vectors; i++)
        acc[r][i] = vf_mul(vf_load(a->o + (row + r) * (int64_t)a->value_dim + c + i * LANES),
                           vf_at(a->alpha + row + r));
    for (int j = 0; j < ATT_BLOCK; j += 2)
        UNROLL
    for (int odd = 1; odd >= 0; odd--) {
        const float *v = a->v + (j + odd) * a->v_stride + c;
        vf x[2];
        UNROLL
        for (int i = 0; i < vectors; i++)
            x[i] = vf_load(v + i * LANES);
        UNROLL
        for (int r = 0; r < ATT_VALUE_ROWS; r++) {
            vf p = vf_at(&a->s[j + odd][row + r]);
            UNROLL
            for (int i = 0; i < vectors; i++)
                acc[r][i] = vf_fma(p, x[i], acc[r][i]);
        }
    }
    UNROLL
    for (int r = 0; r < ATT_VALUE_ROWS; r++)
        UNROLL
    for (int i = 0; i < vectors; i++)
        vf_store(a->o + (row + r) * (int64_t)a->value_dim + c + i * LANES, acc[r][i]);
}

/* All rows, all dims; value_dim is a multiple of 2 LANES. */
INLINE void att_values(const attend *a)
{
    for (int64_t c = 0; c < a->value_dim; c += (int64_t)2 * LANES)
        for (int row = 0; row < a->n; row += ATT_VALUE_ROWS)
            att_values_tile(a, row, c, 2);
}

#endif
