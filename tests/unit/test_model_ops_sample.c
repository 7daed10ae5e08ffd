/* The public entries of sampling (plimsoll/model_ops.h): noise, penalties, probabilities and choices against double, every kind of
 * context, refusals. The steps of the sampler: test_sampling.c. */
#include "plimsoll/model_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "support/contexts.h"

enum { VOCAB = 700, DRAWS = 300 };

typedef struct problem {
    float logits[VOCAB];
    pl_op_sample_args args;
    struct {
        int32_t token;
        float probabilities[VOCAB], noise[VOCAB];
    } out;
} problem;

static pl_status call_sample(pl_ops_context *context, void *user, pl_error *err)
{
    problem *p = user;
    const uint64_t bytes = pl_op_sample_workspace_bytes(VOCAB);
    void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
    pl_status status;

    assert_non_null(workspace);
    memset(workspace, 0xFF, bytes);
    status = pl_op_sample(context, &p->args, workspace, bytes, err);
    free(workspace);
    if (status != PL_OK)
        return status;
    return pl_op_gumbel(context, p->args.seed, p->args.position, p->args.choice, 0, VOCAB,
                        p->out.noise, err);
}

static problem *open_problem(void)
{
    problem *p = calloc(1, sizeof *p);
    uint32_t r = 9;

    assert_non_null(p);
    contexts_f32(&r, p->logits, VOCAB);
    for (int i = 0; i < VOCAB; i++)
        p->logits[i] *= 3;
    p->args = (pl_op_sample_args){.vocab = VOCAB,
                                  .logits = p->logits,
                                  .temperature = 0.8f,
                                  .top_p = 1,
                                  .seed = 77,
                                  .position = 5,
                                  .choice = 1,
                                  .token = &p->out.token,
                                  .probabilities = p->out.probabilities};
    return p;
}

static void probabilities_are_a_softmax(void **state)
{
    problem *p = open_problem();
    double total = 0, sum = 0, best = -INFINITY;
    int choice = -1;

    contexts_run(call_sample, p, &p->out, sizeof p->out);
    for (int i = 0; i < VOCAB; i++)
        total += exp((double)p->logits[i] / (double)0.8f);
    for (int i = 0; i < VOCAB; i++) {
        const pl_noise noise = {77, 5, 1, PL_PURPOSE_TOKEN};
        double l = (double)(p->logits[i] / 0.8f), want = exp(l) / total;

        assert_true(fabs((double)p->out.probabilities[i] - want) < 2e-6 * want);
        assert_true(p->out.noise[i] == pl_gumbel(&noise, (uint32_t)i));
        sum += (double)p->out.probabilities[i];
        if (l + (double)p->out.noise[i] > best) {
            best = l + (double)p->out.noise[i];
            choice = i;
        }
    }
    assert_true(fabs(sum - 1) < 1e-5);
    assert_int_equal(p->out.token, choice);
    free(p);
}

static void options_leave_what_they_say(void **state)
{
    problem *p = open_problem();
    pl_ops_context *context = contexts_scalar();
    uint32_t allowed[(VOCAB + 31) / 32] = {0};
    int left = 0, best = 0;
    pl_error err;

    for (int i = 1; i < VOCAB; i++)
        best = p->logits[i] > p->logits[best] ? i : best;
    p->args.top_k = 9;
    check_ok(call_sample(context, p, &err), &err);
    for (int i = 0; i < VOCAB; i++)
        left += p->out.probabilities[i] > 0;
    assert_int_equal(left, 9);
    assert_true(p->out.probabilities[p->out.token] > 0);
    p->args.temperature = 0;
    check_ok(call_sample(context, p, &err), &err);
    assert_int_equal(p->out.token, best);
    assert_true(p->out.probabilities[best] == 1);
    allowed[3] = 1u << 7;
    p->args.allowed = allowed;
    check_ok(call_sample(context, p, &err), &err);
    assert_int_equal(p->out.token, 3 * 32 + 7);
    pl_ops_context_destroy(context);
    free(p);
}

/* Draws fall as often as their probability says: three in four, within five deviations. */
static void draws_follow_the_probabilities(void **state)
{
    problem *p = open_problem();
    pl_ops_context *context = contexts_scalar();
    int n = 0;
    pl_error err;

    for (int i = 0; i < VOCAB; i++)
        p->logits[i] = -40;
    p->logits[3] = logf(3);
    p->logits[600] = 0;
    p->args.temperature = 1;
    for (int i = 0; i < DRAWS; i++) {
        p->args.position = (uint32_t)i;
        check_ok(call_sample(context, p, &err), &err);
        assert_true(p->out.token == 3 || p->out.token == 600);
        n += p->out.token == 3;
    }
    assert_true(fabs(n - 0.75 * DRAWS) < 5 * sqrt(DRAWS * 0.75 * 0.25));
    pl_ops_context_destroy(context);
    free(p);
}

/* ---- penalties and log-softmax */

static pl_op_penalise_args penalties_of(const problem *p, float *out)
{
    static const int32_t prompt[] = {5, 6, 5, 699}, output[] = {6, 7, 7, 0};
    static const int32_t biased[] = {7, 8, 8, 5};
    static const float bias[] = {1.5f, -2, 0.25f, -100};

    return (pl_op_penalise_args){.vocab = VOCAB,
                                 .logits = p->logits,
                                 .n_bias = 4,
                                 .bias_tokens = biased,
                                 .bias = bias,
                                 .repetition = 1.25f,
                                 .frequency = 0.5f,
                                 .presence = 0.375f,
                                 .n_prompt = 4,
                                 .n_output = 4,
                                 .prompt = prompt,
                                 .output = output,
                                 .out = out};
}

static pl_status call_penalise(pl_ops_context *context, void *user, pl_error *err)
{
    problem *p = user;
    pl_op_penalise_args a = penalties_of(p, p->out.noise);
    const uint64_t bytes = pl_op_sample_workspace_bytes(VOCAB);
    void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
    pl_status status;

    assert_non_null(workspace);
    memset(workspace, 0xFF, bytes);
    status = pl_op_penalise(context, &a, workspace, bytes, err);
    if (status == PL_OK) { /* in place */
        memcpy(p->out.probabilities, p->logits, sizeof p->logits);
        a.logits = a.out = p->out.probabilities;
        status = pl_op_penalise(context, &a, workspace, bytes, err);
    }
    free(workspace);
    return status;
}

static void penalties_are_those_of_the_contract(void **state)
{
    problem *p = open_problem();
    pl_op_penalise_args a = penalties_of(p, NULL);
    float want[VOCAB];

    p->logits[0] = -3;
    p->logits[699] = 2;
    memcpy(want, p->logits, sizeof want);
    for (int i = 0; i < a.n_bias; i++)
        want[a.bias_tokens[i]] += a.bias[i];
    for (int32_t id = 0; id < VOCAB; id++) {
        int in_prompt = 0, in_output = 0;
        for (int i = 0; i < 4; i++) {
            in_prompt += a.prompt[i] == id;
            in_output += a.output[i] == id;
        }
        if (in_prompt + in_output == 0)
            continue;
        want[id] = want[id] > 0 ? want[id] / a.repetition : want[id] * a.repetition;
        want[id] = want[id] - a.frequency * (float)in_output;
        want[id] = want[id] - (in_output ? a.presence : 0);
    }
    memset(&p->out.token, 0, sizeof p->out.token);
    contexts_run(call_penalise, p, &p->out, sizeof p->out);
    check_same_f32("penalised", p->out.noise, want, VOCAB);
    check_same_f32("in place", p->out.probabilities, want, VOCAB);
    free(p);
}

static void no_penalties_change_nothing(void **state)
{
    problem *p = open_problem();
    pl_ops_context *context = contexts_scalar();
    const uint64_t bytes = pl_op_sample_workspace_bytes(VOCAB);
    void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
    pl_op_penalise_args a = penalties_of(p, p->out.noise);
    pl_error err;

    assert_non_null(workspace);
    a.n_bias = 0;
    a.frequency = a.presence = 0;
    for (int one = 0; one < 2; one++) {
        a.repetition = (float)one;
        check_ok(pl_op_penalise(context, &a, workspace, bytes, &err), &err);
        check_same_f32("logits", p->out.noise, p->logits, VOCAB);
    }
    free(workspace);
    pl_ops_context_destroy(context);
    free(p);
}

static pl_status call_log_softmax(pl_ops_context *context, void *user, pl_error *err)
{
    problem *p = user;

    /* Seven rows of 100. */
    return pl_op_log_softmax(context, VOCAB / 100, 100, p->logits, p->out.probabilities, err);
}

static void log_softmax_is_that_in_double(void **state)
{
    problem *p = open_problem();
    pl_ops_context *context = contexts_scalar();
    float first[VOCAB];
    pl_error err;

    contexts_run(call_log_softmax, p, p->out.probabilities, sizeof p->out.probabilities);
    for (int row = 0; row < VOCAB / 100; row++) {
        const float *l = p->logits + (ptrdiff_t)row * 100;
        double sum = 0;
        for (int i = 0; i < 100; i++)
            sum += exp((double)l[i]);
        for (int i = 0; i < 100; i++)
            assert_true(fabs((double)p->out.probabilities[row * 100 + i] -
                             ((double)l[i] - log(sum))) < 3e-6);
    }
    memcpy(first, p->out.probabilities, sizeof first);
    check_ok(pl_op_log_softmax(context, VOCAB / 100, 100, p->logits, p->logits, &err), &err);
    check_same_f32("in place", p->logits, first, VOCAB);
    /* What is left out is -infinity, and a row that holds a NaN is NaN. */
    p->logits[3] = -INFINITY;
    p->logits[150] = NAN;
    check_ok(pl_op_log_softmax(context, VOCAB / 100, 100, p->logits, p->logits, &err), &err);
    assert_true(isinf(p->logits[3]) && isfinite(p->logits[4]));
    assert_true(isnan(p->logits[101]) && isfinite(p->logits[201]));
    pl_ops_context_destroy(context);
    free(p);
}

/* The known answer of the generator's authors for counters and keys of ones. */
static void philox_has_its_known_answer(void **state)
{
    const uint32_t counter[4] = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    const uint32_t key[2] = {UINT32_MAX, UINT32_MAX};
    uint32_t out[4];

    pl_op_philox(counter, key, out);
    assert_int_equal(out[0], 0x408F276D);
    assert_int_equal(out[1], 0x41C83B0E);
    assert_int_equal(out[2], 0xA20BC7C6);
    assert_int_equal(out[3], 0x6D5451FD);
}

static void refusals_name_the_argument(void **state)
{
    problem *p = open_problem();
    pl_ops_context *c = contexts_scalar();
    static _Alignas(64) uint8_t memory[64];
    static const float bad_bias[4] = {0, 0, INFINITY};
    static const int32_t bad_ids[4] = {0, VOCAB};
    pl_op_penalise_args a = penalties_of(p, p->out.noise);
    const uint64_t bytes = pl_op_sample_workspace_bytes(VOCAB);
    void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
    pl_error err;

#define REFUSE(change, call, ...)                                                 \
    do {                                                                          \
        change;                                                                   \
        check_error(call, PL_ERR_INVALID, &err, __VA_ARGS__, (const char *)NULL); \
    } while (0)
    assert_non_null(workspace);
    assert_int_equal(pl_op_sample_workspace_bytes(0), 0);
    REFUSE((void)0, pl_op_sample(c, &p->args, workspace, bytes - 1, &err), "workspace_bytes");
    REFUSE((void)0, pl_op_sample(c, &p->args, memory + 1, bytes, &err), "workspace", "64");
    REFUSE(p->args.top_p = 0, pl_op_sample(c, &p->args, workspace, bytes, &err), "top_p", "0");
    REFUSE((p->args.top_p = 1, p->args.temperature = NAN),
           pl_op_sample(c, &p->args, workspace, bytes, &err), "temperature", "nan");
    REFUSE((p->args.temperature = 1, p->args.probabilities = p->logits),
           pl_op_sample(c, &p->args, workspace, bytes, &err), "overlaps");
    REFUSE((p->args.probabilities = NULL, p->args.vocab = 0),
           pl_op_sample(c, &p->args, workspace, bytes, &err), "vocab", "0");
    REFUSE((void)0, pl_op_gumbel(c, 1, 1, 1, -1, 1, p->out.noise, &err), "first", "-1");
    REFUSE(a.repetition = -1, pl_op_penalise(c, &a, workspace, bytes, &err), "repetition", "-1");
    REFUSE(a.repetition = 1e-40f, pl_op_penalise(c, &a, workspace, bytes, &err), "repetition");
    REFUSE((a.repetition = 1, a.presence = NAN), pl_op_penalise(c, &a, workspace, bytes, &err),
           "presence", "nan");
    REFUSE((a.presence = 0, a.bias = p->logits, a.out = p->logits + 1),
           pl_op_penalise(c, &a, workspace, bytes, &err), "out: overlaps");
    REFUSE((a.out = p->out.noise, a.bias = bad_bias), pl_op_penalise(c, &a, workspace, bytes, &err),
           "bias", "inf");
    REFUSE((a.n_bias = 0, a.output = bad_ids), pl_op_penalise(c, &a, workspace, bytes, &err),
           "output[1]", "700", "0 .. 699");
    REFUSE(a.n_prompt = -1, pl_op_penalise(c, &a, workspace, bytes, &err), "n_prompt", "-1");
    REFUSE(a.n_prompt = 0, pl_op_penalise(c, &a, workspace, bytes - 1, &err), "workspace_bytes");
    REFUSE((void)0, pl_op_log_softmax(c, 1, 0, p->logits, p->out.noise, &err), "vocab", "0");
    REFUSE((void)0, pl_op_log_softmax(c, 2, 300, p->logits, p->logits + 1, &err), "out: overlaps");
    assert_true(p->out.noise[0] == 0);
    assert_int_equal(p->out.token, 0);
    free(workspace);
    pl_ops_context_destroy(c);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probabilities_are_a_softmax),
        cmocka_unit_test(options_leave_what_they_say),
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(penalties_are_those_of_the_contract),
        cmocka_unit_test(no_penalties_change_nothing),
        cmocka_unit_test(log_softmax_is_that_in_double),
        cmocka_unit_test(philox_has_its_known_answer),
        cmocka_unit_test(refusals_name_the_argument),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
