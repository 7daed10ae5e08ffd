/* Drafts by rejection sampling: sequences of tokens have the distribution of plain sampling; what it promises and what no more. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine_support.h"

/* Three tokens are allowed: four of them in a row make 81 sequences, the cells of the test. */
enum { LEN = 6, TOKENS = 4, CELLS = 81, AT_ONCE = 16, N_ALLOWED = 3 };

static const int32_t ids[N_ALLOWED] = {17, 230, 401};
static uint32_t allowed[512 / 32];
static int32_t prompt[LEN + TOKENS];

static bool is_full(void)
{
    const char *full = getenv("PL_ENGINE_FULL");

    return full && strcmp(full, "1") == 0;
}

static pl_engine *open_with(int k, pl_draft_sampling sampling)
{
    pl_engine_params p = small_params();

    p.level = NULL;
    p.threads = 1;
    p.max_num_seqs = AT_ONCE;
    p.max_model_len = 64;
    p.num_speculative_tokens = k;
    p.draft_sampling = sampling;
    return open_engine("nano", &p);
}

static pl_request_params request_of(uint64_t seed)
{
    pl_request_params p = pl_request_params_default();

    p.tokens = prompt;
    p.n_tokens = LEN;
    p.max_tokens = TOKENS;
    p.temperature = 1.3f;
    p.seed = seed;
    p.allowed = allowed;
    p.ignore_eos = true;
    return p;
}

/* ---- what is true */

struct next {
    double p[N_ALLOWED];
};

static void hear(void *user, pl_request *r, const pl_token_event *event)
{
    pl_token_logprob top[512];
    struct next *next = user;
    double sum = 0;

    assert_int_equal(pl_request_top_logprobs(r, top, 512), 512);
    for (int i = 0; i < 512; i++)
        for (int k = 0; k < N_ALLOWED; k++)
            if (top[i].token == ids[k])
                sum += next->p[k] = exp((double)top[i].logprob / 1.3);
    for (int k = 0; k < N_ALLOWED; k++)
        next->p[k] /= sum;
}

/* Of each sequence of tokens, from what each of its tokens says of the next. */
static void fill(pl_engine *e, int32_t depth, int32_t cell, double p, double *cells)
{
    pl_request_params params = request_of(0);
    struct next next;
    result r;

    if (depth == TOKENS) {
        cells[cell] = p;
        return;
    }
    params.n_tokens = LEN + depth;
    params.max_tokens = 1;
    params.on_token = hear;
    params.user = &next;
    run_all(e, &params, 1, NULL, &r);
    for (int k = 0; k < N_ALLOWED; k++) {
        prompt[LEN + depth] = ids[k];
        fill(e, depth + 1, N_ALLOWED * cell + k, p * next.p[k], cells);
    }
}

/* ---- what is drawn */

static int32_t cell_of(const result *r)
{
    int32_t cell = 0;

    assert_int_equal(r->n, TOKENS);
    for (int i = 0; i < TOKENS; i++) {
        int k = 0;

        while (k < N_ALLOWED && ids[k] != r->tokens[i])
            k++;
        assert_true(k < N_ALLOWED);
        cell = N_ALLOWED * cell + k;
    }
    return cell;
}

static void draw(pl_engine *e, int n_draws, int32_t *counts)
{
    static result r[AT_ONCE];

    for (int i = 0; i < n_draws; i += AT_ONCE) {
        pl_request_params p[AT_ONCE];

        for (int k = 0; k < AT_ONCE; k++)
            p[k] = request_of((uint64_t)i + (uint64_t)k);
        run_all(e, p, AT_ONCE, NULL, r);
        for (int k = 0; k < AT_ONCE; k++)
            counts[cell_of(&r[k])]++;
    }
}

/* Cells with few draws count as one. *n: cells. */
static double chi_square(const int32_t *counts, const double *p, int n_draws, int *n)
{
    double sum = 0, rest = 0;
    int32_t n_rest = 0;

    *n = 0;
    for (int i = 0; i < CELLS; i++) {
        const double want = p[i] * n_draws;

        if (want < 5) {
            rest += want;
            n_rest += counts[i];
            continue;
        }
        sum += (counts[i] - want) * (counts[i] - want) / want;
        ++*n;
    }
    if (rest >= 5) {
        sum += (n_rest - rest) * (n_rest - rest) / rest;
        ++*n;
    }
    return sum;
}

static void test_distribution(void **state)
{
    const int n_draws = is_full() ? 16000 : 512;
    double p[CELLS], sum = 0, chi;
    int32_t counts[CELLS] = {0};
    pl_engine *e = open_with(0, PL_DRAFT_SHARED_NOISE);
    pl_engine_stats stats;
    int n;

    fill(e, 0, 0, 1, p);
    for (int i = 0; i < CELLS; i++)
        sum += p[i];
    assert_true(fabs(sum - 1) < 1e-6);
    pl_engine_close(e);
    e = open_with(3, PL_DRAFT_REJECTION);
    draw(e, n_draws, counts);
    stats = pl_engine_stats_of(e);
    pl_engine_close(e);
    chi = chi_square(counts, p, n_draws, &n);
    print_message("chi-square %.1f of %d cells\n", chi, n);
    assert_true(n > 15);
    assert_true(chi < n - 1 + 3.7 * sqrt(2.0 * (n - 1)));
    /* Drafts were accepted and rejected, each often enough to matter. */
    for (int i = 0; i < 2; i++) {
        const pl_speculation *s = &stats.speculation;
        assert_true(s->drafted[i] > 100);
        assert_true(s->accepted[i] > 50 && s->drafted[i] - s->accepted[i] > 20);
    }
}

/* ---- the promise */

static void test_greedy_keeps_its_bits(void **state)
{
    pl_engine *plain = open_with(0, PL_DRAFT_SHARED_NOISE), *e = open_with(4, PL_DRAFT_REJECTION);
    pl_request_params p[3];
    result want[3], got[3];

    for (int i = 0; i < 3; i++) {
        p[i] = request_of((uint64_t)i);
        p[i].temperature = 0;
        p[i].max_tokens = 40;
        p[i].allowed = i ? NULL : allowed;
        p[i].n_tokens = LEN - i;
        p[i].frequency_penalty = i == 2 ? 0.5f : 0;
    }
    run_all(plain, p, 3, NULL, want);
    run_all(e, p, 3, NULL, got);
    for (int i = 0; i < 3; i++) {
        check_same_result("greedy", &got[i], &want[i]);
        assert_true(got[i].stats.speculation.drafted[3] > 0);
    }
    pl_engine_close(plain);
    pl_engine_close(e);
}

/* What is said of it is so: the same engine gives the same, another number of drafts something else. */
static void test_bits_depend_on_drafts(void **state)
{
    pl_engine *e[3] = {open_with(2, PL_DRAFT_REJECTION), open_with(2, PL_DRAFT_REJECTION),
                       open_with(4, PL_DRAFT_REJECTION)};
    int n_different = 0;

    for (uint64_t seed = 0; seed < 4; seed++) {
        pl_request_params p = request_of(seed);
        result r[3];

        p.max_tokens = 40;
        p.allowed = NULL;
        for (int i = 0; i < 3; i++)
            run_all(e[i], &p, 1, NULL, &r[i]);
        check_same_result("again", &r[1], &r[0]);
        n_different += strcmp(r[2].digest, r[0].digest) != 0;
    }
    assert_true(n_different > 0);
    for (int i = 0; i < 3; i++)
        pl_engine_close(e[i]);
}

/* ---- plan and refusals */

static uint64_t region_bytes(const pl_plan *plan, const char *name)
{
    for (int i = 0; i < pl_plan_n_regions(plan); i++)
        if (strcmp(pl_plan_region_at(plan, i).name, name) == 0)
            return pl_plan_region_at(plan, i).bytes;
    return 0;
}

static void test_plan(void **state)
{
    pl_engine *e = open_with(3, PL_DRAFT_REJECTION);
    const pl_plan *plan = pl_engine_plan(e);
    pl_engine_params p = small_params();
    pl_plan *other;
    pl_error err;

    assert_int_equal(region_bytes(plan, "engine.draft_probs"), AT_ONCE * 3 * 512 * 4);
    assert_int_equal(pl_plan_totals_of(plan).draft_sampling, PL_DRAFT_REJECTION);
    assert_string_equal(pl_draft_sampling_name(pl_plan_totals_of(plan).draft_sampling),
                        "rejection");
    assert_non_null(strstr(pl_plan_note(plan), "depend on drafts"));
    pl_engine_close(e);
    e = open_with(3, PL_DRAFT_SHARED_NOISE);
    assert_int_equal(region_bytes(pl_engine_plan(e), "engine.draft_probs"), 0);
    assert_string_equal(pl_plan_note(pl_engine_plan(e)), "");
    pl_engine_close(e);
    p.draft_sampling = PL_DRAFT_REJECTION;
    check_error(pl_plan_create(checkpoint_path("nano"), &p, &other, &err), PL_ERR_INVALID, &err,
                "draft_sampling", "wants drafts", NULL);
    p.num_speculative_tokens = 1;
    p.draft_sampling = (pl_draft_sampling)7;
    check_error(pl_plan_create(checkpoint_path("nano"), &p, &other, &err), PL_ERR_INVALID, &err,
                "draft_sampling: unknown (got 7", NULL);
}

static void test_numbers(void **state)
{
    const pl_speculation none = {.steps = 5};
    const pl_speculation some = {.steps = 9, .drafted = {8, 6, 2}, .accepted = {5, 3, 2}};

    assert_true(pl_speculation_mean_length(&none) == 1 && pl_speculation_acceptance(&none) == 0);
    assert_true(pl_speculation_mean_length(&some) == 1 + 10.0 / 8);
    assert_true(pl_speculation_acceptance(&some) == 10.0 / 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_greedy_keeps_its_bits),
        cmocka_unit_test(test_bits_depend_on_drafts),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_numbers),
    };

    for (int k = 0; k < N_ALLOWED; k++)
        allowed[ids[k] / 32] |= 1u << (ids[k] & 31);
    fill_prompt(prompt, LEN, 512, 9);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
