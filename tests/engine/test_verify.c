/* plimsoll verify from inside: prompts that it says to begin from the cache of prefixes do, to the token, and where none can
 * its run is an error and no comparison. */
#include <stdlib.h>
#include <string.h>

#include "cli/verify.h"
#include "engine_support.h"

enum { N = 4, VOCAB = 512 };

static pl_verify_work work;
static const char
    *level; /* the one that an engine chooses: levels have the same bits, test_bits.c */

/* Prompts of 131 tokens and of fewer, as `verify` draws them; some of the fewer cannot hit. */
static int prepare(void **state)
{
    pl_engine_params p = small_params();
    pl_engine *e;
    pl_error err;

    p.level = NULL;
    e = open_engine("nano", &p);
    level = pl_engine_numerics(e).level;
    pl_engine_close(e);
    work.max_tokens = 2;
    work.max_batch = 3;
    work.memory_utilization = -1;
    work.memory_bytes = 512 << 20;
    check_ok(pl_verify_work_init(&work, N, 131, VOCAB, 7, &err), &err);
    return 0;
}

static int finish(void **state)
{
    pl_verify_work_fini(&work);
    return 0;
}

static pl_verify_setting setting(void)
{
    return (pl_verify_setting){
        .path = checkpoint_path("nano"), .level = level, .batch = 1, .chunk = 64, .threads = 2};
}

static pl_verify_result *results_of(pl_verify_engine *e, const pl_verify_setting *s)
{
    pl_verify_result *r = calloc(N, sizeof *r);
    pl_error err;

    assert_non_null(r);
    check_ok(pl_verify_run(e, &work, s, r, &err), &err);
    return r;
}

/* Tokens that all prompts together find in a cache that has them. */
static uint64_t to_be_found(void)
{
    uint64_t n = 0;

    for (int i = 0; i < N; i++)
        n += (uint64_t)(work.prompt[i].n - 1) / PL_VERIFY_HIT * PL_VERIFY_HIT;
    return n;
}

static void test_hits_are_hits(void **state)
{
    static const struct {
        int batch, chunk, k;
        bool preempts;
    } cases[] = {{1, 64, 0, false}, {3, 33, 2, false}, {1, 64, 0, true}};
    pl_verify_engine e = {0};
    pl_verify_setting s = setting();
    pl_verify_result *want = results_of(&e, &s);

    assert_int_equal(e.counts.hit_tokens, 0);
    assert_true(to_be_found() >= PL_VERIFY_HIT);
    s.begins = PL_VERIFY_PREFIX;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint64_t before = e.counts.hit_tokens;
        pl_verify_result *got;
        pl_verify_parting p;

        s.batch = cases[i].batch;
        s.chunk = cases[i].chunk;
        s.k = cases[i].k;
        s.preempts = cases[i].preempts;
        got = results_of(&e, &s);
        assert_int_equal(e.counts.hit_tokens - before, to_be_found());
        p = pl_verify_compare(want, got, N);
        if (p.request >= 0)
            fail_msg("case %zu: request %d differs by its %s", i, p.request, p.by);
        pl_verify_results_fini(got, N);
    }
    assert_int_equal(e.counts.restored_tokens, 0);
    pl_verify_results_fini(want, N);
    pl_verify_engine_close(&e);
}

/* The cache is filled as before, but nobody is long enough to begin from it. */
static void test_no_hit_is_an_error(void **state)
{
    pl_verify_engine e = {0};
    pl_verify_setting s = setting();
    pl_verify_result *r = calloc(N, sizeof *r);
    pl_verify_work short_ones = work;
    pl_error err;

    assert_non_null(r);
    s.begins = PL_VERIFY_PREFIX;
    short_ones.prompt = calloc(N, sizeof *short_ones.prompt);
    assert_non_null(short_ones.prompt);
    for (int i = 0; i < N; i++)
        short_ones.prompt[i] =
            (pl_verify_prompt){work.prompt[i].tokens,
                               work.prompt[i].n < PL_VERIFY_HIT ? work.prompt[i].n : PL_VERIFY_HIT};
    check_error(pl_verify_run(&e, &short_ones, &s, r, &err), PL_ERR_STATE, &err,
                "cache of prefixes had none", NULL);
    pl_verify_results_fini(r, N);
    free(short_ones.prompt);
    pl_verify_engine_close(&e);
}

/* Without hits to be had, no case asks for them; with, one stands for the axis. */
static void test_matrix(void **state)
{
    pl_verify_axes a = {.path = "m", .level = {"scalar"}, .n_levels = 1};
    pl_verify_case *cases;
    pl_error err;
    int n;

    a.batch = (pl_verify_values){{1, 2}, 2};
    a.chunk = a.threads = (pl_verify_values){{5, 3}, 2};
    a.k = (pl_verify_values){{0}, 1};
    for (int possible = 0; possible < 2; possible++) {
        int n_axis = 0, n_mixed = 0;

        a.no_hits = possible ? NULL : "too short";
        check_ok(pl_verify_matrix(&a, 40, false, 3, &cases, &n, &err), &err);
        for (int i = 0; i < n; i++) {
            n_axis += cases[i].axis == PL_VERIFY_PREFIX;
            n_mixed +=
                cases[i].axis == PL_VERIFY_MIXED && cases[i].setting.begins == PL_VERIFY_PREFIX;
        }
        assert_int_equal(n_axis, possible);
        assert_true(possible ? n_mixed >= 3 : n_mixed == 0);
        free(cases);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hits_are_hits),
        cmocka_unit_test(test_no_hit_is_an_error),
        cmocka_unit_test(test_matrix),
    };

    return cmocka_run_group_tests(tests, prepare, finish);
}
