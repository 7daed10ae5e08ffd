/* Attention over keys listed by number for vector levels: the keys of a token, widened once for up to 32 of its heads
 * (simd/attend.h). Bits are level scalar's (NUMERICS 9). Scratch is fixed, whatever the heads and keys. */
#include "ops/sparse.h"

#include <string.h>

#include "ops/simd/attend.h"
#include "ops/simd/widen.h"

enum { STRIDE = PL_CACHE_MAX_DIM + ATT_PAD, AHEAD = 4, CODES = PL_NOPE_DIM / PL_KV_BLOCK };

_Static_assert(ATT_ROWS == PL_SPARSE_GROUP, "heads of a unit");

typedef struct work {
    float q[ATT_ROWS / ATT_SLICE][PL_CACHE_MAX_DIM][ATT_SLICE];
    float keys[ATT_BLOCK][STRIDE];
    float o[ATT_ROWS * PL_SPARSE_VALUE_DIM];
    float s[ATT_ROWS * ATT_BLOCK];
    float m[ATT_ROWS], l[ATT_ROWS], alpha[ATT_ROWS];
} work;

_Static_assert(sizeof(work) <= PL_SPARSE_SCRATCH_BYTES, "scratch");

static void widen(const pl_cache_rows *rows, int64_t i, float *out)
{
    pl_cache_row row = pl_cache_row_at(rows, i);
    float scale;

    if (rows->format == PL_CACHE_V4) {
        for (int b = 0; b < CODES; b++)
            wide_e8m0(row.data + b * PL_KV_BLOCK, row.scales[b], out + b * PL_KV_BLOCK);
        wide_bf16(row.tail, PL_ROPE_DIM, out + PL_NOPE_DIM);
    } else if (rows->format == PL_CACHE_V32) {
        for (int b = 0; b < PL_V32_NOPE / PL_V32_BLOCK; b++) {
            memcpy(&scale, row.scales + b * (int)sizeof scale, sizeof scale);
            wide_f32(row.data + b * PL_V32_BLOCK, PL_V32_BLOCK, scale, out + b * PL_V32_BLOCK);
        }
        wide_bf16(row.tail, PL_ROPE_DIM, out + PL_V32_NOPE);
    } else {
        wide_bf16(row.data, rows->dim, out);
    }
}

INLINE void prefetch(const pl_cache_rows *rows, int64_t i)
{
    pl_cache_row row = pl_cache_row_at(rows, i);
    int64_t bytes = pl_cache_row_bytes(rows->format, rows->dim);

    for (int64_t at = 0; at < bytes; at += 64)
        _mm_prefetch((const char *)row.data + at, _MM_HINT_T0);
    _mm_prefetch((const char *)row.scales, _MM_HINT_T0);
}

/* The block of slots that begins at place `first` of a list of n; whether any is visible. */
static bool add_block(attend *a, const pl_sparse_set *set, const int32_t *list, int32_t first,
                      int32_t n)
{
    int32_t index[ATT_BLOCK];
    uint64_t visible = 0;

    for (int j = 0; j < ATT_BLOCK; j++) {
        index[j] = first + j < n ? list[first + j] : -1;
        if (index[j] >= 0 && index[j] < set->rows.n)
            visible |= (uint64_t)1 << j;
    }
    if (visible == 0)
        return false;
    for (int j = 0; j < ATT_BLOCK; j++) {
        if (j + AHEAD < ATT_BLOCK && visible >> (j + AHEAD) & 1)
            prefetch(&set->rows, index[j + AHEAD]);
        if (visible >> j & 1)
            widen(&set->rows, index[j], a->k + j * a->k_stride);
        else
            memset(a->k + j * a->k_stride, 0, sizeof(float) * (size_t)a->dim);
    }
    att_scores(a, 0, a->n, att_no_ahead, NULL, 0);
    att_softmax(a, visible);
    att_values(a);
    return true;
}

/* Queries of a group in slices, dims ahead of rows. */
static void load_queries(const attend *a, const uint16_t *q, int64_t head_stride)
{
    int rows = att_round_up(a->n, LANES);

    for (int row = 0; row < rows; row += LANES)
        for (int64_t d = 0; d < a->dim; d += LANES) {
            vf r[LANES];
            UNROLL
            for (int i = 0; i < LANES; i++)
                r[i] = row + i < a->n ? vf_load_bf16(q + (row + i) * head_stride + d) : vf_zero();
            vf_transpose(r);
            UNROLL
            for (int i = 0; i < LANES; i++)
                vf_store(att_q(a, row, d + i), r[i]);
        }
}

static void finish(const pl_sparse_args *a, const attend *g, int64_t t, int64_t h0, bool any)
{
    for (int h = 0; h < g->n; h++) {
        float den = pl__scalar_sparse_finish(a, t, h0 + h, any, g->m[h], g->l[h]);
        uint16_t *out = a->out + t * a->out_token_stride + (h0 + h) * a->out_head_stride;

        for (int64_t d = 0; d < PL_SPARSE_VALUE_DIM; d += LANES)
            vf_store_bf16(out + d, any ? vf_div(vf_load(att_o(g, h, d)), vf_set(den)) : vf_zero());
    }
}

/* Heads h0 .. h0 + n - 1 of token t. */
static void attend_token(work *w, const pl_sparse_args *a, int64_t t, int64_t h0, int32_t n)
{
    attend group = {.q = w->q[0][0],
                    .k = w->keys[0],
                    .v = w->keys[0],
                    .o = w->o,
                    .k_stride = STRIDE,
                    .v_stride = STRIDE,
                    .v_chunk = ATT_CHUNK,
                    .o_chunk = (int64_t)ATT_ROWS * ATT_CHUNK,
                    .dim = a->dim,
                    .value_dim = PL_SPARSE_VALUE_DIM,
                    .n = n,
                    .scale = a->scale,
                    .s = w->s,
                    .m = w->m,
                    .l = w->l,
                    .alpha = w->alpha};
    bool any = false;

    load_queries(&group, a->q + t * a->q_token_stride + h0 * a->q_head_stride, a->q_head_stride);
    att_start(&group);
    for (int32_t i = 0; i < a->n_sets; i++) {
        const pl_sparse_set *set = &a->set[i];
        int32_t length = pl_sparse_length(a, set, t);

        for (int32_t first = 0; first < length; first += ATT_BLOCK)
            any |= add_block(&group, set, set->index + t * set->index_stride, first, length);
    }
    finish(a, &group, t, h0, any);
}

void PL__AT(attention_sparse)(const pl_op_env *env, const pl_sparse_args *a, int64_t begin,
                              int64_t end)
{
    for (int64_t u = begin; u < end;) {
        int64_t t = u / a->n_heads, h0 = u % a->n_heads, n = a->n_heads - h0;

        n = n > ATT_ROWS ? ATT_ROWS : n;
        n = n > end - u ? end - u : n;
        attend_token(env->scratch, a, t, h0, (int32_t)n);
        u += n;
    }
}
