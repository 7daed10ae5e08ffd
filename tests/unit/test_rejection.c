/* Rejection sampling: tokens are distributed as the processed logits of the target say, whatever the drafts were drawn
 * from, and drafts are accepted as often as the two distributions overlap. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpenv.h"
#include "base/math.h"
#include "engine/rejection.h"
#include "support/check.h"

enum { VOCAB = 24, DRAWS = 40000, N_OPTIONS = 6 };

struct bench {
    pl_sampler sampler;
    void *memory;
    float target[VOCAB], drafter[VOCAB], q[VOCAB];
    double p[VOCAB];
    int32_t n_p; /* above 0 */
    pl_request_params params;
    pl_choice choice;
    int32_t prompt[3], output[4];
    uint32_t allowed[1];
};

static uint32_t random_state = 5;

static float uniform(float low, float high)
{
    random_state = random_state * 1664525u + 1013904223u;
    return low + (high - low) * ((float)(random_state >> 8) * 0x1p-24f);
}

static struct bench *bench_create(void)
{
    struct bench *b = calloc(1, sizeof *b);
    pl_arena arena;
    size_t n;

    assert_non_null(b);
    pl_arena_init_dry(&arena);
    pl_sampler_layout(&b->sampler, &arena, VOCAB);
    n = pl_arena_peak_bytes(&arena);
    b->memory = aligned_alloc(64, n);
    assert_non_null(b->memory);
    memset(b->memory, 0, n);
    pl_arena_init(&arena, b->memory, n);
    pl_sampler_layout(&b->sampler, &arena, VOCAB);
    b->params = pl_request_params_default();
    b->params.temperature = 1;
    b->params.tokens = b->prompt;
    b->params.n_tokens = 3;
    b->choice = (pl_choice){.params = &b->params, .eos = -1, .output = b->output, .n_output = 4};
    for (int i = 0; i < VOCAB; i++) {
        b->target[i] = uniform(-2, 2);
        b->drafter[i] = b->target[i] + uniform(-2, 2);
    }
    return b;
}

static void bench_free(struct bench *b)
{
    free(b->memory);
    free(b);
}

static void set_options(struct bench *b, int which)
{
    if (which == 1)
        b->params.temperature = 0.6f;
    if (which == 2)
        b->params.top_k = 5;
    if (which == 3)
        b->params.top_p = 0.8f;
    if (which == 4) {
        b->params.repetition_penalty = 1.5f;
        b->params.presence_penalty = 0.5f;
        b->prompt[0] = 3;
        b->output[1] = 7;
        b->params.min_p = 0.05f;
    }
    if (which == 5) {
        b->allowed[0] = 0x00F0F1u;
        b->params.allowed = b->allowed;
        b->params.temperature = 2;
    }
}

/* Softmax of what the options leave of a row. Returns how many are above 0. */
static int32_t probabilities(struct bench *b, const float *row, double *p)
{
    int32_t n;
    double sum = 0;

    memcpy(b->sampler.l, row, sizeof b->target);
    n = pl__sample_candidates(&b->sampler, &b->choice);
    memset(p, 0, VOCAB * sizeof *p);
    for (int32_t i = 0; i < n; i++)
        sum += p[b->sampler.cand[i]] = exp((double)b->sampler.l[b->sampler.cand[i]]);
    for (int32_t i = 0; i < VOCAB; i++)
        p[i] /= sum;
    return n;
}

/* Draft and token of a position. */
static int32_t draw(struct bench *b, uint32_t position, int32_t *draft)
{
    b->choice.noise.position = position;
    memcpy(b->sampler.l, b->drafter, sizeof b->drafter);
    *draft = pl_rejection_draft(&b->sampler, &b->choice, b->q);
    memcpy(b->sampler.l, b->target, sizeof b->target);
    return pl_rejection_choose(&b->sampler, &b->choice, b->q, *draft);
}

static double chi_square(const int32_t *counts, const double *p)
{
    double sum = 0;

    for (int i = 0; i < VOCAB; i++) {
        const double want = p[i] * DRAWS;

        if (want > 0)
            sum += (counts[i] - want) * (counts[i] - want) / want;
        else
            assert_int_equal(counts[i], 0);
    }
    return sum;
}

/* Above the 0.9999 quantile for any number of candidates here: mean n - 1, variance 2 (n - 1). */
static double limit(int32_t n)
{
    return n - 1 + 4.5 * sqrt(2.0 * (n - 1)) + 5;
}

static void test_distribution(void **state)
{
    for (int which = 0; which < N_OPTIONS; which++) {
        struct bench *b = bench_create();
        int32_t counts[VOCAB] = {0}, drafts[VOCAB] = {0}, n_accepted = 0, n_q;
        double q[VOCAB], overlap = 0, error;
        pl_fpenv saved;

        set_options(b, which);
        saved = pl_fpenv_begin();
        b->n_p = probabilities(b, b->target, b->p);
        n_q = probabilities(b, b->drafter, q);
        for (uint32_t i = 0; i < DRAWS; i++) {
            int32_t draft, token;

            b->choice.noise.seed = i / 100;
            token = draw(b, i % 100, &draft);
            assert_in_range(token, 0, VOCAB - 1);
            counts[token]++;
            drafts[draft]++;
            n_accepted += token == draft;
        }
        pl_fpenv_end(saved);
        assert_true(b->n_p >= 3);
        assert_true(chi_square(counts, b->p) < limit(b->n_p));
        assert_true(chi_square(drafts, q) < limit(n_q));
        for (int i = 0; i < VOCAB; i++) {
            overlap += b->p[i] < q[i] ? b->p[i] : q[i];
            assert_true(fabs((double)b->q[i] - q[i]) < 1e-6);
        }
        /* The test could tell: the drafts alone are distributed otherwise. */
        if (n_q <= b->n_p && which != 2 && which != 3)
            assert_true(chi_square(drafts, b->p) > 10 * limit(b->n_p));
        error = 4.5 * sqrt(overlap * (1 - overlap) / DRAWS);
        assert_true(fabs((double)n_accepted / DRAWS - overlap) < error + 1e-4);
        assert_true(overlap > 0.05 && overlap < 0.95);
        bench_free(b);
    }
}

/* Equal distributions accept every draft; disjoint ones none, and the token is then one of the target's. */
static void test_extremes(void **state)
{
    struct bench *b = bench_create();
    const pl_fpenv saved = pl_fpenv_begin();

    memcpy(b->drafter, b->target, sizeof b->target);
    for (uint32_t i = 0; i < 2000; i++) {
        int32_t draft, token = draw(b, i, &draft);
        assert_int_equal(token, draft);
    }
    for (int i = 0; i < VOCAB; i++) {
        b->target[i] = i < 8 ? 0 : -400;
        b->drafter[i] = i < 8 ? -400 : 0;
    }
    for (uint32_t i = 0; i < 2000; i++) {
        int32_t draft, token = draw(b, i, &draft);
        assert_true(draft >= 8 && token >= 0 && token < 8);
    }
    pl_fpenv_end(saved);
    bench_free(b);
}

/* One candidate that the draft is not; and what a draft that was not drawn (all of q at one token) comes to. */
static void test_single_candidates(void **state)
{
    struct bench *b = bench_create();
    const pl_fpenv saved = pl_fpenv_begin();
    int32_t n = 0;

    b->params.top_k = 1;
    probabilities(b, b->target, b->p);
    for (uint32_t i = 0; i < 200; i++) {
        int32_t draft, token = draw(b, i, &draft);
        assert_true(b->p[token] == 1);
    }
    b->params.top_k = 0;
    b->choice.params = &b->params;
    probabilities(b, b->target, b->p);
    memset(b->q, 0, sizeof b->q);
    b->q[6] = 1;
    for (uint32_t i = 0; i < DRAWS; i++) {
        b->choice.noise.position = i;
        memcpy(b->sampler.l, b->target, sizeof b->target);
        n += pl_rejection_choose(&b->sampler, &b->choice, b->q, 6) == 6;
    }
    assert_true(fabs((double)n / DRAWS - b->p[6]) < 4.5 * sqrt(b->p[6] / DRAWS));
    pl_fpenv_end(saved);
    bench_free(b);
}

static void no_token(void *user, const int32_t *output, int32_t n_output, uint32_t *mask)
{
    mask[0] = 0;
}

static void test_masks_that_leave_nothing(void **state)
{
    struct bench *b = bench_create();
    const pl_fpenv saved = pl_fpenv_begin();

    b->params.mask = no_token;
    b->q[3] = 5;
    memcpy(b->sampler.l, b->drafter, sizeof b->drafter);
    assert_int_equal(pl_rejection_draft(&b->sampler, &b->choice, b->q), -1);
    assert_true(b->q[3] == 0);
    memcpy(b->sampler.l, b->target, sizeof b->target);
    assert_int_equal(pl_rejection_choose(&b->sampler, &b->choice, b->q, 3), -1);
    pl_fpenv_end(saved);
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_single_candidates),
        cmocka_unit_test(test_masks_that_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
