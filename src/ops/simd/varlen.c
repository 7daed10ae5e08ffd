/* Attention over packed sequences for vector levels: 64 or 128 rows, which are the heads of a group and
 * neighbouring tokens, against blocks of 64 keys (simd/attend.h). A row that does not see a whole block takes its values alone,
 * so that what it does not see cannot reach it. */
#include <string.h>

#include "ops/varlen.h"

#define ATT_ROWS PL_VARLEN_ROWS
#include "ops/simd/attend.h"

enum { STRIDE = PL_VARLEN_MAX_DIM + ATT_PAD, ROW_VECTORS = 4 };
enum { ROW_FLOATS = PL_VARLEN_ROWS / 2 * PL_VARLEN_MAX_DIM }; /* of all rows: pl_varlen_rows */

typedef struct work {
    float q[ROW_FLOATS];
    float k[ATT_BLOCK][STRIDE], v[ATT_BLOCK][STRIDE];
    float o[ROW_FLOATS];
    float s[ATT_BLOCK][ATT_ROWS];
    float m[ATT_ROWS], l[ATT_ROWS], alpha[ATT_ROWS];
    int64_t begin[ATT_ROWS], end[ATT_ROWS]; /* keys that a row sees */
    int32_t lo[ATT_ROWS], hi[ATT_ROWS];     /* the same within a block */
} work;

_Static_assert(sizeof(work) <= PL_VARLEN_SCRATCH_BYTES, "scratch");

INLINE vf load_as(pl_varlen_type type, const void *x, int64_t i)
{
    if (type == PL_VARLEN_F32)
        return vf_load((const float *)x + i);
    return type == PL_VARLEN_F16 ? vf_load_f16((const uint16_t *)x + i)
                                 : vf_load_bf16((const uint16_t *)x + i);
}

INLINE void store_as(pl_varlen_type type, void *x, int64_t i, vf v)
{
    if (type == PL_VARLEN_F32)
        vf_store((float *)x + i, v);
    else if (type == PL_VARLEN_F16)
        vf_store_f16((uint16_t *)x + i, v);
    else
        vf_store_bf16((uint16_t *)x + i, v);
}

INLINE void widen_as(pl_varlen_type type, const void *x, int n, float *out)
{
    for (int i = 0; i < n; i += LANES)
        vf_store(out + i, load_as(type, x, i));
}

static void widen(pl_varlen_type type, const void *x, int n, float *out)
{
    if (type == PL_VARLEN_BF16)
        widen_as(PL_VARLEN_BF16, x, n, out);
    else
        widen_as(type, x, n, out);
}

static int64_t token_of(const pl_varlen_args *a, const pl_varlen_tile *t, int r, int32_t *head)
{
    int32_t group = a->n_heads / a->n_kv_heads;

    *head = t->kv_head * group + (int32_t)((t->first + r) % group);
    return a->cu_q[t->seq] + (t->first + r) / group;
}

static void load_queries(const pl_varlen_args *a, const pl_varlen_tile *t, attend *g, work *w)
{
    int rows = att_round_up(g->n, LANES);
    size_t size = a->type == PL_VARLEN_F32 ? 4 : 2;

    for (int row = 0; row < rows; row += LANES) {
        const uint8_t *q[LANES];
        for (int i = 0; i < LANES; i++) {
            int32_t head;
            int64_t token = token_of(a, t, row + i < g->n ? row + i : g->n - 1, &head);
            q[i] = (const uint8_t *)a->q.data +
                   (token * a->q.token_stride + head * a->q.head_stride) * (int64_t)size;
            pl_varlen_visible(a, t->seq, token - a->cu_q[t->seq], &w->begin[row + i],
                              &w->end[row + i]);
        }
        for (int64_t d = 0; d < a->dim; d += LANES) {
            vf r[LANES];
            for (int i = 0; i < LANES; i++)
                r[i] = load_as(a->type, q[i], d);
            vf_transpose(r);
            for (int i = 0; i < LANES; i++)
                vf_store(att_q(g, row, d + i), r[i]);
        }
    }
}

/* Lanes whose row sees slot j. */
INLINE vf sees(const work *w, int row, int j)
{
    __m256i lo = _mm256_loadu_si256((const __m256i *)(w->lo + row));
    __m256i hi = _mm256_loadu_si256((const __m256i *)(w->hi + row)), at = _mm256_set1_epi32(j);

    return vf_from_bits(
        _mm256_andnot_si256(_mm256_cmpgt_epi32(lo, at), _mm256_cmpgt_epi32(hi, at)));
}

INLINE vf rounded(pl_varlen_type type, vf p)
{
    return type == PL_VARLEN_F32 ? p : type == PL_VARLEN_F16 ? vf_round_f16(p) : att_round_bf16(p);
}

/* `full`: all of the lanes' rows see all slots. */
INLINE void softmax_lanes(const attend *g, const work *w, pl_varlen_type type, float cap, int row,
                          bool full)
{
    vf m = vf_load(g->m + row), before = m, base, alpha, sum = vf_zero();

    for (int j = 0; j < ATT_BLOCK && cap > 0; j++) {
        vf s = vf_div(vf_load(&g->s[j][row]), vf_set(cap));
        vf_store(&g->s[j][row], vf_mul(vf_set(cap), vf_tanh(s)));
    }
    for (int j = 0; j < ATT_BLOCK; j++) {
        vf larger = vf_max(vf_load(&g->s[j][row]), m);
        m = full ? larger : vf_select(sees(w, row, j), larger, m);
    }
    base = att_base(m);
    alpha = vf_exp(vf_sub(before, base));
    for (int j = 0; j < ATT_BLOCK; j += ATT_EXP) {
        vf p[ATT_EXP];

        ATT_EACH p[i] = vf_sub(vf_load(&g->s[j + i][row]), base);
        att_exp(p);
        if (!full)
            ATT_EACH p[i] = vf_select(sees(w, row, j + i), p[i], vf_zero());
        ATT_EACH sum = i + j == 0 ? p[i] : vf_add(sum, p[i]);
        ATT_EACH vf_store(&g->s[j + i][row], rounded(type, p[i]));
    }
    vf_store(g->l + row, vf_add(vf_mul(vf_load(g->l + row), alpha), sum));
    vf_store(g->m + row, m);
    vf_store(g->alpha + row, alpha);
}

static bool all_full(const work *w, int row, int n)
{
    for (int i = row; i < row + n; i++)
        if (w->lo[i] > 0 || w->hi[i] < ATT_BLOCK)
            return false;
    return true;
}

/* Rows from .. to of a group: those between the first and the last that see anything of the block. */
typedef struct span {
    int from, to;
} span;

static void softmax(const pl_varlen_args *a, const attend *g, const work *w, span rows)
{
    for (int row = rows.from; row < rows.to; row += LANES)
        if (!all_full(w, row, LANES))
            softmax_lanes(g, w, a->type, a->cap, row, false);
        else if (a->type == PL_VARLEN_BF16)
            softmax_lanes(g, w, PL_VARLEN_BF16, a->cap, row, true);
        else
            softmax_lanes(g, w, a->type, a->cap, row, true);
}

/* Dims c .. of one row that sees slots lo .. hi - 1. A run of slots that it does not see adds +0 once. */
INLINE void row_tile(const attend *g, int row, int lo, int hi, int64_t c, int vectors)
{
    vf acc[ROW_VECTORS];
    float *o = g->o + row * (int64_t)g->value_dim + c;
    int first = lo & ~1, last = (hi + 1) & ~1;

    UNROLL
    for (int i = 0; i < vectors; i++) {
        acc[i] = vf_mul(vf_load(o + i * LANES), vf_at(g->alpha + row));
        acc[i] = first > 0 ? vf_add(acc[i], vf_zero()) : acc[i];
    }
    for (int j = first; j < last; j += 2)
        for (int odd = 1; odd >= 0; odd--) {
            const float *v = g->v + (j + odd) * g->v_stride + c;
            bool seen = j + odd >= lo && j + odd < hi;
            vf p = vf_at(&g->s[j + odd][row]);
            UNROLL
            for (int i = 0; i < vectors; i++)
                acc[i] =
                    seen ? vf_fma(p, vf_load(v + i * LANES), acc[i]) : vf_add(acc[i], vf_zero());
        }
    UNROLL
    for (int i = 0; i < vectors; i++)
        vf_store(o + i * LANES, last < ATT_BLOCK ? vf_add(acc[i], vf_zero()) : acc[i]);
}

static void row_values(const attend *g, int row, int lo, int hi)
{
    int64_t c = 0;

    for (; c + (int64_t)ROW_VECTORS * LANES <= g->value_dim; c += (int64_t)ROW_VECTORS * LANES)
        row_tile(g, row, lo, hi, c, ROW_VECTORS);
    for (; c < g->value_dim; c += LANES)
        row_tile(g, row, lo, hi, c, 1);
}

static void values(const attend *g, const work *w, span rows)
{
    for (int row = rows.from; row < rows.to; row += ATT_VALUE_ROWS)
        for (int i = row; !all_full(w, row, ATT_VALUE_ROWS) && i < row + ATT_VALUE_ROWS && i < g->n;
             i++)
            if (w->lo[i] < w->hi[i])
                row_values(g, i, w->lo[i], w->hi[i]);
    for (int64_t c = 0; c < g->value_dim; c += (int64_t)2 * LANES)
        for (int row = rows.from; row < rows.to; row += ATT_VALUE_ROWS)
            if (!all_full(w, row, ATT_VALUE_ROWS))
                continue;
            else if (c + (int64_t)2 * LANES <= g->value_dim)
                att_values_tile(g, row, c, 2);
            else
                att_values_tile(g, row, c, 1);
}

/* Asks for a row of the next block while this one is worked on: rows of many heads lie pages apart. */
INLINE void prefetch(const pl_varlen_args *a, const void *row, int dim)
{
    const char *p = row;

    for (int64_t at = 0; at < dim * (a->type == PL_VARLEN_F32 ? 4 : 2); at += 64)
        _mm_prefetch(p + at, _MM_HINT_T0);
}

static int32_t within(int64_t key, int64_t block)
{
    int64_t at = key - block;

    return (int32_t)(at < 0 ? 0 : at > ATT_BLOCK ? ATT_BLOCK : at);
}

static span rows_that_see(const attend *g, const work *w)
{
    span s = {0, g->n};

    while (s.from < s.to && w->lo[s.from] >= w->hi[s.from])
        s.from++;
    while (s.to > s.from && w->lo[s.to - 1] >= w->hi[s.to - 1])
        s.to--;
    s.from = s.from / ATT_SLICE * ATT_SLICE;
    return s;
}

/* The block of keys that begins at `key`. */
static void add_block(const pl_varlen_args *a, const pl_varlen_tile *t, attend *g, work *w,
                      int64_t key)
{
    int64_t n_keys = a->cu_k[t->seq + 1] - a->cu_k[t->seq];
    span rows;

    for (int r = 0; r < att_round_up(g->n, LANES); r++) {
        w->lo[r] = within(w->begin[r], key);
        w->hi[r] = within(w->end[r], key);
    }
    rows = rows_that_see(g, w);
    for (int64_t j = 0; j < ATT_BLOCK; j++) {
        if (key + j >= n_keys) {
            memset(w->k[j], 0, sizeof(float) * (size_t)a->dim);
            continue;
        }
        widen(a->type, pl_varlen_row(a, &a->k, t->seq, key + j, t->kv_head), a->dim, w->k[j]);
        widen(a->type, pl_varlen_row(a, &a->v, t->seq, key + j, t->kv_head), a->value_dim, w->v[j]);
        if (key + ATT_BLOCK + j < n_keys) {
            prefetch(a, pl_varlen_row(a, &a->k, t->seq, key + ATT_BLOCK + j, t->kv_head), a->dim);
            prefetch(a, pl_varlen_row(a, &a->v, t->seq, key + ATT_BLOCK + j, t->kv_head),
                     a->value_dim);
        }
    }
    att_scores(g, rows.from, rows.to);
    softmax(a, g, w, rows);
    values(g, w, rows);
}

static void finish(const pl_varlen_args *a, const pl_varlen_tile *t, const attend *g, const work *w)
{
    for (int r = 0; r < g->n; r++) {
        bool any = w->begin[r] < w->end[r];
        int32_t head;
        int64_t token = token_of(a, t, r, &head);
        int64_t at = token * a->out_token_stride + head * a->out_head_stride;
        float den;

        pl__scalar_varlen_finish(a, token, head, any, g->m[r], g->l[r], &den);
        for (int64_t d = 0; d < a->value_dim; d += LANES)
            store_as(a->type, a->out, at + d,
                     any ? vf_div(vf_load(g->o + r * (int64_t)g->value_dim + d), vf_set(den))
                         : vf_zero());
    }
}

static void attend_tile(const pl_varlen_args *a, const pl_varlen_tile *t, work *w)
{
    attend g = {.q = w->q,
                .k = w->k[0],
                .v = w->v[0],
                .o = w->o,
                .k_stride = STRIDE,
                .v_stride = STRIDE,
                .dim = a->dim,
                .value_dim = a->value_dim,
                .n = t->n,
                .scale = a->scale,
                .s = w->s,
                .m = w->m,
                .l = w->l,
                .alpha = w->alpha};
    int64_t begin = INT64_MAX, end = 0;

    load_queries(a, t, &g, w);
    att_start(&g);
    for (int r = 0; r < t->n; r++) {
        if (w->begin[r] >= w->end[r])
            continue;
        begin = w->begin[r] < begin ? w->begin[r] : begin;
        end = w->end[r] > end ? w->end[r] : end;
    }
    for (int64_t key = begin / ATT_BLOCK * ATT_BLOCK; key < end; key += ATT_BLOCK)
        add_block(a, t, &g, w, key);
    finish(a, t, &g, w);
}

void PL__AT(attention_varlen)(const pl_op_env *env, const pl_varlen_args *a, int64_t begin,
                              int64_t end)
{
    for (int64_t u = begin; u < end; u++) {
        pl_varlen_tile t = pl_varlen_tile_of(a, u);

        attend_tile(a, &t, env->scratch);
    }
}
