/* Drafts of the engine against the oracle: at level f64, every draft and every acceptance of the golden rounds
 * (tests/oracle/golden, spec.N.K) of nano. Prompts of some lengths; of all with PL_ENGINE_FULL=1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"
#include "engine_support.h"
#include "support/golden.h"

static golden *gold;
static int n_first_drafts;

static const int64_t *ids_of(int32_t n, int k, const char *what, size_t *count)
{
    golden_tensor t = golden_get(gold, "I64", "spec.%d.%d.%s", n, k, what);

    *count = t.n;
    return t.data;
}

static int64_t total(const uint64_t *counts)
{
    int64_t sum = 0;

    for (int i = 0; i < PL_MAX_SPECULATIVE; i++)
        sum += (int64_t)counts[i];
    return sum;
}

/* The drafts behind the prompt are a golden list of their own, draft.N. */
static void check_first_drafts(const int32_t *drafts, int32_t n, int k, size_t round)
{
    char name[64];
    golden_tensor want;

    snprintf(name, sizeof name, "draft.%d.ids", n);
    if (round || !golden_has(gold, name))
        return;
    want = golden_get(gold, "I64", "draft.%d.ids", n);
    for (int j = 0; j < k && (size_t)j < want.n; j++)
        assert_int_equal(drafts[j], ((const int64_t *)want.data)[j]);
    n_first_drafts++;
}

/* Before each round the drafts lie behind the outputs; after it their number that was accepted is known. */
static void check_rounds(pl_engine *e, const int32_t *prompt, int32_t n, int k)
{
    size_t n_rounds, n_drafts, n_accepted;
    const int64_t *first = ids_of(n, k, "first", &n_rounds);
    const int64_t *drafts = ids_of(n, k, "drafts", &n_drafts);
    const int64_t *accepted = ids_of(n, k, "accepted", &n_accepted);
    pl_request_params p = pl_request_params_default();
    pl_request *r;
    pl_error err;
    bool busy;

    assert_int_equal(n_drafts, n_rounds * (size_t)k);
    assert_int_equal(n_accepted, n_rounds);
    p.tokens = prompt;
    p.n_tokens = n;
    p.ignore_eos = true;
    check_ok(pl_engine_submit(e, &p, &r, &err), &err);
    check_ok(pl_engine_step(e, &busy, &err), &err);
    for (size_t i = 0; i < n_rounds; i++) {
        const int32_t *next = pl__request_outputs(r) + r->n_output;
        const int64_t before = total(r->speculation.accepted);

        assert_int_equal(r->n_drafts, k);
        assert_int_equal(next[-1], first[i]);
        check_first_drafts(next, n, k, i);
        for (int j = 0; j < k; j++)
            if (next[j] != drafts[i * (size_t)k + (size_t)j])
                fail_msg("%d tokens, %d drafts, round %zu: draft %d is %d, want %ld", n, k, i, j,
                         next[j], (long)drafts[i * (size_t)k + (size_t)j]);
        check_ok(pl_engine_step(e, &busy, &err), &err);
        assert_int_equal(total(r->speculation.accepted) - before, accepted[i]);
    }
    pl_request_release(r);
}

static bool is_full(void)
{
    const char *full = getenv("PL_ENGINE_FULL");

    return full && strcmp(full, "1") == 0;
}

static void test_rounds(void **state)
{
    golden_tensor tokens = golden_get(gold, "I64", "tokens");
    golden_tensor lengths = golden_get(gold, "I64", "lengths");
    int32_t *prompt = malloc(tokens.n * sizeof *prompt);
    pl_engine_params p = small_params();
    int n_cases = 0;

    for (size_t i = 0; i < tokens.n; i++)
        prompt[i] = (int32_t)((const int64_t *)tokens.data)[i];
    p.level = "f64";
    p.max_num_batched_tokens = 512; /* a prompt is one step */
    p.max_model_len = (int)tokens.n + 300;
    for (int k = 1; k <= 3; k++) {
        pl_engine *e;

        p.num_speculative_tokens = k;
        e = open_engine("nano", &p);
        for (size_t i = 0; i < lengths.n; i++) {
            const int32_t n = (int32_t)((const int64_t *)lengths.data)[i];
            char name[64];

            snprintf(name, sizeof name, "spec.%d.%d.first", n, k);
            if (golden_has(gold, name) && (is_full() || n == 4 || n == 36 || n == 128)) {
                check_rounds(e, prompt, n, k);
                n_cases++;
            }
        }
        pl_engine_close(e);
    }
    assert_true(n_cases >= (is_full() ? 27 : 9));
    assert_true(n_first_drafts >= (is_full() ? 27 : 9));
    free(prompt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounds)};

    gold = golden_open("nano.rec.safetensors");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
