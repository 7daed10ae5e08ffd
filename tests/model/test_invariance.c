/* A token's bits depend on its sequence alone.
 *
 *     test_invariance NAME LEVEL
 *
 * Every tensor of every token is compared (support/record.h) between a prompt run as one step and the same
 * prompt in chunks of many sizes, beside other sequences in changing order, with drafts that are taken
 * back, and with other numbers of workers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/record.h"

enum { T = 260, SHORT = 140, MAX_SEQS = 3, MAX_DRAFT = 3 };

static const char *model_name;
static const pl_ops *ops;
static int32_t tokens[T + 1];
static uint64_t want[MAX_SEQS][T], want_mtp[MAX_SEQS][T];

/* Sequence s is tokens[first ..][length]: crossing windows, blocks of 4 and 128, and a short one. */
static const struct {
    int32_t first, length;
} seqs[MAX_SEQS] = {{0, T}, {57, 129}, {31, 6}};

static test_model *open_model(int n_workers)
{
    return test_model_open(model_name, ops,
                           (pl_forward_limits){
                               .max_tokens = T,
                               .max_seqs = MAX_SEQS,
                               .max_len = T + MAX_DRAFT,
                               .max_draft = MAX_DRAFT,
                           },
                           n_workers);
}

/* n tokens of sequence s from where its state stands, then the mtp block over the same. */
static void run_chunk(test_model *m, pl_state *state, int s, int32_t n)
{
    const int32_t *from = tokens + seqs[s].first + state->n;

    test_run(m, state, from, n, true);
    test_run_mtp(m, state, pl_forward_streams(m->forward), 0, from + 1, n, true);
}

/* What every sequence gives alone, in one step. */
static void set_wanted(void)
{
    test_model *m = open_model(2);

    for (int s = 0; s < MAX_SEQS; s++) {
        pl_state *state = test_state_new(m);
        recorder *r = recorder_open(m, &state, 1);

        run_chunk(m, state, s, seqs[s].length);
        memcpy(want[s], r->seqs[0].digest, (size_t)seqs[s].length * sizeof want[s][0]);
        memcpy(want_mtp[s], r->seqs[0].mtp_digest, (size_t)seqs[s].length * sizeof want[s][0]);
        recorder_close(m, r);
        test_state_free(state);
    }
    test_model_close(m);
    assert_int_not_equal(want[0][0], want[0][1]);
}

/* The first n tokens of recorded sequence i are those of sequence s, as far as mtp ran also there. */
static void check(recorder *r, int i, int s, int32_t n, const char *what)
{
    char text[64];

    assert_int_equal(r->seqs[i].state->n, n);
    snprintf(text, sizeof text, "sequence %d %s", s, what);
    recorder_check_same(text, r->seqs[i].digest, want[s], n);
    snprintf(text, sizeof text, "mtp of sequence %d %s", s, what);
    recorder_check_same(text, r->seqs[i].mtp_digest, want_mtp[s], r->seqs[i].state->n_mtp);
}

static void chunk_sizes(void **unused)
{
    static const int32_t sizes[] = {1, 3, 4, 5, 127, 128, 129};
    test_model *m = open_model(2);

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int32_t length = sizes[i] < 100 ? SHORT : T; /* many small steps are slow */
        pl_state *state = test_state_new(m);
        recorder *r = recorder_open(m, &state, 1);
        char what[32];

        while (state->n < length) {
            int32_t left = length - state->n;
            run_chunk(m, state, 0, left < sizes[i] ? left : sizes[i]);
        }
        snprintf(what, sizeof what, "in chunks of %d", sizes[i]);
        check(r, 0, 0, length, what);
        recorder_close(m, r);
        test_state_free(state);
    }
    test_model_close(m);
}

static void numbers_of_workers(void **unused)
{
    static const int workers[] = {1, 3};

    for (size_t i = 0; i < sizeof workers / sizeof workers[0]; i++) {
        test_model *m = open_model(workers[i]);
        pl_state *state = test_state_new(m);
        recorder *r = recorder_open(m, &state, 1);
        char what[32];

        run_chunk(m, state, 0, SHORT - 10);
        while (state->n < SHORT) /* short steps split one token's keys and heads */
            run_chunk(m, state, 0, 2);
        snprintf(what, sizeof what, "with %d workers", workers[i]);
        check(r, 0, 0, SHORT, what);
        recorder_close(m, r);
        test_state_free(state);
        test_model_close(m);
    }
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 16;
}

/* A mixed step: of the sequences that are not done, in a random order, some tokens each. */
static void mixed_step(test_model *m, pl_state *const *states, uint32_t *seed)
{
    int32_t mix[T], rows[T], n = 0;
    int n_parts = 0, first = (int)(next_random(seed) % MAX_SEQS);
    int step = next_random(seed) & 1 ? 1 : MAX_SEQS - 1;
    pl_step_seq parts[MAX_SEQS];
    pl_error err;

    for (int i = 0; i < MAX_SEQS; i++) {
        int s = (first + i * step) % MAX_SEQS;
        int32_t left = seqs[s].length - states[s]->n, most = 1 + (int32_t)(next_random(seed) % 70);
        int32_t take = left < most ? left : most;

        if (take == 0 || (next_random(seed) % 4 == 0 && n))
            continue;
        parts[n_parts++] = (pl_step_seq){states[s], n, take, 0};
        memcpy(mix + n, tokens + seqs[s].first + states[s]->n, (size_t)take * sizeof *mix);
        n += take;
    }
    for (int32_t i = 0; i < n; i++)
        rows[i] = n - 1 - i;
    check_ok(pl_forward_run(m->forward, &(pl_step){n, mix, n_parts, parts, n, rows}, &err), &err);
}

static void company(void **unused)
{
    test_model *m = open_model(2);

    for (uint32_t seed = 1; seed <= 2; seed++) {
        pl_state *states[MAX_SEQS];
        uint32_t random = seed;
        recorder *r;

        for (int s = 0; s < MAX_SEQS; s++)
            states[s] = test_state_new(m);
        r = recorder_open(m, states, MAX_SEQS);
        while (states[0]->n < seqs[0].length || states[1]->n < seqs[1].length ||
               states[2]->n < seqs[2].length)
            mixed_step(m, states, &random);
        for (int s = 0; s < MAX_SEQS; s++) {
            check(r, s, s, seqs[s].length, "among others");
            test_state_free(states[s]);
        }
        recorder_close(m, r);
    }
    test_model_close(m);
}

/* Steps whose last tokens are drafts, of which a random number is right and kept; the rest is taken
 * back. Right ones are recorded as they run, and again where they run anew. */
static void rejected_drafts(void **unused)
{
    test_model *m = open_model(2);
    pl_state *state = test_state_new(m);
    recorder *r = recorder_open(m, &state, 1);
    uint32_t seed = 7;

    run_chunk(m, state, 0, 90);
    while (state->n < T) {
        int32_t left = T - state->n, sure = 1 + (int32_t)(next_random(&seed) % 3), rows[8], mix[8];
        int32_t drafts = (int32_t)(next_random(&seed) % (MAX_DRAFT + 1)), start = state->n, right;
        pl_step_seq seq = {state, 0, 0, 0};
        pl_error err;

        sure = sure < left ? sure : left;
        drafts = drafts < left - sure ? drafts : left - sure;
        right = (int32_t)(next_random(&seed) % (uint32_t)(drafts + 1));
        seq.n = sure + drafts;
        seq.n_draft = drafts;
        memcpy(mix, tokens + start, (size_t)seq.n * sizeof *mix);
        for (int32_t i = 0; i < seq.n; i++)
            rows[i] = i;
        for (int32_t i = sure + right; i < seq.n; i++)
            mix[i] = (mix[i] + 1) % 500;
        check_ok(pl_forward_run(m->forward, &(pl_step){seq.n, mix, 1, &seq, seq.n, rows}, &err),
                 &err);
        pl_state_rewind(state, start + sure + right);
    }
    check(r, 0, 0, T, "with drafts taken back");
    recorder_close(m, r);
    test_state_free(state);
    test_model_close(m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunk_sizes),

        cmocka_unit_test(numbers_of_workers),
        cmocka_unit_test(company),
        cmocka_unit_test(rejected_drafts),
    };
    pl_level level;
    uint32_t seed = 11;

    assert_int_equal(argc, 3);
    model_name = argv[1];
    check_ok(pl_level_parse(argv[2], &level, NULL), NULL);
    ops = pl_ops_at(level, PL_MODE_REC);
    assert_non_null(ops);
    for (int32_t i = 0; i <= T; i++)
        tokens[i] = (int32_t)(next_random(&seed) % 500);
    set_wanted();
    return cmocka_run_group_tests_name(argv[2], tests, NULL, NULL);
}
