/* Attention over packed sequences for vector levels: 64 or 128 rows, which are the heads of a group and
 * neighbouring tokens, against blocks of 64 keys (simd/attend.h). A row that does not see a whole block takes its values alone,
 * so that what it does not see cannot reach it. */
#include <string.h>

#include "ops/varlen.h"

#define ATT_ROWS PL_VARLEN_ROWS
#include "ops/simd/attend.h"

/* Rows times dims of a tile (pl_varlen_rows); floats of its widened keys and of its scores together. */
enum {
    ROW_FLOATS = PL_VARLEN_ROWS / 4 * PL_VARLEN_MAX_DIM,
    KEY_FLOATS = ATT_BLOCK * (PL_VARLEN_MAX_DIM + ATT_PAD + PL_VARLEN_ROWS / 4),
};

/* Rows of a block in the caller's memory: of each slot key and value. */
typedef struct places {
    const void *row[2 * ATT_BLOCK];
    int32_t n, bytes[2]; /* slots; of a key, a value */
} places;

typedef struct work {
    float q[ROW_FLOATS];
    float k[KEY_FLOATS]; /* then the scores */
    float v[PL_VARLEN_MAX_DIM / ATT_CHUNK][ATT_BLOCK][ATT_CHUNK];
    float o[ROW_FLOATS];
    float m[ATT_ROWS], l[ATT_ROWS], alpha[ATT_ROWS];
    int64_t begin[ATT_ROWS], end[ATT_ROWS]; /* keys that a row sees */
    int32_t lo[ATT_ROWS], hi[ATT_ROWS];     /* the same within a block */
    places next;
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

/* n numbers; from one chunk of 16 to the next. */
INLINE void widen_as(pl_varlen_type type, const void *x, int n, float *out, int64_t chunk)
{
    for (int64_t i = 0; i < n; i += LANES)
        vf_store(out + i / ATT_CHUNK * chunk + i % ATT_CHUNK, load_as(type, x, i));
}

static void widen(pl_varlen_type type, const void *x, int n, float *out, int64_t chunk)
{
    if (type == PL_VARLEN_BF16)
        widen_as(PL_VARLEN_BF16, x, n, out, chunk);
    else
        widen_as(type, x, n, out, chunk);
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

/* P of the lanes' rows, rounded, in place of their scores; their sum. */
INLINE vf weigh(const attend *g, const work *w, pl_varlen_type type, int row, vf base, bool full,
                bool near)
{
    vf sum = vf_zero();

    for (int j = 0; j < ATT_BLOCK; j += ATT_EXP) {
        vf p[ATT_EXP];

        ATT_EACH p[i] = vf_sub(vf_load(att_s(g, row, j + i)), base);
        if (near)
            att_exp_near(p);
        else
            att_exp(p);
        if (!full)
            ATT_EACH p[i] = vf_select(sees(w, row, j + i), p[i], vf_zero());
        ATT_EACH sum = i + j == 0 ? p[i] : vf_add(sum, p[i]);
        ATT_EACH vf_store(att_s(g, row, j + i), rounded(type, p[i]));
    }
    return sum;
}

/* `full`: all of the lanes' rows see all slots. */
INLINE void softmax_lanes(const attend *g, const work *w, pl_varlen_type type, float cap, int row,
                          bool full)
{
    vf m = vf_load(g->m + row), before = m, least = vf_set(INFINITY), base, alpha, sum;

    for (int j = 0; j < ATT_BLOCK && cap > 0; j++) {
        vf s = vf_div(vf_load(att_s(g, row, j)), vf_set(cap));
        vf_store(att_s(g, row, j), vf_mul(vf_set(cap), vf_tanh(s)));
    }
    for (int j = 0; j < ATT_BLOCK; j++) {
        vf s = vf_load(att_s(g, row, j)), larger = vf_max(s, m);
        m = full ? larger : vf_select(sees(w, row, j), larger, m);
        least = vf_min(s, least);
    }
    base = att_base(m);
    alpha = vf_exp(vf_sub(before, base));
    if (full && type != PL_VARLEN_F32 && att_is_near(vf_sub(least, base)))
        sum = weigh(g, w, type, row, base, full, true);
    else
        sum = weigh(g, w, type, row, base, full, false);
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
    vf acc[ATT_CHUNK / LANES];
    float *o = att_o(g, row, c);
    int first = lo & ~1, last = (hi + 1) & ~1;

    UNROLL
    for (int i = 0; i < vectors; i++) {
        acc[i] = vf_mul(vf_load(o + i * LANES), vf_at(g->alpha + row));
        acc[i] = first > 0 ? vf_add(acc[i], vf_zero()) : acc[i];
    }
    for (int j = first; j < last; j += 2)
        for (int odd = 1; odd >= 0; odd--) {
            const float *v = att_v(g, j + odd, c);
            bool seen = j + odd >= lo && j + odd < hi;
            vf p = vf_at(att_s(g, row, j + odd));
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

    for (; c + ATT_CHUNK <= g->value_dim; c += ATT_CHUNK)
        row_tile(g, row, lo, hi, c, ATT_CHUNK / LANES);
    if (c < g->value_dim)
        row_tile(g, row, lo, hi, c, 1);
}

static void values(const attend *g, const work *w, span rows)
{
    for (int row = rows.from; row < rows.to; row += ATT_VALUE_ROWS)
        for (int i = row; !all_full(w, row, ATT_VALUE_ROWS) && i < row + ATT_VALUE_ROWS && i < g->n;
             i++)
            if (w->lo[i] < w->hi[i])
                row_values(g, i, w->lo[i], w->hi[i]);
    for (int64_t c = 0; c < g->value_dim; c += ATT_CHUNK)
        for (int row = rows.from; row < rows.to; row += ATT_VALUE_ROWS)
            if (!all_full(w, row, ATT_VALUE_ROWS))
                continue;
            else if (c + ATT_CHUNK <= g->value_dim)
                att_values_tile(g, row, c, 2);
            else
                att_values_tile(g, row, c, 1);
}

/* Where the keys and values of the block at `key` lie. */
static void find_rows(const pl_varlen_args *a, const pl_varlen_tile *t, int64_t key, places *p)
{
    int64_t n = a->cu_k[t->seq + 1] - a->cu_k[t->seq] - key;

    p->n = (int32_t)(n < 0 ? 0 : n > ATT_BLOCK ? ATT_BLOCK : n);
    for (int j = 0; j < p->n; j++) {
        p->row[2 * j] = pl_varlen_row(a, &a->k, t->seq, key + j, t->kv_head);
        p->row[2 * j + 1] = pl_varlen_row(a, &a->v, t->seq, key + j, t->kv_head);
    }
}

/* Rows of many heads lie pages apart: no processor guesses where the next one is. */
INLINE void ask(const void *user, int i)
{
    const places *p = user;
    const char *row = p->row[i];

    for (int at = 0; at < p->bytes[i & 1]; at += 64)
        _mm_prefetch(row + at, _MM_HINT_T0);
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

static void load_keys(const pl_varlen_args *a, const places *p, work *w)
{
    const int64_t stride = a->dim + ATT_PAD;

    for (int j = 0; j < p->n; j++) {
        widen(a->type, p->row[2 * j], a->dim, w->k + j * stride, ATT_CHUNK);
        widen(a->type, p->row[2 * j + 1], a->value_dim, w->v[0][j], (int64_t)ATT_BLOCK * ATT_CHUNK);
    }
    for (int j = p->n; j < ATT_BLOCK; j++)
        memset(w->k + j * stride, 0, sizeof(float) * (size_t)a->dim);
}

/* The block of keys that begins at `key`, whose places are in w->next. */
static void add_block(const pl_varlen_args *a, const pl_varlen_tile *t, attend *g, work *w,
                      int64_t key)
{
    span rows;

    for (int r = 0; r < att_round_up(g->n, LANES); r++) {
        w->lo[r] = within(w->begin[r], key);
        w->hi[r] = within(w->end[r], key);
    }
    rows = rows_that_see(g, w);
    load_keys(a, &w->next, w);
    find_rows(a, t, key + ATT_BLOCK, &w->next);
    att_scores(g, rows.from, rows.to, ask, &w->next, 2 * w->next.n);
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
                     any ? vf_div(vf_load(att_o(g, r, d)), vf_set(den)) : vf_zero());
    }
}

static void attend_tile(const pl_varlen_args *a, const pl_varlen_tile *t, work *w)
{
    attend g = {.q = w->q,
                .k = w->k,
                .v = w->v[0][0],
                .o = w->o,
                .k_stride = a->dim + ATT_PAD,
                .v_stride = ATT_CHUNK,
                .v_chunk = (int64_t)ATT_BLOCK * ATT_CHUNK,
                .o_chunk = (int64_t)pl_varlen_rows(a) * ATT_CHUNK,
                .dim = a->dim,
                .value_dim = a->value_dim,
                .n = t->n,
                .scale = a->scale,
                .s = w->k + ATT_BLOCK * (a->dim + ATT_PAD),
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
    w->next.bytes[0] = a->dim * (a->type == PL_VARLEN_F32 ? 4 : 2);
    w->next.bytes[1] = a->value_dim * (a->type == PL_VARLEN_F32 ? 4 : 2);
    if (begin < end)
        find_rows(a, t, begin / ATT_BLOCK * ATT_BLOCK, &w->next);
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
