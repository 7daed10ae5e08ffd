/* The cache of prefixes in a running engine: a request that finds one gives the bits of one that does not, and how many tokens
 * it ran is what can be computed beforehand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counted_allocations.h"
#include "engine/internal.h"
#include "engine_support.h"
#include "support/prefix_check.h"

enum { LEN = 400, VOCAB = 500, TAIL = 10 };

/* Bytes of a cache of so many states and eight times as many blocks. */
static uint64_t cache_bytes(const pl_engine_params *params, int32_t n_states)
{
    pl_state_shape shape;
    pl_prefix_size z;
    pl_plan *plan;
    pl_error err;

    check_ok(pl_plan_create(checkpoint_path("nano"), params, &plan, &err), &err);
    shape = pl_forward_state_shape(&plan->model.config, plan->shape.ops, plan->model.has_mtp,
                                   &plan->shape.limits);
    z = pl_prefix_size_of(&shape, 0);
    z.n_states = n_states;
    z.n_blocks = n_states * PL_PREFIX_BLOCKS_PER_STATE;
    pl_plan_destroy(plan);
    return pl_prefix_bytes(&z);
}

static pl_engine_params params_with(int k, int chunk, int32_t n_states)
{
    pl_engine_params p = small_params();

    p.level = NULL;
    p.threads = 1;
    p.max_model_len = LEN + 112;
    p.max_num_batched_tokens = chunk;
    p.num_speculative_tokens = k;
    if (n_states)
        p.prefix_cache_memory_bytes = cache_bytes(&p, n_states);
    return p;
}

static pl_request_params request_of(const int32_t *tokens, int32_t n, float temperature)
{
    pl_request_params p = pl_request_params_default();

    p.tokens = tokens;
    p.n_tokens = n;
    p.max_tokens = TAIL;
    p.temperature = temperature;
    p.seed = 11;
    p.ignore_eos = true;
    return p;
}

/* One request; how many tokens of prompts the engine ran for it. */
static uint64_t run_one(pl_engine *e, const pl_request_params *p, result *r)
{
    const uint64_t before = pl_engine_stats_of(e).prefill_tokens;

    run_all(e, p, 1, NULL, r);
    check_prefix(&e->parts.prefix);
    return pl_engine_stats_of(e).prefill_tokens - before;
}

/* An engine without a cache and without drafts. */
static pl_engine *plain;

static void run_without(const pl_request_params *p, result *r)
{
    run_all(plain, p, 1, NULL, r);
    assert_int_equal(r->stats.cached_tokens, 0);
}

/* The same prompt twice: the second time it begins at the last multiple of 128 before its end. */
static void hit_is_miss(void **state)
{
    static const struct {
        int k, chunk, threads, ranks;
        const char *level;
        int32_t n;
        float temperature;
    } cases[] = {
        {8, 100, 1, 0, NULL, 257, 0.9f},
        {0, 300, 3, 0, NULL, 256, 0.9f},
        {2, 200, 1, 2, NULL, 140, 0},
        {4, 7, 2, 0, "scalar", 129, 0},
    };
    static int32_t prompt[LEN];

    fill_prompt(prompt, LEN, VOCAB, 3);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pl_engine_params params = params_with(cases[i].k, cases[i].chunk, 4);
        const pl_request_params p = request_of(prompt, cases[i].n, cases[i].temperature);
        const int32_t start = (cases[i].n - 1) / 128 * 128;
        pl_engine *e;
        result want, miss, hit;
        pl_engine_stats stats;

        params.threads = cases[i].threads;
        params.level = cases[i].level;
        params.ranks = cases[i].ranks;
        run_without(&p, &want);
        e = open_engine("nano", &params);
        assert_int_equal(run_one(e, &p, &miss), cases[i].n);
        assert_int_equal(run_one(e, &p, &hit), cases[i].n - start);
        check_same_result("miss", &miss, &want);
        check_same_result("hit", &hit, &want);
        assert_int_equal(miss.stats.cached_tokens, 0);
        assert_int_equal(hit.stats.cached_tokens, start);
        stats = pl_engine_stats_of(e);
        assert_int_equal(stats.prefix_queries, 2 * cases[i].n);
        assert_int_equal(stats.prefix_hits, start);
        pl_engine_close(e);
    }
}

/* What two prompts have in common gets a state when the second is run, and serves the third; a prompt that looks at all of
 * its tokens never begins behind any. */
static void look(void *user, pl_request *r, const pl_token_event *event)
{
    (*(int *)user)++;
}

static void what_prompts_share(void **state)
{
    const pl_engine_params params = params_with(0, 500, 4);
    static const int32_t cached[] = {0, 0, 128, 128};
    pl_engine *e = open_engine("nano", &params);
    int32_t prompt[4][LEN];
    int n_told = 0;

    for (uint32_t i = 0; i < 4; i++) {
        pl_request_params p = request_of(prompt[i], 258 + (int32_t)i, 0.9f);
        result got, want;

        fill_prompt(prompt[i], LEN, VOCAB, 5);
        fill_prompt(prompt[i] + 200, LEN - 200, VOCAB, i);
        run_without(&p, &want);
        assert_int_equal(run_one(e, &p, &got), p.n_tokens - cached[i]);
        check_same_result("shared", &got, &want);
        assert_int_equal(got.stats.cached_tokens, cached[i]);
        if (i == 3) {
            p.on_prompt_token = look;
            p.user = &n_told;
            assert_int_equal(run_one(e, &p, &got), p.n_tokens);
            check_same_result("told", &got, &want);
            assert_int_equal(n_told, p.n_tokens - 1);
        }
    }
    pl_engine_close(e);
}

/* Each turn's prompt is the one before, its answer and new words. What is run is what lies behind the last multiple of 128
 * of what was run before, of prompt and answer alike. */
static void three_turns(void **state)
{
    static const int32_t words[] = {110, 61, 40}, answers[] = {30, 23, 12};

    for (int k = 0; k <= 2; k += 2) {
        const pl_engine_params params = params_with(k, 200, 4);
        pl_engine *e = open_engine("nano", &params);
        int32_t text[LEN + 100], n = 0, n_known = 0;

        for (int turn = 0; turn < 3; turn++) {
            pl_request_params p;
            result got, want;

            fill_prompt(text + n, words[turn], VOCAB, (uint32_t)turn);
            n += words[turn];
            p = request_of(text, n, 0.8f);
            p.max_tokens = answers[turn];
            run_without(&p, &want);
            assert_int_equal(run_one(e, &p, &got), n - n_known / 128 * 128);
            assert_int_equal(got.stats.cached_tokens, n_known / 128 * 128);
            check_same_result("turn", &got, &want);
            memcpy(text + n, got.tokens, (size_t)got.n * sizeof *text);
            n += got.n;
            n_known = n - 1; /* the last token was chosen, not run */
        }
        assert_int_equal(n_known / 128, 2);
        pl_engine_close(e);
    }
}

/* ---- interleavings */

enum { TEXTS = 8, LIVE = 4, USUAL_EPISODES = 10, ALL_EPISODES = 200 };

typedef struct work {
    pl_engine *e;
    int32_t text[TEXTS][LEN];
    pl_request_params params[TEXTS];
    result want[TEXTS];
    struct {
        pl_request *request;
        int which;
    } live[LIVE];
    uint32_t x;
    int n_compared, n_cancelled, n_hits;
} work;

static uint32_t draw(work *w, uint32_t n)
{
    w->x = w->x * 1664525u + 1013904223u;
    return (w->x >> 8) % n;
}

/* Texts that share their first 128 tokens with others. */
static void make_texts(work *w)
{
    for (uint32_t i = 0; i < TEXTS; i++) {
        fill_prompt(w->text[i], LEN, VOCAB, i % 2);
        fill_prompt(w->text[i] + 130, LEN - 130, VOCAB, 10 + i);
        w->params[i] = request_of(w->text[i], 120 + (int32_t)i * 22, i % 3 ? 0.9f : 0);
        w->params[i].max_tokens = 4 + 2 * (int32_t)i;
    }
    run_all(plain, w->params, TEXTS, NULL, w->want);
}

static void submit(work *w, int at)
{
    const int which = (int)draw(w, TEXTS);
    pl_request_params p = w->params[which];
    pl_request *r;
    pl_error err;

    p.priority = (int32_t)draw(w, 3);
    check_ok(pl_engine_submit(w->e, &p, &r, &err), &err);
    w->live[at].request = r;
    w->live[at].which = which;
}

static void end(work *w, int at)
{
    pl_request *r = w->live[at].request;
    const pl_request_state state = pl_request_state_of(r);
    result got;

    w->live[at].request = NULL;
    if (state != PL_REQUEST_STOPPED && state != PL_REQUEST_LENGTH) {
        w->n_cancelled++;
        pl_request_release(r);
        return;
    }
    take(r, &got);
    check_same_result("interleaved", &got, &w->want[w->live[at].which]);
    w->n_compared++;
    w->n_hits += got.stats.cached_tokens > 0;
}

static bool step(work *w)
{
    const long before = n_allocations;
    bool busy;
    pl_error err;

    check_ok(pl_engine_step(w->e, &busy, &err), &err);
    assert_int_equal(n_allocations, before);
    return busy;
}

static void episode(work *w)
{
    int n_left = 2 + (int)draw(w, 3);
    bool busy = true;

    while (busy || n_left > 0) {
        for (int i = 0; i < LIVE; i++) {
            pl_request *r = w->live[i].request;

            if (!r && n_left > 0 && draw(w, 2)) {
                submit(w, i);
                n_left--;
            } else if (r && draw(w, 30) == 0) {
                pl_request_cancel(r);
                end(w, i);
            } else if (r && pl_request_state_of(r) > PL_REQUEST_RUNNING) {
                end(w, i);
            }
        }
        busy = step(w);
    }
    for (int i = 0; i < LIVE; i++)
        if (w->live[i].request)
            end(w, i);
}

/* Nothing is held by anybody: places, strips and requests are free, and one text can take the whole cache. */
static void check_nothing_is_held(work *w)
{
    pl_engine *e = w->e;

    check_prefix(&e->parts.prefix);
    assert_int_equal(e->n_free_places, e->plan->shape.max_num_seqs);
    assert_int_equal(e->n_free_strips, e->plan->shape.max_num_seqs + e->plan->shape.max_preempted);
    assert_int_equal(e->running.n + e->queue.n + e->ended.n, 0);
}

static int n_episodes(void)
{
    const char *n = getenv("PL_PREFIX_EPISODES");

    if (n)
        return (int)strtol(n, NULL, 10);
    return getenv("PL_ENGINE_FULL") ? ALL_EPISODES : USUAL_EPISODES;
}

static void interleavings(void **state)
{
    const int n = n_episodes();
    pl_engine_params params = params_with(2, 150, 1);
    work *w = calloc(1, sizeof *w);
    uint64_t n_preempted = 0;

    assert_non_null(w);
    w->x = 1;
    make_texts(w);
    params.max_num_seqs = 2;
    params.max_preempted = 2;
    for (int states = 1; states <= 3; states += 2) {
        params.prefix_cache_memory_bytes = cache_bytes(&params, states);
        w->e = open_engine("nano", &params);
        for (int i = 0; i < n / 2; i++) {
            episode(w);
            check_nothing_is_held(w);
        }
        n_preempted += pl_engine_stats_of(w->e).preemptions;
        assert_int_equal(w->e->parts.prefix.n_kept, states);
        pl_engine_close(w->e);
    }
    print_message("%d results compared, %d of hits; %d cancelled, %d preempted\n", w->n_compared,
                  w->n_hits, w->n_cancelled, (int)n_preempted);
    assert_true(w->n_compared > n && w->n_hits > n / 4);
    assert_true(w->n_cancelled > n / 8 && n_preempted > 0);
    free(w);
}

static int open_plain(void **state)
{
    pl_engine_params params = params_with(0, 256, 0);

    params.max_num_seqs = TEXTS;
    plain = open_engine("nano", &params);
    return 0;
}

static int close_plain(void **state)
{
    pl_engine_close(plain);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hit_is_miss),
        cmocka_unit_test(what_prompts_share),
        cmocka_unit_test(three_turns),
        cmocka_unit_test(interleavings),
    };

    return cmocka_run_group_tests(tests, open_plain, close_plain);
}
