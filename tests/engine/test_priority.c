/* Priorities and preemption: who runs first, who gives up its place, and that neither changes a bit of any request. */
#include <stdio.h>
#include <string.h>

#include "engine_support.h"

enum { N = 6, MAX_STEPS = 400 };

static int32_t prompt[N][60];
static pl_request_params requests[N];
static result alone[N];

/* Prompts within and beyond a step, greedy and sampled, with a penalty that looks at the outputs. */
static int prepare(void **state)
{
    static const int32_t lengths[N] = {5, 41, 60, 3, 17, 1};
    pl_engine_params p = small_params();
    pl_engine *e;

    p.level = NULL;
    e = open_engine("nano", &p);
    for (int i = 0; i < N; i++) {
        fill_prompt(prompt[i], lengths[i], pl_engine_model_of(e).vocab_size, (uint32_t)i);
        requests[i] = pl_request_params_default();
        requests[i].tokens = prompt[i];
        requests[i].n_tokens = lengths[i];
        requests[i].max_tokens = 9 + i;
        requests[i].ignore_eos = true;
        requests[i].seed = (uint64_t)i;
        requests[i].temperature = i % 2 ? 0.9f : 0;
        requests[i].frequency_penalty = i == 1 ? 0.7f : 0;
        run_all(e, &requests[i], 1, NULL, &alone[i]);
    }
    pl_engine_close(e);
    return 0;
}

static pl_engine *open_with(int n_places, int max_preempted, int n_drafts, int ranks)
{
    pl_engine_params p = small_params();

    p.level = NULL;
    p.max_num_seqs = n_places;
    p.max_num_batched_tokens = 16;
    p.max_preempted = max_preempted;
    p.num_speculative_tokens = n_drafts;
    p.ranks = ranks;
    return open_engine("nano", &p);
}

/* Every token of a request is told once and in order; `order` notes first tokens. */
struct listener {
    const result *want;
    int n, which;
    int *order, *n_order;
};

static void listen(void *user, pl_request *r, const pl_token_event *event)
{
    struct listener *l = user;

    assert_int_equal(event->index, l->n);
    assert_int_equal(event->token, l->want->tokens[l->n]);
    if (l->n++ == 0 && l->order)
        l->order[(*l->n_order)++] = l->which;
}

static pl_request *submit(pl_engine *e, int which, int32_t priority, struct listener *l)
{
    pl_request_params p = requests[which];
    pl_request *r;
    pl_error err;

    l->want = &alone[which];
    l->which = which;
    p.priority = priority;
    p.on_token = listen;
    p.user = l;
    check_ok(pl_engine_submit(e, &p, &r, &err), &err);
    return r;
}

static bool step(pl_engine *e)
{
    pl_error err;
    bool busy;

    check_ok(pl_engine_step(e, &busy, &err), &err);
    return busy;
}

static void finish(pl_request **r, const struct listener *l)
{
    result got;
    char what[64];

    snprintf(what, sizeof what, "request %d", l->which);
    take(*r, &got);
    check_same_result(what, &got, &alone[l->which]);
    assert_int_equal(l->n, got.n);
    *r = NULL;
}

static bool has_ended(const pl_request *r)
{
    return r && pl_request_state_of(r) > PL_REQUEST_RUNNING;
}

/* The highest first, of equal ones who came first; without max_preempted nobody gives a place up. */
static void test_order(void **state)
{
    static const int32_t priority[5] = {0, 5, -3, 5, 0};
    static const int want[5] = {0, 1, 3, 4, 2};
    pl_engine *e = open_with(1, 0, 0, 1);
    struct listener l[5] = {{0}};
    pl_request *r[5];
    int order[5], n_order = 0, n_left = 5;

    for (int i = 0; i < 5; i++) {
        l[i].order = order;
        l[i].n_order = &n_order;
        r[i] = submit(e, i, priority[i], &l[i]);
        if (i == 0)
            step(e); /* it has the place before those of higher priority come */
    }
    for (int steps = 0; n_left; steps++) {
        assert_true(steps < MAX_STEPS);
        step(e);
        for (int i = 0; i < 5; i++)
            if (has_ended(r[i])) {
                finish(&r[i], &l[i]);
                n_left--;
            }
    }
    check_same_bytes("order", order, want, sizeof want);
    assert_int_equal(pl_engine_stats_of(e).preemptions, 0);
    pl_engine_close(e);
}

/* One place; the first request is preempted behind `when` steps: in its prompt, right behind it, among its outputs. */
static void preempt_behind(int when, int n_drafts, int ranks)
{
    pl_engine *e = open_with(1, 1, n_drafts, ranks);
    struct listener low = {0}, high = {0};
    pl_request *a = submit(e, 1, 0, &low), *b;
    int32_t n_before, n_after;
    result kept;

    for (int i = 0; i < when; i++)
        step(e);
    (void)pl_request_tokens(a, &n_before);
    b = submit(e, 2, 1, &high);
    step(e);
    assert_int_equal(pl_request_state_of(a), PL_REQUEST_QUEUED);
    assert_int_equal(pl_request_state_of(b), PL_REQUEST_RUNNING);
    assert_int_equal(pl_request_stats_of(a).preemptions, 1);
    /* What it has can be read meanwhile. */
    memcpy(kept.tokens, pl_request_tokens(a, &n_after), (size_t)n_before * sizeof kept.tokens[0]);
    assert_int_equal(n_after, n_before);
    check_same_bytes("kept", kept.tokens, alone[1].tokens,
                     (size_t)n_before * sizeof kept.tokens[0]);
    for (int steps = 0; !has_ended(b); steps++) {
        assert_true(steps < MAX_STEPS);
        step(e);
    }
    finish(&b, &high);
    while (step(e))
        ;
    finish(&a, &low);
    assert_int_equal(pl_engine_stats_of(e).preemptions, 1);
    pl_engine_close(e);
}

static void test_the_same_bits(void **state)
{
    for (int when = 1; when <= 7; when++)
        preempt_behind(when, when % 3, 1);
    preempt_behind(5, 2, 3);
}

/* The last that came of the lowest gives way; those of the same priority never do; no more than max_preempted at once. */
static void test_who_gives_way(void **state)
{
    pl_engine *e = open_with(2, 1, 0, 1);
    struct listener l[5] = {{0}};
    pl_request *r[5];

    r[0] = submit(e, 0, 1, &l[0]);
    r[1] = submit(e, 1, 1, &l[1]);
    step(e);
    r[2] = submit(e, 2, 1, &l[2]);
    step(e);
    assert_int_equal(pl_request_state_of(r[2]), PL_REQUEST_QUEUED);
    r[3] = submit(e, 3, 2, &l[3]);
    step(e);
    assert_int_equal(pl_request_state_of(r[0]), PL_REQUEST_RUNNING);
    assert_int_equal(pl_request_state_of(r[1]), PL_REQUEST_QUEUED);
    assert_int_equal(pl_request_state_of(r[3]), PL_REQUEST_RUNNING);
    r[4] = submit(e, 4, 3, &l[4]);
    step(e); /* another one that is preempted would have no strip */
    assert_int_equal(pl_request_state_of(r[0]), PL_REQUEST_RUNNING);
    assert_int_equal(pl_request_state_of(r[4]), PL_REQUEST_QUEUED);
    /* Cancelled while it waits, it gives its strip back. */
    pl_request_release(r[1]);
    step(e);
    assert_int_equal(pl_request_state_of(r[0]), PL_REQUEST_QUEUED);
    assert_int_equal(pl_request_state_of(r[4]), PL_REQUEST_RUNNING);
    for (int steps = 0; !has_ended(r[3]) || !has_ended(r[4]); steps++) {
        assert_true(steps < MAX_STEPS);
        step(e);
    }
    finish(&r[3], &l[3]);
    finish(&r[4], &l[4]);
    while (step(e))
        ;
    finish(&r[0], &l[0]);
    finish(&r[2], &l[2]);
    assert_int_equal(pl_engine_stats_of(e).preemptions, 2);
    pl_engine_close(e);
}

static uint32_t random_state = 7;

static int random_in(int low, int high)
{
    random_state = random_state * 1664525u + 1013904223u;
    return low + (int)((random_state >> 8) % (uint32_t)(high - low + 1));
}

/* Random arrivals, priorities and cancels: nothing is lost, told twice or changed. */
static void test_random_loads(void **state)
{
    enum { ROUNDS = 60, LIVE = 6 };
    pl_engine *e = open_with(2, 3, 2, 1);
    struct listener l[LIVE] = {{0}};
    pl_request *r[LIVE] = {NULL};
    int n_submitted = 0, n_live = 0;

    for (int steps = 0; n_submitted < ROUNDS || n_live; steps++) {
        assert_true(steps < 20 * ROUNDS);
        for (int i = 0; i < LIVE; i++) {
            if (has_ended(r[i])) {
                finish(&r[i], &l[i]);
                n_live--;
            } else if (r[i] && random_in(0, 40) == 0) {
                pl_request_release(r[i]);
                r[i] = NULL;
                n_live--;
            }
            if (!r[i] && n_submitted < ROUNDS && random_in(0, 3) == 0) {
                l[i] = (struct listener){0};
                r[i] = submit(e, random_in(0, N - 1), random_in(-2, 2), &l[i]);
                n_submitted++;
                n_live++;
            }
        }
        step(e);
    }
    assert_true(pl_engine_stats_of(e).preemptions > 10);
    pl_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_the_same_bits),
        cmocka_unit_test(test_who_gives_way),
        cmocka_unit_test(test_random_loads),
    };

    return cmocka_run_group_tests(tests, prepare, NULL);
}
