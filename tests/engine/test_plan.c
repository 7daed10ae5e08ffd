/* The first promise, at the engine: the plan is what is carved, and its advice is right. That nothing
 * goes past it: test_line.c, test_scenarios.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "engine_support.h"
#include "model/checkpoint.h"
#include "plan/formula.h"

static pl_plan *plan_of(const char *path, const pl_engine_params *p)
{
    pl_plan *plan;
    pl_error err;

    check_ok(pl_plan_create(path, p, &plan, &err), &err);
    return plan;
}

static void check_same_plan(const pl_plan *a, const pl_plan *b)
{
    const pl_plan_totals x = pl_plan_totals_of(a), y = pl_plan_totals_of(b);

    assert_int_equal(pl_plan_n_regions(a), pl_plan_n_regions(b));
    for (int i = 0; i < pl_plan_n_regions(a); i++) {
        const pl_plan_region r = pl_plan_region_at(a, i), s = pl_plan_region_at(b, i);
        assert_string_equal(r.name, s.name);
        assert_string_equal(r.formula, s.formula);
        assert_string_equal(r.owner, s.owner);
        assert_int_equal(r.part, s.part);
        assert_int_equal(r.bytes, s.bytes);
    }
    assert_int_equal(x.total_bytes, y.total_bytes);
    assert_int_equal(x.charged_bytes, y.charged_bytes);
    assert_int_equal(x.requests_at_max_model_len, y.requests_at_max_model_len);
    assert_int_equal(x.tokens_for_one_request, y.tokens_for_one_request);
}

static void test_headers_config_and_engine_agree(void **state)
{
    pl_engine_params p = small_params();
    char config[1100];
    pl_plan *a, *b;
    pl_engine *e;

    for (int i = 0; i < 2; i++) {
        const char *name = i ? "micro" : "nano";
        p.max_model_len = 130 + i;
        a = plan_of(checkpoint_path(name), &p);
        snprintf(config, sizeof config, "%s/config.json", checkpoint_path(name));
        b = plan_of(config, &p);
        e = open_engine(name, &p);
        check_same_plan(a, b);
        check_same_plan(a, pl_engine_plan(e));
        pl_engine_close(e);
        pl_plan_destroy(a);
        pl_plan_destroy(b);
    }
}

/* Of all tensors that are loaded, from their places in the files. */
static uint64_t data_bytes(const char *path)
{
    uint64_t bytes = 0;
    pl_checkpoint *c;
    pl_error err;

    check_ok(pl_checkpoint_open(path, &c, &err), &err);
    for (int64_t i = 0; i < pl_checkpoint_n_tensors(c); i++)
        bytes += pl_checkpoint_tensor_at(c, i).bytes;
    pl_checkpoint_close(c);
    return bytes;
}

static void test_totals_are_sums(void **state)
{
    pl_engine_params p = small_params();
    pl_plan *plan = plan_of(checkpoint_path("nano"), &p);
    uint64_t sum = 0, weights = 0, value;
    pl_error err;

    for (int i = 0; i < pl_plan_n_regions(plan); i++) {
        const pl_plan_region r = pl_plan_region_at(plan, i);
        sum += r.bytes;
        weights += strncmp(r.name, "weights.", 8) == 0 ? r.bytes : 0;
        if (r.part != PL_PLAN_MEASURED) {
            check_ok(pl_formula_eval(r.formula, &value, &err), &err);
            assert_int_equal(value, r.bytes);
        }
    }
    assert_int_equal(sum, pl_plan_totals_of(plan).total_bytes);
    assert_int_equal(weights, data_bytes(checkpoint_path("nano")));
    assert_true(pl_plan_totals_of(plan).charged_bytes > sum);
    pl_plan_destroy(plan);
}

/* What each further rank takes is what the plan says of it; weights and the rest do not grow. */
static void test_ranks_are_planned(void **state)
{
    pl_engine_params p = small_params();
    pl_plan *one = plan_of(checkpoint_path("nano"), &p), *two, *three;
    const pl_plan_totals a = pl_plan_totals_of(one);
    pl_plan_totals b, c;
    pl_engine *e;
    pl_error err;

    p.ranks = 2;
    two = plan_of(checkpoint_path("nano"), &p);
    p.ranks = 3;
    three = plan_of(checkpoint_path("nano"), &p);
    b = pl_plan_totals_of(two);
    c = pl_plan_totals_of(three);
    assert_int_equal(a.ranks, 1);
    assert_int_equal(c.ranks, 3);
    assert_int_equal(c.rank_bytes, b.rank_bytes);
    assert_true(b.rank_bytes > a.rank_bytes); /* the parts of shards */
    /* Beside it a stack, records, and the rounding of what they lie in. */
    assert_in_range(c.total_bytes - b.total_bytes, c.rank_bytes + PL_POOL_STACK_BYTES - 8192,
                    c.rank_bytes + PL_POOL_STACK_BYTES + 16384);
    assert_int_equal(c.request_fixed_bytes, 3 * a.request_fixed_bytes);
    assert_int_equal(c.request_bytes_per_128_tokens, 3 * a.request_bytes_per_128_tokens);
    e = open_engine("nano", &p);
    check_same_plan(three, pl_engine_plan(e));
    pl_engine_close(e);
    pl_plan_destroy(one);
    pl_plan_destroy(two);
    pl_plan_destroy(three);
    p.ranks = 65;
    check_error(pl_plan_create(checkpoint_path("nano"), &p, &one, &err), PL_ERR_INVALID, &err,
                "ranks", "got 65", "0 to 64", NULL);
    p.ranks = 2;
    p.level = "f64";
    check_error(pl_plan_create(checkpoint_path("nano"), &p, &one, &err), PL_ERR_INVALID, &err,
                "ranks: level f64", "got 2", NULL);
}

/* What a control group is charged beside the total, row by row. */
static void test_charged_is_a_sum(void **state)
{
    pl_engine_params p = small_params();
    pl_plan *plan;
    pl_plan_totals t;

    p.threads = 3;
    p.ranks = 2;
    p.socket_bytes = 12345;
    plan = plan_of(checkpoint_path("nano"), &p);
    t = pl_plan_totals_of(plan);
    assert_int_equal(t.socket_bytes, 12345);
    assert_int_equal(t.kernel_stack_bytes, 4 * (16 << 10)); /* 3 workers, another rank */
    assert_true(t.page_table_bytes > t.total_bytes / 4096 * 8);
    assert_int_equal(t.charged_bytes,
                     t.total_bytes + t.page_table_bytes + t.kernel_stack_bytes + t.socket_bytes);
    pl_plan_destroy(plan);
}

static bool fits(pl_engine_params p)
{
    pl_plan *plan = plan_of(checkpoint_path("nano"), &p);
    bool yes = pl_plan_totals_of(plan).fits;

    assert_int_equal(yes, pl_plan_advice(plan)[0] == 0);
    pl_plan_destroy(plan);
    return yes;
}

/* Every change in the advice is enough, and one less is not. */
static void test_advice(void **state)
{
    pl_engine_params p = small_params();
    const char *names[] = {"max_model_len ", "max_num_seqs ", "max_num_batched_tokens ",
                           "memory_bytes "};
    char advice[512];
    pl_plan *plan;

    p.max_model_len = 4096;
    p.max_num_batched_tokens = 600;
    plan = plan_of(checkpoint_path("nano"), &p);
    p.memory_bytes = pl_plan_totals_of(plan).total_bytes - 2000000;
    pl_plan_destroy(plan);
    plan = plan_of(checkpoint_path("nano"), &p);
    assert_false(pl_plan_totals_of(plan).fits);
    snprintf(advice, sizeof advice, "%s", pl_plan_advice(plan));
    pl_plan_destroy(plan);
    print_message("%s\n", advice);
    for (int i = 0; i < 4; i++) {
        const char *at = strstr(advice, names[i]);
        pl_engine_params more = p, less = p;
        uint64_t v;

        assert_non_null(at);
        v = strtoull(at + strlen(names[i]), NULL, 10);
        if (i == 0) {
            more.max_model_len = (int)v;
            less.max_model_len = (int)v + 1;
        } else if (i == 1) {
            more.max_num_seqs = (int)v;
            less.max_num_seqs = (int)v + 1;
        } else if (i == 2) {
            more.max_num_batched_tokens = (int)v;
            less.max_num_batched_tokens = (int)v + 1;
        } else {
            more.memory_bytes = v;
            less.memory_bytes = v - 1;
        }
        assert_true(fits(more));
        assert_false(fits(less));
    }
}

static void test_lines_choose_the_length(void **state)
{
    pl_engine_params p = small_params(), q;
    pl_plan_totals t;
    pl_plan *plan;

    p.max_model_len = 0;
    plan = plan_of(checkpoint_path("nano"), &p);
    t = pl_plan_totals_of(plan);
    assert_int_equal(t.max_model_len, pl_plan_model_of(plan).max_position_embeddings);
    pl_plan_destroy(plan);
    for (int i = 0; i < 2; i++) {
        q = p;
        if (i)
            q.kv_cache_memory_bytes = 4 << 20;
        else
            q.memory_bytes = 40 << 20;
        plan = plan_of(checkpoint_path("nano"), &q);
        t = pl_plan_totals_of(plan);
        assert_true(t.fits);
        assert_int_equal(i != 0, pl_plan_note(plan)[0] != 0);
        assert_int_equal(t.requests_at_max_model_len >= t.max_num_seqs, 1);
        assert_true(t.tokens_for_one_request >= t.max_model_len);
        q.max_model_len = t.max_model_len;
        assert_true(fits(q));
        q.max_model_len++;
        assert_false(fits(q));
        q.max_num_seqs = 1;
        q.max_model_len = (int)t.tokens_for_one_request;
        assert_true(fits(q));
        pl_plan_destroy(plan);
    }
}

static void test_released_models_from_config(void **state)
{
    pl_engine_params p = small_params();
    pl_plan *plan;

    plan = plan_of(getenv("PL_FLASH_CONFIG"), &p);
    assert_int_equal(pl_plan_totals_of(plan).request_bytes_per_128_tokens, 449824);
    pl_plan_destroy(plan);
    plan = plan_of(getenv("PL_PRO_CONFIG"), &p);
    assert_int_equal(pl_plan_totals_of(plan).request_bytes_per_128_tokens, 644024);
    pl_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers_config_and_engine_agree),
        cmocka_unit_test(test_totals_are_sums),
        cmocka_unit_test(test_ranks_are_planned),
        cmocka_unit_test(test_charged_is_a_sum),
        cmocka_unit_test(test_advice),
        cmocka_unit_test(test_lines_choose_the_length),
        cmocka_unit_test(test_released_models_from_config),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
