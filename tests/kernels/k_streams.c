/* Hyper-connections, norms, rotations, the gated unit and the experts' sum (ops/streams.h, norm.h, moe.h).
 *
 *     m tokens (or rows), d dims, h heads, split: units per call, 0: all in one
 *     fill  random, wide (every exponent, so that results overflow and are flushed), special (infinities and NaNs)
 *
 * The bits of scalar, whole and split; scalar itself is held to docs/NUMERICS.md by the unit tests. */
#include "kernels/harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/numfmt.h"

enum {
    DOTS,
    PRE,
    POST,
    HEAD,
    NORM,
    QNORM,
    UNROPE,
    SWIGLU,
    MOE_SUM,
    SWIGLU7,
    MAP,
    QUANTISE,
    INDEX_QUERY,
    KEY_STORE,
    ROPE,
    HADAMARD,
    S = PL_HC_MULT,
    TOP_K = 4
};

/* What the kernel writes, and the inputs of all operators. */
typedef struct setup {
    int kind;
    int32_t m, h, split;
    int64_t d, units;
    const char *fill;
    char word[16];
    kern_random r;
    uint8_t *out;     /* acc then act outputs */
    int64_t acc, act; /* their counts */
} setup;

static bool problem(const kern_op *op, int i, uint64_t seed, char *text)
{
    static const char *const fills[] = {"random", "wide", "special"};
    static const int dims[] = {128, 512, 1536, 136, 1152, 4096};
    kern_random r = {seed * 104729 + (uint64_t)i * 61 + (uint64_t)op->kind};
    int m = i % 9 == 8 ? 0 : 1 + (int)kern_below(&r, i % 4 == 3 ? 70 : 4);
    int d = dims[kern_below(&r, m > 4 ? 4 : 6)], h = 1 + (int)kern_below(&r, 9);
    int split = (int)kern_below(&r, 6);

    if (i >= 24)
        return false;
    if (op->kind != DOTS && i % 5 == 4)
        d += 3; /* no whole number of vectors */
    snprintf(text, KERN_PROBLEM_BYTES, "%s m=%d d=%d h=%d fill=%s split=%d seed=%llu", op->name, m,
             d, h, fills[i % 3], split, (unsigned long long)(kern_u64(&r) >> 40));
    return true;
}

static uint32_t random_float(setup *s, int low, int high)
{
    int exponent = low + (int)kern_below(&s->r, high - low);

    if (strcmp(s->fill, "wide") == 0)
        exponent = (int)kern_below(&s->r, 255);
    if (strcmp(s->fill, "special") == 0 && kern_below(&s->r, 300) == 0)
        exponent = 255;
    return ((uint32_t)kern_u64(&s->r) & 0x807FFFFF) | (uint32_t)exponent << 23;
}

static uint16_t *acts(setup *s, int64_t n)
{
    uint16_t *x = kern_alloc((size_t)n * 2 + 2, 2);

    for (int64_t i = 0; i < n; i++) {
        uint32_t u = random_float(s, 120, 131);
        x[i] = (uint16_t)(u >> 16);
        if ((x[i] & 0x7FFF) == 0x7F80 && kern_below(&s->r, 2)) /* both infinities and NaNs */
            x[i] |= 1;
    }
    return x;
}

static float *accs(setup *s, int64_t n)
{
    uint32_t *x = kern_alloc((size_t)n * 4 + 4, 4);

    for (int64_t i = 0; i < n; i++)
        x[i] = random_float(s, 119, 130);
    return (float *)(void *)x;
}

static pl_weight_view view(pl_weight_format format, int64_t rows, int64_t cols, const void *data)
{
    return (pl_weight_view){.format = format, .rows = rows, .cols = cols, .data = data};
}

static int32_t *some_rows(setup *s, int64_t n, int64_t below)
{
    int32_t *rows = kern_alloc((size_t)(n + 1) * 4, 4);

    for (int64_t i = 0; i < n; i++)
        rows[i] = (int32_t)kern_below(&s->r, below);
    return rows;
}

static int32_t *experts(setup *s)
{
    int32_t *ids = kern_alloc((size_t)s->m * TOP_K * 4 + 4, 4);

    for (int32_t t = 0; t < s->m; t++)
        for (int i = 0; i < TOP_K; i++)
            ids[t * TOP_K + i] = (int32_t)((i ? ids[t * TOP_K + i - 1] : 0) + kern_below(&s->r, 4));
    return ids;
}

/* Runs fn over all units in calls of `split`. */
#define EACH(fn, args)                                                                  \
    for (int64_t u = 0, step = s->split ? s->split : s->units; u < s->units; u += step) \
    (fn)(&env, args, u, u + step < s->units ? u + step : s->units)

static void outputs(setup *s, int64_t units, int64_t acc, int64_t act)
{
    s->units = units;
    s->acc = acc;
    s->act = act;
    s->out = kern_alloc((size_t)(4 * acc + 2 * act) + 16, 16);
}

static void run_streams(setup *s, const pl_ops *ops)
{
    pl_ops_shape shape = {.max_k = 4 * s->d, .topk = 8, .max_keys = 128, .n_experts = 16};
    pl_op_env env = {.scratch = kern_alloc(ops->scratch_bytes(&shape), 64)};
    int64_t m = s->m, d = s->d, k = s->h == 4 ? 4 : s->h == 1 ? 3 : PL_HC_OUT;
    const float *small = accs(s, PL_HC_OUT), *three = accs(s, 3);

    if (s->kind == DOTS) {
        const void *fn = accs(s, k * S * d);
        pl_hc_dots_args a = {.fn = view(PL_WEIGHT_F32, k, S * d, fn),
                             .x = acts(s, (m + 2) * S * d)};
        a.rows = s->h % 2 ? some_rows(s, m, m + 2) : NULL;
        outputs(s, m * (k + 1), m * (k + 1), 0);
        a.m = s->out;
        EACH(ops->hc_dots, &a);
    } else if (s->kind == PRE) {
        pl_hc_pre_args a = {view(PL_WEIGHT_F32, 1, PL_HC_OUT, small),
                            view(PL_WEIGHT_F32, 1, 3, three),
                            1e-6f,
                            1e-6f,
                            20,
                            d,
                            accs(s, m * (PL_HC_OUT + 1)),
                            acts(s, m * S * d),
                            NULL,
                            NULL,
                            NULL};
        outputs(s, m, m * (S + S * S), m * d);
        a.post = s->out;
        a.comb = s->out + 4 * m * S;
        a.y = s->out + 4 * m * (S + S * S);
        EACH(ops->hc_pre, &a);
    } else if (s->kind == POST) {
        const uint16_t *x = acts(s, m * S * d);
        pl_hc_post_args a = {d, acts(s, m * d), accs(s, m * S), accs(s, m * S * S), NULL};
        outputs(s, m, 0, m * S * d);
        memcpy(s->out, x, (size_t)(m * S * d) * 2);
        a.x = s->out;
        EACH(ops->hc_post, &a);
    } else {
        pl_hc_head_args a = {view(PL_WEIGHT_F32, 1, 4, small),
                             view(PL_WEIGHT_F32, 1, 1, three),
                             1e-6f,
                             1e-6f,
                             d,
                             accs(s, m * (S + 1)),
                             acts(s, (m + 1) * S * d),
                             some_rows(s, m, m + 1),
                             NULL};
        outputs(s, m, 0, m * d);
        a.y = s->out;
        EACH(ops->hc_head, &a);
    }
}

/* One page of as many rows as there are; keys in turned order. Compared as words. */
static void run_index_rows(setup *s, const pl_ops *ops, const pl_angles *angles)
{
    const int64_t n = s->kind == KEY_STORE ? s->m : (int64_t)s->m * s->h;
    pl_op_env env = {0};
    pl_rows rows = {
        .page_bytes = 68 * n, .page_rows = n ? (int32_t)n : 1, .data_bytes = 64, .scale_bytes = 4};
    const uint16_t *x = acts(s, n * PL_INDEX_DIM);
    pl_row_dest *dest = kern_alloc((size_t)n * sizeof *dest + 1, 16);
    pl_key_store_args key = {x, *angles, dest};
    pl_index_query_args query = {.n_heads = s->h, .q = x, .angles = *angles};

    outputs(s, n, 17 * n, 0);
    rows.base = s->out;
    query.out = rows;
    for (int64_t i = 0; i < n; i++)
        dest[i] = (pl_row_dest){&rows, n - 1 - i};
    if (s->kind == KEY_STORE)
        EACH(ops->key_store, &key);
    else
        EACH(ops->index_query, &query);
}

static void run_rows(setup *s, const pl_ops *ops)
{
    pl_op_env env = {0};
    int64_t m = s->m, d = s->d, heads = m * s->h;
    pl_angles angles = {accs(s, m * PL_ROPE_PAIRS), accs(s, m * PL_ROPE_PAIRS)};

    if (s->kind == NORM) {
        pl_rms_norm_args a = {.dim = d, .eps = 1e-6f, .x = acts(s, m * d)};
        a.w = view(PL_WEIGHT_BF16, 1, d, acts(s, d));
        outputs(s, m, 0, m * d);
        a.y = s->out;
        EACH(ops->rms_norm, &a);
    } else if (s->kind == QNORM || s->kind == UNROPE) {
        const uint16_t *x = acts(s, heads * PL_HEAD_DIM);
        pl_q_norm_rope_args q = {s->h, 1e-6f, angles, NULL};
        pl_unrope_args o = {s->h, angles, NULL};
        outputs(s, heads, 0, heads * PL_HEAD_DIM);
        memcpy(s->out, x, (size_t)(heads * PL_HEAD_DIM) * 2);
        q.q = o.o = s->out;
        if (s->kind == QNORM)
            EACH(ops->q_norm_rope, &q);
        else
            EACH(ops->unrope, &o);
    } else if (s->kind == QUANTISE) {
        int64_t whole = d / PL_QUANT_BLOCK * PL_QUANT_BLOCK, row = whole / PL_QUANT_BLOCK * 130;
        pl_quantise_args a = {whole, acts(s, m * d + 1), 2 * d, NULL, (row + 15) / 16 * 16};
        outputs(s, m, m * a.q_stride / 4, 0); /* compared as words, gaps included */
        memset(s->out, 0, (size_t)(m * a.q_stride));
        a.q = s->out;
        EACH(ops->quantise, &a);
    } else if (s->kind == INDEX_QUERY || s->kind == KEY_STORE) {
        run_index_rows(s, ops, &angles);
    } else if (s->kind == ROPE) {
        int64_t dim = PL_ROPE_DIM + d % 100, n = m * s->h * dim;
        const uint16_t *x = acts(s, n);
        pl_rope_args a = {s->h, (int32_t)dim, d % 2 == 0, angles, NULL, s->h * dim, dim};
        if (s->h % 2 == 0) { /* heads outermost */
            a.token_stride = dim;
            a.head_stride = m * dim;
        }
        outputs(s, m, 0, n);
        memcpy(s->out, x, (size_t)n * 2);
        a.x = s->out;
        EACH(ops->rope, &a);
    } else if (s->kind == HADAMARD) {
        pl_hadamard_args a = {acts(s, heads * PL_INDEX_DIM), NULL};
        outputs(s, heads, 0, heads * PL_INDEX_DIM);
        a.y = s->out;
        EACH(ops->hadamard, &a);
    } else if (s->kind == SWIGLU7) {
        bool in_floats = s->h % 2, pairs = s->h % 3 == 0;
        const void *g = in_floats ? (void *)accs(s, 2 * m * d) : (void *)acts(s, 2 * m * d);
        const void *l = in_floats ? (void *)accs(s, m * d) : (void *)acts(s, m * d);
        pl_swiglu7_args a = {d, in_floats, pairs, g, pairs ? NULL : l, NULL};
        outputs(s, m, 0, m * d);
        a.a = s->out;
        EACH(ops->swiglu7, &a);
    } else if (s->kind == MAP) {
        pl_map_args a = {(pl_map_function)(s->h % PL_MAP_COUNT), accs(s, m * d), NULL};
        outputs(s, m * d, m * d, 0);
        a.y = (float *)(void *)s->out;
        EACH(ops->map, &a);
    } else if (s->kind == SWIGLU) {
        int32_t *at = some_rows(s, m, 9);
        pl_swiglu_args a = {d, 10, acts(s, m * d), acts(s, m * d), accs(s, 8), at, NULL};
        for (int64_t i = 0; i < m; i++)
            at[i] = at[i] == 8 ? -1 : at[i];
        outputs(s, m, 0, m * d);
        a.a = s->out;
        EACH(ops->swiglu, &a);
    } else {
        pl_moe_sum_args a = {d,
                             TOP_K,
                             16,
                             s->h,
                             acts(s, (m + 5) * d),
                             some_rows(s, m * TOP_K, m + 5),
                             experts(s),
                             acts(s, m * d),
                             NULL};
        outputs(s, m, 0, m * d);
        a.f = s->out;
        EACH(ops->moe_sum, &a);
    }
}

static bool run(const kern_op *op, const char *text, const pl_ops *ops, int split, setup *s,
                char *why)
{
    *s = (setup){.kind = op->kind,
                 .m = (int32_t)kern_int(text, "m", 1),
                 .d = kern_int(text, "d", 128),
                 .h = (int32_t)kern_int(text, "h", 1),
                 .split = split >= 0 ? split : (int32_t)kern_int(text, "split", 0),
                 .r = {(uint64_t)kern_int(text, "seed", 1)}};
    s->fill = kern_word(text, "fill", "random", s->word);
    if (!kern_check_keys(text, " m d h fill split seed ", why))
        return false;
    if (s->m < 0 || s->m > 4096 || s->d < 1 || s->d > 1 << 16 || s->h < 1 || s->h > 16) {
        snprintf(why, KERN_WHY_BYTES, "no such problem: values are outside of the contract");
        return false;
    }
    if (s->kind <= HEAD)
        run_streams(s, ops);
    else
        run_rows(s, ops);
    return true;
}

static bool check(const kern_op *op, const char *text, const pl_ops *ops, char *why,
                  int64_t *judged)
{
    setup got, want;

    if (!run(op, text, pl_ops_scalar(), ops == pl_ops_scalar() ? 1 : 0, &want, why) ||
        !run(op, text, ops, -1, &got, why))
        return false;
    for (int64_t i = 0; i < got.acc; i++) {
        uint32_t a = ((const uint32_t *)(void *)got.out)[i];
        uint32_t b = ((const uint32_t *)(void *)want.out)[i];
        if (a != b && (got.kind >= QUANTISE || (a & 0x7FFFFFFF) <= 0x7F800000 ||
                       (b & 0x7FFFFFFF) <= 0x7F800000)) {
            snprintf(why, KERN_WHY_BYTES, "acc %lld: got 0x%08x, scalar has 0x%08x", (long long)i,
                     a, b);
            return false;
        }
    }
    for (int64_t i = 0; i < got.act; i++) {
        uint16_t a = ((const uint16_t *)(void *)(got.out + 4 * got.acc))[i];
        uint16_t b = ((const uint16_t *)(void *)(want.out + 4 * want.acc))[i];
        if (a != b && ((a & 0x7FFF) <= 0x7F80 || (b & 0x7FFF) <= 0x7F80)) {
            snprintf(why, KERN_WHY_BYTES, "act %lld: got 0x%04x, scalar has 0x%04x", (long long)i,
                     a, b);
            return false;
        }
    }
    *judged += got.acc + got.act;
    return true;
}

const kern_op kern_streams_ops[] = {
    {"hc_dots", problem, check, DOTS},
    {"hc_pre", problem, check, PRE},
    {"hc_post", problem, check, POST},
    {"hc_head", problem, check, HEAD},
    {"rms_norm", problem, check, NORM},
    {"q_norm_rope", problem, check, QNORM},
    {"unrope", problem, check, UNROPE},
    {"swiglu", problem, check, SWIGLU},
    {"moe_sum", problem, check, MOE_SUM},
    {"swiglu7", problem, check, SWIGLU7},
    {"map", problem, check, MAP},
    {"quantise", problem, check, QUANTISE},
    {"index_query", problem, check, INDEX_QUERY},
    {"key_store", problem, check, KEY_STORE},
    {"rope", problem, check, ROPE},
    {"hadamard", problem, check, HADAMARD},
    {0},
};
