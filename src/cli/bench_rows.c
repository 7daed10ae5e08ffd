/* Rows of the operators between the large products: t tokens of d values. Those that do little with each value are
 * judged by the bytes that they read and write, against reading alone. */
#include "base/error.h"
#include "cli/bench.h"

struct call {
    pl_bench *b;
    int64_t n;
    void (*run)(const struct call *c);
    union {
        pl_rms_norm_args rms_norm;
        pl_quantise_args quantise;
        pl_hc_dots_args hc_dots;
        pl_hc_pre_args hc_pre;
        pl_hc_post_args hc_post;
        pl_q_norm_rope_args q_norm_rope;
        pl_unrope_args unrope;
        pl_swiglu_args swiglu;
        pl_moe_sum_args moe_sum;
        pl_route_args route;
        pl_compress_args compress;
        pl_index_query_args index_query;
    } a;
    pl_compress_job job;
};

/* Calls of operator `op`, whose arguments lie in the union under its name. */
#define RUN(op)                                   \
    static void run_##op(const struct call *c)    \
    {                                             \
        pl_run_##op(&c->b->exec, &c->a.op, c->n); \
    }

RUN(rms_norm)
RUN(quantise)
RUN(hc_dots)
RUN(hc_pre)
RUN(hc_post)
RUN(q_norm_rope)
RUN(unrope)
RUN(swiglu)
RUN(moe_sum)
RUN(route)
RUN(compress)
RUN(index_query)

static void run(void *user, int64_t round)
{
    struct call *c = user;

    c->run(c);
}

static struct call *make_call(pl_bench *b, int64_t n, void (*op)(const struct call *c))
{
    struct call *c = pl_bench_take(b, sizeof *c);

    if (c)
        *c = (struct call){.b = b, .n = n, .run = op};
    return c;
}

/* The caller has checked b->failed. */
static pl_status finish(struct call *c, double bytes, double flops, pl_bench_work *w)
{
    *w = (pl_bench_work){.run = run,
                         .user = c,
                         .bytes = bytes,
                         .flops = flops,
                         .limit = PL_BENCH_READ,
                         .working_set = (uint64_t)bytes};
    return PL_OK;
}

static pl_weight_view vector(const void *data, pl_weight_format format, int64_t rows, int64_t cols)
{
    return (pl_weight_view){.format = format, .rows = rows, .cols = cols, .data = data};
}

static pl_angles angles(pl_bench *b, int64_t n)
{
    return (pl_angles){pl_bench_f32(b, n * PL_ROPE_PAIRS), pl_bench_f32(b, n * PL_ROPE_PAIRS)};
}

#define PREPARE(op) \
    static pl_status prepare_##op(pl_bench *b, const char *shape, pl_bench_work *w, pl_error *err)

/* For the case that a piece was refused, which pl_bench tells. */
#define NEED(b)           \
    do {                  \
        if ((b)->failed)  \
            return PL_OK; \
    } while (0)

PREPARE(rms_norm)
{
    const int64_t t = pl_bench_word(shape, "t"), d = pl_bench_word(shape, "d");
    struct call *c = make_call(b, t, run_rms_norm);
    uint16_t *weight = pl_bench_bf16(b, d), *x = pl_bench_bf16(b, t * d);
    void *y = pl_bench_take(b, (uint64_t)(2 * t * d));

    NEED(b);
    c->a.rms_norm = (pl_rms_norm_args){vector(weight, PL_WEIGHT_BF16, 1, d), 1e-6f, d, x, y};
    return finish(c, 4.0 * (double)(t * d), 4.0 * (double)(t * d), w);
}

PREPARE(quantise)
{
    const int64_t t = pl_bench_word(shape, "t"), d = pl_bench_word(shape, "d");
    const int64_t q_stride = (d / PL_QUANT_BLOCK * b->exec.ops->quant_block_bytes + 15) / 16 * 16;
    struct call *c = make_call(b, t, run_quantise);
    uint16_t *x = pl_bench_bf16(b, t * d);
    void *q = pl_bench_take(b, (uint64_t)(t * q_stride));

    PL_CHECK(d % PL_QUANT_BLOCK == 0, err, "--shape: d (got '%s', want a multiple of %d)", shape,
             PL_QUANT_BLOCK);
    NEED(b);
    c->a.quantise = (pl_quantise_args){d, x, 2 * d, q, q_stride};
    return finish(c, (double)(t * (2 * d + q_stride)), 2.0 * (double)(t * d), w);
}

PREPARE(hc_dots)
{
    const int64_t t = pl_bench_word(shape, "t"), d = PL_HC_MULT * pl_bench_word(shape, "d");
    struct call *c = make_call(b, t, run_hc_dots);
    float *fn = pl_bench_f32(b, PL_HC_OUT * d), *m = pl_bench_f32(b, t * (PL_HC_OUT + 1));
    uint16_t *x = pl_bench_bf16(b, t * d);
    double flops = 2.0 * (double)(t * d) * (PL_HC_OUT + 1);

    NEED(b);
    c->a.hc_dots = (pl_hc_dots_args){vector(fn, PL_WEIGHT_F32, PL_HC_OUT, d), x, NULL, m};
    (void)finish(c, (double)(4 * PL_HC_OUT * d + 2 * t * d), flops, w);
    w->limit = t == 1 ? PL_BENCH_READ : PL_BENCH_FP32;
    return PL_OK;
}

PREPARE(hc_pre)
{
    const int64_t t = pl_bench_word(shape, "t"), d = pl_bench_word(shape, "d");
    struct call *c = make_call(b, t, run_hc_pre);
    float *base = pl_bench_f32(b, PL_HC_OUT), *scale = pl_bench_f32(b, 3);
    float *m = pl_bench_f32(b, t * (PL_HC_OUT + 1)), *post = pl_bench_f32(b, 4 * t);
    float *comb = pl_bench_f32(b, 16 * t);
    uint16_t *x = pl_bench_bf16(b, 4 * t * d), *y = pl_bench_bf16(b, t * d);

    NEED(b);
    for (int64_t i = 0; i < t; i++)
        m[(i + 1) * (PL_HC_OUT + 1) - 1] = 1; /* a mean of squares */
    c->a.hc_pre = (pl_hc_pre_args){.base = vector(base, PL_WEIGHT_F32, 1, PL_HC_OUT),
                                   .scale = vector(scale, PL_WEIGHT_F32, 1, 3),
                                   .rms_eps = 1e-6f,
                                   .hc_eps = 1e-6f,
                                   .sinkhorn_iters = 20,
                                   .dim = d,
                                   .m = m,
                                   .x = x,
                                   .y = y,
                                   .post = post,
                                   .comb = comb};
    return finish(c, 10.0 * (double)(t * d), 8.0 * (double)(t * d), w);
}

PREPARE(hc_post)
{
    const int64_t t = pl_bench_word(shape, "t"), d = pl_bench_word(shape, "d");
    struct call *c = make_call(b, t, run_hc_post);
    uint16_t *f = pl_bench_bf16(b, t * d), *x = pl_bench_bf16(b, 4 * t * d);
    float *post = pl_bench_f32(b, 4 * t), *comb = pl_bench_f32(b, 16 * t);

    NEED(b);
    for (int64_t i = 0; i < 16 * t; i++)
        comb[i] = 0.25f; /* in place: streams must neither grow nor vanish */
    for (int64_t i = 0; i < 4 * t; i++)
        post[i] = 0.01f;
    c->a.hc_post = (pl_hc_post_args){d, f, post, comb, x};
    return finish(c, 18.0 * (double)(t * d), 40.0 * (double)(t * d), w);
}

PREPARE(q_norm_rope)
{
    const int64_t t = pl_bench_word(shape, "t"), h = pl_bench_word(shape, "h");
    struct call *c = make_call(b, t, run_q_norm_rope);
    pl_angles at = angles(b, t);
    uint16_t *q = pl_bench_bf16(b, t * h * PL_HEAD_DIM);
    const double n = (double)(t * h * PL_HEAD_DIM);

    NEED(b);
    c->a.q_norm_rope = (pl_q_norm_rope_args){(int32_t)h, 1e-6f, at, q};
    return finish(c, 4 * n, 4 * n, w);
}

PREPARE(unrope)
{
    const int64_t t = pl_bench_word(shape, "t"), h = pl_bench_word(shape, "h");
    struct call *c = make_call(b, t, run_unrope);
    pl_angles at = angles(b, t);
    uint16_t *o = pl_bench_bf16(b, t * h * PL_HEAD_DIM);
    const double n = (double)(t * h * PL_ROPE_DIM);

    NEED(b);
    c->a.unrope = (pl_unrope_args){(int32_t)h, at, o};
    return finish(c, 4 * n, 3 * n, w);
}

PREPARE(swiglu)
{
    const int64_t t = pl_bench_word(shape, "t"), d = pl_bench_word(shape, "d");
    struct call *c = make_call(b, t, run_swiglu);
    uint16_t *g = pl_bench_bf16(b, t * d), *u = pl_bench_bf16(b, t * d);
    void *a = pl_bench_take(b, (uint64_t)(2 * t * d));
    float *weight = pl_bench_f32(b, t);
    int32_t *at = pl_bench_take(b, (uint64_t)t * sizeof *at);

    NEED(b);
    for (int64_t i = 0; i < t; i++)
        at[i] = (int32_t)i;
    c->a.swiglu = (pl_swiglu_args){d, 10, g, u, weight, at, a};
    return finish(c, 6.0 * (double)(t * d), 8.0 * (double)(t * d), w);
}

PREPARE(moe_sum)
{
    const int64_t t = pl_bench_word(shape, "t"), d = pl_bench_word(shape, "d");
    const int64_t top = pl_bench_word(shape, "top"), e = pl_bench_word(shape, "e");
    struct call *c = make_call(b, t, run_moe_sum);
    uint16_t *y = pl_bench_bf16(b, t * top * d), *shared = pl_bench_bf16(b, t * d);
    void *f = pl_bench_take(b, (uint64_t)(2 * t * d));
    int32_t *rows = pl_bench_take(b, (uint64_t)(t * top) * sizeof *rows);
    int32_t *ids = pl_bench_take(b, (uint64_t)(t * top) * sizeof *ids);

    PL_CHECK(top <= e, err, "--shape: e (got '%s', want at least top)", shape);
    NEED(b);
    for (int64_t i = 0; i < t * top; i++) {
        rows[i] = (int32_t)i;
        ids[i] = (int32_t)(i % top * e / top);
    }
    c->a.moe_sum = (pl_moe_sum_args){d, (int32_t)top, (int32_t)e, 8, y, rows, ids, shared, f};
    return finish(c, 2.0 * (double)(t * d * (top + 2)), (double)(t * d * (top + 1)), w);
}

PREPARE(route)
{
    const int64_t t = pl_bench_word(shape, "t"), e = pl_bench_word(shape, "e");
    const int64_t top = pl_bench_word(shape, "top");
    struct call *c = make_call(b, t, run_route);
    float *bias = pl_bench_f32(b, e), *score = pl_bench_f32(b, t * e);
    int32_t *ids = pl_bench_take(b, (uint64_t)(t * top) * sizeof *ids);

    PL_CHECK(top <= e && e <= 1024, err, "--shape: e (got '%s', want top to 1024)", shape);
    NEED(b);
    c->a.route = (pl_route_args){.n_experts = (int32_t)e,
                                 .top_k = (int32_t)top,
                                 .bias = vector(bias, PL_WEIGHT_F32, 1, e),
                                 .score = score,
                                 .ids = ids};
    return finish(c, 8.0 * (double)(t * e), 16.0 * (double)(t * e), w);
}

PREPARE(compress)
{
    const int64_t t = pl_bench_word(shape, "t"), d = pl_bench_word(shape, "d");
    const int64_t ratio = pl_bench_word(shape, "ratio"), width = ratio == 4 ? 2 * d : d;
    struct call *c = make_call(b, 1, run_compress);
    float *ape = pl_bench_f32(b, ratio * width), *kv = pl_bench_f32(b, t * width);
    float *gate = pl_bench_f32(b, t * width);
    void *state, *pooled = pl_bench_take(b, (uint64_t)((t / ratio + 1) * d * 2));

    PL_CHECK(
        (ratio == 4 || ratio == 128) && (d == PL_HEAD_DIM || (d == PL_INDEX_DIM && ratio == 4)),
        err, "--shape: (got '%s', want ratio4 or ratio128 and d512, or ratio4 and d128)", shape);
    state = pl_bench_take(b, b->exec.ops->compress_state_bytes((int32_t)ratio, (int32_t)d));
    NEED(b);
    b->exec.ops->compress_reset(state, (int32_t)ratio, (int32_t)d);
    c->job = (pl_compress_job){state, kv, gate, (int32_t)t, 0, pooled};
    c->a.compress = (pl_compress_args){(int32_t)ratio, (int32_t)d,
                                       vector(ape, PL_WEIGHT_F32, ratio, width), &c->job};
    return finish(c, 8.0 * (double)(t * width), 8.0 * (double)(t * width), w);
}

PREPARE(index_query)
{
    const int64_t t = pl_bench_word(shape, "t"), h = pl_bench_word(shape, "h"), n = t * h;
    const pl_ops *ops = b->exec.ops;
    struct call *c = make_call(b, t, run_index_query);
    pl_rows out = {NULL, pl_rows_page_bytes((int32_t)n, ops->key_data_bytes, ops->key_scale_bytes),
                   (int32_t)n, ops->key_data_bytes, ops->key_scale_bytes};
    pl_angles at = angles(b, t);
    uint16_t *q = pl_bench_bf16(b, n * PL_INDEX_DIM);

    out.base = pl_bench_take(b, (uint64_t)out.page_bytes);
    NEED(b);
    c->a.index_query = (pl_index_query_args){(int32_t)h, q, at, out};
    return finish(c, (double)(n * (2 * PL_INDEX_DIM + 68)), (double)(n * PL_INDEX_DIM * 9), w);
}

/* Flash and Pro. */
static const char *const streams[] = {"t512 d4096", "t1 d4096", "t512 d7168", NULL};
static const char *const heads[] = {"t64 h64", "t64 h128", NULL};
static const char *const gated[] = {"t512 d2048", "t512 d3072", NULL};
static const char *const sums[] = {"t512 top6 e256 d4096", "t512 top6 e384 d7168", NULL};
static const char *const routes[] = {"t512 top6 e256", "t512 top6 e384", NULL};
static const char *const pools[] = {"t512 ratio4 d512", "t512 ratio128 d512", "t512 ratio4 d128",
                                    NULL};

const pl_bench_op pl_bench_rms_norm = {"rms_norm", streams, "t d", prepare_rms_norm};
const pl_bench_op pl_bench_quantise = {"quantise", streams, "t d", prepare_quantise};
const pl_bench_op pl_bench_hc_dots = {"hc_dots", streams, "t d", prepare_hc_dots};
const pl_bench_op pl_bench_hc_pre = {"hc_pre", streams, "t d", prepare_hc_pre};
const pl_bench_op pl_bench_hc_post = {"hc_post", streams, "t d", prepare_hc_post};
const pl_bench_op pl_bench_q_norm_rope = {"q_norm_rope", heads, "t h", prepare_q_norm_rope};
const pl_bench_op pl_bench_unrope = {"unrope", heads, "t h", prepare_unrope};
const pl_bench_op pl_bench_index_query = {"index_query", heads, "t h", prepare_index_query};
const pl_bench_op pl_bench_swiglu = {"swiglu", gated, "t d", prepare_swiglu};
const pl_bench_op pl_bench_moe_sum = {"moe_sum", sums, "t top e d", prepare_moe_sum};
const pl_bench_op pl_bench_route = {"route", routes, "t top e", prepare_route};
const pl_bench_op pl_bench_compress = {"compress", pools, "t ratio d", prepare_compress};
