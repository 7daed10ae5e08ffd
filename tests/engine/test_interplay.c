/* Snapshots, preemption, drafts and cancels together: random arrivals of requests, from the start or from a snapshot that any
 * earlier one left, none of which changes a bit or loses memory.
 *
 * PL_ENGINE_FULL=1: ten times as many. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/snapshot.h"
#include "engine_support.h"

/* A text is a prompt; its continuation is the prompt and MORE tokens that were chosen behind it, asked for once more. */
enum { N_TEXTS = 4, N_KINDS = 2 * N_TEXTS, MORE = 9, MAX_PROMPT = 150, LIVE = 6, MAX_STEPS = 6000 };

static int32_t prompt[N_KINDS][MAX_PROMPT];
static pl_request_params kinds[N_KINDS];
static result alone[N_KINDS];

/* The last snapshot of a text, of the first n tokens of the continuation; requests that began with it borrow it. */
typedef struct saved {
    void *data;
    uint64_t bytes;
    int32_t n;
} saved;

typedef struct live {
    pl_request *r;
    int kind;
    int32_t n_told;
    saved from; /* owned */
} live;

typedef struct happened {
    int begun, begun_pending, preempted_begun, preempted_drafting, refused_queued;
} happened;

static saved texts[N_TEXTS];
static live lives[LIVE];
static happened seen;
static uint32_t random_state = 1;

static bool is_full(void)
{
    const char *full = getenv("PL_ENGINE_FULL");

    return full && strcmp(full, "1") == 0;
}

static int random_in(int low, int high)
{
    random_state = random_state * 1664525u + 1013904223u;
    return low + (int)((random_state >> 8) % (uint32_t)(high - low + 1));
}

static pl_engine *open_with(int n_places, int max_preempted, int k)
{
    pl_engine_params p = small_params();

    p.level = NULL;
    p.threads = 1;
    p.max_num_seqs = n_places;
    p.max_num_batched_tokens = 24;
    p.max_model_len = 200;
    p.max_preempted = max_preempted;
    p.num_speculative_tokens = k;
    return open_engine("nano", &p);
}

static int prepare(void **state)
{
    static const int32_t lengths[N_TEXTS] = {124, 30, 61, 5};
    pl_engine *e = open_with(1, 0, 0);

    for (int i = 0; i < N_TEXTS; i++) {
        pl_request_params *p = &kinds[i], *more = &kinds[N_TEXTS + i];

        *p = pl_request_params_default();
        fill_prompt(prompt[i], lengths[i], pl_engine_model_of(e).vocab_size, (uint32_t)i);
        p->tokens = prompt[i];
        p->n_tokens = lengths[i];
        p->max_tokens = 20 + i;
        p->ignore_eos = true;
        p->seed = (uint64_t)i;
        p->temperature = i % 2 ? 0.9f : 0;
        run_all(e, p, 1, NULL, &alone[i]);
        *more = *p;
        memcpy(prompt[N_TEXTS + i], prompt[i], sizeof prompt[i]);
        memcpy(&prompt[N_TEXTS + i][lengths[i]], alone[i].tokens, MORE * sizeof(int32_t));
        more->tokens = prompt[N_TEXTS + i];
        more->n_tokens += MORE;
        run_all(e, more, 1, NULL, &alone[N_TEXTS + i]);
        /* Positions decide the noise: the same tokens come. */
        check_same_bytes("continuation", alone[N_TEXTS + i].tokens, alone[i].tokens + MORE,
                         (size_t)(alone[i].n - MORE) * sizeof(int32_t));
    }
    pl_engine_close(e);
    return 0;
}

static void listen(void *user, pl_request *r, const pl_token_event *event)
{
    live *l = user;

    assert_int_equal(event->index, l->n_told++);
    assert_int_equal(event->token, alone[l->kind].tokens[event->index]);
}

static void submit(pl_engine *e, live *l)
{
    const int text = random_in(0, N_TEXTS - 1);
    const saved *from = &texts[text];
    pl_request_params p;
    pl_error err;

    l->kind = text + (random_in(0, 1) ? N_TEXTS : 0);
    l->n_told = 0;
    l->from = (saved){0};
    p = kinds[l->kind];
    p.on_token = listen;
    p.user = l;
    p.priority = random_in(-9, 9);
    if (from->data && from->n < p.n_tokens && random_in(0, 3)) {
        pl_snapshot_header h;

        l->from = *from;
        l->from.data = malloc((size_t)from->bytes);
        assert_non_null(l->from.data);
        memcpy(l->from.data, from->data, (size_t)from->bytes);
        p.snapshot = l->from.data;
        p.snapshot_bytes = l->from.bytes;
        memcpy(&h, from->data, sizeof h);
        p.priority -= 6; /* these are to be preempted */
        seen.begun++;
        seen.begun_pending += h.n_settled < h.n;
    }
    check_ok(pl_engine_submit(e, &p, &l->r, &err), &err);
}

static void end(live *l, bool check)
{
    const pl_request_stats stats = pl_request_stats_of(l->r);
    char what[64];
    result got;

    seen.preempted_begun += stats.preemptions > 0 && l->from.n > 0;
    seen.preempted_drafting += stats.preemptions > 0 && stats.speculation.drafted[0] > 0;
    if (check) {
        snprintf(what, sizeof what, "kind %d from %d", l->kind, l->from.n);
        take(l->r, &got);
        check_same_result(what, &got, &alone[l->kind]);
        assert_int_equal(got.n, l->n_told);
        assert_int_equal(got.stats.cached_tokens, l->from.n);
    } else {
        pl_request_release(l->r);
    }
    l->r = NULL;
    free(l->from.data);
}

/* Of one that runs, wherever it stands; of one that waits there is none. */
static void save(live *l)
{
    const int text = l->kind % N_TEXTS;
    const uint64_t bytes = pl_request_snapshot_bytes(l->r);
    saved s = {.bytes = bytes};
    pl_error err;

    if (pl_request_state_of(l->r) == PL_REQUEST_QUEUED) {
        assert_int_equal(bytes, 0);
        assert_int_equal(pl_request_snapshot(l->r, &s, sizeof s, &s.n, &err), PL_ERR_STATE);
        seen.refused_queued++;
        return;
    }
    s.data = malloc((size_t)bytes);
    assert_non_null(s.data);
    check_ok(pl_request_snapshot(l->r, s.data, bytes, &s.n, &err), &err);
    if (s.n == 0 || s.n >= kinds[N_TEXTS + text].n_tokens) {
        free(s.data); /* of nothing, or of more than the continuation begins with */
        return;
    }
    free(texts[text].data);
    texts[text] = s;
}

static bool has_ended(const live *l)
{
    return pl_request_state_of(l->r) > PL_REQUEST_RUNNING;
}

static void test_random_loads(void **state)
{
    const int n_rounds = is_full() ? 400 : 36;
    pl_engine *e = open_with(2, 3, 3);
    int n_submitted = 0, n_live = 0, n_cancelled = 0;
    pl_engine_stats stats;
    pl_error err;
    bool busy;

    for (int steps = 0; n_submitted < n_rounds || n_live; steps++) {
        assert_true(steps < MAX_STEPS);
        for (live *l = lives; l < lives + LIVE; l++) {
            if (l->r && random_in(0, 2) == 0)
                save(l);
            if (l->r && (has_ended(l) || random_in(0, 150) == 0)) {
                n_cancelled += !has_ended(l);
                end(l, has_ended(l));
                n_live--;
            }
            if (!l->r && n_submitted < n_rounds && random_in(0, 3) == 0) {
                submit(e, l);
                n_submitted++;
                n_live++;
            }
        }
        check_ok(pl_engine_step(e, &busy, &err), &err);
    }
    stats = pl_engine_stats_of(e);
    print_message("%d begun from snapshots, %d with rows pending; %d of them preempted, %d amid "
                  "drafts; %d cancelled, %lu preemptions\n",
                  seen.begun, seen.begun_pending, seen.preempted_begun, seen.preempted_drafting,
                  n_cancelled, (unsigned long)stats.preemptions);
    assert_true(seen.begun >= 8 && seen.begun_pending >= 1 && seen.preempted_begun >= 3);
    assert_true(seen.preempted_drafting >= 3 && seen.refused_queued >= 3 && n_cancelled >= 2);
    assert_true(stats.speculation.accepted[0] > 0);
    assert_true(stats.speculation.accepted[0] < stats.speculation.drafted[0]);
    assert_int_equal(stats.running, 0);
    assert_int_equal(stats.queued, 0);
    /* Every place and every strip is free again. */
    for (int i = 0; i < LIVE; i++)
        submit(e, &lives[i]);
    for (n_live = LIVE; n_live;) {
        check_ok(pl_engine_step(e, &busy, &err), &err);
        for (live *l = lives; l < lives + LIVE; l++)
            if (l->r && has_ended(l)) {
                end(l, true);
                n_live--;
            }
    }
    for (int i = 0; i < N_TEXTS; i++)
        free(texts[i].data);
    pl_engine_close(e);
}

/* The same under rejection sampling at temperature 0, where its bits are those of plain choices: a preempted request's drafts
 * and what they were drawn from are gone, and nobody else takes them for its own. Above 0 every token stays possible. */
static void test_rejection_and_preemption(void **state)
{
    enum { N = 4 };
    pl_engine_params ep = small_params();
    pl_engine *e;
    pl_request *r[N];
    pl_error err;
    bool busy;
    result got;

    ep.level = NULL;
    ep.threads = 1;
    ep.max_num_seqs = 1;
    ep.max_preempted = N;
    ep.num_speculative_tokens = 3;
    ep.draft_sampling = PL_DRAFT_REJECTION;
    ep.max_model_len = 200;
    e = open_engine("nano", &ep);
    for (int i = 0; i < N; i++) {
        pl_request_params p = kinds[i];

        p.priority = i;
        check_ok(pl_engine_submit(e, &p, &r[i], &err), &err);
        for (int steps = 0; steps < 5; steps++)
            check_ok(pl_engine_step(e, &busy, &err), &err);
    }
    for (int i = N - 1; i >= 0; i--) {
        while (pl_request_state_of(r[i]) <= PL_REQUEST_RUNNING)
            check_ok(pl_engine_step(e, &busy, &err), &err);
        take(r[i], &got);
        if (kinds[i].temperature == 0)
            check_same_result("greedy, preempted", &got, &alone[i]);
        assert_int_equal(got.n, kinds[i].max_tokens);
        for (int32_t k = 0; k < got.n; k++)
            assert_true(got.logprobs[k] > -30);
        assert_true(got.stats.speculation.drafted[0] > 0);
    }
    assert_true(pl_engine_stats_of(e).preemptions >= 2);
    pl_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_loads),
        cmocka_unit_test(test_rejection_and_preemption),
    };

    return cmocka_run_group_tests(tests, prepare, NULL);
}
