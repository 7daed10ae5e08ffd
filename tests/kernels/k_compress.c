/* The compressor (ops/compress.h): kernels against level scalar, states included.
 *
 *     ratio 4 or 128, d dims, n tokens, start: position of the first, cut: where the tokens are cut into two calls
 *     fill  random, wide (every exponent), special (infinities and NaNs) */
#include "kernels/harness.h"

#include <stdio.h>
#include <string.h>

#include "base/numfmt.h"

typedef struct setup {
    int32_t ratio, d, n, start, cut;
    const char *fill;
    char word[16];
    kern_random r;
} setup;

static bool problem(const kern_op *op, int i, uint64_t seed, char *text)
{
    static const char *const fills[] = {"random", "wide", "special"};
    kern_random r = {seed * 7368787 + (uint64_t)i * 31};
    int ratio = i % 2 ? 4 : 128, n = (int)kern_below(&r, ratio == 4 ? 23 : 270);

    if (i >= 18)
        return false;
    snprintf(text, KERN_PROBLEM_BYTES, "%s ratio=%d d=%d n=%d start=%d cut=%d fill=%s seed=%llu",
             op->name, ratio, i % 3 ? 64 : 192, n, i < 6 ? 0 : (int)kern_below(&r, 500),
             (int)kern_below(&r, n + 1), fills[i % 3], (unsigned long long)(kern_u64(&r) >> 40));
    return true;
}

static float *values(setup *s, int64_t n)
{
    uint32_t *x = kern_alloc((size_t)n * 4 + 4, 4);

    for (int64_t i = 0; i < n; i++) {
        uint32_t exponent = (uint32_t)(120 + kern_below(&s->r, 10));

        if (strcmp(s->fill, "wide") == 0)
            exponent = (uint32_t)kern_below(&s->r, 255);
        if (strcmp(s->fill, "special") == 0 && kern_below(&s->r, 400) == 0)
            exponent = 255;
        x[i] = ((uint32_t)kern_u64(&s->r) & 0x807FFFFF) | exponent << 23;
    }
    return (float *)(void *)x;
}

typedef struct result {
    uint32_t *state;
    uint16_t *pooled;
    int64_t n_state, n_pooled;
} result;

/* `cut` tokens, then the others. */
static bool run(const kern_op *op, const char *text, const pl_ops *ops, bool whole, result *out,
                char *why)
{
    setup s = {.ratio = (int32_t)kern_int(text, "ratio", 4),
               .d = (int32_t)kern_int(text, "d", 64),
               .n = (int32_t)kern_int(text, "n", 8),
               .start = (int32_t)kern_int(text, "start", 0),
               .cut = whole ? 0 : (int32_t)kern_int(text, "cut", 0),
               .r = {(uint64_t)kern_int(text, "seed", 1)}};
    int64_t width = s.ratio == 4 ? 2 * (int64_t)s.d : s.d, done;
    pl_op_env env = {0};
    pl_compress_args a = {s.ratio, s.d, {.format = PL_WEIGHT_F32}, NULL};
    pl_compress_job job;
    const float *kv, *gate, *first;

    s.fill = kern_word(text, "fill", "random", s.word);
    if (!kern_check_keys(text, " ratio d n start cut fill seed ", why))
        return false;
    if ((s.ratio != 4 && s.ratio != 128) || s.d < 64 || s.d % 64 || s.d > 4096 || s.n < 0 ||
        s.n > 4096 || s.start < 0 || s.start > 1 << 20 || s.cut < 0 || s.cut > s.n) {
        snprintf(why, KERN_WHY_BYTES, "no such problem: values are outside of the contract");
        return false;
    }
    a.ape.data = values(&s, s.ratio * width);
    kv = values(&s, s.n * width);
    gate = values(&s, s.n * width);
    out->n_state = (int64_t)(ops->compress_state_bytes(s.ratio, s.d) / 4);
    out->n_pooled = ((s.start + s.n) / s.ratio - s.start / s.ratio) * (int64_t)s.d;
    out->state = kern_alloc((size_t)out->n_state * 4, 64);
    out->pooled = kern_alloc((size_t)out->n_pooled * 2 + 2, 2);
    first = values(&s, out->n_state); /* what came before the first token */
    memcpy(out->state, first, (size_t)out->n_state * 4);
    if (s.start == 0)
        ops->compress_reset(out->state, s.ratio, s.d);
    done = ((s.start + s.cut) / s.ratio - s.start / s.ratio) * (int64_t)s.d;
    a.jobs = &job;
    job = (pl_compress_job){out->state, kv, gate, s.cut, s.start, out->pooled};
    ops->compress(&env, &a, 0, s.d / PL_COMPRESS_TILE);
    job = (pl_compress_job){out->state,  kv + s.cut * width, gate + s.cut * width,
                            s.n - s.cut, s.start + s.cut,    out->pooled + done};
    for (int64_t u = 0; u < s.d / PL_COMPRESS_TILE; u++)
        ops->compress(&env, &a, u, u + 1);
    return true;
}

static bool check(const kern_op *op, const char *text, const pl_ops *ops, char *why,
                  int64_t *judged)
{
    result got, want;

    if (!run(op, text, pl_ops_scalar(), true, &want, why) || !run(op, text, ops, false, &got, why))
        return false;
    for (int64_t i = 0; i < got.n_state; i++) {
        uint32_t a = got.state[i], b = want.state[i];
        if (a != b && ((a & 0x7FFFFFFF) <= 0x7F800000 || (b & 0x7FFFFFFF) <= 0x7F800000)) {
            snprintf(why, KERN_WHY_BYTES, "state %lld: got 0x%08x, scalar has 0x%08x", (long long)i,
                     a, b);
            return false;
        }
    }
    for (int64_t i = 0; i < got.n_pooled; i++) {
        uint16_t a = got.pooled[i], b = want.pooled[i];
        if (a != b && ((a & 0x7FFF) <= 0x7F80 || (b & 0x7FFF) <= 0x7F80)) {
            snprintf(why, KERN_WHY_BYTES, "pooled %lld: got 0x%04x, scalar has 0x%04x",
                     (long long)i, a, b);
            return false;
        }
    }
    *judged += got.n_state + got.n_pooled;
    return true;
}

const kern_op kern_compress_ops[] = {
    {"compress", problem, check, 0},
    {0},
};
