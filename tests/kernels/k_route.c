/* The router (ops/moe.h).
 *
 *     m tokens, e experts, top chosen, hash: by the token's table, split: units per call, 0: all in one
 *     fill  random, ties (few different logits and biases), special (infinities, NaNs, denormals, and logits whose
 *           exponential underflows)
 *
 * Scalar against double and against the definition: scores within 2^-21, 0 where the exponential is below the
 * smallest normal float32 (docs/NUMERICS.md 6), ids the first of the total order, which has the larger first, ties to
 * the lower id, and NaN as -infinity. */
#include "kernels/harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/numfmt.h"

#define SMALLEST_LOG (-0x1.5d589ep+6) /* ln 2^-126: below it the definition's exponential is 0 */

enum { VOCAB = 9, MAX_EXPERTS = 512, MAX_TOP = 64 };

typedef struct setup {
    pl_route_args a;
    int32_t m, split;
    char fill[16];
    float *logits, *score;
} setup;

static bool problem(const kern_op *op, int i, uint64_t seed, char *text)
{
    static const char *const fills[] = {"random", "ties", "special"};
    static const int experts[] = {256, 384, 70, 8, 13, 1};
    kern_random r = {seed * 6997 + (uint64_t)i * 41};
    int e = experts[i % 6], top = 1 + (int)kern_below(&r, i % 4 == 3 ? 40 : 8);

    if (i >= 24)
        return false;
    snprintf(text, KERN_PROBLEM_BYTES, "%s m=%d e=%d top=%d hash=%d fill=%s split=%d seed=%llu",
             op->name, i % 8 == 7 ? 0 : 1 + (int)kern_below(&r, 6), e, top > e ? e : top,
             i % 5 == 4, fills[i % 3], (int)kern_below(&r, 3),
             (unsigned long long)(kern_u64(&r) >> 40));
    return true;
}

static float number(const setup *s, kern_random *r)
{
    static const float deep[] = {-87.0f,  -87.3f,  -87.4f,  -88.0f,
                                 -103.0f, -217.0f, -745.0f, -1400.0f};

    if (strcmp(s->fill, "ties") == 0)
        return (float)kern_below(r, 4) - 1.5f;
    if (strcmp(s->fill, "special") == 0 && kern_below(r, 8) == 0)
        return deep[kern_below(r, sizeof deep / sizeof *deep)];
    if (strcmp(s->fill, "special") == 0 && kern_below(r, 8) == 0)
        return pl_f32_from_bits((uint32_t)kern_u64(r) | (kern_below(r, 2) ? 0x7F800000 : 0));
    return pl_f32_from_bits(((uint32_t)kern_u64(r) & 0x807FFFFF) |
                            (uint32_t)(118 + kern_below(r, 14)) << 23);
}

static bool set_up(const char *text, setup *s, char *why)
{
    kern_random r = {(uint64_t)kern_int(text, "seed", 1)};
    int64_t e, top;
    float *bias;
    int64_t *table;
    int32_t *tokens;

    memset(s, 0, sizeof *s);
    if (!kern_check_keys(text, " m e top hash fill split seed ", why))
        return false;
    kern_word(text, "fill", "random", s->fill);
    s->m = (int32_t)kern_int(text, "m", 1);
    s->split = (int32_t)kern_int(text, "split", 0);
    e = kern_int(text, "e", 8);
    top = kern_int(text, "top", 1);
    if (s->m < 0 || s->m > 64 || e < 1 || e > MAX_EXPERTS || top < 1 || top > e || top > MAX_TOP) {
        snprintf(why, KERN_WHY_BYTES, "no such problem: values are outside of the contract");
        return false;
    }
    s->a.n_experts = (int32_t)e;
    s->a.top_k = (int32_t)top;
    s->a.by_token = kern_int(text, "hash", 0) != 0;
    s->logits = kern_alloc((size_t)(s->m * e) * 4 + 4, 4);
    bias = kern_alloc((size_t)e * 4, 4);
    table = kern_alloc((size_t)(VOCAB * top) * 8, 8);
    tokens = kern_alloc((size_t)(s->m + 1) * 4, 4);
    for (int64_t i = 0; i < s->m * e; i++)
        s->logits[i] = number(s, &r);
    for (int64_t i = 0; i < e; i++)
        bias[i] = number(s, &r);
    for (int64_t i = 0; i < VOCAB * top; i++)
        table[i] = kern_below(&r, e);
    for (int32_t i = 0; i < s->m; i++)
        tokens[i] = (int32_t)kern_below(&r, VOCAB);
    s->a.bias = (pl_weight_view){.format = PL_WEIGHT_F32, .rows = 1, .cols = e, .data = bias};
    s->a.table =
        (pl_weight_view){.format = PL_WEIGHT_I64, .rows = VOCAB, .cols = top, .data = table};
    s->a.tokens = tokens;
    kern_protect(bias);
    return true;
}

static void run(setup *s, const pl_ops *ops)
{
    const int64_t step = s->split ? s->split : s->m + 1;
    const size_t bytes = (size_t)(s->m * s->a.n_experts) * 4;
    const pl_op_env env = {.scratch = kern_alloc(MAX_TOP * 16, 64)};

    s->a.score = s->score = kern_alloc(bytes + 4, 4);
    s->a.ids = kern_alloc((size_t)(s->m * s->a.top_k) * 4 + 4, 4);
    memcpy(s->score, s->logits, bytes);
    for (int64_t t = 0; t < s->m; t += step)
        ops->route(&env, &s->a, t, t + step < s->m ? t + step : s->m);
}

static float sum_of(const setup *s, int32_t t, int32_t e)
{
    float x = s->score[t * s->a.n_experts + e] + ((const float *)s->a.bias.data)[e];

    return isnan(x) ? -INFINITY : x;
}

static bool judge(const setup *s, char *why)
{
    const int32_t n = s->a.n_experts;

    for (int32_t t = 0; t < s->m; t++) {
        for (int32_t e = 0; e < n; e++) {
            double x = (double)pl_f32_flush(s->logits[t * n + e]);
            double power = x < SMALLEST_LOG ? 0 : exp(x);
            double got = (double)s->score[t * n + e], want = sqrt(x > 20 ? x : log1p(power));
            if (isnan(x) ? !isnan(got) : !(got == want || fabs(got - want) <= want * 0x1p-21)) {
                snprintf(why, KERN_WHY_BYTES, "token %d, expert %d: score %.9g, want %.9g", t, e,
                         got, want);
                return false;
            }
        }
        for (int32_t i = 0; i < s->a.top_k; i++) {
            int32_t id = s->a.ids[t * s->a.top_k + i], better = 0;
            bool good;
            for (int32_t e = 0; e < n; e++)
                better += sum_of(s, t, e) > sum_of(s, t, id) ||
                          (sum_of(s, t, e) == sum_of(s, t, id) && e < id);
            good = s->a.by_token
                       ? id == ((const int64_t *)
                                    s->a.table.data)[s->a.tokens[t] * (int64_t)s->a.top_k + i]
                       : better == i;
            if (!good) {
                snprintf(why, KERN_WHY_BYTES, "token %d: expert %d at place %d", t, id, i);
                return false;
            }
        }
    }
    return true;
}

static bool check(const kern_op *op, const char *text, const pl_ops *ops, char *why,
                  int64_t *judged)
{
    setup want, got;

    if (!set_up(text, &want, why))
        return false;
    got = want;
    want.split = 0;
    run(&want, pl_ops_scalar());
    if (ops == pl_ops_scalar()) {
        got.split = 1;
        if (!judge(&want, why))
            return false;
    }
    run(&got, ops);
    *judged += (int64_t)got.m * got.a.n_experts;
    for (int64_t i = 0; i < (int64_t)got.m * got.a.n_experts; i++)
        if (pl_f32_bits(got.score[i]) != pl_f32_bits(want.score[i]) &&
            !(isnan(got.score[i]) && isnan(want.score[i]))) {
            snprintf(why, KERN_WHY_BYTES, "score %lld: got %.9g, scalar has %.9g", (long long)i,
                     (double)got.score[i], (double)want.score[i]);
            return false;
        }
    for (int64_t i = 0; i < (int64_t)got.m * got.a.top_k; i++)
        if (got.a.ids[i] != want.a.ids[i]) {
            snprintf(why, KERN_WHY_BYTES, "id %lld: got %d, scalar has %d", (long long)i,
                     got.a.ids[i], want.a.ids[i]);
            return false;
        }
    return true;
}

const kern_op kern_route_ops[] = {{"route", problem, check, 0}, {0}};
