/* Rows of the model's own attention and of the indexer: a few decode tokens at the end of a long sequence. */
#include <string.h>

#include "base/error.h"
#include "cli/bench.h"

enum {
    TOKENS = 4,
    ENTRIES = 16384, /* compressed entries of the sequence: 64 Ki tokens at ratio 4 */
    PAGE_ROWS = 64,
};

/* Pages of n rows in the format of keys or of indexer keys. */
static pl_rows take_rows(pl_bench *b, int64_t n, int32_t data_bytes, int32_t scale_bytes)
{
    const int64_t pages = (n + PAGE_ROWS - 1) / PAGE_ROWS;
    pl_rows r = {NULL, pl_rows_page_bytes(PAGE_ROWS, data_bytes, scale_bytes), PAGE_ROWS,
                 data_bytes, scale_bytes};

    /* bf16 bits around 1 are sound codes too: e4m3 1.5 and below, e2m1 any. */
    r.base = (uint8_t *)pl_bench_bf16(b, pages * r.page_bytes / 2);
    for (int64_t i = 0; r.base && i < n; i++) {
        uint8_t *data = pl_rows_data(&r, i);

        for (int32_t d = 0; d < data_bytes; d += 2)
            data[d] &= 0xBF; /* no e4m3 NaN */
        memset(pl_rows_scales(&r, i), 124, (size_t)scale_bytes);
    }
    return r;
}

/* ---- attention */

struct attention {
    pl_bench *b;
    pl_attention_args args;
    pl_attention_seq seq;
    int32_t seq_of[TOKENS], position[TOKENS], n_sel[TOKENS];
};

static void run_attention(void *user, int64_t round)
{
    struct attention *c = user;

    pl_run_attention(&c->b->exec, &c->args, TOKENS);
}

static void set_tokens(int32_t *seq_of, int32_t *position, int32_t start)
{
    for (int32_t t = 0; t < TOKENS; t++) {
        seq_of[t] = 0;
        position[t] = start + t;
    }
}

/* `keys` slots: the window's 128, the others compressed entries that lie apart. */
static pl_status prepare_attention(pl_bench *b, const char *shape, pl_bench_work *w, pl_error *err)
{
    const int64_t h = pl_bench_word(shape, "h"), keys = pl_bench_word(shape, "keys");
    const int64_t n_sel = keys - PL_WINDOW, start = 4 * ENTRIES - TOKENS;
    const pl_ops *ops = b->exec.ops;
    struct attention *c = pl_bench_take(b, sizeof *c);
    const int64_t row = ops->kv_data_bytes + ops->kv_scale_bytes;
    float *sink;
    int32_t *sel;

    PL_CHECK(keys >= PL_WINDOW && n_sel <= ENTRIES / 2 && h <= 1024, err,
             "--shape: keys, h (got '%s', want %d to %d keys, up to 1024 heads)", shape, PL_WINDOW,
             ENTRIES / 2 + PL_WINDOW);
    sink = pl_bench_f32(b, h);
    sel = pl_bench_take(b, (uint64_t)(TOKENS * (n_sel + 1)) * sizeof *sel);
    if (b->failed)
        return PL_OK;
    c->b = b;
    set_tokens(c->seq_of, c->position, (int32_t)start);
    c->seq = (pl_attention_seq){
        .n = TOKENS,
        .start = (int32_t)start,
        .ring = take_rows(b, PL_WINDOW, ops->kv_data_bytes, ops->kv_scale_bytes),
        .ring_rows = PL_WINDOW,
        .entries = take_rows(b, ENTRIES, ops->kv_data_bytes, ops->kv_scale_bytes)};
    c->args =
        (pl_attention_args){.n_heads = (int32_t)h,
                            .ratio = n_sel ? 4 : 0,
                            .q = pl_bench_bf16(b, TOKENS * h * PL_HEAD_DIM),
                            .sink = {.format = PL_WEIGHT_F32, .rows = 1, .cols = h, .data = sink},
                            .seqs = &c->seq,
                            .seq_of = c->seq_of,
                            .position = c->position,
                            .step = take_rows(b, TOKENS, ops->kv_data_bytes, ops->kv_scale_bytes),
                            .sel = n_sel ? sel : NULL,
                            .n_sel = c->n_sel,
                            .sel_stride = n_sel,
                            .o = pl_bench_take(b, (uint64_t)(TOKENS * h * PL_HEAD_DIM * 2))};
    for (int32_t t = 0; t < TOKENS; t++) {
        c->n_sel[t] = (int32_t)n_sel;
        for (int64_t i = 0; i < n_sel; i++) /* ascending, apart, others for each token */
            sel[t * n_sel + i] = (int32_t)((i * (ENTRIES - TOKENS) + t * 7) / n_sel);
    }
    *w = (pl_bench_work){.run = run_attention,
                         .user = c,
                         .units = TOKENS,
                         .bytes = (double)(keys * row),
                         .flops = 4.0 * (double)(h * keys) * PL_HEAD_DIM,
                         .limit = pl_bench_product_limit(b, h),
                         .working_set = (uint64_t)(TOKENS * keys * row)};
    return PL_OK;
}

/* ---- indexer */

struct indexer {
    pl_bench *b;
    pl_index_topk_args args;
    pl_attention_seq seq;
    int32_t seq_of[TOKENS], position[TOKENS];
};

static void run_indexer(void *user, int64_t round)
{
    struct indexer *c = user;

    pl_run_index_topk(&c->b->exec, &c->args, 1);
}

static pl_status prepare_indexer(pl_bench *b, const char *shape, pl_bench_work *w, pl_error *err)
{
    const int64_t h = pl_bench_word(shape, "h"), keys = pl_bench_word(shape, "keys");
    const int64_t top = pl_bench_word(shape, "top"), parts = pl_pool_n_workers(b->exec.pool);
    const pl_ops *ops = b->exec.ops;
    const int64_t row = ops->key_data_bytes + ops->key_scale_bytes;
    struct indexer *c = pl_bench_take(b, sizeof *c);

    PL_CHECK(keys <= 1 << 18 && h <= 1024 && top <= 4096, err,
             "--shape: (got '%s', want up to %d keys, 1024 heads, top 4096)", shape, 1 << 18);
    if (b->failed)
        return PL_OK;
    c->b = b;
    set_tokens(c->seq_of, c->position, (int32_t)(4 * keys - 1));
    c->seq =
        (pl_attention_seq){.n = 1,
                           .start = (int32_t)(4 * keys - 1),
                           .keys = take_rows(b, keys, ops->key_data_bytes, ops->key_scale_bytes)};
    c->args = (pl_index_topk_args){
        .n_heads = (int32_t)h,
        .topk = (int32_t)top,
        .n_parts = (int32_t)parts,
        .query = take_rows(b, h, ops->key_data_bytes, ops->key_scale_bytes),
        .w = pl_bench_bf16(b, h),
        .factor = 0.01f,
        .seqs = &c->seq,
        .seq_of = c->seq_of,
        .position = c->position,
        .best_score = pl_bench_take(b, (uint64_t)(parts * top) * sizeof(float)),
        .best = pl_bench_take(b, (uint64_t)(parts * top) * sizeof(int32_t)),
        .n_best = pl_bench_take(b, (uint64_t)parts * sizeof(int32_t))};
    *w = (pl_bench_work){.run = run_indexer,
                         .user = c,
                         .bytes = (double)(keys * row),
                         .flops = 2.0 * (double)(h * keys) * PL_INDEX_DIM,
                         .limit = pl_bench_product_limit(b, h),
                         .working_set = (uint64_t)(keys * row)};
    return PL_OK;
}

static const char *const attention_shapes[] = {"h64 keys640 fp8", "h64 keys128 fp8",
                                               "h64 keys4224 fp8", "h128 keys1152 fp8", NULL};
static const char *const indexer_shapes[] = {"h64 keys4096 top512", "h64 keys16384 top512",
                                             "h64 keys16384 top1024", NULL};

const pl_bench_op pl_bench_attention = {"attention", attention_shapes, "h keys", prepare_attention};
const pl_bench_op pl_bench_indexer = {"indexer", indexer_shapes, "h keys top", prepare_indexer};
