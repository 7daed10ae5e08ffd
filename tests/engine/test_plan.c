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

static uint64_t region_bytes(const pl_plan *plan, const char *name)
{
    for (int i = 0; i < pl_plan_n_regions(plan); i++)
        if (strcmp(pl_plan_region_at(plan, i).name, name) == 0)
            return pl_plan_region_at(plan, i).bytes;
    return 0;
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
    /* Beside it a stack and records, and what mappings round up to. */
    assert_in_range(c.total_bytes - region_bytes(three, "pages.rounding") -
                        (b.total_bytes - region_bytes(two, "pages.rounding")),
                    c.rank_bytes + PL_POOL_STACK_BYTES, c.rank_bytes + PL_POOL_STACK_BYTES + 16384);
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

/* What is asked for is an upper bound of whole slots, which the total grows by; what the region takes, asked for, gives the
 * same region; and an engine carves it. */
static void test_prefix_cache_asked_for(void **state)
{
    pl_engine_params p = small_params();
    pl_plan *plan = plan_of(checkpoint_path("nano"), &p);
    const pl_plan_totals without = pl_plan_totals_of(plan);
    const uint64_t others = without.total_bytes - region_bytes(plan, "pages.rounding");
    pl_engine *e;
    pl_error err = {0};

    assert_int_equal(without.prefix_cache_bytes, 0);
    assert_int_equal(region_bytes(plan, "cache.prefix"), 0);
    pl_plan_destroy(plan);
    for (uint64_t bytes = 2 << 20; bytes < 40 << 20; bytes += 7654321) {
        pl_plan_totals t, again;

        p.prefix_cache_memory_bytes = bytes;
        plan = plan_of(checkpoint_path("nano"), &p);
        t = pl_plan_totals_of(plan);
        assert_int_equal(t.prefix_cache_bytes, region_bytes(plan, "cache.prefix"));
        assert_in_range(t.prefix_cache_bytes, bytes - (64 << 10), bytes);
        assert_int_equal(
            t.total_bytes - t.prefix_cache_bytes - region_bytes(plan, "pages.rounding"), others);
        assert_int_equal(t.request_fixed_bytes, without.request_fixed_bytes);
        pl_plan_destroy(plan);
        p.prefix_cache_memory_bytes = t.prefix_cache_bytes;
        plan = plan_of(checkpoint_path("nano"), &p);
        again = pl_plan_totals_of(plan);
        assert_int_equal(again.total_bytes, t.total_bytes);
        pl_plan_destroy(plan);
    }
    e = open_engine("nano", &p);
    pl_engine_close(e);
    p.prefix_cache_memory_bytes = 1000;
    assert_int_equal(pl_plan_create(checkpoint_path("nano"), &p, &plan, &err), PL_ERR_INVALID);
    assert_non_null(
        strstr(err.msg, "prefix_cache_memory_bytes: too little for one prefix (got 1000"));
}

/* Without a line nothing; below one all that keeps the charge within it, less than a block more than is left; capacities as
 * if there were none. */
static void test_prefix_cache_of_the_rest(void **state)
{
    pl_engine_params p = small_params(), q;
    pl_plan *plan = plan_of(checkpoint_path("nano"), &p), *rest;
    const pl_plan_totals none = pl_plan_totals_of(plan);

    p.prefix_cache_memory_bytes = PL_PREFIX_CACHE_REST;
    rest = plan_of(checkpoint_path("nano"), &p);
    assert_int_equal(pl_plan_totals_of(rest).total_bytes, none.total_bytes);
    pl_plan_destroy(rest);
    for (uint64_t more = 0; more < 64 << 20; more += 13 << 20) {
        pl_plan_totals t, without;

        p.memory_bytes = none.charged_bytes + more;
        q = p;
        q.prefix_cache_memory_bytes = 0;
        rest = plan_of(checkpoint_path("nano"), &q);
        without = pl_plan_totals_of(rest);
        pl_plan_destroy(rest);
        rest = plan_of(checkpoint_path("nano"), &p);
        t = pl_plan_totals_of(rest);
        pl_plan_destroy(rest);
        assert_true(t.fits && t.charged_bytes <= p.memory_bytes);
        /* Mappings are whole pages of 2 MiB, and page tables take a 512th. */
        if (more >= 8 << 20)
            assert_in_range(t.prefix_cache_bytes, more - more / 256 - (3 << 20), more);
        assert_int_equal(t.requests_at_max_model_len, without.requests_at_max_model_len);
        assert_int_equal(t.tokens_for_one_request, without.tokens_for_one_request);
    }
    /* A line of the caches counts it as one. */
    p.memory_bytes = 0;
    p.kv_cache_memory_bytes = 40 << 20;
    rest = plan_of(checkpoint_path("nano"), &p);
    assert_true(pl_plan_totals_of(rest).fits);
    assert_in_range(pl_plan_totals_of(rest).prefix_cache_bytes, 1 << 20, 40 << 20);
    pl_plan_destroy(rest);
    pl_plan_destroy(plan);
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
        cmocka_unit_test(test_prefix_cache_asked_for),
        cmocka_unit_test(test_prefix_cache_of_the_rest),
        cmocka_unit_test(test_released_models_from_config),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
