/* Rows of the public operators that the forward pass has in another form: rotations of any heads, the transform alone,
 * MAGI-2's unit, elementary functions, rows into a cache and out of it. Judged by what they read and write. */
#include "base/error.h"
#include "cli/bench.h"

enum { HEAD = 512, PAGE_ROWS = 64, GRAIN = 16 };

struct call {
    pl_bench *b;
    int64_t n, grain;
    void (*run)(const struct call *c, int64_t begin, int64_t end);
    pl_rope_args rope;
    pl_hadamard_args hadamard;
    pl_swiglu7_args swiglu7;
    pl_map_args map;
    pl_cache_move_args cache_put, cache_get;
};

static void unit(void *user, int64_t u, int worker)
{
    const struct call *c = user;
    const int64_t begin = u * c->grain, end = begin + c->grain;

    c->run(c, begin, end < c->n ? end : c->n);
}

static void run(void *user, int64_t round)
{
    struct call *c = user;

    pl_pool_run(c->b->exec.pool, (c->n + c->grain - 1) / c->grain, unit, c);
}

static struct call *make_call(pl_bench *b, int64_t n, int64_t grain,
                              void (*of)(const struct call *c, int64_t begin, int64_t end))
{
    struct call *c = pl_bench_take(b, sizeof *c);

    if (c)
        *c = (struct call){.b = b, .n = n, .grain = grain, .run = of};
    return c;
}

static pl_status finish(const pl_bench *b, struct call *c, double bytes, double flops,
                        pl_bench_work *w)
{
    if (!b->failed)
        *w = (pl_bench_work){.run = run,
                             .user = c,
                             .bytes = bytes,
                             .flops = flops,
                             .limit = PL_BENCH_READ,
                             .working_set = (uint64_t)bytes};
    return PL_OK;
}

#define PREPARE(op) \
    static pl_status prepare_##op(pl_bench *b, const char *shape, pl_bench_work *w, pl_error *err)

#define RUN(op)                                                            \
    static void run_##op(const struct call *c, int64_t begin, int64_t end) \
    {                                                                      \
        const pl_op_env env = {.mode = PL_MODE_REC};                       \
        c->b->exec.ops->op(&env, &c->op, begin, end);                      \
    }

RUN(rope)
RUN(hadamard)
RUN(swiglu7)
RUN(map)

PREPARE(rope)
{
    const int64_t t = pl_bench_word(shape, "t"), h = pl_bench_word(shape, "h");
    struct call *c = make_call(b, t, 1, run_rope);
    const pl_angles angles = {pl_bench_f32(b, t * PL_ROPE_PAIRS),
                              pl_bench_f32(b, t * PL_ROPE_PAIRS)};
    void *x = pl_bench_bf16(b, t * h * HEAD);

    if (!b->failed)
        c->rope = (pl_rope_args){(int32_t)h, HEAD, false, angles, x, h * HEAD, HEAD};
    return finish(b, c, 4.0 * (double)(t * h * PL_ROPE_DIM), 3.0 * (double)(t * h * PL_ROPE_DIM),
                  w);
}

PREPARE(hadamard)
{
    const int64_t t = pl_bench_word(shape, "t");
    struct call *c = make_call(b, t, GRAIN, run_hadamard);
    const void *x = pl_bench_bf16(b, t * PL_INDEX_DIM);
    void *y = pl_bench_take(b, (uint64_t)(2 * t * PL_INDEX_DIM));

    if (!b->failed)
        c->hadamard = (pl_hadamard_args){x, y};
    return finish(b, c, 4.0 * (double)(t * PL_INDEX_DIM), 8.0 * (double)(t * PL_INDEX_DIM), w);
}

PREPARE(swiglu7)
{
    const int64_t t = pl_bench_word(shape, "t"), d = pl_bench_word(shape, "d");
    struct call *c = make_call(b, t, 1, run_swiglu7);
    const void *g = pl_bench_bf16(b, 2 * t * d);
    void *a = pl_bench_take(b, (uint64_t)(2 * t * d));

    if (!b->failed)
        c->swiglu7 = (pl_swiglu7_args){d, false, true, g, NULL, a};
    return finish(b, c, 6.0 * (double)(t * d), 28.0 * (double)(t * d), w);
}

/* f1 to f5: exp, log, sigmoid, softplus, tanh. */
PREPARE(map)
{
    const int64_t n = pl_bench_word(shape, "n"), f = pl_bench_word(shape, "f");
    struct call *c = make_call(b, n, 4096, run_map);
    const float *x = pl_bench_f32(b, n);
    float *y = pl_bench_take(b, (uint64_t)(4 * n));

    PL_CHECK(f <= PL_MAP_COUNT, err, "--shape: no such function (got '%s', want f1 .. f%d)", shape,
             PL_MAP_COUNT);
    if (!b->failed)
        c->map = (pl_map_args){(pl_map_function)(f - 1), x, y};
    return finish(b, c, 8.0 * (double)n, 20.0 * (double)n, w);
}

/* ---- rows of a cache */

RUN(cache_put)
RUN(cache_get)

/* v4, v32: rows of DeepSeek-V4 and of V3.2. */
static pl_status prepare_cache(pl_bench *b, const char *shape, bool gather, pl_bench_work *w,
                               pl_error *err)
{
    const int64_t t = pl_bench_word(shape, "t"), v = pl_bench_word(shape, "v");
    const pl_cache_format format = v == 4 ? PL_CACHE_V4 : PL_CACHE_V32;
    const int32_t dim = v == 4 ? 512 : PL_CACHE_MAX_DIM;
    const int64_t row = pl_cache_row_bytes(format, dim), pages = (t + PAGE_ROWS - 1) / PAGE_ROWS;
    struct call *c = make_call(b, t, GRAIN, gather ? run_cache_get : run_cache_put);
    uint16_t *x = pl_bench_bf16(b, t * dim);
    uint8_t *data = pl_bench_take(b, (uint64_t)(pages * PAGE_ROWS * row));
    int32_t *slots = pl_bench_take(b, (uint64_t)t * sizeof *slots);

    PL_CHECK(v == 4 || v == 32, err, "--shape: no such format (got '%s', want v4 or v32)", shape);
    if (!b->failed) {
        const pl_cache_rows rows_of = {format, dim, data, PAGE_ROWS * row, PAGE_ROWS, t};
        c->cache_put = c->cache_get = (pl_cache_move_args){rows_of, slots, x, dim};
        for (int32_t i = 0; i < t; i++)
            slots[i] = i;
        run_cache_put(c, 0, t);
    }
    return finish(b, c, (double)(t * (row + 2 * (int64_t)dim)), 8.0 * (double)(t * dim), w);
}

PREPARE(kv_insert)
{
    return prepare_cache(b, shape, false, w, err);
}

PREPARE(kv_gather)
{
    return prepare_cache(b, shape, true, w, err);
}

static const char *const heads[] = {"t64 h64", "t64 h128", NULL};
static const char *const rows[] = {"t4096", NULL};
static const char *const units[] = {"t512 d1280", "t512 d8192", NULL};
static const char *const functions[] = {"n1048576 f1", "n1048576 f2", "n1048576 f3",
                                        "n1048576 f4", "n1048576 f5", NULL};
static const char *const caches[] = {"t1024 v4", "t1024 v32", NULL};

const pl_bench_op pl_bench_rope = {"rope", heads, "t h", prepare_rope};
const pl_bench_op pl_bench_hadamard = {"hadamard", rows, "t", prepare_hadamard};
const pl_bench_op pl_bench_swiglu7 = {"swiglu7", units, "t d", prepare_swiglu7};
const pl_bench_op pl_bench_map = {"map", functions, "n f", prepare_map};
const pl_bench_op pl_bench_kv_insert = {"kv_insert", caches, "t v", prepare_kv_insert};
const pl_bench_op pl_bench_kv_gather = {"kv_gather", caches, "t v", prepare_kv_gather};
