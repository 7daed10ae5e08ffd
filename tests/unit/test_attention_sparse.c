/* The public entries of sparse attention and of caches: special values, any workers and any split, prefill as decode,
 * round trips, memory, refusals that write nothing. Bits and bounds of the kernels: checkkern --op sparse. */
#include "plimsoll/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/meminfo.h"
#include "base/numfmt.h"
#include "support/check.h"

enum {
    T = 6,
    H = 11,
    D = 512,
    PAGE = 7,
    N_PAGES = 9,
    SLOTS = PAGE * N_PAGES,
    LIST = 70,
    EXTRA = 5
};

/* ---- allocations are counted: the linker's --wrap */

static int n_allocated;
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);

static void count(void)
{
    __atomic_fetch_add(&n_allocated, 1, __ATOMIC_RELAXED);
}

void *__wrap_malloc(size_t n)
{
    count();
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    count();
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    count();
    return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    count();
    return __real_aligned_alloc(align, n);
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    count();
    return __real_mmap(at, n, prot, flags, fd, offset);
}

/* ---- a problem */

typedef struct problem {
    uint16_t q[T][H][D], x[SLOTS][D], plain[EXTRA][D], out[T][H][D];
    uint8_t pages[N_PAGES][PAGE * 584 + 24];
    int32_t list[T][LIST], extra[T][EXTRA], lengths[T];
    float sink[H], lse[H][T], max[H][T];
    pl_attention_sparse_args a;
    pl_ops_context *context;
    void *workspace;
    uint64_t bytes;
} problem;

static void fill(uint16_t *x, size_t n, uint32_t *r)
{
    for (size_t i = 0; i < n; i++) {
        *r = *r * 1664525u + 1013904223u;
        x[i] = (uint16_t)((*r >> 8 & 0x807F) | (122 + (*r >> 24) % 6) << 7);
    }
}

static problem *open_problem(const pl_ops_params *params)
{
    problem *p = calloc(1, sizeof *p);
    int32_t slots[SLOTS];
    uint32_t r = 3;
    pl_error err;

    assert_non_null(p);
    fill(p->q[0][0], sizeof p->q / 2, &r);
    fill(p->x[0], sizeof p->x / 2, &r);
    fill(p->plain[0], sizeof p->plain / 2, &r);
    memset(p->pages, 0xFF, sizeof p->pages);
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < LIST; i++)
            p->list[t][i] = i % 8 == 3 ? -1 : (i * 10 + t * 4) % SLOTS / 2 * 2;
        for (int i = 0; i < EXTRA; i++)
            p->extra[t][i] = (i + t) % EXTRA;
        p->lengths[t] = LIST - 3 * t;
    }
    check_ok(pl_ops_context_create(params, &p->context, &err), &err);
    p->bytes = pl_ops_workspace_bytes(p->context);
    p->workspace = aligned_alloc(64, (size_t)(p->bytes + 63) / 64 * 64);
    assert_non_null(p->workspace);
    p->a.n_tokens = T, p->a.n_heads = H, p->a.head_dim = D, p->a.n_sets = 2;
    p->a.q = p->q[0][0], p->a.q_token_stride = (int64_t)H * D, p->a.q_head_stride = D;
    p->a.set[0] = (pl_sparse_keys){
        {PL_KV_V4, D, p->pages, PAGE, N_PAGES, sizeof p->pages[0]}, p->list[0], LIST, LIST, NULL};
    p->a.set[1] =
        (pl_sparse_keys){{PL_KV_BF16, D, p->plain, EXTRA, 1, 0}, p->extra[0], EXTRA, EXTRA, NULL};
    p->a.out = p->out[0][0], p->a.out_token_stride = (int64_t)H * D, p->a.out_head_stride = D;
    p->a.lse = p->lse[0];
    p->a.max_logits = p->max[0];
    for (int32_t i = 0; i < SLOTS; i++) /* odd slots stay NaN: no list names them */
        slots[i] = i % 2 ? -1 : i;
    check_ok(pl_kv_insert(p->context, &p->a.set[0].cache, SLOTS, slots, p->x[0], D, &err), &err);
    return p;
}

static void close_problem(problem *p)
{
    pl_ops_context_destroy(p->context);
    free(p->workspace);
    free(p);
}

static void run(problem *p)
{
    pl_error err;

    memset(p->out, 0xA5, sizeof p->out);
    memset(p->lse, 0xA5, sizeof p->lse);
    memset(p->max, 0xA5, sizeof p->max);
    check_ok(pl_attention_sparse_prefill(p->context, &p->a, p->workspace, p->bytes, &err), &err);
}

/* ---- special values */

static void rows_without_keys(void **state)
{
    problem *p = open_problem(&(pl_ops_params){.n_workers = 1});

    p->a.n_sets = 1;
    p->a.set[0].lengths = p->lengths;
    p->lengths[2] = 0;
    p->sink[0] = INFINITY, p->sink[1] = NAN;
    for (int i = 0; i < LIST; i++)
        p->list[4][i] = i % 2 ? -1 : SLOTS + i; /* past the cache */
    for (int sinks = 0; sinks < 2; sinks++) {
        p->a.sink = sinks ? p->sink : NULL;
        run(p);
        for (int t = 0; t < T; t++)
            for (int h = 0; h < H; h++) {
                bool none = t == 2 || t == 4;
                assert_true(none ? isinf(p->lse[h][t]) && p->lse[h][t] > 0
                                 : isfinite(p->lse[h][t]));
                assert_true(none ? isinf(p->max[h][t]) && p->max[h][t] < 0
                                 : isfinite(p->max[h][t]) && p->max[h][t] <= p->lse[h][t]);
                for (int d = 0; d < D; d++) /* zero whatever the sink */
                    assert_true(none ? p->out[t][h][d] == 0
                                     : (sinks && h == 1) == isnan(pl_bf16_to_f32(p->out[t][h][d])));
            }
    }
    p->a.n_tokens = 0;
    run(p); /* nothing is touched */
    assert_int_equal(p->out[0][0][0], 0xA5A5);
    close_problem(p);
}

static void sinks_at_the_ends(void **state)
{
    problem *p = open_problem(&(pl_ops_params){.n_workers = 1}), *q;

    run(p);
    q = open_problem(&(pl_ops_params){.n_workers = 1});
    q->a.sink = q->sink;
    q->sink[0] = -INFINITY, q->sink[1] = INFINITY, q->sink[2] = NAN, q->sink[3] = 1e4f;
    q->sink[4] = p->lse[4][0];
    run(q);
    assert_memory_equal(q->out[0][0], p->out[0][0], sizeof p->out[0][0]); /* no effect */
    for (int d = 0; d < D; d++) {
        float half = pl_bf16_to_f32(p->out[0][4][d]) / 2, got = pl_bf16_to_f32(q->out[0][4][d]);
        assert_int_equal(q->out[0][1][d] & 0x7FFF, 0);
        assert_true(isnan(pl_bf16_to_f32(q->out[0][2][d])));
        assert_int_equal(q->out[0][3][d] & 0x7FFF, 0);
        assert_true(fabsf(got - half) <= 0x1p-7f * fabsf(half));
    }
    assert_memory_equal(q->lse, p->lse, sizeof p->lse); /* never in these */
    assert_memory_equal(q->max, p->max, sizeof p->max);
    close_problem(p);
    close_problem(q);
}

/* One key: its LSE and its largest logit are the score, out is the key. */
static void one_key_is_the_answer(void **state)
{
    problem *p = open_problem(&(pl_ops_params){.n_workers = 1});
    double score = 0;

    p->a.n_sets = 1;
    p->a.set[0] = p->a.set[1];
    p->a.set[0].n_indices = 1;
    run(p);
    for (int d = 0; d < D; d++) {
        score += (double)pl_bf16_to_f32(p->q[3][7][d]) * (double)pl_bf16_to_f32(p->plain[3][d]);
        assert_int_equal(p->out[3][7][d], p->plain[3][d]);
    }
    score /= sqrt(512.0);
    assert_true(fabs((double)p->lse[7][3] - score) < 1e-5 * (1 + fabs(score)));
    assert_true(fabs((double)p->max[7][3] - score) < 1e-5 * (1 + fabs(score)));
    close_problem(p);
}

/* ---- invariance */

static void backwards(void *user, int64_t n, void (*fn)(void *arg, int64_t i, int worker),
                      void *arg)
{
    for (int64_t i = n - 1; i >= 0; i--)
        fn(arg, i, (int)(i % *(const int *)user));
}

static void workers_levels_and_splits_do_not_matter(void **state)
{
    int three = 3;
    const pl_ops_params all[] = {{.n_workers = 1, .level = "scalar"},
                                 {.n_workers = 1},
                                 {.n_workers = 3, .no_pin = 1},
                                 {.n_workers = 3, .parallel_for = backwards, .user = &three}};
    problem *first = open_problem(&all[0]);

    first->a.sink = first->sink;
    run(first);
    for (size_t i = 1; i < sizeof all / sizeof all[0]; i++) {
        problem *p = open_problem(&all[i]);
        pl_error err;

        assert_memory_equal(p->pages, first->pages, sizeof p->pages);
        p->a.sink = p->sink;
        run(p);
        assert_memory_equal(p->out, first->out, sizeof p->out);
        assert_memory_equal(p->lse, first->lse, sizeof p->lse);
        assert_memory_equal(p->max, first->max, sizeof p->max);
        /* tokens one by one, a few heads, as decode */
        memset(p->out, 0, sizeof p->out);
        p->a.n_tokens = 1, p->a.n_heads = 4, p->a.lse = p->a.max_logits = NULL;
        for (int t = 0; t < T; t++) {
            p->a.q = p->q[t][5], p->a.out = p->out[t][5];
            p->a.set[0].indices = p->list[t], p->a.set[1].indices = p->extra[t];
            check_ok(pl_attention_sparse_decode(p->context, &p->a, p->workspace, p->bytes, &err),
                     &err);
            assert_memory_equal(p->out[t][5], first->out[t][5], 4 * sizeof p->out[t][5]);
        }
        close_problem(p);
    }
    close_problem(first);
}

/* Lengths of decode belong to sequences of several tokens. */
static void lengths_of_sequences(void **state)
{
    problem *p = open_problem(&(pl_ops_params){.n_workers = 1});
    uint16_t want[T][H][D];
    pl_error err;

    p->a.set[0].lengths = p->lengths;
    for (int t = 0; t < T; t++)
        p->lengths[t] = t < 3 ? 20 : 66;
    run(p);
    memcpy(want, p->out, sizeof want);
    memset(p->out, 0, sizeof p->out);
    p->lengths[1] = 66, p->lengths[2] = -7; /* two lengths are read */
    p->a.seq_tokens = 3;
    check_ok(pl_attention_sparse_decode(p->context, &p->a, p->workspace, p->bytes, &err), &err);
    assert_memory_equal(p->out, want, sizeof want);
    close_problem(p);
}

/* ---- caches */

/* Bytes between rows, behind pages and of slots that are not named stay; what comes back is what was promised. */
static void check_cache(pl_kv_format format, int32_t dim, int64_t row_bytes)
{
    enum { N = 6, SIZE = 5, ALL = 3 };
    const int32_t slots[N] = {0, -1, 7, 12, 7, 4};
    pl_ops_context *context;
    int64_t page = row_bytes * SIZE + 40;
    uint8_t *pages = malloc((size_t)(page * ALL)), *other = malloc((size_t)(page * ALL));
    uint16_t x[N][576], back[N][576], again[N][576];
    uint8_t codes[N][512], scales[N][16];
    uint16_t rope[N][64];
    pl_kv_cache c = {format, dim, pages, SIZE, ALL, page}, small = {format, dim, other, 1, 15, 0};
    uint32_t r = 11;
    pl_error err;

    assert_true(pages && other);
    check_ok(pl_ops_context_create(&(pl_ops_params){.n_workers = 2, .no_pin = 1}, &context, &err),
             &err);
    fill(x[0], sizeof x / 2, &r);
    x[3][0] = 0x7F80; /* an infinity loses its block */
    memset(pages, 0xFF, (size_t)(page * ALL));
    memset(other, 0, (size_t)(page * ALL));
    check_ok(pl_kv_insert(context, &c, N, slots, x[0], 576, &err), &err);
    for (int64_t i = 0; i < ALL; i++)
        for (int64_t b = SIZE * row_bytes; b < page; b++)
            assert_int_equal(pages[i * page + b], 0xFF);
    check_ok(pl_kv_gather(context, &c, N, slots, back[0], 576, &err), &err);
    for (int i = 0; i < N; i++)
        for (int d = 0; d < dim; d++) {
            float got = pl_bf16_to_f32(back[i][d]), want = pl_bf16_to_f32(x[i == 2 ? 4 : i][d]);
            bool exact = format == PL_KV_BF16 || d >= dim - 64;
            if (i == 1)
                assert_int_equal(back[i][d], 0);
            else if (exact)
                assert_int_equal(back[i][d], x[i == 2 ? 4 : i][d]);
            else if (i == 3 && d < (format == PL_KV_V4 ? 64 : 128))
                assert_true(isnan(got));
            else /* 4 bits, and a floor of 2^-10 of the largest of the block, below 2 */
                assert_true(fabsf(got - want) <= fmaxf(fabsf(want) * 0x1p-4f, 0x1p-16f));
        }
    check_ok(pl_kv_insert(context, &small, N, slots, back[0], 576, &err), &err);
    check_ok(pl_kv_gather(context, &small, N, slots, again[0], 576, &err), &err);
    for (int i = 0; i < N; i++)
        assert_memory_equal(again[i], back[i], (size_t)dim * 2);
    if (format != PL_KV_BF16) { /* byte for byte, to pages of another size */
        pl_kv_parts parts = {codes[0], scales[0], rope[0]}, second;
        uint8_t codes2[N][512], scales2[N][16];
        uint16_t rope2[N][64];
        int64_t coded = dim - 64, s = format == PL_KV_V4 ? 8 : 16;

        memset(other, 0, (size_t)(page * ALL));
        check_ok(pl_kv_unpack(context, &c, N, slots, &parts, &err), &err);
        check_ok(pl_kv_pack(context, &small, N, slots, &parts, &err), &err);
        second = (pl_kv_parts){codes2[0], scales2[0], rope2[0]};
        check_ok(pl_kv_unpack(context, &small, N, slots, &second, &err), &err);
        assert_memory_equal(codes, codes2, (size_t)(N * coded));
        assert_memory_equal(scales, scales2, (size_t)(N * s));
        assert_memory_equal(rope, rope2, sizeof rope);
        assert_memory_equal(other, codes, (size_t)coded); /* slot 0 begins with its codes */
        check_ok(pl_kv_gather(context, &small, N, slots, again[0], 576, &err), &err);
        for (int i = 0; i < N; i++)
            assert_memory_equal(again[i], back[i], (size_t)dim * 2);
    }
    pl_ops_context_destroy(context);
    free(pages);
    free(other);
}

static void caches_give_back_what_they_promise(void **state)
{
    check_cache(PL_KV_BF16, 512, 1024);
    check_cache(PL_KV_BF16, 576, 1152);
    check_cache(PL_KV_V4, 512, 584);
    check_cache(PL_KV_V32, 576, 656);
}

/* The layout of V3.2, byte by byte: scale 2 of numbers that are twice a code. */
static void records_of_656_bytes(void **state)
{
    uint8_t record[656];
    uint16_t x[576];
    int32_t slot = 0;
    float scale;
    pl_kv_cache c = {PL_KV_V32, 576, record, 1, 1, 0};
    pl_ops_context *context;
    pl_error err;

    check_ok(pl_ops_context_create(&(pl_ops_params){.n_workers = 1}, &context, &err), &err);
    for (int d = 0; d < 576; d++)
        x[d] = pl_f32_to_bf16(d % 128 == 9 ? 896.0f : d >= 512 ? (float)d : 2.0f);
    check_ok(pl_kv_insert(context, &c, 1, &slot, x, 0, &err), &err);
    for (int b = 0; b < 4; b++) {
        memcpy(&scale, record + 512 + 4 * b, 4);
        assert_int_equal(pl_f32_bits(scale), pl_f32_bits(2.0f));
        assert_int_equal(record[128 * b], 0x38);     /* 1 */
        assert_int_equal(record[128 * b + 9], 0x7E); /* 448 */
    }
    assert_memory_equal(record + 528, x + 512, 128);
    pl_ops_context_destroy(context);
}

/* ---- memory */

/* 8,192 tokens of 8 local heads: nothing beyond the fixed workspace. */
static void prefill_of_8192_tokens_takes_no_memory(void **state)
{
    enum { TOKENS = 8192, HEADS = 8, KEYS = 64 };
    problem *p = open_problem(&(pl_ops_params){.n_workers = 2, .no_pin = 1});
    size_t bytes = (size_t)TOKENS * HEADS * D * 2;
    uint16_t *q = malloc(bytes), *out = malloc(bytes);
    int32_t *list = malloc((size_t)TOKENS * KEYS * sizeof *list);
    pl_mem_usage before, after;
    int counted;
    pl_error err;

    assert_true(q && out && list);
    assert_true(p->bytes <= (uint64_t)2 * 576 * 1024);
    for (size_t i = 0; i < bytes / 2; i++)
        q[i] = (uint16_t)(0x3C00 + i % 512);
    for (int i = 0; i < TOKENS * KEYS; i++)
        list[i] = i % KEYS < 8 ? i % SLOTS / 2 * 2 : -1;
    memset(out, 0xA5, bytes);
    memset(p->workspace, 0, p->bytes);
    p->a.n_heads = HEADS, p->a.n_sets = 1, p->a.lse = p->a.max_logits = NULL;
    p->a.q = q, p->a.q_token_stride = HEADS * D;
    p->a.out = out, p->a.out_token_stride = HEADS * D;
    p->a.set[0].indices = list, p->a.set[0].index_stride = p->a.set[0].n_indices = KEYS;
    p->a.n_tokens = 64; /* code and stacks */
    check_ok(pl_attention_sparse_prefill(p->context, &p->a, p->workspace, p->bytes, &err), &err);
    p->a.n_tokens = TOKENS;
    check_ok(pl_mem_read_usage(&before, &err), &err);
    counted = n_allocated;
    check_ok(pl_attention_sparse_prefill(p->context, &p->a, p->workspace, p->bytes, &err), &err);
    assert_int_equal(n_allocated, counted);
    check_ok(pl_mem_read_usage(&after, &err), &err);
#ifndef __SANITIZE_ADDRESS__
    if (after.peak_resident_bytes > before.peak_resident_bytes + (256 << 10) ||
        after.resident_bytes > before.resident_bytes + (256 << 10))
        fail_msg("resident grew from %llu to %llu, peak from %llu to %llu bytes",
                 (unsigned long long)before.resident_bytes,
                 (unsigned long long)after.resident_bytes,
                 (unsigned long long)before.peak_resident_bytes,
                 (unsigned long long)after.peak_resident_bytes);
#endif
    for (size_t i = 0; i < bytes / 2; i += 997)
        assert_int_not_equal(out[i], 0xA5A5);
    free(q);
    free(out);
    free(list);
    close_problem(p);
}

/* ---- refusals */

static void refuse(problem *p, const char *text)
{
    pl_error err = {0};

    memset(p->out, 0xA5, sizeof p->out);
    assert_int_equal(pl_attention_sparse_decode(p->context, &p->a, p->workspace, p->bytes, &err),
                     PL_ERR_INVALID);
    if (!strstr(err.msg, text))
        fail_msg("got '%s', want '%s' in it", err.msg, text);
    for (size_t i = 0; i < sizeof p->out; i++)
        assert_int_equal(((uint8_t *)p->out)[i], 0xA5);
}

#define REFUSED(change, text)              \
    do {                                   \
        pl_attention_sparse_args s = p->a; \
        change;                            \
        refuse(p, text);                   \
        p->a = s;                          \
    } while (0)

static void refusals_name_the_argument(void **state)
{
    problem *p = open_problem(&(pl_ops_params){.n_workers = 1});

    REFUSED(p->a.n_tokens = -1, "n_tokens: negative (got -1");
    REFUSED(p->a.n_heads = 129, "n_heads: out of range (got 129, want 1 .. 128)");
    REFUSED(p->a.head_dim = 128, "head_dim: not supported (got 128, want 512 or 576)");
    REFUSED(p->a.seq_tokens = 4,
            "seq_tokens: does not divide n_tokens (got 4, want a divisor of 6");
    REFUSED(p->a.softmax_scale = NAN, "softmax_scale: not a scale");
    REFUSED(p->a.n_sets = 3, "n_sets: out of range (got 3, want 1 or 2)");
    REFUSED(p->a.q = NULL, "q: missing or not aligned");
    REFUSED(p->a.q_head_stride = 511, "q_head_stride: heads overlap (got 511, want 512 or more)");
    REFUSED(p->a.q_token_stride = INT64_MAX / 2, "q_token_stride: too large");
    REFUSED(p->a.out_token_stride = 512, "out_token_stride: rows of the output overlap (got 512");
    REFUSED(p->a.out = p->q[0][0], "out: overlaps q");
    REFUSED(p->a.out = p->plain[0], "out: overlaps set[1].cache");
    REFUSED(p->a.lse = (float *)(void *)p->list, "lse: overlaps set[0].indices");
    REFUSED(p->a.max_logits = p->lse[1], "lse: overlaps max_logits");
    REFUSED(p->a.set[0].cache.format = (pl_kv_format)3, "set[0].cache.format: unknown (got 3");
    REFUSED(p->a.set[0].cache.format = PL_KV_V32,
            "set[0].cache.head_dim: not that of the format (got 512, want 576)");
    REFUSED(p->a.set[0].cache.page_size = 0, "set[0].cache.page_size: no page (got 0");
    REFUSED(p->a.set[0].cache.n_pages = INT64_MAX, "set[0].cache.n_pages: reaches past the end");
    REFUSED(p->a.set[0].cache.page_bytes = 4087,
            "set[0].cache.page_bytes: pages overlap (got 4087, want 0, or 4088 or more)");
    REFUSED(p->a.set[1].cache.data = NULL, "set[1].cache.data: missing");
    REFUSED(p->a.set[1].indices = NULL, "set[1].indices: missing");
    REFUSED(p->a.set[1].index_stride = 4, "set[1].index_stride: too short (got 4, want 5 or more)");
    p->lengths[3] = LIST + 1;
    REFUSED(p->a.set[0].lengths = p->lengths,
            "set[0].lengths[3]: out of range (got 71, want 0 .. 70)");
    REFUSED(p->bytes--, "workspace_bytes: too few");
    p->bytes++;
    close_problem(p);
}

static void caches_refuse_too(void **state)
{
    problem *p = open_problem(&(pl_ops_params){.n_workers = 1});
    const pl_kv_cache *c = &p->a.set[0].cache;
    pl_kv_parts parts = {NULL, p->list, NULL};
    int32_t slots[2] = {0, SLOTS};
    uint8_t before[sizeof p->pages];
    pl_error err = {0};

    memcpy(before, p->pages, sizeof before);
    check_error(pl_kv_insert(p->context, c, 2, slots, p->x[0], D, &err), PL_ERR_INVALID, &err,
                "slots[1]: no such slot (got 63, want -1 .. 62)", NULL);
    slots[1] = 1;
    check_error(pl_kv_insert(p->context, c, 2, slots, p->x[0], D - 1, &err), PL_ERR_INVALID, &err,
                "x_stride: rows overlap (got 511, want 512 or more)", NULL);
    check_error(pl_kv_insert(p->context, c, -1, slots, p->x[0], D, &err), PL_ERR_INVALID, &err,
                "n: out of range (got -1, want 0 .. 2147483647)", NULL);
    check_error(pl_kv_pack(p->context, &p->a.set[1].cache, 2, slots, &parts, &err), PL_ERR_INVALID,
                &err, "cache.format: has no parts (got 0, want 1 or 2)", NULL);
    assert_int_equal(pl_kv_unpack(p->context, c, 2, slots, &parts, &err), PL_ERR_INVALID);
    assert_non_null(strstr(err.msg, "parts: an array is missing"));
    assert_int_equal(pl_kv_gather(p->context, c, 2, slots, (uint16_t *)(void *)p->pages, D, &err),
                     PL_ERR_INVALID);
    assert_non_null(strstr(err.msg, "x: overlaps cache"));
    assert_memory_equal(p->pages, before, sizeof before);
    close_problem(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_without_keys),
        cmocka_unit_test(sinks_at_the_ends),
        cmocka_unit_test(one_key_is_the_answer),
        cmocka_unit_test(workers_levels_and_splits_do_not_matter),
        cmocka_unit_test(lengths_of_sequences),
        cmocka_unit_test(caches_give_back_what_they_promise),
        cmocka_unit_test(records_of_656_bytes),
        cmocka_unit_test(prefill_of_8192_tokens_takes_no_memory),
        cmocka_unit_test(refusals_name_the_argument),
        cmocka_unit_test(caches_refuse_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
