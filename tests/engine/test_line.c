/* Random configurations and loads, one after the other in one process: nothing goes past the plan, nothing grows, no
 * request that runs fails. Once free, once with the plan as the kernel's limit.
 *
 * 12 rounds of each; PL_ENGINE_FULL=1: 1,000, a few minutes. A round is made from its number alone: PL_LINE_ROUND=N
 * runs that one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/meminfo.h"
#include "engine_support.h"

enum { MAX_REQUESTS = 16, MAX_PROMPT = 24, USUAL_ROUNDS = 12, ALL_ROUNDS = 1000 };

static uint32_t random_state;

static int random_in(int low, int high)
{
    random_state = random_state * 1664525u + 1013904223u;
    return low + (int)((random_state >> 8) % (uint32_t)(high - low + 1));
}

static uint64_t resident(void)
{
    uint64_t bytes;
    pl_error err;

    check_ok(pl_mem_read_exact(&bytes, NULL, &err), &err);
    return bytes;
}

static pl_mem_usage usage(void)
{
    pl_mem_usage u;
    pl_error err;

    check_ok(pl_mem_read_usage(&u, &err), &err);
    return u;
}

static pl_engine_params random_params(void)
{
    pl_engine_params p = small_params();

    p.level = random_in(0, 3) ? NULL : "scalar";
    p.threads = random_in(1, 4);
    p.max_num_seqs = random_in(1, 20);
    p.max_model_len = random_in(0, 1) ? random_in(8, 300) : random_in(8, 4000);
    p.max_num_batched_tokens = random_in(0, 1) ? random_in(1, 24) : random_in(1, 700);
    p.num_speculative_tokens = random_in(0, 1) ? random_in(1, PL_MAX_SPECULATIVE) : 0;
    p.max_queued = random_in(MAX_REQUESTS, 40);
    return p;
}

/* More than there are places, some of them cancelled on the way; all others end as they should. */
static void load(pl_engine *e, int round, const pl_engine_params *p)
{
    static int32_t prompt[2 * MAX_PROMPT];
    const int n = random_in(1, p->max_num_seqs < 5 ? p->max_num_seqs + 3 : 6);
    pl_request *r[MAX_REQUESTS];
    bool cancelled[MAX_REQUESTS] = {false}, busy = true;
    int32_t want[MAX_REQUESTS], n_tokens;
    pl_error err;

    fill_prompt(prompt, 2 * MAX_PROMPT, 512, (uint32_t)round);
    for (int i = 0; i < n; i++) {
        pl_request_params q = pl_request_params_default();
        const int longest = p->max_model_len - 1 < MAX_PROMPT ? p->max_model_len - 1 : MAX_PROMPT;

        q.tokens = prompt + random_in(0, MAX_PROMPT);
        q.n_tokens = random_in(1, longest);
        q.max_tokens = want[i] = random_in(1, 3);
        q.temperature = (float)random_in(0, 1);
        q.ignore_eos = true;
        if (want[i] > p->max_model_len - q.n_tokens)
            want[i] = p->max_model_len - q.n_tokens;
        check_ok(pl_engine_submit(e, &q, &r[i], &err), &err);
    }
    for (int steps = 0; busy; steps++) {
        check_ok(pl_engine_step(e, &busy, &err), &err);
        if (steps == 1 && n > 2 && r[1] && pl_request_state_of(r[1]) <= PL_REQUEST_RUNNING) {
            pl_request_cancel(r[1]);
            cancelled[1] = true;
        }
        for (int i = 0; i < n; i++) {
            if (!r[i] || pl_request_state_of(r[i]) <= PL_REQUEST_RUNNING)
                continue;
            (void)pl_request_tokens(r[i], &n_tokens);
            assert_int_equal(pl_request_state_of(r[i]),
                             cancelled[i] ? PL_REQUEST_CANCELLED : PL_REQUEST_LENGTH);
            if (!cancelled[i])
                assert_int_equal(n_tokens, want[i]);
            pl_request_release(r[i]); /* its place goes to one that waits */
            r[i] = NULL;
        }
    }
    for (int i = 0; i < n; i++)
        assert_null(r[i]);
}

/* RLIMIT_DATA counts addresses: what the process has, and what the plan adds to it. */
static void draw_line(const pl_engine_params *p, uint64_t total)
{
    pl_error err;

    check_ok(pl_mem_set_line(usage().data_bytes + total - p->program_bytes, &err), &err);
}

static void run_round(int round, bool with_line)
{
    pl_engine_params p;
    pl_plan_totals t;
    uint64_t peak, slack;
    pl_engine *e;
    pl_plan *plan;
    pl_error err;

    random_state = (uint32_t)round * 2654435761u + 1;
    p = random_params();
    p.program_bytes = resident();
    check_ok(pl_plan_create(checkpoint_path("nano"), &p, &plan, &err), &err);
    t = pl_plan_totals_of(plan);
    pl_plan_destroy(plan);
    check_ok(pl_mem_reset_peak(&err), &err);
    if (with_line)
        draw_line(&p, t.total_bytes);
    p.memory_bytes = t.total_bytes;
    e = open_engine("nano", &p);
    load(e, round, &p);
    peak = usage().peak_resident_bytes;
    slack = 8 * 1024 * 1024 + t.total_bytes / 100;
    if (peak > t.total_bytes || peak + slack < t.total_bytes)
        fail_msg("round %d: peak of %" PRIu64 " bytes, planned %" PRIu64
                 " (%d threads, %d x %d tokens, %d a step)",
                 round, peak, t.total_bytes, t.threads, t.max_num_seqs, t.max_model_len,
                 t.max_num_batched_tokens);
    pl_engine_close(e);
    if (with_line)
        check_ok(pl_mem_set_line(UINT64_MAX, &err), &err);
}

static void run_rounds(bool with_line)
{
    const char *full = getenv("PL_ENGINE_FULL"), *one = getenv("PL_LINE_ROUND");
    const int n = full && strcmp(full, "1") == 0 ? ALL_ROUNDS : USUAL_ROUNDS;
    uint64_t settled = 0, end;

    if (SANITIZED)
        skip();
    if (one) {
        run_round(atoi(one), with_line);
        return;
    }
    for (int round = 0; round < n; round++) {
        run_round(round, with_line);
        if (round == 4)
            settled = resident();
    }
    /* Whatever the sizes were, all of it was given back. */
    end = resident();
    print_message("%d configurations, %" PRIu64 " KiB resident after 5, %" PRIu64 " at the end\n",
                  n, settled / 1024, end / 1024);
    assert_true(end <= settled + 512 * 1024);
}

static void test_random_configurations(void **state)
{
    run_rounds(false);
}

static void test_random_configurations_under_a_hard_limit(void **state)
{
    run_rounds(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_configurations),
        cmocka_unit_test(test_random_configurations_under_a_hard_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
