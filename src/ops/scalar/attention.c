/* Level scalar: sparse attention with a sink over cache rows, and the rows themselves (NUMERICS 9).
 *
 * The heads of a token share each block of 64 keys, widened once. Lanes are keys for the scores and
 * dims for the sum of values: every chain stays whole. */
#include "ops/scalar/scalar.h"

#include <math.h>
#include <string.h>

#include "ops/quant.h"

enum { BLOCK = 64, HEADS = 8 }; /* slots of a block; heads that share a widened block */

#define SCALE 0x1.6a09e6p-5f /* fp32(512^-0.5) */

/* What one head carries from block to block. */
typedef struct head {
    float q[PL_HEAD_DIM], o[PL_HEAD_DIM];
    float m, l;
} head;

/* A block of keys: k-major for the scores, key-major for the values; zero where not visible. */
typedef struct block {
    float by_dim[PL_HEAD_DIM][BLOCK];
    float by_key[BLOCK][PL_HEAD_DIM];
    bool visible[BLOCK];
    bool any;
} block;

uint64_t pl__scalar_attention_scratch_bytes(void)
{
    return sizeof(block) + HEADS * sizeof(head);
}

void pl__scalar_kv_store(const pl_op_env *env, const pl_kv_store_args *a, int64_t begin,
                         int64_t end)
{
    for (int64_t r = begin; r < end; r++) {
        const uint16_t *kv = (const uint16_t *)a->kv + r * PL_HEAD_DIM;
        uint8_t *data = pl_rows_data(a->dest[r].rows, a->dest[r].index);
        uint8_t *scales = pl_rows_scales(a->dest[r].rows, a->dest[r].index);
        uint16_t rounded[PL_ROPE_DIM];
        float tail[PL_ROPE_DIM];

        for (int i = 0; i < PL_ROPE_DIM; i++)
            tail[i] = pl_bf16_to_f32(kv[PL_NOPE_DIM + i]);
        pl__scalar_rotate(&a->angles, r, false, tail);
        for (int i = 0; i < PL_ROPE_DIM; i++)
            rounded[i] = pl_f32_to_bf16(tail[i]);
        pl_quant_e4m3(kv, PL_NOPE_DIM, PL_KV_BLOCK, data, scales);
        memcpy(data + PL_NOPE_DIM, rounded, sizeof rounded);
        scales[PL_NOPE_DIM / PL_KV_BLOCK] = 0;
    }
}

void pl__scalar_kv_widen(const pl_rows *rows, int64_t i, float *out)
{
    const uint8_t *data = pl_rows_data(rows, i), *scales = pl_rows_scales(rows, i);
    uint16_t tail[PL_ROPE_DIM];

    for (int d = 0; d < PL_NOPE_DIM; d++)
        out[d] = pl_bf16_round(pl_e4m3_to_f32(data[d]) * pl_e8m0_to_f32(scales[d / PL_KV_BLOCK]));
    memcpy(tail, data + PL_NOPE_DIM, sizeof tail);
    for (int d = 0; d < PL_ROPE_DIM; d++)
        out[PL_NOPE_DIM + d] = pl_bf16_to_f32(tail[d]);
}

static void set_slot(block *b, int j, const pl_rows *rows, int64_t i)
{
    b->visible[j] = rows != NULL;
    if (rows) {
        b->any = true;
        pl__scalar_kv_widen(rows, i, b->by_key[j]);
    } else {
        memset(b->by_key[j], 0, sizeof b->by_key[j]);
    }
}

static void finish_block(block *b)
{
    for (int j = 0; j < BLOCK; j++)
        for (int d = 0; d < PL_HEAD_DIM; d++)
            b->by_dim[d][j] = b->by_key[j][d];
}

static void scores(const block *b, const float *q, float s[BLOCK])
{
    for (int j = 0; j < BLOCK; j++)
        s[j] = 0;
    for (int d = 0; d < PL_HEAD_DIM; d += 2)
        for (int j = 0; j < BLOCK; j++)
            s[j] = pl__pair(s[j], q[d], b->by_dim[d][j], q[d + 1], b->by_dim[d + 1][j]);
    for (int j = 0; j < BLOCK; j++)
        s[j] = s[j] * SCALE;
}

static float base_of(float m)
{
    return m == -INFINITY ? 0 : m;
}

static void add_block(head *h, const block *b)
{
    float s[BLOCK], p[BLOCK], m = h->m, base, alpha, sum;

    scores(b, h->q, s);
    for (int j = 0; j < BLOCK; j++)
        if (b->visible[j])
            m = pl_max_f32(s[j], m);
    base = base_of(m);
    alpha = pl_exp_f32(h->m - base);
    for (int j = 0; j < BLOCK; j++)
        p[j] = b->visible[j] ? pl_exp_f32(s[j] - base) : 0;
    sum = p[0];
    for (int j = 1; j < BLOCK; j++)
        sum = sum + p[j];
    h->l = h->l * alpha + sum;
    h->m = m;
    for (int d = 0; d < PL_HEAD_DIM; d++)
        h->o[d] = h->o[d] * alpha;
    for (int j = 0; j < BLOCK; j += 2) {
        float p0 = pl_bf16_round(p[j]), p1 = pl_bf16_round(p[j + 1]);
        for (int d = 0; d < PL_HEAD_DIM; d++)
            h->o[d] = pl__pair(h->o[d], p0, b->by_key[j][d], p1, b->by_key[j + 1][d]);
    }
}

/* Slots first .. first + 63 of the window: slot j is position P - 127 + j. */
static void window_block(block *b, const pl_attention_args *a, int64_t t, int32_t first)
{
    const pl_attention_seq *seq = &a->seqs[a->seq_of[t]];

    b->any = false;
    for (int j = 0; j < BLOCK; j++) {
        int32_t pos = a->position[t] - (PL_WINDOW - 1) + first + j;

        if (pos < 0)
            set_slot(b, j, NULL, 0);
        else if (pos < seq->start)
            set_slot(b, j, &seq->ring, pos % seq->ring_rows);
        else
            set_slot(b, j, &a->step, seq->first + (pos - seq->start));
    }
}

static void entry_block(block *b, const pl_attention_args *a, int64_t t, int64_t first, int64_t n)
{
    const pl_attention_seq *seq = &a->seqs[a->seq_of[t]];

    b->any = false;
    for (int64_t j = 0; j < BLOCK; j++) {
        int64_t i = first + j;

        if (i >= n)
            set_slot(b, (int)j, NULL, 0);
        else
            set_slot(b, (int)j, &seq->entries, a->sel ? a->sel[t * a->sel_stride + i] : i);
    }
}

static void add_to_heads(head *heads, int64_t n_heads, block *b)
{
    if (!b->any)
        return;
    finish_block(b);
    for (int64_t h = 0; h < n_heads; h++)
        add_block(&heads[h], b);
}

/* Heads h0 .. h0 + n - 1 of token t. */
static void attend(const pl_op_env *env, const pl_attention_args *a, int64_t t, int64_t h0,
                   int64_t n)
{
    block *b = env->scratch;
    head *heads = (head *)(b + 1);
    int64_t at = (t * a->n_heads + h0) * PL_HEAD_DIM;
    int64_t n_entries = a->ratio ? ((int64_t)a->position[t] + 1) / a->ratio : 0;

    if (a->ratio && a->sel)
        n_entries = a->n_sel[t];
    for (int64_t h = 0; h < n; h++) {
        heads[h].m = -INFINITY;
        heads[h].l = 0;
        for (int d = 0; d < PL_HEAD_DIM; d++) {
            heads[h].q[d] = pl_bf16_to_f32(((const uint16_t *)a->q)[at + h * PL_HEAD_DIM + d]);
            heads[h].o[d] = 0;
        }
    }
    for (int32_t first = 0; first < PL_WINDOW; first += BLOCK) {
        window_block(b, a, t, first);
        add_to_heads(heads, n, b);
    }
    for (int64_t first = 0; first < n_entries; first += BLOCK) {
        entry_block(b, a, t, first, n_entries);
        add_to_heads(heads, n, b);
    }
    for (int64_t h = 0; h < n; h++) {
        float sink = pl__f32_at(&a->sink, h0 + h);
        float den = heads[h].l + pl_exp_f32(sink - base_of(heads[h].m));

        for (int d = 0; d < PL_HEAD_DIM; d++)
            ((uint16_t *)a->o)[at + h * PL_HEAD_DIM + d] = pl_f32_to_bf16(heads[h].o[d] / den);
    }
}

void pl__scalar_attention(const pl_op_env *env, const pl_attention_args *a, int64_t begin,
                          int64_t end)
{
    for (int64_t u = begin; u < end;) {
        int64_t t = u / a->n_heads, h0 = u % a->n_heads, n = a->n_heads - h0;

        if (n > HEADS)
            n = HEADS;
        if (n > end - u)
            n = end - u;
        attend(env, a, t, h0, n);
        u += n;
    }
}
