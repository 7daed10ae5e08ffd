/* Speculation changes no bit: tokens, log-probabilities and digests with 0 to 8 drafts equal those without.
 *
 *     test_speculation CHECKPOINT
 *
 * Requests cross groups of 4 tokens, blocks of 128, the end of the ring and the indexer's top-k; they run together,
 * some decoding while others prefill, under every kind of option. PL_ENGINE_FULL=1: every number of drafts with many
 * budgets, and thousands of tokens of several seeds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"
#include "engine_support.h"

enum { N = 6, LONG = 133, MODEL_LEN = 540 };

static const char *checkpoint;
static int vocab;
static int32_t prompt[N][LONG], stop[1];
static uint32_t three[2048 / 32]; /* a mask of three tokens */
static const pl_logit_bias biases[] = {{5, 3}, {77, -100}, {5, 0.5f}};
static pl_request_params requests[N];
static result reference[N];

static bool is_full(void)
{
    const char *full = getenv("PL_ENGINE_FULL");

    return full && strcmp(full, "1") == 0;
}

/* The level is the best of this machine: that levels agree is shown elsewhere. */
static pl_engine *open_with(int k, int chunk, int threads)
{
    pl_engine_params p = small_params();

    p.level = NULL;
    p.max_num_seqs = N;
    p.max_model_len = MODEL_LEN;
    p.max_num_batched_tokens = chunk;
    p.threads = threads;
    p.num_speculative_tokens = k;
    return open_engine(checkpoint, &p);
}

static void make_requests(int32_t n_tokens)
{
    static const int32_t lengths[N] = {120, 5, 124, 126, 12, LONG};

    for (int i = 0; i < N; i++) {
        fill_prompt(prompt[i], lengths[i], vocab, (uint32_t)i);
        requests[i] = pl_request_params_default();
        requests[i].tokens = prompt[i];
        requests[i].n_tokens = lengths[i];
        requests[i].max_tokens = n_tokens - 3 * i;
        requests[i].ignore_eos = true;
        requests[i].seed = (uint64_t)i;
    }
    requests[1].temperature = 0.8f;
    requests[2].temperature = 1.5f;
    requests[2].top_p = 0.9f;
    requests[2].repetition_penalty = 1.2f;
    requests[2].frequency_penalty = 0.3f;
    requests[2].presence_penalty = 0.2f;
    for (int i = 0; i < 3; i++)
        three[i] |= 1u << (7 * i + 1);
    requests[3].temperature = 1;
    requests[3].allowed = three;
    requests[4].logit_bias = biases;
    requests[4].n_logit_bias = 3;
    requests[4].min_tokens = 4;
    requests[5].temperature = 2;
    requests[5].top_k = 5;
    requests[5].min_p = 0.01f;
    requests[5].choice = 3;
}

static void make_references(void)
{
    pl_engine *e = open_with(0, 512, 2);

    run_all(e, requests, N, NULL, reference);
    /* The last token of request 4 that it has not had before now stops it. */
    for (int32_t i = 0; i < reference[4].n; i++) {
        bool first = true;
        for (int32_t k = 0; k < i; k++)
            first = first && reference[4].tokens[k] != reference[4].tokens[i];
        stop[0] = first ? reference[4].tokens[i] : stop[0];
    }
    requests[4].stop_ids = stop;
    requests[4].n_stop_ids = 1;
    run_all(e, &requests[4], 1, NULL, &reference[4]);
    pl_engine_close(e);
}

static int prepare(void **state)
{
    pl_engine *e = open_with(0, 64, 1);

    vocab = pl_engine_model_of(e).vocab_size;
    pl_engine_close(e);
    make_requests(strcmp(checkpoint, "micro") == 0 ? 18 : 27);
    make_references();
    return 0;
}

/* Whether the counts explain the tokens. Returns how many drafts were accepted. */
static uint64_t check_counts(const char *what, const result *r, int k)
{
    const pl_speculation *s = &r->stats.speculation;
    uint64_t accepted = 0;

    for (int i = 0; i < PL_MAX_SPECULATIVE; i++) {
        accepted += s->accepted[i];
        assert_true(s->accepted[i] <= s->drafted[i] && s->drafted[i] <= s->steps);
        assert_true(i < k || s->drafted[i] == 0);
        /* A draft is accepted only behind accepted ones. */
        assert_true(i == 0 || s->accepted[i] <= s->accepted[i - 1]);
    }
    if (r->state == PL_REQUEST_STOPPED && (uint64_t)r->n == s->steps + accepted)
        return accepted; /* an accepted draft ended it */
    if ((uint64_t)r->n != 1 + s->steps + accepted)
        fail_msg("%s: %d tokens from %lu steps and %lu accepted drafts", what, r->n,
                 (unsigned long)s->steps, (unsigned long)accepted);
    return accepted;
}

static void compare(int k, int chunk, int threads, const int *order)
{
    pl_engine *e = open_with(k, chunk, threads);
    const pl_speculation *total;
    pl_engine_stats stats;
    uint64_t accepted = 0, steps = 0;
    taken_back seen = {0};
    result got[N];
    char what[96];

    run_watched(e, requests, N, order, got, &seen);
    stats = pl_engine_stats_of(e);
    total = &stats.speculation;
    for (int i = 0; i < N; i++) {
        snprintf(what, sizeof what, "request %d, %d drafts, chunk %d, %d threads", i, k, chunk,
                 threads);
        check_same_result(what, &got[i], &reference[i]);
        accepted += check_counts(what, &got[i], k);
        steps += got[i].stats.speculation.steps;
        for (int j = 0; j < PL_MAX_SPECULATIVE; j++)
            if (i == 0)
                assert_true(got[i].stats.speculation.accepted[j] <= total->accepted[j]);
    }
    assert_int_equal(steps, total->steps);
    /* Both ways must have been gone. */
    if (k && chunk > N) {
        assert_true(accepted > 10);
        assert_true(total->drafted[0] > total->accepted[0] + 10);
        assert_true(seen.n > 10 && seen.over_4 > 5);
        /* Requests begin at 120 to 133: drafts end a block, and go round a ring of 136. */
        assert_true(k < 8 || chunk < 40 || (seen.over_128 > 0 && seen.over_ring > 0));
    }
    pl_engine_close(e);
}

static void test_references(void **state)
{
    for (int i = 0; i < N; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(reference[i].digest, reference[k].digest);
    assert_int_equal(reference[4].state, PL_REQUEST_STOPPED);
    assert_true(reference[4].n > 4);
}

static void test_equal_bits(void **state)
{
    static const int orders[2][N] = {{5, 3, 1, 0, 2, 4}, {4, 0, 5, 2, 1, 3}};
    static const struct {
        int k, chunk, threads;
    } some[] = {{8, 40, 3}, {3, 9, 1}};
    static const int chunks[] = {1, 2, 3, 4, 5, 9, 17, 40, 129, 512};
    const size_t n_some = strcmp(checkpoint, "micro") == 0 ? 1 : sizeof some / sizeof some[0];

    for (size_t i = 0; !is_full() && i < n_some; i++)
        compare(some[i].k, some[i].chunk, some[i].threads, orders[i & 1]);
    for (int k = 0; is_full() && k <= PL_MAX_SPECULATIVE; k++)
        for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++)
            compare(k, chunks[c], 1 + (k + (int)c) % 3, orders[c & 1]);
}

/* Makes up what steps cost, anew with every token, so that the depth jumps between steps. */
static void shake_depth(void *user, pl_request *r, const pl_token_event *event)
{
    static uint32_t random = 1;
    pl_depth *d = &r->engine->depth;

    for (int i = 0; i < PL_DEPTH_SIZES; i++)
        for (int k = 0; k <= PL_MAX_SPECULATIVE; k++) {
            random = random * 1664525u + 1013904223u;
            d->costs[i].n_samples[k] = 1000;
            d->costs[i].seconds[k] = 1 + (double)(random >> 24) / 8;
        }
}

/* Depth auto: left to itself, and with a depth that changes wildly. */
static void test_changing_depth(void **state)
{
    for (int shaken = 0; shaken < 2; shaken++) {
        pl_engine_params p = small_params();
        pl_request_params asked[N];
        result got[N];
        pl_engine_stats stats;
        pl_engine *e;
        int n_depths = 0;

        p.level = NULL;
        p.max_num_seqs = N;
        p.max_model_len = MODEL_LEN;
        p.max_num_batched_tokens = 64;
        p.num_speculative_tokens = PL_MAX_SPECULATIVE;
        p.adapt_speculative_tokens = true;
        e = open_engine(checkpoint, &p);
        memcpy(asked, requests, sizeof asked);
        for (int i = 0; shaken && i < N; i++)
            asked[i].on_token = shake_depth;
        run_all(e, asked, N, NULL, got);
        for (int i = 0; i < N; i++)
            check_same_result(shaken ? "shaken" : "auto", &got[i], &reference[i]);
        stats = pl_engine_stats_of(e);
        assert_true(stats.adapts_depth);
        for (int k = 0; k <= PL_MAX_SPECULATIVE; k++)
            n_depths += stats.depth_steps[k] > 0;
        assert_true(n_depths >= (shaken ? 5 : 1));
        pl_engine_close(e);
    }
}

/* 2,400 tokens a seed: greedy and sampled, on one side and the other of every boundary. */
static void test_long(void **state)
{
    enum { TOKENS = 400, SEEDS = 2 };
    static result want[N], got[N];

    if (!is_full())
        return;
    for (int seed = 0; seed < SEEDS; seed++) {
        pl_request_params long_ones[N];
        pl_engine *e = open_with(0, 512, 2);
        int32_t n_tokens = 0;

        memcpy(long_ones, requests, sizeof long_ones);
        for (int i = 0; i < N; i++) {
            long_ones[i].max_tokens = TOKENS;
            long_ones[i].seed = 100 * (uint64_t)seed + (uint64_t)i;
            long_ones[i].n_stop_ids = 0;
            long_ones[i].tokens += seed;
            long_ones[i].n_tokens -= seed;
        }
        run_all(e, long_ones, N, NULL, want);
        pl_engine_close(e);
        for (int i = 0; i < N; i++)
            n_tokens += want[i].n;
        assert_true(n_tokens >= 2000);
        for (int k = 1; k <= PL_MAX_SPECULATIVE; k++) {
            taken_back seen = {0};

            e = open_with(k, 64, 2);
            run_watched(e, long_ones, N, NULL, got, &seen);
            assert_true(seen.over_4 > 50 && seen.over_128 > 1 && (k < 3 || seen.over_ring > 1));
            for (int i = 0; i < N; i++)
                check_same_result("long", &got[i], &want[i]);
            pl_engine_close(e);
        }
    }
}

/* ---- callbacks */

typedef struct listener {
    int32_t told, cancel_at;
    const result *want;
} listener;

static void on_token(void *user, pl_request *r, const pl_token_event *event)
{
    listener *l = user;
    int32_t n;
    const int32_t *tokens = pl_request_tokens(r, &n);

    /* What can be read ends with the token that is told, however many the step gave. */
    assert_int_equal(event->index, l->told++);
    assert_int_equal(n, l->told);
    assert_int_equal(tokens[n - 1], event->token);
    assert_int_equal(event->token, l->want->tokens[event->index]);
    assert_int_equal(pl_request_state_of(r) > PL_REQUEST_RUNNING, n == l->want->n);
    if (l->told == l->cancel_at)
        pl_request_cancel(r);
}

static void test_cancelling(void **state)
{
    pl_engine *e = open_with(4, 40, 2);
    pl_request *r[N];
    listener l[N] = {{0}};
    result got;
    pl_error err;

    for (int i = 0; i < 4; i++) {
        pl_request_params p = requests[i];
        l[i] = (listener){.want = &reference[i], .cancel_at = i < 3 ? 6 + i : 0};
        p.on_token = on_token;
        p.user = &l[i];
        check_ok(pl_engine_submit(e, &p, &r[i], &err), &err);
    }
    check_ok(pl_engine_run(e, &err), &err);
    for (int i = 0; i < 4; i++) {
        if (l[i].cancel_at) {
            assert_int_equal(l[i].told, l[i].cancel_at);
            assert_int_equal(pl_request_state_of(r[i]), PL_REQUEST_CANCELLED);
            pl_request_release(r[i]);
            continue;
        }
        take(r[i], &got);
        check_same_result("beside a cancelled one", &got, &reference[i]);
    }
    /* Their places serve others. */
    run_all(e, &requests[4], 1, NULL, &got);
    check_same_result("in a freed place", &got, &reference[4]);
    pl_engine_close(e);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_references),     cmocka_unit_test(test_equal_bits),
        cmocka_unit_test(test_changing_depth), cmocka_unit_test(test_long),
        cmocka_unit_test(test_cancelling),
    };

    checkpoint = argc > 1 ? argv[1] : "nano";
    return cmocka_run_group_tests(tests, prepare, NULL);
}
