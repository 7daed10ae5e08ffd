/* Sparse attention over cache rows for vector levels: the keys of a token, widened once for up to 32 of its heads.
 *
 * Bits are level scalar's (NUMERICS 9). Scratch is fixed, whatever the heads and keys. */
#include "ops/simd/attention.h"

#include <string.h>

#include "ops/simd/attend.h"
#include "ops/simd/widen.h"

enum { STRIDE = PL_HEAD_DIM + ATT_PAD, AHEAD = 4 };

typedef struct work {
    float q[ATT_ROWS / ATT_SLICE][PL_HEAD_DIM][ATT_SLICE];
    float keys[ATT_BLOCK][STRIDE];
    float o[ATT_ROWS * PL_HEAD_DIM];
    float s[ATT_ROWS * ATT_BLOCK];
    float m[ATT_ROWS], l[ATT_ROWS], alpha[ATT_ROWS];
} work;

_Static_assert(sizeof(work) <= PL_SIMD_ATTENTION_BYTES, "scratch of the table");

INLINE void widen(const pl_rows *rows, int64_t i, float *out)
{
    const uint8_t *data = pl_rows_data(rows, i), *scales = pl_rows_scales(rows, i);

    for (int b = 0; b < PL_NOPE_DIM / PL_KV_BLOCK; b++)
        wide_e8m0(data + b * PL_KV_BLOCK, scales[b], out + b * PL_KV_BLOCK);
    for (int d = 0; d < PL_ROPE_DIM; d += LANES)
        vf_store(out + PL_NOPE_DIM + d,
                 vf_load_bf16((const uint16_t *)(const void *)(data + PL_NOPE_DIM) + d));
}

INLINE void prefetch(const pl_rows *rows, int64_t i)
{
    const char *data = (const char *)pl_rows_data(rows, i);

    for (int at = 0; at < PL_NOPE_DIM + 2 * PL_ROPE_DIM; at += 64)
        _mm_prefetch(data + at, _MM_HINT_T0);
}

/* Slots of one block: where each lies, NULL where not visible. */
typedef struct slots {
    const pl_rows *rows[ATT_BLOCK];
    int64_t index[ATT_BLOCK];
    uint64_t visible;
} slots;

static void add_block(attend *a, const slots *b)
{
    if (b->visible == 0)
        return;
    for (int j = 0; j < ATT_BLOCK; j++) {
        if (j + AHEAD < ATT_BLOCK && b->rows[j + AHEAD])
            prefetch(b->rows[j + AHEAD], b->index[j + AHEAD]);
        if (b->rows[j])
            widen(b->rows[j], b->index[j], a->k + j * a->k_stride);
        else
            memset(a->k + j * a->k_stride, 0, sizeof(float) * PL_HEAD_DIM);
    }
    att_scores(a, 0, a->n, att_no_ahead, NULL, 0);
    att_softmax(a, b->visible);
    att_values(a);
}

INLINE void set_slot(slots *b, int j, const pl_rows *rows, int64_t i)
{
    b->rows[j] = rows;
    b->index[j] = i;
    b->visible |= (uint64_t)(rows != NULL) << j;
}

/* Slot j of a window block is position P - 127 + first + j. */
static void window_block(slots *b, const pl_attention_args *a, int64_t t, int32_t first)
{
    const pl_attention_seq *seq = &a->seqs[a->seq_of[t]];

    b->visible = 0;
    for (int j = 0; j < ATT_BLOCK; j++) {
        int32_t pos = a->position[t] - (PL_WINDOW - 1) + first + j;

        if (pos < 0)
            set_slot(b, j, NULL, 0);
        else if (pos < seq->start)
            set_slot(b, j, &seq->ring, pos % seq->ring_rows);
        else
            set_slot(b, j, &a->step, seq->first + (pos - seq->start));
    }
}

static void entry_block(slots *b, const pl_attention_args *a, int64_t t, int64_t first, int64_t n)
{
    const pl_attention_seq *seq = &a->seqs[a->seq_of[t]];

    b->visible = 0;
    for (int j = 0; j < ATT_BLOCK; j++) {
        int64_t i = first + j;

        if (i >= n)
            set_slot(b, j, NULL, 0);
        else
            set_slot(b, j, &seq->entries, a->sel ? a->sel[t * a->sel_stride + i] : i);
    }
}

/* Queries of heads `from` .. from + n - 1 in slices, dims ahead of rows. */
static void load_queries(attend *a, const uint16_t *q)
{
    int rows = att_round_up(a->n, LANES);

    for (int row = 0; row < rows; row += LANES)
        for (int64_t d = 0; d < PL_HEAD_DIM; d += LANES) {
            vf r[LANES];
            UNROLL
            for (int i = 0; i < LANES; i++)
                r[i] = row + i < a->n ? vf_load_bf16(q + (row + i) * PL_HEAD_DIM + d) : vf_zero();
            vf_transpose(r);
            UNROLL
            for (int i = 0; i < LANES; i++)
                vf_store(att_q(a, row, d + i), r[i]);
        }
}

static void store_output(const attend *a, const pl_weight_view *sink, int64_t h0, uint16_t *out)
{
    for (int h = 0; h < a->n; h++) {
        float base = a->m[h] == -INFINITY ? 0 : a->m[h];
        float den = a->l[h] + pl_exp_f32(pl__f32_at(sink, h0 + h) - base);

        for (int64_t d = 0; d < PL_HEAD_DIM; d += LANES)
            vf_store_bf16(out + h * PL_HEAD_DIM + d, vf_div(vf_load(att_o(a, h, d)), vf_set(den)));
    }
}

/* Heads h0 .. h0 + n - 1 of token t. */
static void attend_token(work *w, const pl_attention_args *a, int64_t t, int64_t h0, int32_t n)
{
    attend group = {.q = w->q[0][0],
                    .k = w->keys[0],
                    .v = w->keys[0],
                    .o = w->o,
                    .k_stride = STRIDE,
                    .v_stride = STRIDE,
                    .v_chunk = ATT_CHUNK,
                    .o_chunk = (int64_t)ATT_ROWS * ATT_CHUNK,
                    .dim = PL_HEAD_DIM,
                    .value_dim = PL_HEAD_DIM,
                    .n = n,
                    .scale = 0x1.6a09e6p-5f,
                    .s = w->s,
                    .m = w->m,
                    .l = w->l,
                    .alpha = w->alpha};
    int64_t at = (t * a->n_heads + h0) * PL_HEAD_DIM;
    int64_t n_entries = a->ratio ? ((int64_t)a->position[t] + 1) / a->ratio : 0;
    slots b;

    if (a->ratio && a->sel)
        n_entries = a->n_sel[t];
    load_queries(&group, (const uint16_t *)a->q + at);
    att_start(&group);
    for (int32_t first = 0; first < PL_WINDOW; first += ATT_BLOCK) {
        window_block(&b, a, t, first);
        add_block(&group, &b);
    }
    for (int64_t first = 0; first < n_entries; first += ATT_BLOCK) {
        entry_block(&b, a, t, first, n_entries);
        add_block(&group, &b);
    }
    store_output(&group, &a->sink, h0, (uint16_t *)a->o + at);
}

void PL__AT(attention)(const pl_op_env *env, const pl_attention_args *a, int64_t begin, int64_t end)
{
    for (int64_t u = begin; u < end;) {
        int64_t t = u / a->n_heads, h0 = u % a->n_heads, n = a->n_heads - h0;

        n = n > ATT_ROWS ? ATT_ROWS : n;
        n = n > end - u ? end - u : n;
        attend_token(env->scratch, a, t, h0, (int32_t)n);
        u += n;
    }
}
