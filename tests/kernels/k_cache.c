/* Rows of caches: put, got back, and the model's own store (ops/cache_rows.h, ops/attention.h).
 *
 *     m rows of the list, page rows of a page, split: units per call, 0: all in one
 *     fill  random, wide (every exponent: scales at their floor, products that are flushed or overflow), special
 *           (infinities and NaNs in x; codes and scales of any bits in the cache)
 *
 * Lists name slots twice and skip some; the rest of the pages, and the gaps behind them, stay as they were. Scalar against
 * double: a scale is the smallest power of two that its block needs, a code the nearest; what is read is code times
 * scale within half a step of bf16. */
#include "kernels/harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/numfmt.h"

enum { PUT_BF16, PUT_V4, PUT_V32, GET_BF16, GET_V4, GET_V32, STORE, GAP = 6, SLOTS = 40 };

typedef struct setup {
    int kind;
    int32_t m, page, split;
    char fill[16];
    kern_random r;
    pl_cache_move_args a;
    uint16_t *in; /* x of put and store */
    uint8_t *out;
    int64_t bytes; /* of out */
} setup;

static bool problem(const kern_op *op, int i, uint64_t seed, char *text)
{
    static const char *const fills[] = {"random", "wide", "special"};
    static const int pages[] = {1, 3, 64, 7};
    kern_random r = {seed * 7919 + (uint64_t)i * 37 + (uint64_t)op->kind};
    int m = i % 6 == 5 ? 0 : 1 + (int)kern_below(&r, 24);

    if (i >= 12)
        return false;
    snprintf(text, KERN_PROBLEM_BYTES, "%s m=%d page=%d fill=%s split=%d seed=%llu", op->name, m,
             pages[kern_below(&r, 4)], fills[i % 3], (int)kern_below(&r, 4),
             (unsigned long long)(kern_u64(&r) >> 40));
    return true;
}

static uint16_t number(setup *s)
{
    uint16_t x = (uint16_t)(kern_u64(&s->r) & 0x807F);
    int exponent = 118 + (int)kern_below(&s->r, 10);

    if (strcmp(s->fill, "wide") == 0)
        exponent = (int)kern_below(&s->r, 255);
    if (strcmp(s->fill, "special") == 0 && kern_below(&s->r, 200) == 0)
        exponent = 255;
    return (uint16_t)(x | exponent << 7);
}

static void fill_row(setup *s, int64_t slot)
{
    const pl_cache_rows *rows = &s->a.rows;
    pl_cache_row row = pl_cache_row_at(rows, slot);
    int32_t coded = pl_cache_coded_dims(rows->format);
    bool any = strcmp(s->fill, "special") == 0;

    for (int32_t d = 0; d < coded; d++) {
        row.data[d] = (uint8_t)kern_u64(&s->r);
        if (!any && (row.data[d] & 0x7F) == 0x7F)
            row.data[d] ^= 1;
    }
    for (int32_t d = coded; d < rows->dim; d++) {
        uint16_t v = number(s);
        memcpy((coded ? row.tail : row.data) + 2 * (d - coded), &v, sizeof v);
    }
    for (int b = 0; b < 8 && rows->format == PL_CACHE_V4; b++)
        row.scales[b] =
            (uint8_t)(any                            ? kern_u64(&s->r)
                      : strcmp(s->fill, "wide") == 0 ? (uint64_t)kern_below(&s->r, 255)
                                                     : 60 + (uint64_t)kern_below(&s->r, 120));
    for (int b = 0; b < 4 && rows->format == PL_CACHE_V32; b++) {
        uint32_t u = (uint32_t)kern_u64(&s->r);
        if (!any)
            u = (u & 0x807FFFFF) | (uint32_t)(60 + kern_below(&s->r, 120)) << 23;
        if (b % 2)
            u &= 0x7F800000; /* a power of two */
        memcpy(row.scales + 4 * b, &u, sizeof u);
    }
}

static bool set_up(const kern_op *op, const char *text, setup *s, char *why)
{
    static const pl_cache_format formats[] = {PL_CACHE_BF16, PL_CACHE_V4, PL_CACHE_V32};
    const int kind = op->kind;
    int32_t *slots;
    int64_t pages, size;
    uint8_t *base;

    *s = (setup){.kind = kind, .r = {(uint64_t)kern_int(text, "seed", 1)}};
    if (!kern_check_keys(text, " m page fill split seed ", why))
        return false;
    s->m = (int32_t)kern_int(text, "m", 1);
    s->page = (int32_t)kern_int(text, "page", 1);
    s->split = (int32_t)kern_int(text, "split", 0);
    kern_word(text, "fill", "random", s->fill);
    if (s->m < 0 || s->m > 4096 || s->page < 1 || s->page > SLOTS * 2) {
        snprintf(why, KERN_WHY_BYTES, "no such problem: values are outside of the contract");
        return false;
    }
    s->a.rows.format = kind == STORE ? PL_CACHE_V4 : formats[kind % 3];
    s->a.rows.dim = s->a.rows.format == PL_CACHE_V4 ? PL_HEAD_DIM : PL_CACHE_MAX_DIM;
    s->a.rows.page_rows = s->page;
    s->a.rows.page_bytes = s->page * pl_cache_row_bytes(s->a.rows.format, s->a.rows.dim) + GAP;
    s->a.rows.n = SLOTS;
    s->a.x_stride = kind == STORE ? PL_HEAD_DIM : s->a.rows.dim + kern_below(&s->r, 3);
    pages = (SLOTS + s->page - 1) / s->page;
    size = pages * s->a.rows.page_bytes;
    base = kern_alloc((size_t)size, 2);
    s->a.rows.base = base;
    slots = kern_alloc((size_t)(s->m + 1) * sizeof *slots, sizeof *slots);
    for (int32_t i = 0; i < s->m; i++)
        slots[i] = (int32_t)kern_below(&s->r, SLOTS + 4) - (kind == STORE ? 4 : 0);
    for (int32_t i = 0; i < s->m; i++)
        slots[i] = kind == STORE ? (slots[i] < 0 ? 0 : slots[i]) : slots[i] < SLOTS ? slots[i] : -1;
    s->a.slots = slots;
    if (kind >= GET_BF16 && kind <= GET_V32) {
        for (int64_t i = 0; i < SLOTS; i++)
            fill_row(s, i);
        kern_protect(base);
        s->bytes = (s->m ? (s->m - 1) * s->a.x_stride + s->a.rows.dim : 0) * 2;
    } else {
        s->in = kern_alloc((size_t)(s->m * s->a.x_stride) * 2 + 2, 2);
        for (int64_t i = 0; i < s->m * s->a.x_stride; i++)
            s->in[i] = number(s);
        kern_protect(s->in);
        s->bytes = size;
    }
    return true;
}

/* The model's store by the same list: rows of planar pages. */
static void run_store(setup *s, const pl_ops *ops, int64_t step)
{
    pl_rows rows = {s->a.rows.base, s->a.rows.page_bytes, s->page, 576, 8};
    float *cosines = kern_alloc((size_t)(s->m * PL_ROPE_PAIRS) * 4 + 4, 4);
    float *sines = kern_alloc((size_t)(s->m * PL_ROPE_PAIRS) * 4 + 4, 4);
    pl_row_dest *dest = kern_alloc((size_t)(s->m + 1) * sizeof *dest, _Alignof(pl_row_dest));
    const pl_kv_store_args a = {s->in, {cosines, sines}, dest};
    const pl_op_env env = {0};
    kern_random r = {7};

    for (int64_t i = 0; i < s->m * PL_ROPE_PAIRS; i++) {
        double angle = (double)kern_below(&r, 1000) * 0.01;
        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
    for (int32_t i = 0; i < s->m; i++)
        dest[i] = (pl_row_dest){&rows, s->a.slots[i]};
    for (int64_t u = 0; u < s->m; u += step)
        ops->kv_store(&env, &a, u, u + step < s->m ? u + step : s->m);
}

static void run(setup *s, const pl_ops *ops)
{
    const pl_op_env env = {0};
    const int64_t step = s->split ? s->split : s->m + 1;

    if (s->kind >= GET_BF16 && s->kind <= GET_V32) {
        s->a.x = kern_alloc((size_t)s->bytes + 2, 2);
        s->out = (uint8_t *)s->a.x;
        for (int64_t u = 0; u < s->m; u += step)
            ops->cache_get(&env, &s->a, u, u + step < s->m ? u + step : s->m);
        return;
    }
    s->a.rows.base = s->out = kern_alloc((size_t)s->bytes, 2);
    s->a.x = s->in;
    if (s->kind == STORE) {
        run_store(s, ops, step);
        return;
    }
    for (int64_t u = 0; u < s->m; u += step)
        ops->cache_put(&env, &s->a, u, u + step < s->m ? u + step : s->m);
}

/* ---- the oracle */

static double scale_at(const setup *s, const pl_cache_row *row, int32_t d)
{
    float f;

    if (s->a.rows.format == PL_CACHE_V4)
        return ldexp(1, row->scales[d / PL_KV_BLOCK] - 127);
    memcpy(&f, row->scales + d / PL_V32_BLOCK * 4, sizeof f);
    return (double)f;
}

/* x became codes of this row, or was read from it. */
static bool judge_row(const setup *s, int64_t slot, const uint16_t *x, char *why)
{
    const pl_cache_row row = pl_cache_row_at(&s->a.rows, slot);
    const int32_t coded = pl_cache_coded_dims(s->a.rows.format);
    const int32_t block = s->a.rows.format == PL_CACHE_V4 ? PL_KV_BLOCK : PL_V32_BLOCK;
    const bool get = s->kind >= GET_BF16;

    for (int32_t d = 0; d < coded; d++) {
        double scale = scale_at(s, &row, d), top = 0, v = (double)pl_bf16_to_f32(x[d]);
        double code = (double)pl_e4m3_to_f32(row.data[d]) * scale;
        bool good;

        if (get) {
            good = fabs(v - code) <= fabs(code) * 0x1p-8;
        } else {
            for (int32_t i = d / block * block; i < (d / block + 1) * block; i++)
                top = fmax(top, fabs((double)pl_bf16_to_f32(x[i])));
            good = fabs(v - code) <= fmax(fabs(v) * 0x1p-4, scale * 0x1p-10) &&
                   fmax(top, 1e-4) <= 448 * scale * (1 + 0x1p-20) &&
                   fmax(top, 1e-4) > 224 * scale * (1 - 0x1p-20);
        }
        if (!good) {
            snprintf(why, KERN_WHY_BYTES, "slot %lld, dim %d: %.9g is stored as %.9g, scale %.9g",
                     (long long)slot, d, v, code, scale);
            return false;
        }
    }
    if (memcmp(coded ? row.tail : row.data, x + coded, (size_t)(s->a.rows.dim - coded) * 2) != 0) {
        snprintf(why, KERN_WHY_BYTES, "slot %lld: the part that is no codes", (long long)slot);
        return false;
    }
    return true;
}

static bool judge(const setup *s, char *why)
{
    for (int32_t i = 0; i < s->m; i++) {
        bool last = true;

        for (int32_t k = i + 1; k < s->m && s->kind < GET_BF16; k++)
            last &= s->a.slots[k] != s->a.slots[i];
        if (last && s->a.slots[i] >= 0 &&
            !judge_row(s, s->a.slots[i], s->a.x + i * s->a.x_stride, why))
            return false;
    }
    return true;
}

static bool same(const setup *got, const setup *want, char *why)
{
    const bool numbers = got->kind >= GET_BF16 && got->kind <= GET_V32;

    for (int64_t i = 0; i < got->bytes; i++) {
        if (got->out[i] == want->out[i])
            continue;
        if (numbers) { /* NaNs are one class */
            const uint16_t a = got->a.x[i / 2], b = want->a.x[i / 2];
            if ((a & 0x7FFF) > 0x7F80 && (b & 0x7FFF) > 0x7F80)
                continue;
        }
        snprintf(why, KERN_WHY_BYTES, "byte %lld: got 0x%02x, scalar has 0x%02x", (long long)i,
                 got->out[i], want->out[i]);
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
    want.split = 0;
    run(&want, pl_ops_scalar());
    if (ops == pl_ops_scalar()) {
        got.split = 1;
        if (op->kind != STORE && strcmp(want.fill, "random") == 0 && !judge(&want, why))
            return false;
    }
    run(&got, ops);
    *judged += got.bytes;
    return same(&got, &want, why);
}

const kern_op kern_cache_ops[] = {
    {"cache_put:bf16", problem, check, PUT_BF16}, {"cache_put:v4", problem, check, PUT_V4},
    {"cache_put:v32", problem, check, PUT_V32},   {"cache_get:bf16", problem, check, GET_BF16},
    {"cache_get:v4", problem, check, GET_V4},     {"cache_get:v32", problem, check, GET_V32},
    {"kv_store", problem, check, STORE},          {0},
};
