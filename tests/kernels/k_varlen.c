/* Attention over packed sequences (ops/varlen.h), every type.
 *
 *     m sequences, h heads, g heads of a key head, d and dv dims, causal, left: window, cap 1: soft cap 30, sinks, page
 *     rows of a page (0: packed), split: units per call, 0: all in one
 *     q     queries of the first sequence, which then has 70 keys: as many as make the largest tiles
 *     fill  random, wide (every exponent), special (infinities and NaNs), tiny (values whose products
 *           are flushed to zeros of both signs), spread (scores so far apart that some P are zero, some just not)
 *
 * Lengths come from the seed: empty ones, one token, more queries than keys. What no row sees is NaN: keys and values
 * outside of every window, the rest of a page, gaps between rows.
 *
 * Scalar against double on random fills: the LSE within 4e-6 + 2^-21 scale max_k sum |q k|, out within u |o*| + (u +
 * 2^-21) sum P |v| and what the error of the scores makes of it, u being 2^-8, 2^-11 and 2^-21 for the three types. */
#include "kernels/harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numfmt.h"

enum { MAX_SEQS = 5, MAX_TOKENS = 512, GAP = 8 };

typedef struct setup {
    pl_varlen_args a;
    int32_t cu_q[MAX_SEQS + 1], cu_k[MAX_SEQS + 1], split;
    int64_t out_bytes, lse_n;
    kern_random r;
    char fill[16];
    bool values; /* now filling */
} setup;

static bool problem(const kern_op *op, int i, uint64_t seed, char *text)
{
    static const char *const fills[] = {"random", "tiny", "random", "wide", "special"};
    static const int dims[] = {64, 128, 32, 40, 192, 64};
    kern_random r = {seed * 6151 + (uint64_t)i * 71 + (uint64_t)op->kind};
    int g = 1 << (i % 4), h, d, dv, causal, left, cap, sinks, page, split;

    if (i >= 22)
        return false;
    if (i >= 20) {
        snprintf(text, KERN_PROBLEM_BYTES, "%s m=2 h=%d g=%d d=%d dv=8 causal=%d q=%d fill=spread",
                 op->name, i == 20 ? 8 : 64, i == 20 ? 1 : 2, i == 20 ? 128 : 16, i == 21,
                 i == 20 ? 100 : 1030);
        return true;
    }
    h = g * (g < 8 ? 1 + (int)kern_below(&r, 2) : 1);
    d = i % 10 == 6 ? 512 : dims[kern_below(&r, 6)];
    dv = kern_below(&r, 3) ? d : dims[kern_below(&r, 6)];
    causal = (int)kern_below(&r, 2);
    left = kern_below(&r, 2) ? -1 : (int)kern_below(&r, 140);
    cap = kern_below(&r, 4) == 0;
    sinks = (int)kern_below(&r, 3);
    page = kern_below(&r, 2) ? 0 : 1 + (int)kern_below(&r, 70);
    split = (int)kern_below(&r, 3);
    snprintf(
        text, KERN_PROBLEM_BYTES,
        "%s m=%d h=%d g=%d d=%d dv=%d causal=%d left=%d cap=%d sinks=%d page=%d split=%d fill=%s "
        "seed=%llu",
        op->name, i % 10 == 9 ? 0 : 1 + i % 4, h, g, d, dv, causal, left, cap, sinks, page, split,
        fills[i % 5], (unsigned long long)(kern_u64(&r) >> 40));
    return true;
}

static int64_t size_of(pl_varlen_type type)
{
    return type == PL_VARLEN_F32 ? 4 : 2;
}

static float random_value(setup *s)
{
    uint32_t u = (uint32_t)kern_u64(&s->r);
    uint32_t exponent = 122 + u % 7;

    if (strcmp(s->fill, "wide") == 0)
        exponent = (u >> 8) % 255;
    if (strcmp(s->fill, "spread") == 0 && !s->values)
        exponent += 1 + (u >> 16) % 2;
    if (strcmp(s->fill, "tiny") == 0 && s->values)
        exponent = 1 + u % 2;
    if (strcmp(s->fill, "special") == 0 && u % 997 == 0)
        exponent = 255;
    return pl_f32_from_bits(((uint32_t)kern_u64(&s->r) & 0x807FFFFF) | exponent << 23);
}

static void put(const setup *s, void *x, int64_t i, float v)
{
    if (s->a.type == PL_VARLEN_F32)
        ((float *)x)[i] = v;
    else
        ((uint16_t *)x)[i] = s->a.type == PL_VARLEN_F16 ? pl_f32_to_f16(v) : pl_f32_to_bf16(v);
}

static float get(pl_varlen_type type, const void *x, int64_t i)
{
    return type == PL_VARLEN_F32   ? ((const float *)x)[i]
           : type == PL_VARLEN_F16 ? pl_f16_to_f32(((const uint16_t *)x)[i])
                                   : pl_bf16_to_f32(((const uint16_t *)x)[i]);
}

/* Whether any query of the sequence sees key j. */
static bool seen(const setup *s, int32_t b, int64_t j)
{
    for (int64_t i = 0; i < s->cu_q[b + 1] - s->cu_q[b]; i++) {
        int64_t begin, end;
        pl_varlen_visible(&s->a, b, i, &begin, &end);
        if (j >= begin && j < end)
            return true;
    }
    return false;
}

static pl_varlen_tensor tensor(setup *s, int64_t rows, int32_t heads, int32_t dim, int64_t pages)
{
    int64_t n, size = size_of(s->a.type);
    pl_varlen_tensor t = {.head_stride = dim + (kern_below(&s->r, 2) ? GAP : 0)};
    uint8_t *data;

    t.token_stride = heads * t.head_stride + (kern_below(&s->r, 2) ? GAP : 0);
    t.page_stride = s->a.page_rows * t.token_stride + GAP;
    n = pages ? pages * t.page_stride : rows * t.token_stride;
    data = kern_alloc((size_t)(n * size + 4), 4);
    memset(data, 0xFF, (size_t)(n * size + 4)); /* NaN in all types */
    t.data = data;
    return t;
}

static void fill_row(setup *s, void *row, int32_t dim)
{
    for (int32_t d = 0; d < dim; d++)
        put(s, row, d, random_value(s));
}

static void make_keys(setup *s, pl_varlen_tensor *t, int32_t dim)
{
    for (int32_t b = 0; b < s->a.n_seqs; b++)
        for (int64_t j = 0; j < s->cu_k[b + 1] - s->cu_k[b]; j++)
            for (int32_t h = 0; h < s->a.n_kv_heads && seen(s, b, j); h++)
                fill_row(s, (void *)(uintptr_t)pl_varlen_row(&s->a, t, b, j, h), dim);
}

static int64_t make_lengths(setup *s, int32_t first)
{
    int64_t pages = 0;

    for (int32_t b = 0; b < s->a.n_seqs; b++) {
        static const int queries[] = {1, 0, 3, 17, 35}, keys[] = {1, 64, 0, 130, 200, 63, 7};
        s->cu_q[b + 1] = s->cu_q[b] + (b == 0 && first ? first : queries[kern_below(&s->r, 5)]);
        s->cu_k[b + 1] = s->cu_k[b] + (b == 0 && first ? 70 : keys[kern_below(&s->r, 7)]);
    }
    s->a.cu_q = s->cu_q;
    s->a.cu_k = s->cu_k;
    if (s->a.page_rows) {
        int32_t *table;
        s->a.pages_stride = 200 / s->a.page_rows + 1;
        pages = s->a.n_seqs * s->a.pages_stride;
        table = kern_alloc((size_t)pages * sizeof *table + 4, sizeof *table);
        for (int64_t i = 0; i < pages; i++) /* scattered */
            table[i] = (int32_t)((i * 2 + 1) % (pages + 1 - pages % 2));
        s->a.pages = table;
        pages += 2;
    }
    return pages;
}

static bool set_up(const kern_op *op, const char *text, setup *s, char *why)
{
    pl_varlen_args *a = &s->a;
    int32_t group;
    int64_t pages;
    float *sink;

    memset(s, 0, sizeof *s);
    if (!kern_check_keys(text, " m h g d dv causal left cap sinks page split q fill seed ", why))
        return false;
    s->r.state = (uint64_t)kern_int(text, "seed", 1);
    kern_word(text, "fill", "random", s->fill);
    group = (int32_t)kern_int(text, "g", 1);
    s->split = (int32_t)kern_int(text, "split", 0);
    a->type = (pl_varlen_type)op->kind;
    a->n_seqs = (int32_t)kern_int(text, "m", 1);
    a->n_heads = (int32_t)kern_int(text, "h", 1);
    a->dim = (int32_t)kern_int(text, "d", 64);
    a->value_dim = (int32_t)kern_int(text, "dv", a->dim);
    if (a->n_seqs < 0 || a->n_seqs > MAX_SEQS || group < 1 || a->n_heads < 1 ||
        a->n_heads % group || a->n_heads > 64 || a->dim % 8 || a->value_dim % 8 || a->dim < 8 ||
        a->value_dim < 8 || a->dim > 512 || a->value_dim > 512) {
        snprintf(why, KERN_WHY_BYTES, "no such problem: values are outside of the contract");
        return false;
    }
    a->n_kv_heads = a->n_heads / group;
    a->page_rows = (int32_t)kern_int(text, "page", 0);
    a->left = (int32_t)kern_int(text, "left", -1);
    a->right = kern_int(text, "causal", 0) ? 0 : -1;
    a->scale = 1.0f / sqrtf((float)a->dim);
    a->cap = kern_int(text, "cap", 0) ? 30.0f : -1.0f;
    a->n_sinks = (int32_t)kern_int(text, "sinks", 0);
    pages = make_lengths(s, (int32_t)kern_int(text, "q", 0));
    a->q = tensor(s, s->cu_q[a->n_seqs], a->n_heads, a->dim, 0);
    a->k = tensor(s, s->cu_k[a->n_seqs], a->n_kv_heads, a->dim, pages);
    a->v = tensor(s, s->cu_k[a->n_seqs], a->n_kv_heads, a->value_dim, pages);
    for (int64_t t = 0; t < s->cu_q[a->n_seqs]; t++)
        for (int32_t h = 0; h < a->n_heads; h++)
            fill_row(s,
                     (uint8_t *)(uintptr_t)a->q.data +
                         (t * a->q.token_stride + h * a->q.head_stride) * size_of(a->type),
                     a->dim);
    make_keys(s, &a->k, a->dim);
    s->values = true;
    make_keys(s, &a->v, a->value_dim);
    sink = kern_alloc((size_t)(a->n_sinks * a->n_heads) * sizeof *sink + 4, sizeof *sink);
    for (int32_t i = 0; i < a->n_sinks * a->n_heads; i++)
        sink[i] = i % 7 == 6 ? -INFINITY : (float)kern_below(&s->r, 7) - 3;
    a->sink = sink;
    a->out_head_stride = a->value_dim;
    a->out_token_stride = a->n_heads * a->value_dim + GAP;
    a->lse_stride = s->cu_q[a->n_seqs];
    return true;
}

static void run(setup *s, const pl_ops *ops)
{
    pl_op_env env = {.scratch = kern_alloc(PL_VARLEN_SCRATCH_BYTES, 64)};
    int64_t units = pl_varlen_units(&s->a), step = s->split ? s->split : units;

    s->out_bytes = s->cu_q[s->a.n_seqs] * s->a.out_token_stride * size_of(s->a.type);
    s->lse_n = s->a.n_heads * s->a.lse_stride;
    s->a.out = kern_alloc((size_t)s->out_bytes + 4, 4);
    s->a.lse = kern_alloc((size_t)s->lse_n * sizeof(float) + 4, 4);
    for (int64_t u = 0; u < units; u += step)
        ops->attention_varlen(&env, &s->a, u, u + step < units ? u + step : units);
}

/* ---- the oracle */

/* Key j is seen where i + d - left <= j <= i + d + right, d being keys less queries: asked for each key. */
static void by_definition(const setup *s, int32_t b, int64_t i, int64_t *begin, int64_t *end)
{
    int64_t keys = s->cu_k[b + 1] - s->cu_k[b], d = keys - (s->cu_q[b + 1] - s->cu_q[b]);

    *begin = *end = 0;
    for (int64_t j = 0; j < keys; j++)
        if ((s->a.left == -1 || i + d - s->a.left <= j) &&
            (s->a.right == -1 || j <= i + d + s->a.right)) {
            *begin = *begin == *end ? j : *begin;
            *end = j + 1;
        }
}

static bool judge_row(const setup *s, int32_t b, int64_t i, int32_t h, double *p, char *why)
{
    static const double unit[] = {0x1p-8, 0x1p-11, 0x1p-21};
    const pl_varlen_args *a = &s->a;
    int64_t t = s->cu_q[b] + i, begin, end, size = size_of(a->type);
    int32_t kv = h / (a->n_heads / a->n_kv_heads);
    const uint8_t *q =
        (const uint8_t *)a->q.data + (t * a->q.token_stride + h * a->q.head_stride) * size;
    double top = -INFINITY, sum = 0, den, slack = 0, u = unit[a->type];
    double lse = (double)a->lse[h * a->lse_stride + t];

    by_definition(s, b, i, &begin, &end);
    for (int64_t j = begin; j < end; j++) {
        const void *k = pl_varlen_row(a, &a->k, b, j, kv);
        double dot = 0, magnitude = 0;
        for (int32_t d = 0; d < a->dim; d++) {
            double x = (double)get(a->type, q, d) * (double)get(a->type, k, d);
            dot += x;
            magnitude += fabs(x);
        }
        p[j] = dot * (double)a->scale;
        p[j] = a->cap > 0 ? (double)a->cap * tanh(p[j] / (double)a->cap) : p[j];
        magnitude *= 0x1p-21 * (double)a->scale;
        slack = magnitude > slack ? magnitude : slack;
        top = p[j] > top ? p[j] : top;
    }
    for (int64_t j = begin; j < end; j++)
        sum += p[j] = exp(p[j] - top);
    slack += 4e-6;
    if (begin < end ? !(fabs(lse - (top + log(sum))) <= slack) : !(lse < 0 && isinf(lse))) {
        snprintf(why, KERN_WHY_BYTES, "sequence %d, token %lld, head %d: LSE %.9g, want %.9g", b,
                 (long long)i, h, lse, begin < end ? top + log(sum) : -INFINITY);
        return false;
    }
    den = sum;
    for (int32_t r = 0; r < a->n_sinks && begin < end; r++)
        den += exp((double)a->sink[r * a->n_heads + h] - top);
    for (int32_t d = 0; d < a->value_dim; d++) {
        double o = 0, magnitude = 0, got;
        for (int64_t j = begin; j < end; j++) {
            double x = p[j] / den * (double)get(a->type, pl_varlen_row(a, &a->v, b, j, kv), d);
            o += x;
            magnitude += fabs(x);
        }
        got = (double)get(a->type, a->out, t * a->out_token_stride + h * a->out_head_stride + d);
        if (!(fabs(got - o) <= u * fabs(o) + (u + 0x1p-21 + 2 * slack) * magnitude + 0x1p-24)) {
            snprintf(why, KERN_WHY_BYTES,
                     "sequence %d, token %lld, head %d, dim %d: %.9g, want %.9g", b, (long long)i,
                     h, d, got, o);
            return false;
        }
    }
    return true;
}

static bool judge(const setup *s, char *why)
{
    double p[MAX_TOKENS];

    for (int32_t b = 0; b < s->a.n_seqs; b++)
        for (int64_t i = 0; i < s->cu_q[b + 1] - s->cu_q[b]; i++)
            for (int32_t h = 0; h < s->a.n_heads; h++)
                if (!judge_row(s, b, i, h, p, why))
                    return false;
    return true;
}

static bool same(const setup *got, const setup *want, char *why)
{
    const uint8_t *x = got->a.out, *y = want->a.out;
    int64_t size = size_of(got->a.type), n = got->out_bytes / size;

    for (int64_t i = 0; i < n; i++)
        if (memcmp(x + i * size, y + i * size, (size_t)size) != 0 &&
            !(isnan(get(got->a.type, x, i)) && isnan(get(got->a.type, y, i)))) {
            snprintf(why, KERN_WHY_BYTES, "token %lld, element %lld: got %.9g, scalar has %.9g",
                     (long long)(i / got->a.out_token_stride),
                     (long long)(i % got->a.out_token_stride), (double)get(got->a.type, x, i),
                     (double)get(got->a.type, y, i));
            return false;
        }
    for (int64_t i = 0; i < got->lse_n; i++)
        if (pl_f32_bits(got->a.lse[i]) != pl_f32_bits(want->a.lse[i]) &&
            !(isnan(got->a.lse[i]) && isnan(want->a.lse[i]))) {
            snprintf(why, KERN_WHY_BYTES, "LSE %lld: got %.9g, scalar has %.9g", (long long)i,
                     (double)got->a.lse[i], (double)want->a.lse[i]);
            return false;
        }
    return true;
}

static bool check(const kern_op *op, const char *text, const pl_ops *ops, char *why,
                  int64_t *judged)
{
    setup want, got;

    if (!set_up(op, text, &want, why))
        return false;
    got = want;
    want.a.cu_q = want.cu_q, want.a.cu_k = want.cu_k;
    got.a.cu_q = got.cu_q, got.a.cu_k = got.cu_k;
    kern_protect(want.a.q.data);
    kern_protect(want.a.k.data);
    kern_protect(want.a.v.data);
    want.split = 0;
    run(&want, pl_ops_scalar());
    if (ops == pl_ops_scalar()) {
        got.split = 1;
        if (strcmp(got.fill, "random") == 0 && !judge(&want, why))
            return false;
    }
    run(&got, ops);
    *judged += 1 + got.out_bytes;
    return same(&got, &want, why);
}

const kern_op kern_varlen_ops[] = {
    {"varlen_bf16", problem, check, PL_VARLEN_BF16},
    {"varlen_f16", problem, check, PL_VARLEN_F16},
    {"varlen_f32", problem, check, PL_VARLEN_F32},
    {0},
};
