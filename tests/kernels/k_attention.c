/* Sparse attention and the indexer (ops/attention.h, ops/indexer.h).
 *
 *     attention   m tokens, h heads, ratio 0, 4, 128, sel 1: entries by index
 *     index_topk  m tokens, h heads, topk, parts, scores 1: all scores wanted
 *     start       position of the first token      fill  random, nan (a lost block), huge (codes of 448, scales to
 *     split       units per call, 0: all in one          254), tiny (subnormal codes and scales, zeros)
 *
 * Rows that no query sees are NaN throughout. Attention is judged against double: |out - o*| <= 2^-8 |o*| +
 * (2^-8 + 2^-21) sum P |v|, 2^-8 being bf16's largest relative error of rounding, and what an error of 2^-20 scale
 * sum |q k| of the scores makes of that. */
#include "kernels/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numfmt.h"

enum { ATTENTION, TOPK, PAGE = 5, MAX_SEL = 200 };

/* Two sequences: tokens 0 .. n - 2 and the last one. */
typedef struct setup {
    pl_attention_args a;
    pl_index_topk_args x;
    pl_attention_seq seqs[2];
    int32_t n, n_entries, split;
    int64_t bytes;
    bool is_topk;
} setup;

static bool problem(const kern_op *op, int i, uint64_t seed, char *text)
{
    static const char *const fills[] = {"random", "random", "nan", "huge", "tiny"};
    static const int heads[] = {8, 64, 1, 3, 5, 17, 33, 40};
    static const int starts[] = {0, 3, 130, 700, 62, 1000};
    kern_random r = {seed * 7919 + (uint64_t)i * 131 + (uint64_t)op->kind};
    int m = i % 10 == 9 ? 0 : 1 + (int)kern_below(&r, 4), h = heads[i % 8];
    int start = starts[kern_below(&r, 6)], split = (int)kern_below(&r, 4);
    int ratio = (int)kern_below(&r, 3), flag = (int)kern_below(&r, 2), parts;
    unsigned long long s;

    if (i >= 40)
        return false;
    ratio = ratio == 2 ? 128 : 4 * ratio;
    s = kern_u64(&r) >> 40;
    parts = 1 + (int)kern_below(&r, 3);
    if (op->kind == ATTENTION)
        snprintf(text, KERN_PROBLEM_BYTES,
                 "%s m=%d h=%d start=%d ratio=%d sel=%d fill=%s split=%d seed=%llu", op->name, m, h,
                 start, ratio, flag, fills[i % 5], split, s);
    else
        snprintf(text, KERN_PROBLEM_BYTES,
                 "%s m=%d h=%d start=%d topk=%d parts=%d scores=%d fill=%s split=%d seed=%llu",
                 op->name, m, h, start, flag ? 16 : 200, parts, flag, fills[i % 5], split, s);
    return true;
}

/* ---- contents */

static pl_rows make_rows(int64_t n, const pl_ops *ops, bool keys)
{
    pl_rows rows = {.page_rows = PAGE,
                    .data_bytes = keys ? ops->key_data_bytes : ops->kv_data_bytes,
                    .scale_bytes = keys ? ops->key_scale_bytes : ops->kv_scale_bytes};
    int64_t pages = (n + PAGE) / PAGE;
    int64_t bytes;

    rows.page_bytes = pl_rows_page_bytes(PAGE, rows.data_bytes, rows.scale_bytes);
    bytes = pages * rows.page_bytes;
    rows.base = kern_alloc((size_t)bytes, 64);
    memset(rows.base, 0xFF, (size_t)bytes); /* NaN codes, NaN scales */
    return rows;
}

static uint8_t scale_of(kern_random *r, const char *fill)
{
    if (strcmp(fill, "huge") == 0)
        return (uint8_t)(240 + kern_below(r, 15));
    if (strcmp(fill, "tiny") == 0)
        return (uint8_t)kern_below(r, 12);
    if (strcmp(fill, "nan") == 0 && kern_below(r, 400) == 0)
        return 255;
    return (uint8_t)(116 + kern_below(r, 8));
}

static void fill_row(const pl_rows *rows, int64_t i, kern_random *r, const char *fill, bool key)
{
    uint8_t *data = pl_rows_data(rows, i), *scales = pl_rows_scales(rows, i);
    int codes = key ? PL_INDEX_DIM / 2 : PL_NOPE_DIM;

    for (int d = 0; d < codes; d++) {
        data[d] = (uint8_t)kern_u64(r);
        if (!key && strcmp(fill, "tiny") == 0)
            data[d] &= 0x87;
        if (!key && (data[d] & 0x7F) == 0x7F && (strcmp(fill, "nan") != 0 || kern_below(r, 9)))
            data[d] ^= 0x40;
    }
    for (int d = 0; d < PL_ROPE_DIM && !key; d++) {
        uint16_t v = (uint16_t)((kern_u64(r) & 0x807F) | (uint64_t)(120 + kern_below(r, 8)) << 7);
        if (strcmp(fill, "tiny") == 0)
            v &= 0x80FF;
        memcpy(data + PL_NOPE_DIM + 2 * d, &v, 2);
    }
    for (int b = 0; b < rows->scale_bytes; b++)
        scales[b] = scale_of(r, fill);
}

static void fill_act(uint16_t *x, int64_t n, kern_random *r, int low)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (uint16_t)((kern_u64(r) & 0x807F) | (uint64_t)(low + kern_below(r, 6)) << 7);
}

static int32_t *ints(int64_t n)
{
    return kern_alloc((size_t)(n ? n : 1) * sizeof(int32_t), sizeof(int32_t));
}

static void make_seqs(setup *s, const pl_ops *ops, int32_t start, int32_t ratio, kern_random *r,
                      const char *fill)
{
    int32_t n = s->n, *seq_of = ints(n), *position = ints(n);
    pl_rows step = make_rows(n, ops, false);

    for (int b = 0; b < 2; b++) {
        pl_attention_seq *q = &s->seqs[b];
        int64_t last = start + n + b, visible = ratio ? last / ratio : 0;

        *q = (pl_attention_seq){
            .first = b ? n - 1 : 0, .n = b ? 1 : n - 1, .start = start + 2 * b, .ring_rows = 131};
        q->ring = make_rows(q->ring_rows, ops, false);
        for (int32_t p = q->start > 127 ? q->start - 127 : 0; p < q->start; p++)
            fill_row(&q->ring, p % q->ring_rows, r, fill, false);
        q->entries = make_rows(visible, ops, false);
        q->keys = make_rows(visible, ops, true);
        for (int64_t i = 0; i < visible; i++) {
            fill_row(&q->entries, i, r, fill, false);
            fill_row(&q->keys, i, r, fill, true);
        }
    }
    for (int32_t t = 0; t < n; t++) {
        seq_of[t] = t == n - 1;
        position[t] = s->seqs[seq_of[t]].start + t - s->seqs[seq_of[t]].first;
        fill_row(&step, t, r, fill, false);
    }
    s->a.seqs = s->x.seqs = s->seqs;
    s->a.seq_of = s->x.seq_of = seq_of;
    s->a.position = s->x.position = position;
    s->a.step = step;
}

static void make_sel(setup *s, kern_random *r)
{
    int32_t *sel = ints((int64_t)s->n * MAX_SEL), *n_sel = ints(s->n);

    for (int32_t t = 0; t < s->n; t++) {
        int64_t visible = ((int64_t)s->a.position[t] + 1) / s->a.ratio;

        n_sel[t] = 0;
        for (int64_t i = 0; i < visible && n_sel[t] < MAX_SEL; i++)
            if (kern_below(r, 3))
                sel[t * MAX_SEL + n_sel[t]++] = (int32_t)i;
        for (int i = n_sel[t]; i < MAX_SEL; i++)
            sel[t * MAX_SEL + i] = -1;
    }
    s->a.sel = sel;
    s->a.n_sel = n_sel;
    s->a.sel_stride = MAX_SEL;
}

static bool set_up(const kern_op *op, const char *text, const pl_ops *ops, setup *s, char *why)
{
    kern_random r = {(uint64_t)kern_int(text, "seed", 1)};
    int32_t h = (int32_t)kern_int(text, "h", 8), start = (int32_t)kern_int(text, "start", 0);
    int32_t ratio = op->kind == TOPK ? 4 : (int32_t)kern_int(text, "ratio", 0);
    char fill[16];
    uint16_t *q;
    float *sink;

    memset(s, 0, sizeof *s);
    s->is_topk = op->kind == TOPK;
    if (!kern_check_keys(text, " m h start ratio sel topk parts scores fill split seed ", why))
        return false;
    s->n = (int32_t)kern_int(text, "m", 1);
    s->split = (int32_t)kern_int(text, "split", 0);
    if (s->n < 0 || s->n > 64 || h < 1 || h > 128 || start < 0 || start > 4096) {
        snprintf(why, KERN_WHY_BYTES, "no such problem: values are outside of the contract");
        return false;
    }
    kern_word(text, "fill", "random", fill);
    s->a.n_heads = s->x.n_heads = h;
    s->a.ratio = ratio;
    make_seqs(s, ops, start, ratio, &r, fill);
    q = kern_alloc((size_t)s->n * (size_t)h * PL_HEAD_DIM * 2 + 2, 2);
    fill_act(q, (int64_t)s->n * h * PL_HEAD_DIM, &r, 124);
    sink = kern_alloc((size_t)h * sizeof *sink, sizeof *sink);
    for (int32_t i = 0; i < h; i++)
        sink[i] = i % 5 == 4 ? -INFINITY : (float)kern_below(&r, 9) - 4;
    s->a.q = q;
    s->a.sink = (pl_weight_view){.format = PL_WEIGHT_F32, .rows = 1, .cols = h, .data = sink};
    if (ratio && kern_int(text, "sel", 0))
        make_sel(s, &r);
    s->x.w = q;
    s->x.factor = 0x1.6a09e6p-7f;
    s->x.topk = (int32_t)kern_int(text, "topk", 16);
    s->x.n_parts = (int32_t)kern_int(text, "parts", 1);
    s->x.scores_stride = kern_int(text, "scores", 0) ? 4 * 1100 : 0;
    s->x.query = make_rows((int64_t)s->n * h, ops, true);
    for (int64_t i = 0; i < (int64_t)s->n * h; i++)
        fill_row(&s->x.query, i, &r, fill, true);
    return true;
}

/* ---- running */

static uint8_t *run(setup *s, const pl_ops *ops)
{
    pl_ops_shape shape = {.max_k = 512, .topk = s->x.topk, .max_keys = 1400, .n_experts = 8};
    pl_op_env env = {.scratch = kern_alloc(ops->scratch_bytes(&shape), 64)};
    int64_t units = (int64_t)s->n * (s->is_topk ? s->x.n_parts : s->a.n_heads);
    int64_t step = s->split ? s->split : units, best = units * s->x.topk;
    uint8_t *out;

    if (!s->is_topk) {
        s->bytes = units * PL_HEAD_DIM * 2;
        out = s->a.o = kern_alloc((size_t)s->bytes + 2, 2);
        for (int64_t u = 0; u < units; u += step)
            ops->attention(&env, &s->a, u, u + step < units ? u + step : units);
        return out;
    }
    s->bytes = units * 4 + best * 8 + s->n * s->x.scores_stride;
    out = kern_alloc((size_t)s->bytes + 4, 4);
    s->x.n_best = (int32_t *)(void *)out;
    s->x.best = s->x.n_best + units;
    s->x.best_score = s->x.best + best;
    s->x.scores = s->x.scores_stride ? (float *)s->x.best_score + best : NULL;
    for (int64_t u = 0; u < units; u += step)
        ops->index_topk(&env, &s->x, u, u + step < units ? u + step : units);
    return out;
}

static bool same(const setup *s, const uint8_t *got, const uint8_t *want, char *why)
{
    for (int64_t i = 0; i + 2 <= s->bytes && !s->is_topk; i += 2) {
        uint16_t a = *(const uint16_t *)(got + i), b = *(const uint16_t *)(want + i);
        if (a != b && ((a & 0x7FFF) <= 0x7F80 || (b & 0x7FFF) <= 0x7F80)) {
            snprintf(why, KERN_WHY_BYTES, "unit %lld dim %lld: got 0x%04x, scalar has 0x%04x",
                     (long long)(i / 1024), (long long)(i / 2 % 512), a, b);
            return false;
        }
    }
    for (int64_t i = 0; i + 4 <= s->bytes && s->is_topk; i += 4) {
        uint32_t a = *(const uint32_t *)(const void *)(got + i);
        uint32_t b = *(const uint32_t *)(const void *)(want + i);
        if (a != b && ((a & 0x7FFFFFFF) <= 0x7F800000 || (b & 0x7FFFFFFF) <= 0x7F800000)) {
            snprintf(why, KERN_WHY_BYTES, "word %lld: got 0x%08x, scalar has 0x%08x",
                     (long long)(i / 4), a, b);
            return false;
        }
    }
    return true;
}

/* ---- the oracle of attention */

enum { MAX_KEYS = PL_WINDOW + 1200 };

/* Keys of token t as doubles, in any order; their number. */
static int collect(const setup *s, int64_t t, const pl_ops *ops, float (*keys)[PL_HEAD_DIM])
{
    const pl_attention_seq *seq = &s->a.seqs[s->a.seq_of[t]];
    int32_t at = s->a.position[t];
    int64_t entries = s->a.ratio ? (at + 1) / s->a.ratio : 0;
    int n = 0;

    for (int32_t p = at > 127 ? at - 127 : 0; p <= at; p++)
        if (p < seq->start)
            ops->kv_get(&seq->ring, p % seq->ring_rows, keys[n++]);
        else
            ops->kv_get(&s->a.step, seq->first + p - seq->start, keys[n++]);
    if (s->a.sel)
        entries = s->a.n_sel[t];
    for (int64_t i = 0; i < entries; i++)
        ops->kv_get(&seq->entries, s->a.sel ? s->a.sel[t * s->a.sel_stride + i] : i, keys[n++]);
    return n;
}

static bool judge_row(const setup *s, int64_t t, int64_t h, const float (*keys)[PL_HEAD_DIM], int n,
                      double *p, const uint16_t *out, char *why)
{
    const uint16_t *q = (const uint16_t *)s->a.q + (t * s->a.n_heads + h) * PL_HEAD_DIM;
    double sink = ((const float *)s->a.sink.data)[h], top = sink, den = 0, slack = 0;

    for (int j = 0; j < n; j++) {
        double sum = 0, size = 0;
        for (int d = 0; d < PL_HEAD_DIM; d++) {
            double x = (double)pl_bf16_to_f32(q[d]) * (double)keys[j][d];
            sum += x;
            size += fabs(x);
        }
        p[j] = sum / sqrt(512.0);
        size = size / sqrt(512.0) * 0x1p-20;
        top = p[j] > top ? p[j] : top;
        slack = size > slack ? size : slack;
    }
    for (int j = 0; j < n; j++)
        den += p[j] = exp(p[j] - top);
    den += exp(sink - top);
    for (int d = 0; d < PL_HEAD_DIM; d++) {
        double o = 0, size = 0, got = (double)pl_bf16_to_f32(out[d]), bound;
        for (int j = 0; j < n; j++) {
            o += p[j] / den * (double)keys[j][d];
            size += p[j] / den * fabs((double)keys[j][d]);
        }
        bound = 0x1p-8 * fabs(o) + (0x1p-8 + 0x1p-21 + 2 * slack) * size + 0x1p-120;
        if (!(fabs(got - o) <= bound)) {
            snprintf(why, KERN_WHY_BYTES,
                     "token %lld, head %lld, dim %d: got %.9g, want %.9g within %.3g", (long long)t,
                     (long long)h, d, got, o, bound);
            return false;
        }
    }
    return true;
}

static bool judge(const setup *s, const pl_ops *ops, const uint8_t *out, char *why, int64_t *judged)
{
    float(*keys)[PL_HEAD_DIM] = malloc(sizeof *keys * MAX_KEYS);
    double *p = malloc(sizeof *p * MAX_KEYS);
    bool good = keys && p;

    for (int64_t t = 0; t < s->n && good; t++) {
        int n = collect(s, t, ops, keys);
        for (int64_t h = 0; h < s->a.n_heads && good; h++) {
            good = judge_row(
                s, t, h, (const float(*)[PL_HEAD_DIM])keys, n, p,
                (const uint16_t *)(const void *)out + (t * s->a.n_heads + h) * PL_HEAD_DIM, why);
            *judged += PL_HEAD_DIM;
        }
    }
    free(keys);
    free(p);
    return good;
}

static bool check(const kern_op *op, const char *text, const pl_ops *ops, char *why,
                  int64_t *judged)
{
    char fill[16];
    setup s;
    uint8_t *want, *got;

    if (!set_up(op, text, ops, &s, why))
        return false;
    want = run(&s, pl_ops_scalar());
    if (ops == pl_ops_scalar()) { /* whole against split */
        s.split = s.split == 1 ? 0 : 1;
        kern_word(text, "fill", "random", fill);
        if (!s.is_topk && strcmp(fill, "random") == 0 && !judge(&s, ops, want, why, judged))
            return false;
    }
    got = run(&s, ops);
    *judged += s.bytes;
    return same(&s, got, want, why);
}

const kern_op kern_attention_ops[] = {
    {"attention", problem, check, ATTENTION},
    {"index_topk", problem, check, TOPK},
    {0},
};
