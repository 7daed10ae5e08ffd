/* Closed forms of other engines' memory: numbers from their reports, to the byte. */
#include "plimsoll/reserve.h"

#include <string.h>

#include "plan/formula.h"
#include "support/check.h"

static const pl_reserve_params flash = {.n_layers = 43,
                                        .n_csa_layers = 21,
                                        .n_hca_layers = 20,
                                        .hidden_size = 4096,
                                        .max_model_len = 1 << 20,
                                        .max_num_batched_tokens = 8195};
static const pl_reserve_params pro = {.n_layers = 61,
                                      .n_csa_layers = 30,
                                      .n_hca_layers = 31,
                                      .hidden_size = 7168,
                                      .max_model_len = 1 << 20,
                                      .max_num_batched_tokens = 512};

/* Fails where there is no such row. Every row's text gives its number. */
static uint64_t bytes_of(pl_reserve_kind kind, const pl_reserve_params *p, const char *name)
{
    pl_reserve_row rows[PL_RESERVE_MAX_ROWS];
    uint64_t value, found = 0;
    pl_error err;
    int n;

    check_ok(pl_reserve_rows(kind, p, rows, &n, &err), &err);
    assert_in_range(n, 1, PL_RESERVE_MAX_ROWS);
    for (int i = 0; i < n; i++) {
        check_ok(pl_formula_eval(rows[i].formula, &value, &err), &err);
        assert_int_equal(value, rows[i].bytes);
        if (strcmp(rows[i].name, name) == 0)
            found = value;
    }
    if (!found)
        fail_msg("no row %s", name);
    return found;
}

static uint64_t padded(const char *name, int32_t tokens, int32_t len, int32_t hidden)
{
    pl_reserve_params p = flash;

    p.max_num_batched_tokens = tokens;
    p.max_model_len = len;
    p.hidden_size = hidden;
    return bytes_of(PL_RESERVE_PADDED, &p, name);
}

static void test_s01_s02_padded_heads(void **state)
{
    assert_int_equal(padded("padded.output", 8195, 4096, 4096), 537067520);
    assert_int_equal(padded("padded.query", 8195, 4096, 4096), 537067520);
    assert_int_equal(padded("padded.output", 16384, 4096, 4096), 1073741824);
}

static void test_s06_streams(void **state)
{
    assert_int_equal(padded("padded.streams", 16384, 4096, 5120), 671088640);
}

/* 4,096 x 372 K: 1.42 GiB, x 800 K: 3.05 GiB, 8,192 x 1 M: 8 GiB. */
static void test_s11_index_scores(void **state)
{
    assert_int_equal(padded("padded.index_scores", 4096, 372000, 4096), 1526726656);
    assert_int_equal(padded("padded.index_scores", 4096, 800000, 4096), 3279945728);
    assert_int_equal(padded("padded.index_scores", 8192, 1 << 20, 4096), 8589934592);
}

static void test_s21_group_pages(void **state)
{
    assert_int_equal(bytes_of(PL_RESERVE_VLLM, &flash, "vllm.page.full"), 1002240);
    assert_int_equal(bytes_of(PL_RESERVE_VLLM, &flash, "vllm.page.window_1"), 823680);
    assert_int_equal(bytes_of(PL_RESERVE_VLLM, &flash, "vllm.page.window_2"), 786240);
    assert_int_equal(bytes_of(PL_RESERVE_VLLM, &flash, "vllm.page.csa_state"), 870912);
    assert_int_equal(bytes_of(PL_RESERVE_VLLM, &flash, "vllm.page.hca_state"), 656640);
}

static void test_bytes_of_tokens_and_requests(void **state)
{
    assert_int_equal(bytes_of(PL_RESERVE_VLLM, &flash, "vllm.per_token"), 3850);
    assert_int_equal(bytes_of(PL_RESERVE_VLLM, &pro, "vllm.per_token"), 5511);
    assert_int_equal(bytes_of(PL_RESERVE_VLLM, &flash, "vllm.per_128_tokens"), 492832);
    assert_int_equal(bytes_of(PL_RESERVE_VLLM, &flash, "vllm.request_windows"), 3214336);
    /* 1.31 + 0.33 + 10 MiB. */
    assert_int_equal(bytes_of(PL_RESERVE_VLLM, &flash, "vllm.request_states"), 12206080);
}

static void test_layers_that_are_not_there(void **state)
{
    pl_reserve_params p = flash;
    pl_reserve_row rows[PL_RESERVE_MAX_ROWS];
    pl_error err;
    int n;

    p.n_layers = 1;
    p.n_csa_layers = p.n_hca_layers = 0;
    check_ok(pl_reserve_rows(PL_RESERVE_VLLM, &p, rows, &n, &err), &err);
    assert_int_equal(n, 2);
    assert_string_equal(rows[0].name, "vllm.page.window_1");
    check_ok(pl_reserve_rows(PL_RESERVE_PADDED, &p, rows, &n, &err), &err);
    assert_int_equal(n, 3);
}

static void test_bad_numbers(void **state)
{
    pl_reserve_row rows[PL_RESERVE_MAX_ROWS];
    pl_reserve_params p;
    pl_error err;
    int n;

#define REFUSED(field, value, kind, status, ...)                                                 \
    do {                                                                                         \
        p = flash;                                                                               \
        p.field = (value);                                                                       \
        check_error(pl_reserve_rows(kind, &p, rows, &n, &err), status, &err, __VA_ARGS__, NULL); \
        assert_int_equal(n, 0);                                                                  \
    } while (0)
    REFUSED(n_layers, 0, PL_RESERVE_VLLM, PL_ERR_INVALID, "layers", "got 0");
    REFUSED(n_csa_layers, -1, PL_RESERVE_VLLM, PL_ERR_INVALID, "layers");
    REFUSED(n_hca_layers, 23, PL_RESERVE_VLLM, PL_ERR_INVALID, "layers");
    REFUSED(n_hca_layers, INT32_MAX, PL_RESERVE_VLLM, PL_ERR_INVALID, "layers");
    REFUSED(hidden_size, 0, PL_RESERVE_PADDED, PL_ERR_INVALID, "hidden_size", "got 0");
    REFUSED(max_model_len, 0, PL_RESERVE_PADDED, PL_ERR_INVALID, "max_model_len", "got 0");
    REFUSED(max_num_batched_tokens, -5, PL_RESERVE_PADDED, PL_ERR_INVALID, "got -5");
    REFUSED(hidden_size, 4096, (pl_reserve_kind)7, PL_ERR_INVALID, "kind", "got 7");
#undef REFUSED
    /* The largest there are: an answer or OVERFLOW, never a wrapped number. */
    p = flash;
    p.max_num_batched_tokens = p.max_model_len = p.hidden_size = INT32_MAX;
    check_error(pl_reserve_rows(PL_RESERVE_PADDED, &p, rows, &n, &err), PL_ERR_OVERFLOW, &err,
                "padded.streams", NULL);
    assert_int_equal(n, 0);
    assert_string_equal(pl_reserve_kind_name(PL_RESERVE_PADDED), "padded");
    assert_string_equal(pl_reserve_kind_name(PL_RESERVE_VLLM), "vllm");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s01_s02_padded_heads),
        cmocka_unit_test(test_s06_streams),
        cmocka_unit_test(test_s11_index_scores),
        cmocka_unit_test(test_s21_group_pages),
        cmocka_unit_test(test_bytes_of_tokens_and_requests),
        cmocka_unit_test(test_layers_that_are_not_there),
        cmocka_unit_test(test_bad_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
