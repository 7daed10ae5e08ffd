/* The public entry of attention_varlen: special values, any workers and any split, refusals that write nothing, and
 * the caller's environment. Bits and bounds of the kernels: checkkern --op varlen. */
#include "plimsoll/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <xmmintrin.h>

#include <cmocka.h>

#include "base/numfmt.h"
#include "support/check.h"

enum { H = 6, KV = 2, D = 32, DV = 48, TOKENS = 70, KEYS = 160, N_SEQS = 4 };

typedef struct problem {
    int32_t cu_q[N_SEQS + 1], cu_k[N_SEQS + 1];
    uint16_t q[TOKENS][H][D], k[KEYS][KV][D], v[KEYS][KV][DV], out[TOKENS][H][DV];
    float sink[H], lse[H][TOKENS];
    pl_attention_varlen_args a;
    pl_ops_context *context;
    void *workspace;
    uint64_t bytes;
} problem;

static void fill(uint16_t *x, size_t n, uint32_t *r)
{
    for (size_t i = 0; i < n; i++) {
        *r = *r * 1664525u + 1013904223u;
        x[i] = (uint16_t)((*r >> 8 & 0x807F) | (124 + (*r >> 24) % 4) << 7);
    }
}

static problem *open_problem(const pl_ops_params *params)
{
    static const int32_t cu_q[] = {0, 1, 40, 60, 70}, cu_k[] = {0, 100, 100, 130, 160};
    problem *p = calloc(1, sizeof *p);
    uint32_t r = 5;
    pl_error err;

    assert_non_null(p);
    memcpy(p->cu_q, cu_q, sizeof cu_q);
    memcpy(p->cu_k, cu_k, sizeof cu_k);
    fill(p->q[0][0], sizeof p->q / 2, &r);
    fill(p->k[0][0], sizeof p->k / 2, &r);
    fill(p->v[0][0], sizeof p->v / 2, &r);
    p->a = pl_attention_varlen_default();
    p->a.n_seqs = N_SEQS;
    p->a.n_heads = H;
    p->a.n_kv_heads = KV;
    p->a.head_dim = D;
    p->a.value_dim = DV;
    p->a.cu_seqlens_q = p->cu_q;
    p->a.cu_seqlens_k = p->cu_k;
    p->a.q = p->q, p->a.q_token_stride = (int64_t)H * D, p->a.q_head_stride = D;
    p->a.k = p->k, p->a.k_token_stride = (int64_t)KV * D, p->a.k_head_stride = D;
    p->a.v = p->v, p->a.v_token_stride = (int64_t)KV * DV, p->a.v_head_stride = DV;
    p->a.out = p->out, p->a.out_token_stride = (int64_t)H * DV, p->a.out_head_stride = DV;
    p->a.lse = p->lse[0];
    check_ok(pl_ops_context_create(params, &p->context, &err), &err);
    p->bytes = pl_ops_workspace_bytes(p->context);
    p->workspace = aligned_alloc(64, (size_t)(p->bytes + 63) / 64 * 64);
    assert_non_null(p->workspace);
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
    check_ok(pl_attention_varlen(p->context, &p->a, p->workspace, p->bytes, &err), &err);
}

/* ---- special values */

/* LSE of the rows of sequence 1, which has no keys, and of others; out beside it. */
static void empty_rows_give_zero(void **state)
{
    problem *p = open_problem(&(pl_ops_params){.n_workers = 1});

    for (int sinks = 0; sinks < 2; sinks++) {
        p->a.sink = sinks ? p->sink : NULL;
        p->a.n_sinks = sinks;
        run(p);
        for (int t = 1; t < 40; t++)
            for (int h = 0; h < H; h++) {
                assert_true(isinf(p->lse[h][t]) && p->lse[h][t] < 0);
                for (int d = 0; d < DV; d++)
                    assert_int_equal(p->out[t][h][d], 0);
            }
        assert_true(isfinite(p->lse[0][0]) && isfinite(p->lse[H - 1][TOKENS - 1]));
    }
    /* causal, bottom right: with 20 queries and 30 keys all rows see some; with 39 queries and 5 keys 34 do not */
    p->a.causal = 1;
    p->cu_k[1] = 95;
    run(p);
    assert_true(isinf(p->lse[0][34]) && isfinite(p->lse[0][35]));
    close_problem(p);
}

static void sinks_at_the_ends(void **state)
{
    problem *p = open_problem(&(pl_ops_params){.n_workers = 1}), *q;
    uint16_t without[H][DV];

    run(p);
    memcpy(without, p->out[0], sizeof without);
    q = open_problem(&(pl_ops_params){.n_workers = 1});
    q->a.sink = q->sink;
    q->a.n_sinks = 1;
    q->sink[0] = -INFINITY, q->sink[1] = INFINITY, q->sink[2] = NAN, q->sink[3] = 1e4f;
    q->sink[4] = q->lse[4][0] = p->lse[4][0];
    run(q);
    assert_memory_equal(q->out[0][0], without[0], sizeof without[0]); /* no effect */
    for (int d = 0; d < DV; d++) {
        float half = pl_bf16_to_f32(without[4][d]) / 2, got = pl_bf16_to_f32(q->out[0][4][d]);
        assert_int_equal(q->out[0][1][d] & 0x7FFF, 0);
        assert_true(isnan(pl_bf16_to_f32(q->out[0][2][d])));
        assert_int_equal(q->out[0][3][d] & 0x7FFF, 0);
        /* a sink as large as all keys together takes half */
        assert_true(fabsf(got - half) <= 0x1p-7f * fabsf(half));
    }
    for (int h = 0; h < H; h++) /* never in the LSE */
        assert_int_equal(pl_f32_bits(q->lse[h][0]), pl_f32_bits(p->lse[h][0]));
    close_problem(p);
    close_problem(q);
}

/* Every case of sinks over rows without keys, and over a row whose scores are NaN: 0 and -infinity to the bit, or NaN. */
static void special_values_are_those_of_the_table(void **state)
{
    static const float sinks[][2] = {{0, 0},        {-INFINITY, -INFINITY}, {INFINITY, INFINITY},
                                     {NAN, NAN},    {-INFINITY, 2},         {INFINITY, 2},
                                     {1e4f, -1e4f}, {-3e38f, 3e38f}};
    problem *p = open_problem(&(pl_ops_params){.n_workers = 1});
    float two[2][H];

    p->q[0][2][5] = 0x7FC0;
    for (size_t i = 0; i < sizeof sinks / sizeof sinks[0]; i++)
        for (int n = 0; n < 3; n++) {
            for (int h = 0; h < H; h++) {
                two[0][h] = sinks[i][0];
                two[1][h] = sinks[i][1];
            }
            p->a.sink = n ? two[0] : NULL;
            p->a.n_sinks = n;
            run(p);
            for (int h = 0; h < H; h++) {
                for (int t = 1; t < 40; t++) {
                    assert_int_equal(pl_f32_bits(p->lse[h][t]), 0xFF800000);
                    for (int d = 0; d < DV; d++)
                        assert_int_equal(p->out[t][h][d], 0);
                }
                assert_int_equal(isnan(p->lse[h][0]), h == 2);
            }
            for (int d = 0; d < DV; d++)
                assert_true(isnan(pl_bf16_to_f32(p->out[0][2][d])));
        }
    close_problem(p);
}

/* A sink of -infinity beside another has no effect, one of +infinity takes everything; two of one are ln 2 more. */
static void several_sinks_are_one(void **state)
{
    problem *p = open_problem(&(pl_ops_params){.n_workers = 1}), *q;
    float two[2][H];

    q = open_problem(&(pl_ops_params){.n_workers = 1});
    p->a.sink = p->sink, p->a.n_sinks = 1;
    q->a.sink = two[0], q->a.n_sinks = 2;
    for (int h = 0; h < H; h++) {
        p->sink[h] = h < 4 ? 0.5f : 0.5f + (float)log(2.0);
        two[0][h] = h == 1 ? -INFINITY : 0.5f;
        two[1][h] = h == 2 ? INFINITY : h < 4 && h != 1 ? -INFINITY : 0.5f;
    }
    run(p);
    run(q);
    for (int h = 0; h < H; h++)
        for (int d = 0; d < DV; d++) {
            float a = pl_bf16_to_f32(p->out[0][h][d]), b = pl_bf16_to_f32(q->out[0][h][d]);
            if (h == 2)
                assert_int_equal(q->out[0][h][d] & 0x7FFF, 0);
            else if (h < 4)
                assert_int_equal(p->out[0][h][d], q->out[0][h][d]);
            else
                assert_true(fabsf(a - b) <= 0x1p-7f * fabsf(a));
        }
    assert_memory_equal(p->lse, q->lse, sizeof p->lse);
    close_problem(p);
    close_problem(q);
}

/* No keys in the whole batch need no arrays of them; no queries need none at all. A cap of 0 or below is none. */
static void empty_batches_and_caps(void **state)
{
    static const int32_t none[N_SEQS + 1];
    problem *p = open_problem(&(pl_ops_params){.n_workers = 1}), *q;

    run(p);
    q = open_problem(&(pl_ops_params){.n_workers = 1});
    q->a.softcap = -1;
    run(q);
    assert_memory_equal(p->out, q->out, sizeof p->out);
    q->a.softcap = 1;
    run(q);
    assert_memory_not_equal(p->out, q->out, sizeof p->out);
    q->a.softcap = 0;
    q->a.cu_seqlens_k = none;
    q->a.k = q->a.v = NULL;
    run(q);
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < H; h++) {
            assert_int_equal(pl_f32_bits(q->lse[h][t]), 0xFF800000);
            for (int d = 0; d < DV; d++)
                assert_int_equal(q->out[t][h][d], 0);
        }
    q->a.cu_seqlens_q = none;
    q->a.q = NULL;
    run(q); /* nothing is touched */
    assert_int_equal(q->out[0][0][0], 0xA5A5);
    assert_int_equal(pl_f32_bits(q->lse[0][0]), 0xA5A5A5A5);
    q->a.out = NULL, q->a.lse = NULL, q->a.n_seqs = 0;
    run(q);
    close_problem(p);
    close_problem(q);
}

/* Keys and values that are lost show in their rows and in no other. */
static void nan_stays_with_its_rows(void **state)
{
    problem *p = open_problem(&(pl_ops_params){.n_workers = 1}), *q;

    p->a.causal = 1;
    run(p);
    q = open_problem(&(pl_ops_params){.n_workers = 1});
    q->a.causal = 1;
    for (int d = 0; d < DV; d++)
        q->v[129][0][d] = 0x7FC0; /* the last key of sequence 2: its last query sees it alone */
    q->k[129][0][0] = 0x7F80;
    run(q);
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < H; h++) {
            if (t == 59 && h < H / KV)
                assert_true(isnan(pl_bf16_to_f32(q->out[t][h][0])));
            else
                assert_memory_equal(p->out[t][h], q->out[t][h], sizeof p->out[t][h]);
        }
    close_problem(p);
    close_problem(q);
}

/* ---- invariance */

static void one_after_the_other(void *user, int64_t n, void (*fn)(void *arg, int64_t i, int worker),
                                void *arg)
{
    for (int64_t i = n - 1; i >= 0; i--)
        fn(arg, i, (int)(i % *(const int *)user));
}

static void workers_levels_and_splits_do_not_matter(void **state)
{
    int three = 3;
    const pl_ops_params all[] = {
        {.n_workers = 1, .level = "scalar"},
        {.n_workers = 1},
        {.n_workers = 3, .no_pin = 1},
        {.n_workers = 3, .parallel_for = one_after_the_other, .user = &three}};
    problem *first = open_problem(&all[0]);

    first->a.window_left = 20;
    run(first);
    for (size_t i = 1; i < sizeof all / sizeof all[0]; i++) {
        problem *p = open_problem(&all[i]);
        pl_error err;

        p->a.window_left = 20;
        run(p);
        assert_memory_equal(p->out, first->out, sizeof p->out);
        assert_memory_equal(p->lse, first->lse, sizeof p->lse);
        /* sequence 3 alone */
        memset(p->out, 0, sizeof p->out);
        p->a.n_seqs = 1;
        p->a.q = p->q[60], p->a.k = p->k[130], p->a.v = p->v[130], p->a.out = p->out[60];
        p->cu_q[1] = 10, p->cu_k[1] = 30;
        p->a.lse = NULL;
        check_ok(pl_attention_varlen(p->context, &p->a, p->workspace, p->bytes, &err), &err);
        assert_memory_equal(p->out[60], first->out[60], sizeof p->out[60] * 10);
        close_problem(p);
    }
    close_problem(first);
}

static void environment_is_the_callers(void **state)
{
    problem *p = open_problem(&(pl_ops_params){.n_workers = 2, .no_pin = 1});
    unsigned before = _mm_getcsr(),
             odd = (before & ~0xE040u) | 0x6000; /* towards zero, no FTZ, no DAZ */

    run(p);
    _mm_setcsr(odd & ~0x3Fu);
    {
        uint16_t want[H][DV];
        memcpy(want, p->out[69], sizeof want);
        run(p);
        assert_int_equal(_mm_getcsr(), odd & ~0x3Fu);
        assert_memory_equal(p->out[69], want, sizeof want);
    }
    _mm_setcsr(before);
    close_problem(p);
}

/* ---- refusals */

static void refuse(problem *p, const char *text)
{
    pl_error err = {0};
    uint16_t out[DV];

    memset(p->out, 0xA5, sizeof p->out);
    memset(out, 0xA5, sizeof out);
    assert_int_equal(pl_attention_varlen(p->context, &p->a, p->workspace, p->bytes, &err),
                     PL_ERR_INVALID);
    if (!strstr(err.msg, text))
        fail_msg("got '%s', want '%s' in it", err.msg, text);
    for (int t = 0; t < TOKENS; t++)
        assert_memory_equal(p->out[t][0], out, sizeof out);
}

#define REFUSED(change, text)              \
    do {                                   \
        pl_attention_varlen_args s = p->a; \
        change;                            \
        refuse(p, text);                   \
        p->a = s;                          \
    } while (0)

static void refusals_name_the_argument(void **state)
{
    problem *p = open_problem(&(pl_ops_params){.n_workers = 1});
    int32_t pages[N_SEQS][2] = {{0, 1}, {9, 9}, {2, 9}, {3, 4}};

    REFUSED(p->a.dtype = (pl_dtype)3, "dtype: unknown (got 3, want 0 .. 2)");
    REFUSED(p->a.n_seqs = -1, "n_seqs: negative (got -1");
    REFUSED(p->a.n_heads = 0, "n_heads: out of range (got 0");
    REFUSED(p->a.n_kv_heads = 4,
            "n_kv_heads: does not divide n_heads (got 4, want a divisor of 6)");
    REFUSED(p->a.head_dim = 20, "head_dim: not supported (got 20");
    REFUSED(p->a.value_dim = 520, "value_dim: not supported (got 520");
    REFUSED(p->a.window_left = -2, "window_left: out of range (got -2");
    REFUSED(p->a.softmax_scale = NAN, "softmax_scale: not a scale");
    REFUSED(p->a.softcap = INFINITY, "softcap: not a number (got inf");
    REFUSED(p->a.n_sinks = 1, "sink: n_sinks rows are not there (got 1 rows");
    REFUSED(p->a.cu_seqlens_q = NULL, "cu_seqlens_q: missing");
    REFUSED(p->a.q = NULL, "q: missing or not aligned");
    REFUSED(p->a.k = (const uint8_t *)p->k + 1, "k: missing or not aligned");
    REFUSED(p->a.q_head_stride = D - 1, "q_head_stride: heads overlap (got 31, want 32 or more)");
    REFUSED(p->a.v_token_stride = INT64_MAX / 2, "v_token_stride: too large");
    REFUSED(p->a.out_token_stride = DV, "out_token_stride: rows of the output overlap (got 48");
    REFUSED(p->a.out = p->q, "out: overlaps q");
    REFUSED(p->a.lse = (float *)(void *)p->out[3], "out: overlaps lse");
    REFUSED(p->a.lse = (float *)(void *)p->v[0], "lse: overlaps v");
    REFUSED((p->a.page_table = pages[0], p->a.page_table_stride = 2), "page_size: no page (got 0");
    REFUSED((p->a.page_table = pages[0], p->a.page_table_stride = 1, p->a.page_size = 64,
             p->a.n_pages = 5),
            "page_table_stride: too short for sequence 0 (got 1, want 2 or more)");
    REFUSED((p->a.page_table = pages[0], p->a.page_table_stride = 2, p->a.page_size = 64,
             p->a.n_pages = 2),
            "page_table[2][0]: no such page (got 2, want 0 .. 1)");
    REFUSED(p->bytes--, "workspace_bytes: too few");
    p->bytes++;
    p->cu_q[2] = 0;
    refuse(p, "cu_seqlens_q[2]: falls (got 0, want 1 or more)");
    close_problem(p);
}

static void contexts_refuse_too(void **state)
{
    pl_ops_context *c = NULL;
    pl_error err = {0};

    assert_int_equal(pl_ops_context_create(&(pl_ops_params){.n_workers = -1}, &c, &err),
                     PL_ERR_INVALID);
    assert_non_null(strstr(err.msg, "n_workers: out of range (got -1"));
    assert_int_equal(
        pl_ops_context_create(&(pl_ops_params){.parallel_for = one_after_the_other}, &c, &err),
        PL_ERR_INVALID);
    assert_int_not_equal(pl_ops_context_create(&(pl_ops_params){.level = "sse9"}, &c, &err), PL_OK);
    assert_int_equal(pl_ops_context_create(&(pl_ops_params){.level = "f64"}, &c, &err),
                     PL_ERR_UNSUPPORTED);
    assert_null(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_rows_give_zero),
        cmocka_unit_test(sinks_at_the_ends),
        cmocka_unit_test(special_values_are_those_of_the_table),
        cmocka_unit_test(several_sinks_are_one),
        cmocka_unit_test(empty_batches_and_caps),
        cmocka_unit_test(nan_stays_with_its_rows),
        cmocka_unit_test(workers_levels_and_splits_do_not_matter),
        cmocka_unit_test(environment_is_the_callers),
        cmocka_unit_test(refusals_name_the_argument),
        cmocka_unit_test(contexts_refuse_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
