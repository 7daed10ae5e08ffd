/* Steps that the forward pass refuses: what it says, and that nothing of them has happened. */
#include <string.h>

#include "support/model.h"

enum { N_SEQS = 3, MAX_LEN = 12 };

static test_model *open_model(int32_t max_len)
{
    return test_model_open("nano", pl_ops_scalar(),
                           (pl_forward_limits){
                               .max_tokens = 16,
                               .max_seqs = N_SEQS,
                               .max_len = max_len,
                           },
                           1);
}

static void refused(test_model *m, const pl_step *step, const char *fragment)
{
    pl_error err;

    check_error(pl_forward_run(m->forward, step, &err), PL_ERR_INVALID, &err, "step: ", fragment,
                NULL);
}

static void a_state_is_one_sequences(void **unused)
{
    test_model *m = open_model(MAX_LEN);
    pl_state *a = test_state_new(m), *b = test_state_new(m);
    pl_step_seq seqs[N_SEQS] = {{a, 0, 2, 0}, {b, 2, 1, 0}, {a, 3, 1, 0}};
    int32_t tokens[4] = {1, 2, 3, 4};
    pl_step step = {4, tokens, N_SEQS, seqs, 0, NULL};
    pl_error err;

    refused(m, &step, "sequences 0 and 2 have the same state");
    assert_int_equal(a->n, 0);
    assert_int_equal(b->n, 0);
    seqs[2].state = b;
    refused(m, &step, "sequences 1 and 2 have the same state");
    seqs[2].state = test_state_new(m);
    check_ok(pl_forward_run(m->forward, &step, &err), &err);
    assert_int_equal(a->n, 2);
    /* The next step may order them anew. */
    seqs[0] = (pl_step_seq){b, 0, 1, 0};
    seqs[1] = (pl_step_seq){a, 1, 1, 0};
    step = (pl_step){2, tokens, 2, seqs, 0, NULL};
    check_ok(pl_forward_run(m->forward, &step, &err), &err);
    test_state_free(seqs[2].state);
    test_state_free(a);
    test_state_free(b);
    test_model_close(m);
}

/* The limit that is told is the one that was passed: a state's, or the forward pass's own. */
static void lengths(void **unused)
{
    test_model *m = open_model(MAX_LEN), *longer = open_model(MAX_LEN + 4);
    pl_state *short_state = test_state_new(m), *long_state = test_state_new(longer);
    int32_t tokens[MAX_LEN + 1] = {0};
    pl_step_seq seq = {long_state, 0, MAX_LEN + 1, 0};
    pl_step step = {MAX_LEN + 1, tokens, 1, &seq, 0, NULL};

    refused(m, &step, "got 13 tokens at position 0, want at most 12)");
    seq.state = short_state;
    refused(longer, &step, "got 13 tokens at position 0, want at most 12)");
    test_state_free(short_state);
    test_state_free(long_state);
    test_model_close(m);
    test_model_close(longer);
}

static void nothing(void *user, const pl_tap_view *view) {}

static void scores_need_memory(void **unused)
{
    test_model *m = open_model(MAX_LEN);
    pl_state *s = test_state_new(m);
    pl_step_seq seq = {s, 0, 1, 0};
    int32_t token = 1;
    pl_step step = {1, &token, 1, &seq, 0, NULL};
    pl_hooks hooks = {NULL, nothing, true};
    pl_error err;

    pl_forward_set_hooks(m->forward, &hooks);
    refused(m, &step, "indexer scores");
    hooks.scores = false;
    check_ok(pl_forward_run(m->forward, &step, &err), &err);
    test_state_free(s);
    test_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_is_one_sequences),
        cmocka_unit_test(lengths),
        cmocka_unit_test(scores_need_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
