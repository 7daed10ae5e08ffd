/* The demo model, greedily: the tokens that the oracle chose (models/demo/golden.json), up to the first choice that
 * was so close that another order of sums may turn it. argv[1] is the folder. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine_support.h"
#include "support/lines.h"

/* Real levels differ from level f64 by less than this, far more than noise. */
#define CLOSE 0.25

static const char *folder;

static size_t n_sure(const json_t *margins)
{
    size_t n = 0;

    while (n < json_array_size(margins) && json_real_value(json_array_get(margins, n)) >= CLOSE)
        n++;
    return n;
}

static void check_prompt(pl_engine *e, const json_t *one)
{
    const char *what = json_string_value(json_object_get(one, "what"));
    pl_request_params p = pl_request_params_default();
    size_t n_prompt, n_want, sure = n_sure(json_object_get(one, "margins"));
    int32_t *prompt = json_ids(json_object_get(one, "prompt"), &n_prompt);
    int32_t *want = json_ids(json_object_get(one, "tokens"), &n_want);
    const int32_t *got;
    pl_request *r;
    pl_error err;
    int32_t n;

    assert_true(sure > 0 && sure <= n_want);
    p.tokens = prompt;
    p.n_tokens = (int32_t)n_prompt;
    p.max_tokens = (int32_t)sure;
    p.ignore_eos = true;
    check_ok(pl_engine_submit(e, &p, &r, &err), &err);
    check_ok(pl_engine_run(e, &err), &err);
    got = pl_request_tokens(r, &n);
    assert_int_equal(n, sure);
    check_same_bytes(what, got, want, sure * sizeof *want);
    print_message("%s: %zu of %zu tokens\n", what, sure, n_want);
    pl_request_release(r);
    free(prompt);
    free(want);
}

static void test_golden_tokens(void **state)
{
    pl_engine_params p = small_params();
    char path[1024];
    json_t *golden;
    pl_engine *e;
    pl_error err;
    size_t total = 0;

    snprintf(path, sizeof path, "%s/golden.json", folder);
    golden = json_load_file(path, 0, NULL);
    assert_non_null(golden);
    p.max_model_len = 400;
    check_ok(pl_engine_open(folder, &p, &e, &err), &err);
    assert_non_null(pl_engine_tokenizer(e));
    for (size_t i = 0; i < json_array_size(json_object_get(golden, "prompts")); i++) {
        const json_t *one = json_array_get(json_object_get(golden, "prompts"), i);
        check_prompt(e, one);
        total += n_sure(json_object_get(one, "margins"));
    }
    assert_true(total >= 40);
    pl_engine_close(e);
    json_decref(golden);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden_tokens)};

    folder = argc > 1 ? argv[1] : "models/demo";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
