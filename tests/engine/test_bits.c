/* The second promise, at the engine: a request's bits do not depend on chunk, threads, company, order, level or ranks.
 *
 * argv[1] is the checkpoint; argv[2] "levels" compares levels only. PL_ENGINE_FULL=1 runs the whole product of
 * chunks, threads and company: one engine for each pair of the first two, which serves every company. Most of its time goes
 * to the short chunks, where level scalar reads all weights for a few tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cpu.h"
#include "engine_support.h"
#include "ops/level.h"

enum { N = 4, LONG = 131 };

static const char *checkpoint;
static int n_requests = N; /* fewer where a token costs more */
static int32_t prompt[N][LONG];
static pl_request_params requests[N];
static result reference[N];

static const int chunks[] = {1, 3, 4, 5, 127, 128, 129, 512};
static const int threads[] = {1, 2, 3, 7, 64}; /* the last ones are far more than there are cores */
enum {
    N_CHUNKS = sizeof chunks / sizeof chunks[0],
    N_THREADS = sizeof threads / sizeof threads[0]
};

/* Who runs with whom, submitted in which order. */
typedef struct company {
    const char *name;
    bool together;
    int order[N];
} company;

static const company companies[] = {{"alone", false, {0, 1, 2, 3}},
                                    {"in order", true, {0, 1, 2, 3}},
                                    {"backwards", true, {3, 2, 1, 0}},
                                    {"mixed", true, {1, 3, 0, 2}}};
enum { ALONE, IN_ORDER, BACKWARDS, MIXED, N_COMPANIES };

static bool is_large(void)
{
    return strcmp(checkpoint, "micro") == 0;
}

static bool is_full(void)
{
    const char *full = getenv("PL_ENGINE_FULL");

    return full && strcmp(full, "1") == 0;
}

/* Prompts on both sides of the window and of a block of 128, one that is left while it decodes; greedy and sampled. Where a
 * token costs more, one long prompt does. */
static void make_requests(int vocab)
{
    static const int32_t all[2][N] = {{5, LONG, 40, 126}, {5, LONG, 24, 12}};
    const int32_t *lengths = all[is_large()];

    for (int i = 0; i < N; i++) {
        fill_prompt(prompt[i], lengths[i], vocab, (uint32_t)i);
        requests[i] = pl_request_params_default();
        requests[i].tokens = prompt[i];
        requests[i].n_tokens = lengths[i];
        requests[i].max_tokens = 4;
        requests[i].ignore_eos = true;
    }
    requests[2].temperature = 0.8f;
    requests[2].seed = 99;
    requests[3].temperature = 1.5f;
    requests[3].top_p = 0.9f;
    requests[3].repetition_penalty = 1.2f;
}

static pl_engine *open_with(int chunk, int n_threads)
{
    pl_engine_params p = small_params();

    p.max_num_batched_tokens = chunk;
    p.threads = n_threads;
    return open_engine(checkpoint, &p);
}

static int prepare(void **state)
{
    pl_engine *e = open_with(512, 2);

    make_requests(pl_engine_model_of(e).vocab_size);
    if (is_large() && !is_full())
        n_requests = 3;
    for (int i = 0; i < n_requests; i++)
        run_all(e, &requests[i], 1, NULL, &reference[i]);
    pl_engine_close(e);
    return 0;
}

/* Of the requests that there are, submitted in the company's order; results by request. */
static void run_in(pl_engine *e, const company *c, result *got)
{
    int order[N], n = 0;

    for (int i = 0; i < N; i++)
        if (c->order[i] < n_requests)
            order[n++] = c->order[i];
    if (c->together) {
        run_all(e, requests, n_requests, order, got);
        return;
    }
    for (int i = 0; i < n_requests; i++)
        run_all(e, &requests[order[i]], 1, NULL, &got[order[i]]);
}

/* `what`: where these are from. */
static void check_all(const char *what, const result *got)
{
    char which[160];

    for (int i = 0; i < n_requests; i++) {
        snprintf(which, sizeof which, "%s, request %d", what, i);
        check_same_result(which, &got[i], &reference[i]);
    }
}

static void compare(int chunk, int n_threads, const company *first, int n_companies)
{
    pl_engine *e = open_with(chunk, n_threads);
    char what[96];

    for (const company *c = first; c < first + n_companies; c++) {
        result got[N];

        run_in(e, c, got);
        snprintf(what, sizeof what, "chunk %d, %d threads, %s", chunk, n_threads, c->name);
        check_all(what, got);
    }
    pl_engine_close(e);
}

/* Different requests must not give the same bits: else equality below would mean nothing. */
static void test_references_differ(void **state)
{
    for (int i = 0; i < n_requests; i++) {
        assert_int_equal(reference[i].n, 4);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(reference[i].digest, reference[k].digest);
    }
}

static void compare_all(void)
{
    const time_t begun = time(NULL);
    int n = 0;

    for (int c = 0; c < N_CHUNKS; c++)
        for (int t = 0; t < N_THREADS; t++) {
            compare(chunks[c], threads[t], companies, N_COMPANIES);
            print_message("# %s: chunk %d, %d threads: all %d companies agree; %d of %d, %.0f s\n",
                          checkpoint, chunks[c], threads[t], N_COMPANIES, ++n, N_CHUNKS * N_THREADS,
                          difftime(time(NULL), begun));
        }
}

static void test_chunks_threads_and_company(void **state)
{
    const int step = is_large() ? 4 : 1;

    if (is_full()) {
        compare_all();
        return;
    }
    for (int c = 0; c < N_CHUNKS; c += step)
        compare(chunks[c], threads[c % N_THREADS], &companies[IN_ORDER + c % 3], 1);
    if (step == 1)
        compare(5, 7, &companies[ALONE], 1);
    compare(129, 64, &companies[BACKWARDS], 1);
}

/* Every level of this processor against the references, which are level scalar's: tokens, log-probabilities and
 * digests; the best one also as an engine chooses it by itself. */
static void test_levels(void **state)
{
    static const company others = {"together", true, {2, 0, 1, 3}};
    pl_engine_params p = small_params();
    const char *best = "scalar";
    pl_cpu cpu;

    pl_cpu_detect(&cpu, NULL);
    for (pl_level l = PL_LEVEL_AVX2; l <= cpu.level; l++) {
        pl_engine *e;
        result got[N];

        if (!(pl_level_built() >> l & 1))
            continue;
        p.level = best = pl_level_name(l);
        e = open_engine(checkpoint, &p);
        assert_string_equal(pl_engine_numerics(e).level, best);
        run_in(e, &others, got);
        check_all(best, got);
        pl_engine_close(e);
    }
    p.level = NULL;
    if (!getenv("PL_CPU")) {
        pl_engine *e = open_engine(checkpoint, &p);

        assert_string_equal(pl_engine_numerics(e).level, best);
        pl_engine_close(e);
    }
    if (strcmp(best, "scalar") == 0)
        skip();
}

/* Ranks in one process, with and without drafts: every request's bits, and the plan that was carved. Level scalar takes
 * longer: it runs the number that divides nothing. */
static void test_ranks(void **state)
{
    static const struct {
        int n_ranks, n_drafts;
        const char *level;
    } cases[] = {{2, 0, NULL}, {3, 2, "scalar"}, {8, 2, NULL}};

    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        pl_engine_params p = small_params();
        pl_engine *e;
        pl_plan_totals t;
        result got[N];
        char what[64];

        p.ranks = cases[c].n_ranks;
        p.num_speculative_tokens = cases[c].n_drafts;
        p.level = cases[c].level;
        e = open_engine(checkpoint, &p);
        t = pl_plan_totals_of(pl_engine_plan(e));
        assert_int_equal(t.ranks, cases[c].n_ranks);
        run_in(e, &companies[MIXED], got);
        snprintf(what, sizeof what, "%d ranks, %d drafts", cases[c].n_ranks, cases[c].n_drafts);
        check_all(what, got);
        pl_engine_close(e);
    }
}

/* More requests than places: the later ones wait, and that changes nothing either. */
static void test_queueing(void **state)
{
    pl_engine_params p = small_params();
    pl_request_params two[2] = {requests[0], requests[2]};
    pl_request *held[2];
    pl_engine *e;
    result got;
    pl_error err;
    bool busy;

    p.max_num_seqs = 1;
    e = open_engine(checkpoint, &p);
    for (int i = 0; i < 2; i++)
        check_ok(pl_engine_submit(e, &two[i], &held[i], &err), &err);
    check_ok(pl_engine_step(e, &busy, &err), &err);
    assert_int_equal(pl_request_state_of(held[0]), PL_REQUEST_RUNNING);
    assert_int_equal(pl_request_state_of(held[1]), PL_REQUEST_QUEUED);
    assert_int_equal(pl_engine_stats_of(e).queued, 1);
    /* The first one ends and keeps its place. */
    check_error(pl_engine_run(e, &err), PL_ERR_STATE, &err, "1 requests wait", NULL);
    take(held[0], &got);
    check_same_result("first", &got, &reference[0]);
    check_ok(pl_engine_run(e, &err), &err);
    take(held[1], &got);
    check_same_result("second", &got, &reference[2]);
    pl_engine_close(e);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_references_differ),
        cmocka_unit_test(test_chunks_threads_and_company),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_queueing),
        cmocka_unit_test(test_levels),
    };
    const struct CMUnitTest levels[] = {
        cmocka_unit_test(test_references_differ),
        cmocka_unit_test(test_levels),
    };

    checkpoint = argc > 1 ? argv[1] : "nano";
    if (argc > 2 && strcmp(argv[2], "levels") == 0)
        return cmocka_run_group_tests(levels, prepare, NULL);
    return cmocka_run_group_tests(tests, prepare, NULL);
}
