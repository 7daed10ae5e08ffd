/* Rows of the attention that other programs call: FlashAttention-3's varlen contract and FlashMLA's sparse one, over the
 * bench's own pool as the checked entries run them. */
#include <string.h>

#include "base/error.h"
#include "cli/bench.h"

enum {
    QUERIES = 64, /* tokens of sparse attention */
    SLOTS = 16384,
    PAGE_ROWS = 64,
    MAX_LENGTH = 1 << 17,
};

static void *take_scratch(pl_bench *b)
{
    return pl_bench_take(b, (uint64_t)pl_pool_n_workers(b->exec.pool) * PL_VARLEN_SCRATCH_BYTES);
}

static bool has_word(const char *shape, const char *word)
{
    const size_t n = strlen(word);

    for (const char *at = strstr(shape, word); at; at = strstr(at + 1, word))
        if ((at == shape || at[-1] == ' ') && (at[n] == 0 || at[n] == ' '))
            return true;
    return false;
}

/* ---- varlen */

struct varlen {
    pl_bench *b;
    pl_varlen_args args;
    int32_t cu_q[2], cu_k[2];
    uint8_t *scratch;
};

static void varlen_unit(void *user, int64_t unit, int worker)
{
    struct varlen *c = user;
    const pl_op_env env = {.mode = PL_MODE_REC,
                           .scratch = c->scratch + (int64_t)worker * PL_VARLEN_SCRATCH_BYTES};

    c->b->exec.ops->attention_varlen(&env, &c->args, unit, unit + 1);
}

static void run_varlen(void *user, int64_t round)
{
    struct varlen *c = user;

    pl_pool_run(c->b->exec.pool, pl_varlen_units(&c->args), varlen_unit, c);
}

/* Pairs of a query and a key that it sees. */
static double visible_pairs(const pl_varlen_args *a, int64_t q)
{
    double n = 0;

    for (int64_t i = 0; i < q; i++) {
        int64_t begin, end;

        pl_varlen_visible(a, 0, i, &begin, &end);
        n += (double)(end - begin);
    }
    return n;
}

/* One sequence, bf16; "causal" as a further word: else every query sees every key. */
static pl_status prepare_varlen(pl_bench *b, const char *shape, pl_bench_work *w, pl_error *err)
{
    const int64_t h = pl_bench_word(shape, "h"), d = pl_bench_word(shape, "d");
    const int64_t q = pl_bench_word(shape, "q"), k = pl_bench_word(shape, "k");
    struct varlen *c = pl_bench_take(b, sizeof *c);

    PL_CHECK(
        d % 8 == 0 && d <= PL_VARLEN_MAX_DIM && h <= 1024 && q <= MAX_LENGTH && k <= MAX_LENGTH,
        err,
        "--shape: (got '%s', want up to 1024 heads, d a multiple of 8 up to %d, q and k up to %d)",
        shape, PL_VARLEN_MAX_DIM, MAX_LENGTH);
    if (b->failed)
        return PL_OK;
    c->b = b;
    c->scratch = take_scratch(b);
    c->cu_q[1] = (int32_t)q;
    c->cu_k[1] = (int32_t)k;
    c->args = (pl_varlen_args){.type = PL_VARLEN_BF16,
                               .n_seqs = 1,
                               .n_heads = (int32_t)h,
                               .n_kv_heads = (int32_t)h,
                               .dim = (int32_t)d,
                               .value_dim = (int32_t)d,
                               .cu_q = c->cu_q,
                               .cu_k = c->cu_k,
                               .q = {pl_bench_bf16(b, q * h * d), h * d, d, 0},
                               .k = {pl_bench_bf16(b, k * h * d), h * d, d, 0},
                               .v = {pl_bench_bf16(b, k * h * d), h * d, d, 0},
                               .left = -1,
                               .right = has_word(shape, "causal") ? 0 : -1,
                               .scale = 0.125f,
                               .out = pl_bench_take(b, (uint64_t)(2 * q * h * d)),
                               .out_token_stride = h * d,
                               .out_head_stride = d,
                               .lse = pl_bench_take(b, (uint64_t)(4 * q * h)),
                               .lse_stride = q};
    *w = (pl_bench_work){.run = run_varlen,
                         .user = c,
                         .bytes = 4.0 * (double)((q + k) * h * d),
                         .flops = 4.0 * (double)(h * d) * visible_pairs(&c->args, q),
                         .limit = pl_bench_product_limit(b, q),
                         .working_set = (uint64_t)(4 * (q + k) * h * d)};
    return PL_OK;
}

/* ---- sparse */

struct sparse {
    pl_bench *b;
    pl_sparse_args args;
    int64_t groups; /* units of a token */
    uint8_t *scratch;
};

static void sparse_unit(void *user, int64_t unit, int worker)
{
    struct sparse *c = user;
    const pl_op_env env = {.mode = PL_MODE_REC,
                           .scratch = c->scratch + (int64_t)worker * PL_VARLEN_SCRATCH_BYTES};
    const int64_t h = c->args.n_heads, first = unit / c->groups * h;
    const int64_t begin = unit % c->groups * PL_SPARSE_GROUP, end = begin + PL_SPARSE_GROUP;

    c->b->exec.ops->attention_sparse(&env, &c->args, first + begin, first + (end < h ? end : h));
}

static void run_sparse(void *user, int64_t round)
{
    struct sparse *c = user;

    pl_pool_run(c->b->exec.pool, QUERIES * c->groups, sparse_unit, c);
}

/* SLOTS rows: planar pages of 8-bit keys, or plain ones. */
static pl_cache_rows take_cache(pl_bench *b, bool fp8)
{
    const pl_cache_format format = fp8 ? PL_CACHE_V4 : PL_CACHE_BF16;
    const int64_t page = PAGE_ROWS * pl_cache_row_bytes(format, PL_HEAD_DIM);
    pl_cache_rows r = {format, PL_HEAD_DIM, NULL, page, PAGE_ROWS, SLOTS};
    uint16_t row[PL_HEAD_DIM], *values = pl_bench_bf16(b, (int64_t)PL_HEAD_DIM * PAGE_ROWS);

    r.base = pl_bench_take(b, (uint64_t)(SLOTS / PAGE_ROWS * page));
    for (int64_t i = 0; r.base && i < SLOTS; i++) {
        memcpy(row, values + i % PAGE_ROWS * PL_HEAD_DIM, sizeof row);
        row[0] = (uint16_t)(row[0] ^ (i << 3 & 0x38)); /* rows differ between pages */
        pl_cache_row_put(&r, i, row);
    }
    return r;
}

/* 64 queries; "bf16" as a further word: else keys are e4m3 codes. Of flops the values count as the keys do. */
static pl_status prepare_sparse(pl_bench *b, const char *shape, pl_bench_work *w, pl_error *err)
{
    const int64_t h = pl_bench_word(shape, "h"), keys = pl_bench_word(shape, "keys");
    const bool fp8 = !has_word(shape, "bf16");
    const int64_t row = pl_cache_row_bytes(fp8 ? PL_CACHE_V4 : PL_CACHE_BF16, PL_HEAD_DIM);
    struct sparse *c = pl_bench_take(b, sizeof *c);
    int32_t *list;

    PL_CHECK(h <= 128 && keys <= SLOTS, err,
             "--shape: (got '%s', want up to 128 heads, up to %d keys)", shape, SLOTS);
    list = pl_bench_take(b, (uint64_t)(QUERIES * keys) * sizeof *list);
    if (b->failed)
        return PL_OK;
    for (int64_t i = 0; i < QUERIES * keys; i++) /* apart, others for each query */
        list[i] = (int32_t)((i % keys * SLOTS / keys + i / keys * 131) % SLOTS);
    c->b = b;
    c->scratch = take_scratch(b);
    c->groups = (h + PL_SPARSE_GROUP - 1) / PL_SPARSE_GROUP;
    c->args = (pl_sparse_args){.n_heads = (int32_t)h,
                               .dim = PL_HEAD_DIM,
                               .q = pl_bench_bf16(b, QUERIES * h * PL_HEAD_DIM),
                               .q_token_stride = h * PL_HEAD_DIM,
                               .q_head_stride = PL_HEAD_DIM,
                               .scale = 0x1.6a09e6p-5f,
                               .set = {{take_cache(b, fp8), list, keys, (int32_t)keys, NULL}},
                               .n_sets = 1,
                               .length_tokens = 1,
                               .sink = pl_bench_f32(b, h),
                               .out = pl_bench_take(b, (uint64_t)(QUERIES * h * PL_HEAD_DIM * 2)),
                               .out_token_stride = h * PL_HEAD_DIM,
                               .out_head_stride = PL_HEAD_DIM,
                               .lse = pl_bench_take(b, (uint64_t)(QUERIES * h * 4)),
                               .stat_stride = QUERIES};
    *w = (pl_bench_work){.run = run_sparse,
                         .user = c,
                         .units = QUERIES,
                         .bytes = (double)(keys * row),
                         .flops = 4.0 * (double)(h * keys) * PL_HEAD_DIM,
                         .limit = pl_bench_product_limit(b, h),
                         .working_set = (uint64_t)(SLOTS * row)};
    return PL_OK;
}

/* The first is what a quick run takes. */
static const char *const varlen_shapes[] = {"h24 d128 q256 k256", "h24 d128 q4096 k4096",
                                            "h24 d128 q4096 k4096 causal", "h32 d64 q1024 k1024",
                                            NULL};
static const char *const sparse_shapes[] = {"h64 keys640 fp8",
                                            "h128 keys640 fp8",
                                            "h8 keys640 fp8",
                                            "h8 keys640 bf16",
                                            "h64 keys4224 fp8",
                                            "h128 keys1152 fp8",
                                            NULL};

const pl_bench_op pl_bench_attention_varlen = {"attention_varlen", varlen_shapes, "h d q k",
                                               prepare_varlen};
const pl_bench_op pl_bench_attention_sparse = {"attention_sparse", sparse_shapes, "h keys",
                                               prepare_sparse};
