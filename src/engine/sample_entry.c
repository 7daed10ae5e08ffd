/* The checked entries of sampling for other programs (plimsoll/model_ops.h): the noise, penalties, log-softmax, and the
 * sampler over one row of logits with memory of the caller's. What a choice is: engine/sampling.c. */
#include <float.h>
#include <string.h>

#include "attention/arrays.h"
#include "base/error.h"
#include "base/math.h"
#include "engine/logits.h"
#include "engine/sampling.h"
#include "plimsoll/model_ops.h"

enum { MAX_VOCAB = 1 << 24 };

uint64_t pl_op_sample_workspace_bytes(int32_t vocab)
{
    pl_sampler s;
    pl_arena arena;

    if (vocab < 1 || vocab > MAX_VOCAB)
        return 0;
    pl_arena_init_dry(&arena);
    pl_sampler_layout(&s, &arena, vocab);
    return pl_arena_peak_bytes(&arena);
}

/* ---- noise */

void pl_op_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    pl_philox4x32(counter, key, out);
}

typedef struct noise_run {
    pl_noise noise;
    int64_t first;
    float *out;
} noise_run;

static void noise_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const noise_run *r = args;

    pl_gumbel_fill(&r->noise, (uint32_t)(r->first + begin), end - begin, r->out + begin);
}

pl_status pl_op_gumbel(pl_ops_context *context, uint64_t seed, uint32_t position, uint32_t choice,
                       int32_t first, int32_t n, float *out, pl_error *err)
{
    const pl_array arrays[] = {{"out", out, n, 1, 4, PL_ARRAY_OUT, NULL}};
    noise_run r = {{seed, position, choice, PL_PURPOSE_TOKEN}, first, out};

    PL_TRY(pl__check_start(context, context, err));
    PL_TRY(pl__check_range("first", first, 0, INT32_MAX, err));
    PL_TRY(pl__check_range("n", n, 0, (int64_t)INT32_MAX - first, err));
    PL_TRY(pl__check_arrays(arrays, 1, err));
    pl__context_rows(context, n, 64, noise_rows, &r);
    return PL_OK;
}

/* ---- penalties */

static pl_status check_workspace(int32_t vocab, const void *workspace, uint64_t bytes,
                                 pl_extent *space, pl_error *err)
{
    const uint64_t want = pl_op_sample_workspace_bytes(vocab);

    PL_CHECK(workspace != NULL && (uintptr_t)workspace % 64 == 0, err,
             "workspace: missing or not aligned (got %p, want a multiple of 64)", workspace);
    PL_CHECK(bytes >= want, err, "workspace_bytes: too few (got %llu, want %llu or more)",
             (unsigned long long)bytes, (unsigned long long)want);
    *space = pl__extent_of("workspace", workspace, (int64_t)want, 1);
    return PL_OK;
}

static pl_array of_workspace(const pl_extent *space)
{
    return (pl_array){"workspace", (const void *)space->begin,
                      1,           (int64_t)(space->end - space->begin),
                      1,           PL_ARRAY_OUT,
                      NULL};
}

typedef struct penalise_run {
    const pl_op_penalise_args *args;
    pl_sampler sampler;
    pl_choice choice;
} penalise_run;

static void penalise_unit(void *user, int64_t unit, int worker)
{
    penalise_run *r = user;
    const pl_op_penalise_args *a = r->args;

    if (a->out != a->logits)
        memcpy(a->out, a->logits, (size_t)a->vocab * sizeof *a->out);
    for (int32_t i = 0; i < a->n_bias; i++)
        a->out[a->bias_tokens[i]] = a->out[a->bias_tokens[i]] + a->bias[i];
    for (int32_t i = 0; i < a->n_prompt; i++)
        r->sampler.count[a->prompt[i]] = 0;
    for (int32_t i = 0; i < a->n_output; i++)
        r->sampler.count[a->output[i]] = 0;
    pl__sample_penalise(&r->sampler, &r->choice);
}

static pl_status check_penalties(const pl_op_penalise_args *a, const pl_extent *space,
                                 pl_error *err)
{
    const int64_t last = (int64_t)a->vocab - 1;
    const pl_array arrays[] = {
        {"logits", a->logits, 1, a->vocab, 4, PL_ARRAY_IN, NULL},
        {"bias_tokens", a->bias_tokens, a->n_bias, 1, 4, PL_ARRAY_IN, NULL},
        {"bias", a->bias, a->n_bias, 1, 4, PL_ARRAY_IN, NULL},
        {"prompt", a->prompt, a->n_prompt, 1, 4, PL_ARRAY_IN, NULL},
        {"output", a->output, a->n_output, 1, 4, PL_ARRAY_IN, NULL},
        {"out", a->out, 1, a->vocab, 4, PL_ARRAY_OUT, a->logits},
        of_workspace(space),
    };

    if (a->repetition != 0) /* no denormal: it would count as zero */
        PL_TRY(pl__check_number("repetition", a->repetition, FLT_MIN, err));
    PL_TRY(pl__check_number("frequency", a->frequency, -FLT_MAX, err));
    PL_TRY(pl__check_number("presence", a->presence, -FLT_MAX, err));
    PL_TRY(pl__check_arrays(arrays, 7, err));
    PL_TRY(pl__check_ids("bias_tokens", a->bias_tokens, a->n_bias, 0, last, err));
    for (int32_t i = 0; i < a->n_bias; i++)
        PL_TRY(pl__check_number("bias", a->bias[i], -FLT_MAX, err));
    PL_TRY(pl__check_ids("prompt", a->prompt, a->n_prompt, 0, last, err));
    return pl__check_ids("output", a->output, a->n_output, 0, last, err);
}

pl_status pl_op_penalise(pl_ops_context *context, const pl_op_penalise_args *args, void *workspace,
                         uint64_t workspace_bytes, pl_error *err)
{
    const pl_op_penalise_args *a = args;
    pl_request_params p = pl_request_params_default();
    penalise_run r = {.args = a};
    pl_extent space;
    pl_arena arena;

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(pl__check_range("vocab", a->vocab, 1, MAX_VOCAB, err));
    PL_TRY(pl__check_range("n_bias", a->n_bias, 0, INT32_MAX, err));
    PL_TRY(pl__check_range("n_prompt", a->n_prompt, 0, INT32_MAX, err));
    PL_TRY(pl__check_range("n_output", a->n_output, 0, INT32_MAX, err));
    PL_TRY(check_workspace(a->vocab, workspace, workspace_bytes, &space, err));
    PL_TRY(check_penalties(a, &space, err));
    pl_arena_init(&arena, workspace, space.end - space.begin);
    pl_sampler_layout(&r.sampler, &arena, a->vocab);
    r.sampler.l = a->out;
    p.repetition_penalty = a->repetition > 0 ? a->repetition : 1;
    p.frequency_penalty = a->frequency;
    p.presence_penalty = a->presence;
    p.tokens = a->prompt;
    p.n_tokens = a->n_prompt;
    r.choice = (pl_choice){.params = &p, .eos = -1, .output = a->output, .n_output = a->n_output};
    pl__context_run(context, 1, penalise_unit, &r);
    pl_arena_fini(&arena); /* under ASAN the workspace would stay poisoned for the caller */
    return PL_OK;
}

/* ---- log-softmax */

typedef struct softmax_run {
    const pl_ops *ops;
    int32_t vocab;
    const float *logits;
    float *out;
} softmax_run;

static void softmax_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const softmax_run *r = args;

    for (int64_t row = begin; row < end; row++) {
        const float *l = r->logits + row * r->vocab;
        const pl_logits_summary s = pl_logits_summarise(r->ops, l, r->vocab);

        for (int32_t i = 0; i < r->vocab; i++)
            r->out[row * r->vocab + i] = (l[i] - s.max) - s.log_sum;
    }
}

pl_status pl_op_log_softmax(pl_ops_context *context, int32_t n, int32_t vocab, const float *logits,
                            float *out, pl_error *err)
{
    const pl_array arrays[] = {
        {"logits", logits, n, vocab, 4, PL_ARRAY_IN, NULL},
        {"out", out, n, vocab, 4, PL_ARRAY_OUT, logits},
    };
    softmax_run r;

    PL_TRY(pl__check_start(context, context, err));
    PL_TRY(pl__check_range("n", n, 0, INT32_MAX, err));
    PL_TRY(pl__check_range("vocab", vocab, 1, MAX_VOCAB, err));
    PL_TRY(pl__check_arrays(arrays, 2, err));
    r = (softmax_run){context->ops, vocab, logits, out};
    pl__context_rows(context, n, 64 * (int64_t)vocab, softmax_rows, &r);
    return PL_OK;
}

/* ---- the choice */

typedef struct sample_run {
    const pl_op_sample_args *args;
    pl_sampler sampler;
    pl_choice choice;
} sample_run;

/* What is left of the row after the options, as probabilities: NUMERICS 13. */
static void fill_probabilities(const pl_sampler *s, int32_t n, float *out)
{
    float max = -__builtin_inff();
    double total = 0;

    memset(out, 0, (size_t)s->vocab * sizeof *out);
    for (int32_t i = 0; i < n; i++)
        max = pl_max_f32(s->l[s->cand[i]], max);
    for (int32_t i = 0; i < n; i++) {
        out[s->cand[i]] = n == 1 ? 1 : pl_exp_f32(s->l[s->cand[i]] - max);
        total = total + (double)out[s->cand[i]];
    }
    for (int32_t i = 0; i < n; i++)
        out[s->cand[i]] = (float)((double)out[s->cand[i]] / total);
}

static void sample_unit(void *user, int64_t unit, int worker)
{
    sample_run *r = user;
    pl_sampler *s = &r->sampler;
    const size_t bytes = (size_t)s->vocab * sizeof *s->l;

    memset(s->count, 0, (size_t)s->vocab * sizeof *s->count);
    if (r->args->probabilities) {
        memcpy(s->l, r->args->logits, bytes);
        fill_probabilities(s, pl__sample_candidates(s, &r->choice), r->args->probabilities);
    }
    memcpy(s->l, r->args->logits, bytes);
    *r->args->token = pl_sample(s, &r->choice);
}

static pl_status check_sample(const pl_op_sample_args *a, const pl_extent *space, pl_error *err)
{
    const int64_t words = ((int64_t)a->vocab + 31) / 32;
    const pl_array arrays[] = {
        {"logits", a->logits, 1, a->vocab, 4, PL_ARRAY_IN, NULL},
        {"allowed", a->allowed, 1, words, 4, PL_ARRAY_OPTIONAL, NULL},
        {"token", a->token, 1, 1, 4, PL_ARRAY_OUT, NULL},
        {"probabilities", a->probabilities, 1, a->vocab, 4, PL_ARRAY_OUT_OPTIONAL, NULL},
        of_workspace(space),
    };

    return pl__check_arrays(arrays, 5, err);
}

pl_status pl_op_sample(pl_ops_context *context, const pl_op_sample_args *args, void *workspace,
                       uint64_t workspace_bytes, pl_error *err)
{
    const pl_op_sample_args *a = args;
    pl_request_params p = pl_request_params_default();
    sample_run r = {.args = a};
    pl_extent space;
    pl_arena arena;

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(pl__check_range("vocab", a->vocab, 1, MAX_VOCAB, err));
    PL_TRY(check_workspace(a->vocab, workspace, workspace_bytes, &space, err));
    PL_TRY(check_sample(a, &space, err));
    p.temperature = a->temperature;
    p.top_k = a->top_k;
    p.top_p = a->top_p;
    p.min_p = a->min_p;
    p.allowed = a->allowed;
    PL_TRY(pl_sampling_check(&p, a->vocab, -1, err));
    pl_arena_init(&arena, workspace, space.end - space.begin);
    pl_sampler_layout(&r.sampler, &arena, a->vocab);
    r.choice = (pl_choice){
        .params = &p, .eos = -1, .noise = {a->seed, a->position, a->choice, PL_PURPOSE_TOKEN}};
    pl__context_run(context, 1, sample_unit, &r);
    pl_arena_fini(&arena); /* as above */
    return PL_OK;
}
