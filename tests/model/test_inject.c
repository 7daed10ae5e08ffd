/* What measures the forward pass leaves it as it is: states made without prefill, the head alone, the clock. */
#include <stdlib.h>
#include <string.h>

#include "support/record.h"

enum { AT = 384, STEPS = 6, WORKERS = 2 };

static const pl_ops *ops;

static test_model *open_model(void)
{
    return test_model_open("nano", ops, (pl_forward_limits){.max_tokens = 16, .max_len = AT + 128},
                           WORKERS);
}

static void inject(test_model *m, pl_state *s, int32_t from, int32_t n, uint64_t seed)
{
    pl_error err;

    assert_int_equal(pl_forward_inject(m->forward, s, from, n, seed, &err), PL_OK);
    assert_int_equal(s->n, n);
    assert_int_equal(s->n_settled, n);
}

/* Logits of a few steps from where the state stands. */
static float *decode(test_model *m, pl_state *s)
{
    const int64_t V = m->config->vocab_size;
    float *out = calloc((size_t)(STEPS * V), sizeof *out);

    assert_non_null(out);
    for (int32_t i = 0; i < STEPS; i++) {
        const int32_t token = 7 * i + 3;
        test_run(m, s, &token, 1, true);
        test_logits(m, 0, out + i * V);
    }
    return out;
}

static bool same(const test_model *m, const float *a, const float *b)
{
    return memcmp(a, b, (size_t)STEPS * (size_t)m->config->vocab_size * sizeof *a) == 0;
}

/* Seed and position decide, not the way there; another seed gives another state; an injected state is not an empty one. */
static void states_depend_on_seed_and_position(void **unused)
{
    test_model *m = open_model();
    pl_state *s[4];
    float *logits[4];

    for (int i = 0; i < 4; i++)
        s[i] = test_state_new(m);
    inject(m, s[0], 0, AT, 1);
    inject(m, s[1], 0, 128, 1);
    inject(m, s[1], 128, 256, 1);
    inject(m, s[1], 256, AT, 1);
    inject(m, s[2], 0, AT, 2);
    for (int i = 0; i < 4; i++)
        logits[i] = decode(m, s[i]);
    assert_true(same(m, logits[0], logits[1]));
    assert_false(same(m, logits[0], logits[2]));
    assert_false(same(m, logits[0], logits[3]));
    inject(m, s[2], AT, AT, 2); /* back to it, after steps */
    free(logits[3]);
    logits[3] = decode(m, s[2]);
    assert_true(same(m, logits[2], logits[3]));
    for (int i = 0; i < 4; i++) {
        free(logits[i]);
        test_state_free(s[i]);
    }
    test_model_close(m);
}

/* Every row that the position has is there and sound: finite, not all equal. */
static void rows_are_as_many_as_positions(void **unused)
{
    test_model *m = open_model();
    pl_state *s = test_state_new(m);
    float a[PL_HEAD_DIM], b[PL_HEAD_DIM];

    inject(m, s, 0, AT, 1);
    for (int32_t l = 0; l < m->config->n_layers; l++) {
        const pl_layer_state *layer = &s->layer[l];
        const int32_t n = layer->ratio ? AT / layer->ratio : 0;

        for (int32_t i = 1; i < n; i++) {
            ops->kv_get(&layer->entries, i - 1, a);
            ops->kv_get(&layer->entries, i, b);
            assert_memory_not_equal(a, b, sizeof a);
            for (int d = 0; d < PL_HEAD_DIM; d++)
                assert_true(b[d] > -8 && b[d] < 8);
        }
        for (int32_t i = 1; layer->ratio == 4 && i < n; i++) {
            ops->key_get(&layer->keys, i - 1, a);
            ops->key_get(&layer->keys, i, b);
            assert_memory_not_equal(a, b, PL_INDEX_DIM * sizeof *a);
        }
        for (int32_t i = 1; i < s->ring_rows; i++) {
            ops->kv_get(&layer->ring, i - 1, a);
            ops->kv_get(&layer->ring, i, b);
            assert_memory_not_equal(a, b, sizeof a);
        }
    }
    test_state_free(s);
    test_model_close(m);
}

static void refusals(void **unused)
{
    test_model *m = open_model();
    pl_state *s = test_state_new(m);
    pl_error err;

    assert_int_equal(pl_forward_inject(m->forward, s, 0, 100, 1, &err), PL_ERR_INVALID);
    assert_int_equal(pl_forward_inject(m->forward, s, 0, AT + 256, 1, &err), PL_ERR_INVALID);
    assert_int_equal(pl_forward_inject(m->forward, s, 256, 128, 1, &err), PL_ERR_INVALID);
    assert_int_equal(pl_forward_inject(m->forward, s, -128, 128, 1, &err), PL_ERR_INVALID);
    assert_int_equal(s->n, 0);
    test_state_free(s);
    test_model_close(m);
}

static void head_alone_gives_the_logits_of_the_step(void **unused)
{
    static const int32_t tokens[] = {5, 9, 2, 44};
    test_model *m = open_model();
    pl_state *s = test_state_new(m);
    const size_t bytes = (size_t)m->config->vocab_size * sizeof(float);
    const int32_t rows[] = {3, 1};
    float *want[2] = {malloc(bytes), malloc(bytes)}, *got = malloc(bytes);
    pl_step step = {.n_tokens = 4, .n_logits = 2, .logit_rows = rows};
    pl_error err;

    assert_true(want[0] && want[1] && got);
    test_run(m, s, tokens, 4, true);
    for (int i = 0; i < 2; i++)
        test_logits(m, rows[i], want[i]);
    assert_int_equal(pl_forward_run_head(m->forward, &step, &err), PL_OK);
    for (int i = 0; i < 2; i++) {
        test_logits(m, i, got);
        assert_memory_equal(got, want[i], bytes);
        free(want[i]);
    }
    assert_int_equal(s->n, 4);
    step.logit_rows = (const int32_t[]){3, 4};
    assert_int_equal(pl_forward_run_head(m->forward, &step, &err), PL_ERR_INVALID);
    free(got);
    test_state_free(s);
    test_model_close(m);
}

static void count_visit(void *user, const pl_tap_view *view)
{
    assert_int_equal(view->tap, PL_TAP_FFN_IDS);
    ++*(int *)user;
}

/* A hook for one tap is called for that one alone, and changes nothing. */
static void hook_for_one_tap(void **unused)
{
    test_model *m = open_model();
    pl_state *s[2] = {test_state_new(m), test_state_new(m)};
    int n = 0;
    const pl_hooks hooks = {.user = &n, .visit = count_visit, .only = 1u << PL_TAP_FFN_IDS};
    float *logits[2];

    logits[0] = decode(m, s[0]);
    pl_forward_set_hooks(m->forward, &hooks);
    logits[1] = decode(m, s[1]);
    pl_forward_set_hooks(m->forward, NULL);
    assert_true(same(m, logits[0], logits[1]));
    assert_int_equal(n, STEPS * m->config->n_layers);
    for (int i = 0; i < 2; i++) {
        free(logits[i]);
        test_state_free(s[i]);
    }
    test_model_close(m);
}

static void clock_counts_every_operator_and_changes_nothing(void **unused)
{
    test_model *m = open_model();
    pl_state *s[2] = {test_state_new(m), test_state_new(m)};
    pl_profile *p = aligned_alloc(64, (pl_profile_bytes(WORKERS) + 63) / 64 * 64);
    const int32_t L = m->config->n_layers;
    double sum = 0, linear = 0;
    float *logits[2];

    assert_non_null(p);
    logits[0] = decode(m, s[0]);
    pl_profile_reset(p, WORKERS);
    pl_forward_set_profile(m->forward, p);
    logits[1] = decode(m, s[1]);
    pl_forward_set_profile(m->forward, NULL);
    assert_true(same(m, logits[0], logits[1]));
    assert_int_equal(p->op[PL_PROFILE_embed].calls, STEPS);
    assert_int_equal(p->op[PL_PROFILE_attention].calls, STEPS * L);
    assert_int_equal(p->op[PL_PROFILE_hc_post].calls, 2 * STEPS * L);
    assert_int_equal(p->op[PL_PROFILE_route].calls, STEPS * L);
    assert_int_equal(p->op[PL_PROFILE_hc_head].calls, STEPS);
    for (int op = 0; op < PL_PROFILE_COUNT; op++) {
        assert_true((p->op[op].calls > 0) == (p->op[op].wall_ns > 0));
        sum += p->op[op].wall_ns;
        linear += op >= (int)PL_PROFILE_LINEAR ? p->op[op].wall_ns : 0;
    }
    assert_true(sum > 0.999 * p->wall_ns && sum < 1.001 * p->wall_ns);
    assert_true(linear > 0 && linear < p->wall_ns);
    assert_true(p->regions > 0 && p->region_ns <= p->wall_ns);
    test_run(m, s[0], (const int32_t[]){1}, 1, true); /* the clock is off */
    assert_int_equal(p->op[PL_PROFILE_embed].calls, STEPS);
    for (int i = 0; i < 2; i++) {
        free(logits[i]);
        test_state_free(s[i]);
    }
    free(p);
    test_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_depend_on_seed_and_position),
        cmocka_unit_test(rows_are_as_many_as_positions),
        cmocka_unit_test(refusals),
        cmocka_unit_test(head_alone_gives_the_logits_of_the_step),
        cmocka_unit_test(hook_for_one_tap),
        cmocka_unit_test(clock_counts_every_operator_and_changes_nothing),
    };

    ops = pl_ops_scalar();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
