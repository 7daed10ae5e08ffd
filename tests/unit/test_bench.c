/* The arithmetic of `plimsoll bench ops`, with a clock that the calls themselves advance. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "support/check.h"

struct fake {
    double now;
    const double *ns; /* of call i: ns[i % n] */
    int n;
    int64_t calls, last_round;
};

static double fake_now(void *user)
{
    return ((struct fake *)user)->now;
}

static void fake_run(void *user, int64_t round)
{
    struct fake *f = user;

    f->now += f->ns[f->calls % f->n];
    assert_int_equal(round, f->calls == 0 ? 0 : f->last_round + 1);
    f->last_round = round;
    f->calls++;
}

static pl_bench_time measure(struct fake *f, double budget)
{
    const pl_bench_clock clock = {fake_now, f};
    const pl_bench_work w = {.run = fake_run, .user = f};

    return pl_bench_measure(&clock, &w, budget);
}

static void check_near(double got, double want)
{
    assert_true(fabs(got - want) <= 1e-9 * fabs(want));
}

static void test_median(void **state)
{
    double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 2};

    check_near(pl_bench_median(odd, 3), 3);
    check_near(pl_bench_median(even, 4), 2.5);
    assert_true(pl_bench_median(odd, 0) == 0);
}

/* Calls of 2 ms, budget 10 ms: warm up and 5 samples of one call. */
static void test_constant_calls(void **state)
{
    const double ns[] = {2e6};
    struct fake f = {.ns = ns, .n = 1};
    pl_bench_time t = measure(&f, 1e7);

    check_near(t.ns, 2e6);
    assert_true(t.spread == 0);
    assert_int_equal(t.samples, 5);
    assert_int_equal(f.calls, 6);
}

/* Calls of 10 us are taken 101 at a time: a sample is at least a millisecond. */
static void test_short_calls(void **state)
{
    const double ns[] = {1e4};
    struct fake f = {.ns = ns, .n = 1};
    pl_bench_time t = measure(&f, 0);

    check_near(t.ns, 1e4);
    assert_int_equal(t.samples, 3);
    assert_int_equal(f.calls, 1 + 3 * 101);
}

/* After the warming up: 4 1 2 3 5 ms. Median 3, quartiles 2 and 4. */
static void test_spread(void **state)
{
    const double ns[] = {9e6, 4e6, 1e6, 2e6, 3e6, 5e6};
    struct fake f = {.ns = ns, .n = 6};
    pl_bench_time t = measure(&f, 1.4e7);

    assert_int_equal(t.samples, 5);
    check_near(t.ns, 3e6);
    check_near(t.spread, 100.0 * 2 / 3);
}

static void test_long_calls(void **state)
{
    const double ns[] = {3e9, 1e9};
    struct fake f = {.ns = ns, .n = 2};
    pl_bench_time t = measure(&f, 5e8);

    assert_int_equal(f.calls, 2);
    check_near(t.ns, 2e9);
}

static const pl_bench_op op = {"linear_fp8", NULL, "m n k", NULL};

static void test_judge(void **state)
{
    pl_bench_work w = {.bytes = 3e6, .flops = 8e6, .limit = PL_BENCH_READ, .working_set = 4096};
    const pl_bench_time time = {.ns = 1e6, .spread = 7};
    pl_bench_row r = pl_bench_judge(&op, "m1", &w, &time, 12, 4096);

    check_near(r.gbps, 3);
    check_near(r.gflops, 8);
    check_near(r.percent, 25);
    assert_true(r.cold && r.spread == 7);
    w.limit = PL_BENCH_FP32;
    w.units = 4; /* a call makes four */
    r = pl_bench_judge(&op, "m1", &w, &time, 40, 4097);
    check_near(r.ns, 2.5e5);
    check_near(r.gflops, 32);
    check_near(r.percent, 80);
    assert_false(r.cold);
}

static void test_cold(void **state)
{
    assert_int_equal(pl_bench_cold_bytes(8 << 20), 64 << 20);
    assert_int_equal(pl_bench_cold_bytes(64 << 20), 512 << 20);
    assert_int_equal(pl_bench_cold_bytes((uint64_t)1 << 30), 512 << 20);
    assert_int_equal(pl_bench_cold_bytes(0), 512 << 20);
}

static void test_words(void **state)
{
    const char *shape = "m12 top6 n8192 k4096";
    pl_error err;

    assert_int_equal(pl_bench_word(shape, "m"), 12);
    assert_int_equal(pl_bench_word(shape, "k"), 4096);
    assert_int_equal(pl_bench_word(shape, "top"), 6);
    assert_int_equal(pl_bench_word(shape, "t"), 0); /* not the one of top */
    assert_int_equal(pl_bench_word("h64 keys640 fp8", "fp"), 8);
    assert_int_equal(pl_bench_word("m1x", "m"), 0);
    assert_int_equal(pl_bench_word("", "m"), 0);
    check_ok(pl_bench_check_shape(pl_bench_ops[0], "m1 n16 k128", &err), &err);
    check_error(pl_bench_check_shape(pl_bench_ops[0], "m1 n16", &err), PL_ERR_INVALID, &err,
                "m1 n16", "m n k", NULL);
    check_error(pl_bench_check_shape(pl_bench_ops[0], "m0 n16 k128", &err), PL_ERR_INVALID, &err,
                "m0", "m n k", NULL);
    check_error(pl_bench_check_shape(pl_bench_ops[0], "m99999999999999999999 n16 k128", &err),
                PL_ERR_INVALID, &err, "m9", "m n k", NULL);
}

/* Every shape of the table has the words that its operator asks for, and no two rows are the same. */
static void test_table(void **state)
{
    pl_error err;

    for (const pl_bench_op *const *o = pl_bench_ops; *o; o++) {
        assert_non_null((*o)->shapes[0]);
        for (int i = 0; (*o)->shapes[i]; i++) {
            check_ok(pl_bench_check_shape(*o, (*o)->shapes[i], &err), &err);
            for (int k = 0; k < i; k++)
                assert_string_not_equal((*o)->shapes[i], (*o)->shapes[k]);
        }
        for (const pl_bench_op *const *other = pl_bench_ops; *other != *o; other++)
            assert_string_not_equal((*o)->name, (*other)->name);
    }
}

/* Slots of the store lie apart, inside, and come round. */
static void test_store(void **state)
{
    const uint64_t bytes = 3 << 20;
    pl_bench b;
    pl_error err;
    pl_pool *pool;

    check_ok(pl_pool_create(&(pl_pool_params){.n_workers = 2}, &pool, &err), &err);
    check_ok(pl_bench_open(&b, PL_LEVEL_SCALAR, pool, 16 << 20, &err), &err);
    for (int64_t round = 0; round < 10; round++)
        assert_ptr_equal(pl_bench_codes(&b, bytes, round), b.store.base + round % 5 * bytes);
    for (uint64_t i = 0; i < b.store.bytes; i++)
        assert_true((b.store.base[i] & 0x7F) != 0x7F); /* no NaN of e4m3 */
    for (uint64_t i = 1; i < b.store.bytes; i += 2)
        assert_true((b.store.base[i] & 0x7C) == 0x3C); /* bf16 from 2^-7 to 2 */
    assert_null(pl_bench_codes(&b, (uint64_t)17 << 20, 0));
    assert_true(b.failed);
    assert_int_equal(err.status, PL_ERR_INVALID);
    pl_bench_release(&b);
    assert_false(b.failed);
    pl_bench_close(&b);
    pl_pool_destroy(pool);
}

static void test_json(void **state)
{
    const pl_bench_limits limits = {.one = {1, 2, 3}, .all = {10, 20, 30}};
    const pl_bench_row row = {"linear_fp8", "m1 n8192 k4096", "avx2", 2,  true, 1e6, 5,
                              10,           PL_BENCH_READ,    10,     50, 1.5};
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    json_t *doc, *r;
    const char *op_name, *limit;
    double percent, read_1, bf16, ns;
    int cold, threads;

    pl_bench_write_json(to, &limits, &row, 1);
    fclose(to);
    doc = json_loads(text, 0, NULL);
    assert_non_null(doc);
    r = json_array_get(json_object_get(doc, "rows"), 0);
    assert_int_equal(json_unpack(json_object_get(doc, "limits"), "{s:F, s:F, s:F, s:F, s:F, s:F}",
                                 "read_gbps_1", &read_1, "read_gbps", &ns, "fp32_gflops_1", &ns,
                                 "fp32_gflops", &ns, "bf16_gflops_1", &ns, "bf16_gflops", &bf16),
                     0);
    assert_true(read_1 == 1 && bf16 == 30);
    assert_int_equal(json_unpack(r, "{s:s, s:b, s:i, s:s, s:F, s:F}", "op", &op_name, "cold", &cold,
                                 "threads", &threads, "limit", &limit, "percent", &percent, "ns",
                                 &ns),
                     0);
    assert_string_equal(op_name, "linear_fp8");
    assert_string_equal(limit, "read");
    assert_true(cold && threads == 2 && percent == 50 && ns == 1e6);
    json_decref(doc);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median),      cmocka_unit_test(test_constant_calls),
        cmocka_unit_test(test_short_calls), cmocka_unit_test(test_spread),
        cmocka_unit_test(test_long_calls),  cmocka_unit_test(test_judge),
        cmocka_unit_test(test_cold),        cmocka_unit_test(test_words),
        cmocka_unit_test(test_table),       cmocka_unit_test(test_store),
        cmocka_unit_test(test_json),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
