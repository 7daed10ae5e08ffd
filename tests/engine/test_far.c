/* Drafts far out: behind 65,536 positions and the whole range of the indexer, the bits are those without them.
 *
 * The positions are made, not run (pl_forward_inject), and given to the engine as a snapshot. PL_ENGINE_FULL=1: every number of
 * drafts over hundreds of tokens, and a prompt of 65,600 tokens that is run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/selftest.h"
#include "cache/snapshot.h"
#include "engine_support.h"
#include "ops/level.h"
#include "plimsoll/version.h"
#include "support/model.h"

enum { FAR = 65536, N = 3, EXTRA = 130, MODEL_LEN = FAR + 640, VOCAB = 512 };

static int32_t prompt[N][FAR + EXTRA];
static pl_request_params requests[N];
static uint8_t *snapshot;
static uint64_t snapshot_bytes;

static bool is_full(void)
{
    const char *full = getenv("PL_ENGINE_FULL");

    return full && strcmp(full, "1") == 0;
}

static pl_engine *open_with(int k)
{
    pl_engine_params p = small_params();

    p.level = NULL;
    p.max_num_seqs = N;
    p.max_model_len = MODEL_LEN;
    p.num_speculative_tokens = k;
    return open_engine("nano", &p);
}

static const pl_ops *best_ops(void)
{
    static const pl_selftest *const selftests[] = {pl_base_selftests, pl_ops_selftests, NULL};
    pl_level_choice choice;
    pl_cpu cpu;
    pl_error err;

    pl_cpu_detect(&cpu, NULL);
    check_ok(
        pl_level_choose(&cpu, pl_level_built(), NULL, getenv("PL_CPU"), selftests, &choice, &err),
        &err);
    return pl_ops_at(choice.level, PL_MODE_REC);
}

/* A snapshot that stands at FAR, of the first tokens of the prompts. */
static void make_snapshot(void)
{
    const pl_forward_limits limits = {.max_tokens = 64, .max_len = MODEL_LEN};
    test_model *m = test_model_open("nano", best_ops(), limits, 1);
    pl_state *s = test_state_new(m);
    pl_engine *e = open_with(0);
    const pl_snapshot_id id = {PL_NUMERICS_VERSION, pl_engine_numerics(e).checkpoint};
    const pl_snapshot_tokens tokens = {prompt[0], NULL, FAR};
    pl_error err;

    check_ok(pl_forward_inject(m->forward, s, 0, FAR, 7, &err), &err);
    snapshot_bytes = pl_snapshot_bytes(s);
    snapshot = malloc((size_t)snapshot_bytes);
    assert_non_null(snapshot);
    pl_snapshot_save(s, &id, &tokens, snapshot);
    pl_engine_close(e);
    test_state_free(s);
    test_model_close(m);
}

/* One stands right behind FAR, one before the end of a block, one before the end of a ring of 136 or so. */
static int prepare(void **state)
{
    static const int32_t extra[N] = {1, 126, 70};

    for (int i = 0; i < N; i++) {
        fill_prompt(prompt[i], FAR, VOCAB, 1);
        fill_prompt(prompt[i] + FAR, EXTRA, VOCAB, 20 + (uint32_t)i);
        requests[i] = pl_request_params_default();
        requests[i].tokens = prompt[i];
        requests[i].n_tokens = FAR + extra[i];
        requests[i].max_tokens = is_full() ? 400 : 24;
        requests[i].ignore_eos = true;
        requests[i].temperature = i == 1 ? 0.9f : 0;
        requests[i].seed = 5;
    }
    make_snapshot();
    for (int i = 0; i < N; i++) {
        requests[i].snapshot = snapshot;
        requests[i].snapshot_bytes = snapshot_bytes;
    }
    return 0;
}

static int finish(void **state)
{
    free(snapshot);
    return 0;
}

static void test_behind_a_made_state(void **state)
{
    static result want[N], got[N];
    pl_engine *e = open_with(0);

    run_all(e, requests, N, NULL, want);
    pl_engine_close(e);
    for (int i = 0; i < N; i++)
        assert_int_equal(want[i].n, requests[i].max_tokens);
    for (int k = is_full() ? 1 : 6; k <= (is_full() ? PL_MAX_SPECULATIVE : 6); k++) {
        taken_back seen = {0};

        e = open_with(k);
        run_watched(e, requests, N, NULL, got, &seen);
        for (int i = 0; i < N; i++) {
            check_same_result("far", &got[i], &want[i]);
            assert_int_equal(got[i].stats.cached_tokens, FAR);
        }
        assert_true(seen.n > 10 && seen.over_4 > 5 && seen.over_128 > 0);
        assert_true(!is_full() || seen.over_ring > 0);
        pl_engine_close(e);
    }
}

/* Nothing made: all 65,600 positions of the prompt are run, in one engine with drafts and in one without. */
static void test_behind_a_prompt(void **state)
{
    static result want, got;
    pl_request_params p = requests[2];
    pl_engine *e;

    if (!is_full())
        return;
    p.snapshot = NULL;
    p.max_tokens = 200;
    p.temperature = 0.7f;
    e = open_with(0);
    run_all(e, &p, 1, NULL, &want);
    pl_engine_close(e);
    e = open_with(4);
    run_all(e, &p, 1, NULL, &got);
    check_same_result("a prompt that was run", &got, &want);
    assert_true(got.stats.speculation.accepted[0] > 0);
    assert_true(got.stats.speculation.accepted[0] < got.stats.speculation.drafted[0]);
    pl_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_behind_a_made_state),
        cmocka_unit_test(test_behind_a_prompt),
    };

    return cmocka_run_group_tests(tests, prepare, finish);
}
