/* Rows of the linear layers: m tokens, n outputs, k inputs. Every call takes the next matrix of the store. */
#include "base/error.h"
#include "cli/bench.h"
#include "ops/level.h"

struct call {
    pl_bench *b;
    pl_linear_job *jobs;
    int32_t n_jobs;
    int64_t data_bytes, scale_bytes; /* of one weight */
    int64_t weights;                 /* of a call */
};

static int64_t data_bytes(pl_weight_format format, int64_t n, int64_t k)
{
    return format == PL_WEIGHT_BF16 ? 2 * n * k : format == PL_WEIGHT_FP4 ? n * k / 2 : n * k;
}

static int64_t scale_bytes(pl_weight_format format, int64_t n, int64_t k)
{
    if (format == PL_WEIGHT_BF16)
        return 0;
    return format == PL_WEIGHT_FP4 ? n * k / 32 : (n + 127) / 128 * (k / 128);
}

/* Jobs of one weight stand together: a call takes `weights` of them, job j belongs to weight j * weights / n_jobs. */
static void run(void *user, int64_t round)
{
    struct call *c = user;

    for (int32_t j = 0; j < c->n_jobs; j++) {
        const int64_t at = round * c->weights + j * c->weights / c->n_jobs;
        c->jobs[j].w.data = pl_bench_codes(c->b, (uint64_t)c->data_bytes, at);
        if (c->scale_bytes)
            c->jobs[j].w.scale = pl_bench_scales(c->b, (uint64_t)c->scale_bytes, at);
    }
    pl_run_linear(&c->b->exec, c->jobs, c->n_jobs);
}

/* m rows of k values, as the weights want their input; *stride gets their bytes. */
static void *input(pl_bench *b, pl_weight_format format, bool a16, int64_t m, int64_t k,
                   int64_t *stride)
{
    const bool quantised = format != PL_WEIGHT_BF16 && !a16;
    uint16_t *x = pl_bench_bf16(b, m * k);
    pl_quantise_args q = {.dim = k, .x = x, .x_stride = 2 * k};

    *stride = 2 * k;
    if (!quantised || !x)
        return x;
    q.q_stride = (k / PL_QUANT_BLOCK * b->exec.ops->quant_block_bytes + 15) / 16 * 16;
    q.q = pl_bench_take(b, (uint64_t)(m * q.q_stride));
    if (q.q)
        pl_run_quantise(&b->exec, &q, m);
    *stride = q.q_stride;
    return q.q;
}

static struct call *make_call(pl_bench *b, pl_weight_format format, int32_t n_jobs, int64_t weights,
                              int64_t n, int64_t k)
{
    struct call *c = pl_bench_take(b, sizeof *c);
    pl_linear_job *jobs = pl_bench_take(b, (uint64_t)n_jobs * sizeof *jobs);

    if (!jobs)
        return NULL;
    *c = (struct call){b,      jobs, n_jobs, data_bytes(format, n, k), scale_bytes(format, n, k),
                       weights};
    /* Told here and not in the middle of a measurement. */
    (void)pl_bench_codes(b, (uint64_t)c->data_bytes, 0);
    (void)pl_bench_scales(b, (uint64_t)c->scale_bytes + 1, 0);
    for (int32_t j = 0; j < n_jobs; j++)
        jobs[j].w = (pl_weight_view){
            .format = format, .rows = n, .cols = k, .layout = pl_ops_layout(b->level)};
    return c;
}

static pl_bench_work work_of(pl_bench *b, struct call *c, int64_t m, double flops)
{
    return (pl_bench_work){
        .run = run,
        .user = c,
        .bytes = (double)c->weights * (double)(c->data_bytes + c->scale_bytes),
        .flops = flops,
        .limit = pl_bench_product_limit(b, m),
        .working_set = b->store.bytes / (uint64_t)c->data_bytes * (uint64_t)c->data_bytes,
    };
}

static pl_status check_k(const char *shape, int64_t k, int64_t n, pl_error *err)
{
    PL_CHECK(k % PL_QUANT_BLOCK == 0 && k <= 32768, err,
             "--shape: k (got '%s', want a multiple of %d up to 32768)", shape, PL_QUANT_BLOCK);
    PL_CHECK(n % PL_TILE_ROWS == 0, err, "--shape: n (got '%s', want a multiple of %d)", shape,
             PL_TILE_ROWS);
    return PL_OK;
}

static pl_status prepare(pl_bench *b, pl_weight_format format, bool a16, const char *shape,
                         pl_bench_work *w, pl_error *err)
{
    const int64_t m = pl_bench_word(shape, "m"), n = pl_bench_word(shape, "n");
    const int64_t k = pl_bench_word(shape, "k"), bands = a16 && n % 128 == 0 ? n / 128 : 1;
    /* wo_a: a band of outputs for each group of heads, each with an input of its own (specification section 3.6). */
    const int32_t n_jobs = a16 ? (int32_t)(bands % 8 == 0 ? 8 : 1) : 1;
    struct call *c;

    PL_TRY(check_k(shape, k, n, err));
    c = make_call(b, format, n_jobs, 1, n, k);
    for (int32_t j = 0; c && j < n_jobs; j++) {
        pl_linear_job *job = &c->jobs[j];

        job->n_rows = n / n_jobs;
        job->first_row = j * job->n_rows;
        job->a16 = a16;
        job->n = (int32_t)m;
        job->x = input(b, format, a16, m, k, &job->x_stride);
        job->y_stride = 2 * job->n_rows;
        job->y = pl_bench_take(b, (uint64_t)(m * job->y_stride));
    }
    if (c && !b->failed)
        *w = work_of(b, c, m, 2.0 * (double)m * (double)n * (double)k);
    return PL_OK;
}

static pl_status prepare_fp8(pl_bench *b, const char *shape, pl_bench_work *w, pl_error *err)
{
    return prepare(b, PL_WEIGHT_FP8_E8M0, false, shape, w, err);
}

static pl_status prepare_fp8_a16(pl_bench *b, const char *shape, pl_bench_work *w, pl_error *err)
{
    return prepare(b, PL_WEIGHT_FP8_E8M0, true, shape, w, err);
}

static pl_status prepare_fp4(pl_bench *b, const char *shape, pl_bench_work *w, pl_error *err)
{
    return prepare(b, PL_WEIGHT_FP4, false, shape, w, err);
}

static pl_status prepare_bf16(pl_bench *b, const char *shape, pl_bench_work *w, pl_error *err)
{
    return prepare(b, PL_WEIGHT_BF16, false, shape, w, err);
}

/* m tokens that each go to `top` of `e` experts, spread evenly: expert i of the chosen ones gets the tokens
 * t with (t * top + j) % e == i. Each expert that has tokens is one job and is read once. */
static pl_status prepare_grouped(pl_bench *b, const char *shape, pl_bench_work *w, pl_error *err)
{
    const int64_t m = pl_bench_word(shape, "m"), n = pl_bench_word(shape, "n");
    const int64_t k = pl_bench_word(shape, "k"), top = pl_bench_word(shape, "top");
    const int64_t e = pl_bench_word(shape, "e"), used = m * top < e ? m * top : e;
    int64_t stride, next = 0;
    struct call *c;
    int32_t *rows;
    uint8_t *x, *y;

    PL_TRY(check_k(shape, k, n, err));
    PL_CHECK(top <= e && e <= 4096, err, "--shape: e (got '%s', want top to 4096)", shape);
    c = make_call(b, PL_WEIGHT_FP4, (int32_t)used, used, n, k);
    x = input(b, PL_WEIGHT_FP4, false, m, k, &stride);
    rows = pl_bench_take(b, (uint64_t)(m * top) * sizeof *rows);
    y = pl_bench_take(b, (uint64_t)(m * top * n) * 2);
    if (!c || b->failed)
        return PL_OK;
    for (int64_t i = 0; i < used; i++) {
        pl_linear_job *job = &c->jobs[i];

        job->n_rows = n;
        job->x = x;
        job->x_stride = stride;
        job->rows = rows + next;
        job->y = y + 2 * next * n;
        job->y_stride = 2 * n;
        for (int64_t at = i; at < m * top; at += e, job->n++)
            rows[next++] = (int32_t)(at / top);
    }
    *w = work_of(b, c, m, 2.0 * (double)(m * top) * (double)n * (double)k);
    return PL_OK;
}

/* First what the targets name, then Flash (wq_b, wo_b, the experts, the head), then Pro. */
#define ROWS_1_TO_512                                                                           \
    "m1 n8192 k4096", "m2 n8192 k4096", "m5 n8192 k4096", "m12 n8192 k4096", "m48 n8192 k4096", \
        "m512 n8192 k4096"

static const char *const fp8_shapes[] = {
    ROWS_1_TO_512,     "m1 n32768 k1024", "m1 n4096 k8192",   "m48 n4096 k8192",
    "m1 n65536 k1536", "m1 n7168 k16384", "m48 n7168 k16384", NULL};
static const char *const a16_shapes[] = {ROWS_1_TO_512, "m1 n16384 k4096", "m48 n16384 k4096",
                                         NULL};
static const char *const fp4_shapes[] = {ROWS_1_TO_512,    "m1 n2048 k4096", "m1 n4096 k2048",
                                         "m1 n3072 k7168", "m1 n7168 k3072", NULL};
static const char *const bf16_shapes[] = {ROWS_1_TO_512, "m1 n256 k4096", "m1 n129280 k4096",
                                          "m1 n129280 k7168", NULL};
static const char *const grouped_shapes[] = {
    "m1 top6 e256 n2048 k4096",   "m5 top6 e256 n2048 k4096",
    "m16 top6 e256 n2048 k4096",  "m48 top6 e256 n2048 k4096",
    "m512 top6 e256 n2048 k4096", "m1 top6 e384 n3072 k7168",
    "m48 top6 e384 n3072 k7168",  NULL};

const pl_bench_op pl_bench_linear_fp8 = {"linear_fp8", fp8_shapes, "m n k", prepare_fp8};
const pl_bench_op pl_bench_linear_fp8_a16 = {"linear_fp8_a16", a16_shapes, "m n k",
                                             prepare_fp8_a16};
const pl_bench_op pl_bench_linear_fp4 = {"linear_fp4", fp4_shapes, "m n k", prepare_fp4};
const pl_bench_op pl_bench_linear_bf16 = {"linear_bf16", bf16_shapes, "m n k", prepare_bf16};
const pl_bench_op pl_bench_linear_fp4_grouped = {"linear_fp4_grouped", grouped_shapes,
                                                 "m top e n k", prepare_grouped};
