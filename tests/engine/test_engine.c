/* The lives of requests and engines: stopping, cancelling, callbacks, fairness, refusals, memory that stays what it
 * was. Allocations are counted by the linker's --wrap. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/meminfo.h"
#include "counted_allocations.h"
#include "engine_support.h"

/* ---- requests */

static int32_t prompt[159];

static pl_request_params simple(int32_t n_prompt, int32_t max_tokens)
{
    pl_request_params p = pl_request_params_default();

    fill_prompt(prompt, 159, 512, 1);
    p.tokens = prompt;
    p.n_tokens = n_prompt;
    p.max_tokens = max_tokens;
    p.ignore_eos = true;
    return p;
}

static pl_request *submit(pl_engine *e, const pl_request_params *p)
{
    pl_request *r;
    pl_error err;

    check_ok(pl_engine_submit(e, p, &r, &err), &err);
    return r;
}

static bool step(pl_engine *e)
{
    pl_error err;
    bool busy;

    check_ok(pl_engine_step(e, &busy, &err), &err);
    return busy;
}

static void test_no_allocation_in_steps(void **state)
{
    pl_engine_params p = small_params();
    pl_engine *e;
    pl_request_params q[4] = {simple(9, 5), simple(70, 3), simple(2, 6), simple(30, 4)};
    pl_request *r[4];
    long before;

    p.num_speculative_tokens = 2;
    e = open_engine("nano", &p);
    assert_true(n_allocations > 0); /* opening is seen */
    q[1].temperature = 1;
    q[2].temperature = 0.7f;
    q[2].top_k = 9;
    q[2].top_p = 0.9f;
    q[2].frequency_penalty = 0.5f;
    before = n_allocations;
    for (int i = 0; i < 4; i++)
        r[i] = submit(e, &q[i]);
    while (step(e))
        ;
    for (int i = 0; i < 4; i++)
        pl_request_release(r[i]);
    assert_int_equal(n_allocations, before);
    pl_engine_close(e);
}

static void test_stopping(void **state)
{
    pl_engine_params p = small_params();
    pl_engine *e = open_engine("nano", &p);
    pl_request_params q = simple(6, 8);
    result all, r;
    int32_t at = 0;

    run_all(e, &q, 1, NULL, &all);
    assert_int_equal(all.n, 8);
    assert_int_equal(all.state, PL_REQUEST_LENGTH);
    /* A stop token ends it where it first comes, and is part of it. */
    q.stop_ids = &all.tokens[3];
    q.n_stop_ids = 1;
    while (all.tokens[at] != all.tokens[3])
        at++;
    run_all(e, &q, 1, NULL, &r);
    assert_int_equal(r.state, PL_REQUEST_STOPPED);
    assert_int_equal(r.n, at + 1);
    check_same_bytes("until the stop", r.tokens, all.tokens, (size_t)r.n * sizeof r.tokens[0]);
    /* Not before min_tokens; the stop token is then not chosen. */
    q.min_tokens = at + 2;
    run_all(e, &q, 1, NULL, &r);
    assert_true(r.n >= at + 2);
    for (int32_t i = 0; i < at + 2 && i < r.n - 1; i++)
        assert_int_not_equal(r.tokens[i], all.tokens[3]);
    /* max_model_len ends what max_tokens would not. */
    q = simple(157, 100);
    run_all(e, &q, 1, NULL, &r);
    assert_int_equal(r.n, 3);
    assert_int_equal(r.state, PL_REQUEST_LENGTH);
    q = simple(159, 100);
    run_all(e, &q, 1, NULL, &r);
    assert_int_equal(r.n, 1);
    pl_engine_close(e);
}

/* The model's end token, made certain by a bias. */
static void test_end_token(void **state)
{
    pl_engine_params p = small_params();
    pl_engine *e = open_engine("nano", &p);
    pl_request_params q = simple(6, 5);
    pl_logit_bias bias = {pl_engine_model_of(e).eos_token_id, 1e6f};
    result r;

    q.logit_bias = &bias;
    q.n_logit_bias = 1;
    run_all(e, &q, 1, NULL, &r);
    assert_int_equal(r.n, 5);
    q.ignore_eos = false;
    run_all(e, &q, 1, NULL, &r);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.tokens[0], bias.token);
    assert_int_equal(r.state, PL_REQUEST_STOPPED);
    assert_true(r.logprobs[0] < 0); /* of the raw logits, which know no bias */
    q.min_tokens = 3;
    run_all(e, &q, 1, NULL, &r);
    assert_int_equal(r.n, 4);
    pl_engine_close(e);
}

/* Whenever it is cancelled, its place is free at once: the next step gives it to who waits. */
static void test_cancel_at_any_step(void **state)
{
    pl_engine_params p = small_params();
    pl_request_params q = simple(20, 6), other = simple(4, 2);
    result want, got;
    pl_engine *e;

    p.max_num_seqs = 1;
    p.max_num_batched_tokens = 8;
    e = open_engine("nano", &p);
    run_all(e, &other, 1, NULL, &want);
    for (int n = 0; n <= 8; n++) {
        pl_request *r = submit(e, &q), *waits = submit(e, &other);

        for (int i = 0; i < n; i++)
            step(e);
        if (pl_request_state_of(r) != (n == 0 ? PL_REQUEST_QUEUED : PL_REQUEST_RUNNING)) {
            assert_int_equal(pl_request_state_of(r), PL_REQUEST_LENGTH); /* 3 + 5 steps */
            assert_true(n >= 8);
            pl_request_release(r);
        } else {
            pl_request_cancel(r);
            assert_int_equal(pl_request_state_of(r), PL_REQUEST_CANCELLED);
        }
        step(e);
        assert_int_equal(pl_request_state_of(waits), PL_REQUEST_RUNNING);
        while (step(e))
            ;
        take(waits, &got);
        check_same_result("after a cancelled one", &got, &want);
        if (n < 8)
            pl_request_release(r);
    }
    pl_engine_close(e);
}

/* ---- callbacks */

struct watcher {
    pl_engine *engine;
    int32_t tokens[16];
    float logprobs[16];
    int n, cancel_at;
    pl_request *victim;            /* cancelled with it */
    const pl_request_params *next; /* submitted at the last token */
    pl_request *submitted;
    bool release;
};

static void watch(void *user, pl_request *r, const pl_token_event *event)
{
    struct watcher *w = user;
    pl_error err;

    assert_int_equal(event->index, w->n);
    w->tokens[w->n] = event->token;
    w->logprobs[w->n++] = event->logprob;
    if (w->n == w->cancel_at) {
        pl_request_cancel(r);
        if (w->victim)
            pl_request_cancel(w->victim);
    }
    if (pl_request_state_of(r) == PL_REQUEST_LENGTH) {
        if (w->next)
            check_ok(pl_engine_submit(w->engine, w->next, &w->submitted, &err), &err);
        if (w->release)
            pl_request_release(r);
    }
}

static void test_callbacks(void **state)
{
    pl_engine_params p = small_params();
    pl_request_params q = simple(6, 5), next = simple(5, 2);
    struct watcher w = {0};
    pl_engine *e;
    result r, want_next;

    p.max_num_seqs = 1;
    e = open_engine("nano", &p);
    w.engine = e;
    run_all(e, &next, 1, NULL, &want_next);
    q.on_token = watch;
    q.user = &w;
    run_all(e, &q, 1, NULL, &r);
    assert_int_equal(w.n, 5);
    check_same_bytes("tokens told", w.tokens, r.tokens, 5 * sizeof r.tokens[0]);
    check_same_bytes("logprobs told", w.logprobs, r.logprobs, 5 * sizeof r.logprobs[0]);
    /* Released and followed by another from within its last call. */
    w = (struct watcher){.engine = e, .next = &next, .release = true};
    (void)submit(e, &q);
    while (step(e))
        ;
    assert_int_equal(w.n, 5);
    take(w.submitted, &r);
    check_same_result("submitted from a callback", &r, &want_next);
    pl_engine_close(e);
}

static void test_cancel_from_a_callback(void **state)
{
    pl_engine_params p = small_params();
    pl_request_params q = simple(6, 6), b = simple(6, 6);
    struct watcher w = {.cancel_at = 3}, other = {0};
    pl_engine *e = open_engine("nano", &p);
    pl_request *r;
    int told;

    q.on_token = b.on_token = watch;
    q.user = &w;
    b.user = &other;
    r = submit(e, &q);
    w.victim = submit(e, &b);
    while (step(e))
        ;
    assert_int_equal(w.n, 3);
    told = other.n; /* the second one's third call comes after its end: it does not come */
    assert_int_equal(told, 2);
    assert_int_equal(pl_request_state_of(r), PL_REQUEST_CANCELLED);
    assert_int_equal(pl_request_state_of(w.victim), PL_REQUEST_CANCELLED);
    assert_int_equal(pl_engine_stats_of(e).running, 0);
    pl_engine_close(e);
}

/* ---- taking turns */

/* Two tokens a step for three choosing requests and a long prompt: nobody waits for ever, and each gets its
 * share. */
static void test_turns_are_fair(void **state)
{
    pl_engine_params p = small_params();
    pl_request_params q = simple(2, 60), slow = simple(40, 1);
    pl_request *r[3], *prefill;
    int32_t before[3], n, least = 0, most = 0;
    pl_engine *e;

    p.max_num_batched_tokens = 2;
    e = open_engine("nano", &p);
    for (int i = 0; i < 3; i++)
        r[i] = submit(e, &q);
    for (int i = 0; i < 5; i++)
        step(e);
    prefill = submit(e, &slow);
    for (int i = 0; i < 3; i++)
        (void)pl_request_tokens(r[i], &before[i]);
    for (int steps = 0; pl_request_state_of(prefill) <= PL_REQUEST_RUNNING; steps++) {
        assert_true(steps < 100);
        step(e);
        least = 100;
        most = 0;
        for (int i = 0; i < 3; i++) {
            (void)pl_request_tokens(r[i], &n);
            n -= before[i];
            least = n < least ? n : least;
            most = n > most ? n : most;
        }
        assert_true(most - least <= 2);
    }
    assert_true(least >= 30);
    pl_engine_close(e);
}

/* ---- refusals */

static void test_requests_that_cannot_run(void **state)
{
    pl_engine_params p = small_params();
    pl_engine *e;
    pl_request *r;
    pl_error err;

    p.max_queued = 2;
    e = open_engine("nano", &p);
#define REFUSED(field, value, ...)                                                               \
    do {                                                                                         \
        pl_request_params q = simple(4, 4);                                                      \
        q.field = (value);                                                                       \
        check_error(pl_engine_submit(e, &q, &r, &err), PL_ERR_INVALID, &err, __VA_ARGS__, NULL); \
        assert_null(r);                                                                          \
    } while (0)
    REFUSED(n_tokens, 0, "tokens", "got 0");
    REFUSED(n_tokens, 160, "tokens", "got 160", "at most 159");
    REFUSED(tokens, NULL, "tokens");
    REFUSED(max_tokens, 0, "max_tokens", "got 0");
    REFUSED(min_tokens, 5, "min_tokens", "got 5");
    REFUSED(temperature, -1, "temperature", "got -1");
    prompt[2] = 512;
    {
        pl_request_params q = pl_request_params_default();
        q.tokens = prompt;
        q.n_tokens = 4;
        check_error(pl_engine_submit(e, &q, &r, &err), PL_ERR_INVALID, &err, "token 2", "got 512",
                    "0 to 511", NULL);
    }
#undef REFUSED
    {
        pl_request_params q = simple(4, 4);
        for (int i = 0; i < 6; i++) /* 4 places and 2 that wait */
            (void)submit(e, &q);
        check_error(pl_engine_submit(e, &q, &r, &err), PL_ERR_AGAIN, &err, "too many wait", NULL);
        check_ok(pl_engine_step(e, &(bool){0}, &err), &err);
        check_error(pl_engine_submit(e, &q, &r, &err), PL_ERR_AGAIN, &err, "got 2", "at most 2",
                    NULL);
    }
    pl_engine_close(e); /* with requests running and waiting */
}

static void test_engines_that_cannot_open(void **state)
{
    pl_engine_params p = small_params();
    pl_engine *e;
    pl_error err;

#define REFUSED(field, value, status, ...)                                               \
    do {                                                                                 \
        pl_engine_params q = p;                                                          \
        q.field = (value);                                                               \
        check_error(pl_engine_open(checkpoint_path("nano"), &q, &e, &err), status, &err, \
                    __VA_ARGS__, NULL);                                                  \
        assert_null(e);                                                                  \
    } while (0)
    REFUSED(threads, -1, PL_ERR_INVALID, "threads", "got -1");
    REFUSED(max_num_seqs, 0, PL_ERR_INVALID, "max_num_seqs", "got 0");
    REFUSED(max_num_batched_tokens, 0, PL_ERR_INVALID, "max_num_batched_tokens", "got 0");
    REFUSED(max_model_len, 1, PL_ERR_INVALID, "max_model_len", "got 1");
    REFUSED(max_model_len, 1 << 30, PL_ERR_INVALID, "max_model_len");
    REFUSED(max_queued, -1, PL_ERR_INVALID, "max_queued");
    REFUSED(level, "fast", PL_ERR_INVALID, "fast");
    REFUSED(memory_bytes, 1 << 20, PL_ERR_LIMIT, "does not fit", "memory_bytes");
    REFUSED(kv_cache_memory_bytes, 1 << 20, PL_ERR_LIMIT, "caches do not fit", "at most 1048576)",
            "max_num_seqs 1 ", "kv_cache_memory_bytes ");
#undef REFUSED
    check_error(pl_engine_open("/nonexistent", &p, &e, &err), PL_ERR_NOT_FOUND, &err,
                "/nonexistent", NULL);
}

/* ---- engines beside and after each other */

static void test_two_engines(void **state)
{
    pl_engine_params p = small_params();
    pl_request_params q = simple(20, 4);
    pl_engine *a = open_engine("nano", &p), *b;
    pl_request *ra, *rb;
    result alone, x, y;
    bool more = true;

    run_all(a, &q, 1, NULL, &alone);
    p.max_num_batched_tokens = 7;
    b = open_engine("nano", &p);
    ra = submit(a, &q);
    rb = submit(b, &q);
    while (more) {
        more = step(a);
        more |= step(b);
    }
    take(ra, &x);
    take(rb, &y);
    check_same_result("first engine", &x, &alone);
    check_same_result("second engine", &y, &alone);
    assert_string_equal(pl_engine_numerics(a).checkpoint, pl_engine_numerics(b).checkpoint);
    pl_engine_close(a);
    pl_engine_close(b);
}

/* A dozen times; PL_ENGINE_FULL=1: a thousand. */
static void test_opening_often_does_not_grow(void **state)
{
    const char *full = getenv("PL_ENGINE_FULL");
    const int rounds = full && strcmp(full, "1") == 0 ? 1000 : 12;
    pl_engine_params p = small_params();
    pl_request_params q = simple(3, 2);
    uint64_t first = 0, now = 0;
    pl_error err;
    result r;

    if (SANITIZED)
        skip();
    for (int i = 0; i < rounds; i++) {
        pl_engine *e = open_engine("nano", &p);
        run_all(e, &q, 1, NULL, &r);
        pl_engine_close(e);
        check_ok(pl_mem_read_exact(&now, NULL, &err), &err);
        if (i == 2)
            first = now;
    }
    /* The heap may settle; an engine left behind would be 20 MB each. */
    if (now > first + (256 << 10))
        fail_msg("%d engines later: %llu bytes more", rounds - 3,
                 (unsigned long long)(now - first));
}

static void test_reports(void **state)
{
    pl_engine_params p = small_params();
    pl_engine *e = open_engine("nano", &p);
    pl_request_params q = simple(20, 4);
    pl_memory_report m;
    pl_engine_stats s;
    pl_error err;
    result r;

    run_all(e, &q, 1, NULL, &r);
    s = pl_engine_stats_of(e);
    assert_int_equal(s.steps, 4);
    assert_int_equal(s.prefill_tokens, 20);
    assert_int_equal(s.decode_tokens, 3);
    assert_true(s.load_s > 0 && s.prefill_s > 0 && s.decode_s > 0);
    check_ok(pl_engine_memory(e, &m, &err), &err);
    assert_int_equal(m.plan_bytes, pl_plan_totals_of(pl_engine_plan(e)).total_bytes);
    assert_true(m.peak_resident_bytes > 0);
    assert_int_equal(pl_engine_numerics(e).version, 1);
    assert_int_equal(pl_engine_numerics(e).numerics_class, 1);
    assert_string_equal(pl_engine_numerics(e).level, "scalar");
    assert_int_equal(strlen(pl_engine_numerics(e).checkpoint), 32);
    assert_null(pl_engine_tokenizer(e));
    pl_engine_close(e);
    pl_engine_close(NULL);
    pl_request_release(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_allocation_in_steps),
        cmocka_unit_test(test_stopping),
        cmocka_unit_test(test_end_token),
        cmocka_unit_test(test_cancel_at_any_step),
        cmocka_unit_test(test_callbacks),
        cmocka_unit_test(test_cancel_from_a_callback),
        cmocka_unit_test(test_turns_are_fair),
        cmocka_unit_test(test_requests_that_cannot_run),
        cmocka_unit_test(test_engines_that_cannot_open),
        cmocka_unit_test(test_two_engines),
        cmocka_unit_test(test_opening_often_does_not_grow),
        cmocka_unit_test(test_reports),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
