/* Attention over keys listed by number (ops/sparse.h), every cache layout.
 *
 *     m tokens, h heads, n places of a list, extra places of the second list, page rows of a page, sink, split: units
 *     per call, 0: all in one
 *     fill  random, nan (codes and scales that are lost), huge (scores and values that overflow)
 *
 * Rows that no list names, the rest of a list behind its length, and gaps are NaN or point past the cache. Scalar against
 * double on random fills: LSE and largest logit within 4e-6 + 2^-21 scale max_k sum |q k|, out within 2^-8 |o*| +
 * (2^-8 + 2^-21) sum P |v| and what the error of the scores makes of it: 2^-8 is bf16's largest relative error of
 * rounding. */
#include "kernels/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numfmt.h"

enum { MAX_LIST = 200, ROWS = 150, GAP = 8, VALUE = PL_SPARSE_VALUE_DIM };

typedef struct setup {
    pl_sparse_args a;
    int32_t n, split;
    int64_t out_n, stats;
    kern_random r;
    char fill[16];
} setup;

static bool problem(const kern_op *op, int i, uint64_t seed, char *text)
{
    static const char *const fills[] = {"random", "nan", "random", "huge"};
    static const int heads[] = {8, 64, 1, 3, 33, 40}, lists[] = {64, 130, 1, 63, 192, 0};
    static const int pages[] = {1, 2, 53, 61, 64};
    kern_random r = {seed * 4243 + (uint64_t)i * 89 + (uint64_t)op->kind};
    int m = i % 8 == 7 ? 0 : 1 + (int)kern_below(&r, 3), n = lists[kern_below(&r, 6)];
    int extra = kern_below(&r, 2) ? lists[kern_below(&r, 6)] : -1;
    int page = pages[kern_below(&r, 5)], sink = (int)kern_below(&r, 2);
    int split = (int)kern_below(&r, 4);

    if (i >= 16)
        return false;
    snprintf(text, KERN_PROBLEM_BYTES,
             "%s m=%d h=%d n=%d extra=%d page=%d sink=%d split=%d fill=%s seed=%llu", op->name, m,
             heads[i % 6], n, extra, page, sink, split, fills[i % 4],
             (unsigned long long)(kern_u64(&r) >> 40));
    return true;
}

static uint16_t number(kern_random *r, int low)
{
    return (uint16_t)((kern_u64(r) & 0x807F) | (uint64_t)(low + kern_below(r, 6)) << 7);
}

static void fill_row(setup *s, const pl_cache_rows *rows, int64_t i)
{
    bool huge = strcmp(s->fill, "huge") == 0, nan = strcmp(s->fill, "nan") == 0;
    pl_cache_row row = pl_cache_row_at(rows, i);
    int32_t coded = pl_cache_coded_dims(rows->format);

    for (int32_t d = 0; d < coded; d++) {
        row.data[d] = (uint8_t)kern_u64(&s->r);
        if ((row.data[d] & 0x7F) == 0x7F && !(nan && kern_below(&s->r, 9) == 0))
            row.data[d] ^= 0x40;
    }
    for (int32_t d = coded; d < rows->dim; d++) {
        uint16_t v = number(&s->r, huge ? 240 : 120);
        memcpy((coded ? row.tail : row.data) + 2 * (d - coded), &v, 2);
    }
    for (int b = 0; b < 8 && rows->format == PL_CACHE_V4; b++)
        row.scales[b] = (uint8_t)(nan && kern_below(&s->r, 300) == 0 ? 255
                                  : huge                             ? 230 + kern_below(&s->r, 25)
                                                                     : 116 + kern_below(&s->r, 8));
    for (int b = 0; b < 4 && rows->format == PL_CACHE_V32; b++) {
        uint32_t exponent = (uint32_t)(huge ? 230 : 116) + (uint32_t)kern_below(&s->r, 8);
        float scale = pl_f32_from_bits((uint32_t)(kern_u64(&s->r) & 0x7FFFFF) | exponent << 23);
        if (nan && kern_below(&s->r, 200) == 0)
            scale = kern_below(&s->r, 2) ? NAN : 0x1p-130f;
        memcpy(row.scales + 4 * b, &scale, 4);
    }
}

static void make_set(setup *s, pl_sparse_set *set, pl_cache_format format, int32_t n, int32_t page)
{
    static const int32_t odd[] = {-1, -2147483647 - 1, ROWS, 2147480000};
    int32_t tokens = s->n > 0 ? s->n : 1, stride = n + 3, *list, *length;
    int64_t pages = (ROWS + page - 1) / page;

    set->rows = (pl_cache_rows){.format = format, .dim = s->a.dim, .page_rows = page, .n = ROWS};
    set->rows.page_bytes = page * pl_cache_row_bytes(format, s->a.dim) + GAP;
    set->rows.base = kern_alloc((size_t)(pages * set->rows.page_bytes), 2);
    memset(set->rows.base, 0xFF, (size_t)(pages * set->rows.page_bytes));
    list = kern_alloc((size_t)tokens * (size_t)stride * sizeof *list, sizeof *list);
    length = kern_alloc((size_t)tokens * sizeof *length, sizeof *length);
    for (int32_t t = 0; t < tokens; t++) {
        length[t] = t == 1 ? 0 : n - (int32_t)kern_below(&s->r, n / 2 + 1);
        for (int32_t i = 0; i < stride; i++) {
            int32_t slot = (int32_t)kern_below(&s->r, ROWS / 2) * 2; /* odd rows are never named */
            if (i >= length[t])                                      /* names a row that is lost */
                slot = 1;
            else if (kern_below(&s->r, 6) == 0)
                slot = odd[kern_below(&s->r, 4)];
            list[t * stride + i] = slot;
        }
    }
    for (int64_t i = 0; i < ROWS; i += 2)
        fill_row(s, &set->rows, i);
    set->index = list;
    set->index_stride = stride;
    set->n_index = n;
    set->length = length;
    kern_protect(set->rows.base);
}

static bool set_up(const kern_op *op, const char *text, setup *s, char *why)
{
    pl_sparse_args *a = &s->a;
    int32_t n, extra, page;
    uint16_t *q;
    float *sink;

    memset(s, 0, sizeof *s);
    if (!kern_check_keys(text, " m h n extra page sink split fill seed ", why))
        return false;
    s->r.state = (uint64_t)kern_int(text, "seed", 1);
    kern_word(text, "fill", "random", s->fill);
    s->n = (int32_t)kern_int(text, "m", 1);
    s->split = (int32_t)kern_int(text, "split", 0);
    n = (int32_t)kern_int(text, "n", 64);
    extra = (int32_t)kern_int(text, "extra", -1);
    page = (int32_t)kern_int(text, "page", 64);
    a->n_heads = (int32_t)kern_int(text, "h", 8);
    if (s->n < 0 || s->n > 8 || n < 0 || n > MAX_LIST || extra > MAX_LIST || page < 1 ||
        a->n_heads < 1 || a->n_heads > 128) {
        snprintf(why, KERN_WHY_BYTES, "no such problem: values are outside of the contract");
        return false;
    }
    a->dim = op->kind == PL_CACHE_V4 ? 512 : 576;
    a->scale = 1.0f / sqrtf((float)a->dim);
    a->q_head_stride = a->dim + (kern_below(&s->r, 2) ? GAP : 0);
    a->q_token_stride = a->n_heads * a->q_head_stride + GAP;
    q = kern_alloc((size_t)((s->n + 1) * a->q_token_stride) * 2, 2);
    memset(q, 0xFF, (size_t)((s->n + 1) * a->q_token_stride) * 2);
    for (int64_t i = 0; i < (int64_t)s->n * a->n_heads; i++)
        for (int32_t d = 0; d < a->dim; d++)
            q[i / a->n_heads * a->q_token_stride + i % a->n_heads * a->q_head_stride + d] =
                number(&s->r, 124);
    a->q = q;
    a->n_sets = extra >= 0 ? 2 : 1;
    a->length_tokens = 1;
    make_set(s, &a->set[0], (pl_cache_format)op->kind, n, page);
    if (extra >= 0)
        make_set(s, &a->set[1], kern_below(&s->r, 2) ? PL_CACHE_BF16 : (pl_cache_format)op->kind,
                 extra, 3);
    sink = kern_alloc((size_t)a->n_heads * sizeof *sink, sizeof *sink);
    for (int32_t i = 0; i < a->n_heads; i++)
        sink[i] = i % 7 == 6 ? -INFINITY : (float)kern_below(&s->r, 7) - 3;
    a->sink = kern_int(text, "sink", 0) ? sink : NULL;
    a->out_head_stride = VALUE;
    a->out_token_stride = a->n_heads * VALUE + GAP;
    a->stat_stride = s->n;
    return true;
}

static void run(setup *s, const pl_ops *ops)
{
    pl_op_env env = {.scratch = kern_alloc(PL_SPARSE_SCRATCH_BYTES, 64)};
    int64_t units = (int64_t)s->n * s->a.n_heads, step = s->split ? s->split : units;

    s->out_n = s->n * s->a.out_token_stride;
    s->stats = units;
    s->a.out = kern_alloc((size_t)s->out_n * 2 + 2, 2);
    s->a.lse = kern_alloc((size_t)s->stats * sizeof(float) + 4, 4);
    s->a.max_logits = kern_alloc((size_t)s->stats * sizeof(float) + 4, 4);
    for (int64_t u = 0; u < units; u += step)
        ops->attention_sparse(&env, &s->a, u, u + step < units ? u + step : units);
}

/* ---- the oracle */

/* Visible keys of token t, by the definition. */
static int visible(const setup *s, int64_t t, float (*keys)[PL_CACHE_MAX_DIM])
{
    int n = 0;

    for (int i = 0; i < s->a.n_sets; i++) {
        const pl_sparse_set *set = &s->a.set[i];
        for (int32_t j = 0; j < set->length[t]; j++) {
            int32_t slot = set->index[t * set->index_stride + j];
            if (slot >= 0 && slot < ROWS)
                pl_cache_row_widen(&set->rows, slot, keys[n++]);
        }
    }
    return n;
}

static bool judge_row(const setup *s, int64_t t, int32_t h, float (*keys)[PL_CACHE_MAX_DIM], int n,
                      char *why)
{
    const pl_sparse_args *a = &s->a;
    const uint16_t *q = a->q + t * a->q_token_stride + h * a->q_head_stride;
    const uint16_t *out = a->out + t * a->out_token_stride + h * a->out_head_stride;
    double p[2 * MAX_LIST], top = -INFINITY, sum = 0, den, slack = 0, want;
    double lse = (double)a->lse[h * a->stat_stride + t];
    double max = (double)a->max_logits[h * a->stat_stride + t];

    for (int j = 0; j < n; j++) {
        double magnitude = 0;
        p[j] = 0;
        for (int32_t d = 0; d < a->dim; d++) {
            double x = (double)pl_bf16_to_f32(q[d]) * (double)keys[j][d];
            p[j] += x;
            magnitude += fabs(x);
        }
        p[j] *= (double)a->scale;
        magnitude *= 0x1p-21 * (double)a->scale;
        slack = magnitude > slack ? magnitude : slack;
        top = p[j] > top ? p[j] : top;
    }
    for (int j = 0; j < n; j++)
        sum += p[j] = exp(p[j] - top);
    slack += 4e-6;
    want = n ? top + log(sum) : INFINITY;
    if (n ? !(fabs(lse - want) <= slack && fabs(max - top) <= slack)
          : !(lse > 0 && isinf(lse) && max < 0 && isinf(max))) {
        snprintf(why, KERN_WHY_BYTES,
                 "token %lld, head %d: LSE %.9g, want %.9g; logit %.9g, want %.9g", (long long)t, h,
                 lse, want, max, top);
        return false;
    }
    den = sum + (a->sink ? exp((double)a->sink[h] - top) : 0);
    for (int32_t d = 0; d < VALUE; d++) {
        double o = 0, magnitude = 0, got = (double)pl_bf16_to_f32(out[d]);
        for (int j = 0; j < n; j++) {
            double x = p[j] / den * (double)keys[j][d];
            o += x;
            magnitude += fabs(x);
        }
        if (!(fabs(got - o) <= 0x1p-8 * fabs(o) + (0x1p-8 + 0x1p-21 + 2 * slack) * magnitude)) {
            snprintf(why, KERN_WHY_BYTES, "token %lld, head %d, dim %d: %.9g, want %.9g",
                     (long long)t, h, d, got, o);
            return false;
        }
    }
    return true;
}

static bool judge(const setup *s, char *why)
{
    float(*keys)[PL_CACHE_MAX_DIM] = kern_alloc(2 * MAX_LIST * sizeof *keys, 64);

    for (int64_t t = 0; t < s->n; t++) {
        int n = visible(s, t, keys);
        for (int32_t h = 0; h < s->a.n_heads; h++)
            if (!judge_row(s, t, h, keys, n, why))
                return false;
    }
    return true;
}

static bool same_stats(const char *name, const float *x, const float *y, int64_t n, char *why)
{
    for (int64_t i = 0; i < n; i++)
        if (pl_f32_bits(x[i]) != pl_f32_bits(y[i]) && !(isnan(x[i]) && isnan(y[i]))) {
            snprintf(why, KERN_WHY_BYTES, "%s %lld: got %.9g, scalar has %.9g", name, (long long)i,
                     (double)x[i], (double)y[i]);
            return false;
        }
    return true;
}

static bool same(const setup *got, const setup *want, char *why)
{
    for (int64_t i = 0; i < got->out_n; i++) {
        float x = pl_bf16_to_f32(got->a.out[i]), y = pl_bf16_to_f32(want->a.out[i]);
        if (got->a.out[i] != want->a.out[i] && !(isnan(x) && isnan(y))) {
            snprintf(why, KERN_WHY_BYTES, "token %lld, element %lld: got %.9g, scalar has %.9g",
                     (long long)(i / got->a.out_token_stride),
                     (long long)(i % got->a.out_token_stride), (double)x, (double)y);
            return false;
        }
    }
    return same_stats("LSE", got->a.lse, want->a.lse, got->stats, why) &&
           same_stats("largest logit", got->a.max_logits, want->a.max_logits, got->stats, why);
}

static bool check(const kern_op *op, const char *text, const pl_ops *ops, char *why,
                  int64_t *judged)
{
    setup want, got;

    if (!set_up(op, text, &want, why))
        return false;
    got = want;
    kern_protect(want.a.q);
    want.split = 0;
    run(&want, pl_ops_scalar());
    if (ops == pl_ops_scalar()) {
        got.split = 1;
        if (strcmp(got.fill, "random") == 0 && !judge(&want, why))
            return false;
    }
    run(&got, ops);
    *judged += got.out_n;
    return same(&got, &want, why);
}

const kern_op kern_sparse_ops[] = {
    {"sparse_v4", problem, check, PL_CACHE_V4},
    {"sparse_v32", problem, check, PL_CACHE_V32},
    {"sparse_bf16", problem, check, PL_CACHE_BF16},
    {0},
};
