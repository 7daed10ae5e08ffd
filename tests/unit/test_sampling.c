/* Choosing tokens: against a plain implementation of docs/NUMERICS.md 13 that sorts everything, and against the
 * distribution that the processed logits stand for. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpenv.h"
#include "base/math.h"
#include "engine/logits.h"
#include "engine/sampling.h"
#include "support/check.h"

enum { VOCAB = 3000, SMALL_VOCAB = 70, MAX_WORDS = VOCAB / 32 + 1 };

static uint64_t random_state;

static uint32_t next_random(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static float uniform(float low, float high)
{
    return low + (high - low) * ((float)(next_random() >> 8) * 0x1p-24f);
}

struct bench {
    pl_sampler sampler;
    void *memory;
    float logits[VOCAB];
    pl_request_params params;
    pl_choice choice;
    int32_t prompt[8], output[8], stops[3];
    pl_logit_bias bias[4];
    uint32_t allowed[MAX_WORDS];
};

static struct bench *bench_create(int32_t vocab)
{
    struct bench *b = calloc(1, sizeof *b);
    pl_arena arena;
    size_t n;

    assert_non_null(b);
    pl_arena_init_dry(&arena);
    pl_sampler_layout(&b->sampler, &arena, vocab);
    n = pl_arena_peak_bytes(&arena);
    b->memory = aligned_alloc(64, n);
    assert_non_null(b->memory);
    memset(b->memory, 0, n);
    pl_arena_init(&arena, b->memory, n);
    pl_sampler_layout(&b->sampler, &arena, vocab);
    check_ok(pl_arena_check(&arena, "sampler", NULL), NULL);
    b->params = pl_request_params_default();
    b->choice = (pl_choice){.params = &b->params, .eos = -1};
    return b;
}

static void bench_free(struct bench *b)
{
    free(b->memory);
    free(b);
}

static __attribute__((noinline)) int32_t choose(struct bench *b)
{
    memcpy(b->sampler.l, b->logits, (size_t)b->sampler.vocab * sizeof b->logits[0]);
    return pl_sample(&b->sampler, &b->choice);
}

static int32_t draw(struct bench *b, uint64_t seed)
{
    pl_fpenv saved = pl_fpenv_begin();
    int32_t id;

    b->choice.noise.seed = seed;
    id = choose(b);
    pl_fpenv_end(saved);
    return id;
}

/* ---- the plain implementation */

struct entry {
    float l;
    int32_t id;
};

static int by_order(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return pl_logit_before(x->l, x->id, y->l, y->id) ? -1 : 1;
}

static int count_of(const int32_t *ids, int n, int32_t id)
{
    int c = 0;

    for (int i = 0; i < n; i++)
        c += ids[i] == id;
    return c;
}

static float processed(const struct bench *b, int32_t id)
{
    const pl_request_params *p = &b->params;
    int in_output = count_of(b->choice.output, b->choice.n_output, id);
    float l = b->logits[id];

    for (int i = 0; i < p->n_logit_bias; i++)
        if (p->logit_bias[i].token == id)
            l = l + p->logit_bias[i].bias;
    if (p->repetition_penalty != 1 && (in_output || count_of(p->tokens, p->n_tokens, id)))
        l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
    if (p->frequency_penalty != 0)
        l = l - p->frequency_penalty * (float)in_output;
    if (p->presence_penalty != 0 && in_output)
        l = l - p->presence_penalty;
    return l;
}

static bool is_candidate(const struct bench *b, int32_t id)
{
    const pl_request_params *p = &b->params;

    if (p->allowed && !(p->allowed[id / 32] >> id % 32 & 1))
        return false;
    return b->choice.n_output >= p->min_tokens ||
           (id != b->choice.eos && !count_of(p->stop_ids, p->n_stop_ids, id));
}

/* The candidates after step 9, first to last; their number. */
static int plain_candidates(const struct bench *b, struct entry *e)
{
    const pl_request_params *p = &b->params;
    static double mass[VOCAB];
    double z = 0, c = 0;
    float max;
    int n = 0, kept;

    for (int32_t id = 0; id < b->sampler.vocab; id++)
        if (is_candidate(b, id))
            e[n++] = (struct entry){processed(b, id), id};
    if (p->temperature == 0) {
        qsort(e, (size_t)n, sizeof *e, by_order);
        return 1;
    }
    for (int i = 0; i < n; i++)
        e[i].l = e[i].l / p->temperature;
    qsort(e, (size_t)n, sizeof *e, by_order);
    if (p->top_k && p->top_k < n)
        n = p->top_k;
    max = e[0].l;
    for (kept = 1; p->min_p > 0 && kept < n && pl_exp_f32(e[kept].l - max) >= p->min_p;)
        kept++;
    n = p->min_p > 0 ? kept : n;
    if (p->top_p >= 1)
        return n;
    for (int32_t id = 0; id < b->sampler.vocab; id++)
        mass[id] = 0;
    for (int i = 0; i < n; i++)
        mass[e[i].id] = (double)pl_exp_f32(e[i].l - max);
    for (int32_t first = 0; first < VOCAB; first += 1280) {
        double sum = 0;
        for (int32_t id = first; id < b->sampler.vocab && id < first + 1280; id++)
            sum += mass[id];
        z += sum;
    }
    for (kept = 0; kept < n && (kept == 0 || c < (double)p->top_p * z); kept++)
        c += mass[e[kept].id];
    return kept;
}

static int32_t plain_sample(const struct bench *b)
{
    struct entry *e = malloc(VOCAB * sizeof *e);
    int n = plain_candidates(b, e);
    int32_t id;

    if (n > 1) {
        for (int i = 0; i < n; i++)
            e[i].l = e[i].l + pl_gumbel(&b->choice.noise, (uint32_t)e[i].id);
        qsort(e, (size_t)n, sizeof *e, by_order);
    }
    id = e[0].id;
    free(e);
    return id;
}

static void random_options(struct bench *b)
{
    pl_request_params *p = &b->params;

    *p = pl_request_params_default();
    p->temperature = next_random() % 4 ? uniform(0.1f, 3) : 0;
    p->top_k = next_random() % 2 ? 1 + (int32_t)(next_random() % 200) : 0;
    p->top_p = next_random() % 2 ? uniform(0.01f, 1) : 1;
    p->min_p = next_random() % 2 ? uniform(0, 0.3f) : 0;
    p->repetition_penalty = next_random() % 2 ? uniform(0.5f, 2) : 1;
    p->frequency_penalty = next_random() % 2 ? uniform(-1, 1) : 0;
    p->presence_penalty = next_random() % 2 ? uniform(-1, 1) : 0;
    p->n_tokens = 1 + (int32_t)(next_random() % 8);
    b->choice.n_output = (int32_t)(next_random() % 9);
    for (int i = 0; i < 8; i++) {
        b->prompt[i] = (int32_t)(next_random() % 20);
        b->output[i] = (int32_t)(next_random() % 20);
    }
    p->tokens = b->prompt;
    b->choice.output = b->output;
    p->n_logit_bias = (int32_t)(next_random() % 5);
    for (int i = 0; i < 4; i++)
        b->bias[i] = (pl_logit_bias){(int32_t)(next_random() % 6), uniform(-5, 5)};
    p->logit_bias = b->bias;
    p->n_stop_ids = (int32_t)(next_random() % 4);
    for (int i = 0; i < 3; i++)
        b->stops[i] = (int32_t)(next_random() % 6);
    p->stop_ids = b->stops;
    p->min_tokens = (int32_t)(next_random() % 9);
    b->choice.eos = next_random() % 2 ? 3 : -1;
    if (next_random() % 2) {
        for (int i = 0; i < MAX_WORDS; i++)
            b->allowed[i] = next_random();
        p->allowed = b->allowed;
    }
    b->choice.noise = (pl_noise){next_random(), next_random() % 1000, next_random() % 3, 0};
}

/* Few different values make ties; some are NaN or infinite. */
static void random_logits(struct bench *b)
{
    uint32_t steps = 1 + next_random() % 40, strange = next_random() % 3 == 0;

    for (int32_t id = 0; id < VOCAB; id++) {
        b->logits[id] = steps < 20 ? (float)(next_random() % steps) : uniform(-8, 8);
        if (strange && next_random() % 50 == 0)
            b->logits[id] = next_random() % 2 ? NAN : -INFINITY;
    }
}

static __attribute__((noinline)) void compare_once(struct bench *b, int round)
{
    int32_t want = plain_sample(b), got = choose(b);

    if (got != want)
        fail_msg("round %d: got token %d, want %d", round, got, want);
}

static void test_equals_the_plain_implementation(void **state)
{
    struct bench *b = bench_create(VOCAB);
    pl_error err;

    random_state = 1;
    for (int round = 0; round < 400; round++) {
        random_options(b);
        random_logits(b);
        check_ok(pl_sampling_check(&b->params, VOCAB, b->choice.eos, &err), &err);
        pl_fpenv saved = pl_fpenv_begin();
        compare_once(b, round);
        pl_fpenv_end(saved);
    }
    bench_free(b);
}

/* ---- the distribution */

enum { DRAWS = 200000 };

static __attribute__((noinline)) int true_weights(struct bench *b, double *weight)
{
    static struct entry e[VOCAB];
    int n = plain_candidates(b, e);
    double sum = 0;

    for (int i = 0; i < b->sampler.vocab; i++)
        weight[i] = 0;
    for (int i = 0; i < n; i++)
        sum += weight[e[i].id] = exp((double)e[i].l - (double)e[0].l);
    for (int i = 0; i < b->sampler.vocab; i++)
        weight[i] /= sum;
    return n;
}

/* Chi-square over cells of at least 20 expected draws, the rest in one. Its mean is the degrees of freedom d and
 * its deviation sqrt(2 d): 6 deviations away is a wrong distribution, not chance; seeds are fixed. */
static void check_distribution(struct bench *b, const char *what)
{
    static double weight[VOCAB];
    static uint32_t seen[VOCAB];
    double chi = 0, rest = 0, rest_seen = 0;
    int cells = 0;

    memset(seen, 0, sizeof seen);
    (void)true_weights(b, weight);
    for (int i = 0; i < DRAWS; i++)
        seen[draw(b, (uint64_t)i * 0x9E3779B97F4A7C15u)]++;
    for (int32_t id = 0; id < b->sampler.vocab; id++) {
        double expected = weight[id] * DRAWS;
        if (weight[id] == 0 && seen[id])
            fail_msg("%s: token %d was drawn and is no candidate", what, id);
        if (expected < 20) {
            rest += expected;
            rest_seen += seen[id];
            continue;
        }
        chi += (seen[id] - expected) * (seen[id] - expected) / expected;
        cells++;
    }
    if (rest > 0) {
        chi += (rest_seen - rest) * (rest_seen - rest) / rest;
        cells++;
    }
    print_message("%s: chi-square %.1f over %d cells\n", what, chi, cells);
    if (chi > cells + 6 * sqrt(2.0 * cells))
        fail_msg("%s: chi-square is %.1f over %d cells", what, chi, cells);
}

static void test_distributions(void **state)
{
    static const struct {
        const char *what;
        float temperature, top_p, min_p;
        int32_t top_k;
    } cases[] = {
        {"temperature 1", 1, 1, 0, 0},     {"temperature 0.6", 0.6f, 1, 0, 0},
        {"top-k 20", 1, 1, 0, 20},         {"top-p 0.8", 1, 0.8f, 0, 0},
        {"min-p 0.05", 1.5f, 1, 0.05f, 0}, {"all of them", 1.2f, 0.9f, 0.02f, 40},
    };
    struct bench *b = bench_create(SMALL_VOCAB);

    random_state = 7;
    for (int32_t id = 0; id < b->sampler.vocab; id++)
        b->logits[id] = id < 60 ? uniform(-2, 3) : -30;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        b->params.temperature = cases[i].temperature;
        b->params.top_p = cases[i].top_p;
        b->params.min_p = cases[i].min_p;
        b->params.top_k = cases[i].top_k;
        check_distribution(b, cases[i].what);
    }
    bench_free(b);
}

/* ---- single cases */

static void test_ties_go_to_the_lower_id(void **state)
{
    struct bench *b = bench_create(VOCAB);

    for (int32_t id = 0; id < VOCAB; id++)
        b->logits[id] = 1;
    b->logits[17] = b->logits[1700] = 2;
    assert_int_equal(draw(b, 0), 17);
    for (int32_t id = 0; id < VOCAB; id++)
        b->logits[id] = NAN;
    assert_int_equal(draw(b, 0), 0);
    b->logits[9] = -INFINITY; /* as good as a NaN, and later */
    assert_int_equal(draw(b, 0), 0);
    b->logits[11] = -FLT_MAX;
    assert_int_equal(draw(b, 0), 11);
    b->params.temperature = 1;
    b->params.top_k = 1;
    b->logits[20] = b->logits[10] = 5;
    assert_int_equal(draw(b, 3), 10);
    bench_free(b);
}

static void test_seed_position_and_choice_matter(void **state)
{
    struct bench *b = bench_create(VOCAB);
    int differ[3] = {0};

    random_state = 3;
    for (int32_t id = 0; id < VOCAB; id++)
        b->logits[id] = uniform(-1, 1);
    b->params.temperature = 1;
    for (uint32_t i = 1; i <= 50; i++) {
        int32_t base;

        b->choice.noise = (pl_noise){0};
        base = draw(b, 5);
        assert_int_equal(draw(b, 5), base);
        differ[0] += draw(b, 5 + i) != base;
        b->choice.noise.position = i;
        differ[1] += draw(b, 5) != base;
        b->choice.noise.position = 0;
        b->choice.noise.choice = i;
        differ[2] += draw(b, 5) != base;
    }
    for (int i = 0; i < 3; i++)
        assert_true(differ[i] > 40);
    bench_free(b);
}

static void test_options_are_checked(void **state)
{
    pl_request_params p = pl_request_params_default();
    const int32_t stop[] = {0, 1, 2, 3}, bad[] = {4};
    const uint32_t none[] = {0}, two[] = {1u << 2};
    pl_error err;

#define REFUSED(field, value, name)                                                       \
    do {                                                                                  \
        pl_request_params q = p;                                                          \
        q.field = (value);                                                                \
        check_error(pl_sampling_check(&q, 4, 3, &err), PL_ERR_INVALID, &err, name, NULL); \
    } while (0)
    check_ok(pl_sampling_check(&p, 4, 3, &err), &err);
    REFUSED(temperature, -1, "temperature");
    REFUSED(temperature, NAN, "temperature");
    REFUSED(temperature, INFINITY, "temperature");
    REFUSED(top_p, 0, "top_p");
    REFUSED(top_p, 1.5f, "top_p");
    REFUSED(min_p, -0.5f, "min_p");
    REFUSED(min_p, 2, "min_p");
    REFUSED(top_k, -1, "top_k");
    REFUSED(repetition_penalty, 0, "repetition_penalty");
    REFUSED(frequency_penalty, NAN, "frequency_penalty");
    REFUSED(presence_penalty, INFINITY, "presence_penalty");
    REFUSED(allowed, none, "allowed");
    p.stop_ids = bad;
    REFUSED(n_stop_ids, 1, "stop_ids");
    p.stop_ids = stop;
    p.n_stop_ids = 4;
    check_ok(pl_sampling_check(&p, 4, 3, &err), &err);
    REFUSED(min_tokens, 1, "min_tokens");
    p.n_stop_ids = 1;
    p.min_tokens = 1;
    p.allowed = two;
    check_ok(pl_sampling_check(&p, 4, 3, &err), &err);
    p.logit_bias = &(pl_logit_bias){4, 0};
    REFUSED(n_logit_bias, 1, "logit_bias");
    p.logit_bias = &(pl_logit_bias){0, NAN};
    REFUSED(n_logit_bias, 1, "logit_bias");
#undef REFUSED
}

/* ---- rows of logits */

static __attribute__((noinline)) void check_row(const float *l, int32_t n, int32_t best)
{
    pl_logits_summary s;
    double max = -INFINITY, sum = 0;

    s = pl_logits_summarise(pl_ops_scalar(), l, n);
    assert_int_equal(s.best, best);
    assert_int_equal(pl_logits_best(pl_ops_scalar(), l, n), best);
    for (int32_t i = 0; i < n; i++)
        max = l[i] > max ? (double)l[i] : max;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)l[i] - max);
    for (int32_t i = 0; i < n; i += 7) {
        double want = (double)l[i] - max - log(sum);
        double got = (double)pl_logits_logprob(pl_ops_scalar(), l, &s, i);
        if (fabs(got - want) > 4e-6 + 1e-6 * fabs(want))
            fail_msg("logprob of id %d of %d: got %.9g, want %.9g", i, n, got, want);
    }
}

static void test_log_softmax(void **state)
{
    static float l[5000];
    static const int32_t sizes[] = {1, 2, 1279, 1280, 1281, 2560, 5000};

    random_state = 11;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        pl_fpenv saved;
        int32_t best = 0;
        for (int32_t i = 0; i < sizes[k]; i++) {
            l[i] = uniform(-20, 20);
            best = l[i] > l[best] ? i : best;
        }
        saved = pl_fpenv_begin();
        check_row(l, sizes[k], best);
        pl_fpenv_end(saved);
    }
}

/* Bits of every logit count, those of a NaN as one; rows follow each other. */
static void test_digest_covers_all_bits(void **state)
{
    static float l[2000];
    XXH3_state_t a;
    XXH128_hash_t whole, again;

    for (int i = 0; i < 2000; i++)
        l[i] = (float)i;
    whole = XXH3_128bits(l, sizeof l);
    (void)XXH3_128bits_reset(&a);
    pl_logits_digest(pl_ops_scalar(), l, 1500, &a);
    pl_logits_digest(pl_ops_scalar(), l + 1500, 500, &a);
    again = XXH3_128bits_digest(&a);
    assert_true(XXH128_isEqual(whole, again));
    for (int i = 0; i < 2000; i += 333) {
        float before = l[i];
        l[i] = pl_f32_from_bits(pl_f32_bits(before) ^ 1);
        (void)XXH3_128bits_reset(&a);
        pl_logits_digest(pl_ops_scalar(), l, 2000, &a);
        assert_false(XXH128_isEqual(whole, XXH3_128bits_digest(&a)));
        l[i] = before;
    }
    l[5] = pl_f32_from_bits(0xFFC12345);
    (void)XXH3_128bits_reset(&a);
    pl_logits_digest(pl_ops_scalar(), l, 2000, &a);
    l[5] = pl_f32_from_bits(0x7FC00000);
    assert_true(XXH128_isEqual(XXH3_128bits(l, sizeof l), XXH3_128bits_digest(&a)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_the_plain_implementation),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_ties_go_to_the_lower_id),
        cmocka_unit_test(test_seed_position_and_choice_matter),
        cmocka_unit_test(test_options_are_checked),
        cmocka_unit_test(test_log_softmax),
        cmocka_unit_test(test_digest_covers_all_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
