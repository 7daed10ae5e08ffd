/* The demo model, greedily: the tokens that the oracle chose (models/demo/golden.json), up to the first choice that
 * was so close that another order of sums may turn it. argv[1] is the folder. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

typedef struct told {
    char text[4096];
    size_t n;
} told;

static void hear(void *user, const char *text, size_t n_bytes)
{
    told *t = user;

    assert_true(n_bytes > 0 && t->n + n_bytes < sizeof t->text);
    memcpy(t->text + t->n, text, n_bytes);
    t->n += n_bytes;
}

/* pl_engine_complete tells the text of the tokens that a request by hand chooses, greedy and sampled. */
static void check_complete(pl_engine *e, const char *text, float temperature)
{
    const pl_tokenizer *t = pl_engine_tokenizer(e);
    pl_request_params p = pl_request_params_default();
    int32_t prompt[64];
    pl_encoder *encoder;
    char want[4096];
    told got = {.n = 0};
    pl_request *r;
    pl_error err;
    size_t n = 0, bytes = 0;
    const int32_t *tokens;
    int32_t n_tokens;

    p.max_tokens = 40;
    p.temperature = temperature;
    p.seed = 5;
    check_ok(pl_engine_complete(e, text, &p, hear, &got, &err), &err);
    assert_int_equal(pl_encoder_create(0, &encoder), PL_OK);
    prompt[0] = pl_tokenizer_role_id(t, PL_TOKEN_BOS);
    check_ok(pl_tokenizer_encode(t, encoder, text, strlen(text), PL_ENCODE_ADDED_TOKENS, prompt + 1,
                                 63, &n, &err),
             &err);
    p.tokens = prompt;
    p.n_tokens = (int32_t)n + 1;
    check_ok(pl_engine_submit(e, &p, &r, &err), &err);
    check_ok(pl_engine_run(e, &err), &err);
    tokens = pl_request_tokens(r, &n_tokens);
    check_ok(pl_tokenizer_decode(t, tokens, (size_t)n_tokens, PL_DECODE_SKIP_SPECIAL, want,
                                 sizeof want, &bytes, &err),
             &err);
    assert_true(bytes > 40);
    assert_int_equal(got.n, bytes);
    check_same_bytes(text, got.text, want, bytes);
    pl_request_release(r);
    pl_encoder_destroy(encoder);
}

static void test_complete(void **state)
{
    pl_engine_params p = small_params();
    pl_request_params ask = pl_request_params_default();
    static char long_text[2000];
    const int32_t one = 1;
    pl_engine *e;
    pl_error err;
    told got = {.n = 0};

    p.max_model_len = 200;
    p.max_num_seqs = 1;
    check_ok(pl_engine_open(folder, &p, &e, &err), &err);
    check_complete(e, "For God so loved", 0);
    check_complete(e, "And the king said", 0.8f);
    check_complete(e, "", 0);
    memset(long_text, 'x', sizeof long_text - 1);
    assert_int_equal(pl_engine_complete(e, long_text, NULL, hear, &got, &err), PL_ERR_INVALID);
    assert_non_null(strstr(err.msg, "tokens: "));
    ask.tokens = &one;
    assert_int_equal(pl_engine_complete(e, "x", &ask, hear, &got, &err), PL_ERR_INVALID);
    assert_non_null(strstr(err.msg, "params.tokens"));
    assert_int_equal(got.n, 0);
    check_complete(e, "In the beginning", 0); /* nothing is left behind */
    assert_int_equal(pl_engine_stats_of(e).running + pl_engine_stats_of(e).queued, 0);
    pl_engine_close(e);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden_tokens),
                                       cmocka_unit_test(test_complete)};

    folder = argc > 1 ? argv[1] : "models/demo";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
