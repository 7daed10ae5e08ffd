/* The depth of speculation on machines whose costs and models whose drafts are known: it comes to the best depth, trying
 * costs little, and it follows when either changes. */
#include "engine/depth.h"
#include "support/check.h"

/* A step of n requests with k drafts takes fixed + n * (1 + k) * token + k * draft seconds; each draft is accepted with
 * chance `chance` where the one before was. */
typedef struct world {
    double fixed, token, draft, chance;
    uint32_t random;
    int32_t last; /* depth of the step before */
} world;

static double uniform(world *w)
{
    w->random = w->random * 1664525u + 1013904223u;
    return (double)(w->random >> 8) / (1 << 24);
}

static double seconds_of(const world *w, int32_t n, int32_t k)
{
    return w->fixed + n * (1 + k) * w->token + k * w->draft;
}

static double tokens_of(const world *w, int32_t k)
{
    double sum = 1, a = 1;

    for (int32_t i = 0; i < k; i++)
        sum += a *= w->chance;
    return sum;
}

static double rate_of(const world *w, int32_t n, int32_t k)
{
    return n * tokens_of(w, k) / seconds_of(w, n, k);
}

static double best_rate(const world *w, int32_t n, int32_t most)
{
    double best = 0;

    for (int32_t k = 0; k <= most; k++)
        best = rate_of(w, n, k) > best ? rate_of(w, n, k) : best;
    return best;
}

/* One step as the engine runs it. Returns its expected tokens and adds its seconds. */
static double step(pl_depth *d, world *w, int32_t n, double *seconds)
{
    const int32_t k = w->last;
    double took = seconds_of(w, n, k) * (0.95 + 0.1 * uniform(w));

    if (uniform(w) < 0.01)
        took *= 10; /* the machine did something else */
    for (int32_t r = 0; r < n; r++) {
        int32_t accepted = 0;
        while (accepted < k && uniform(w) < w->chance)
            accepted++;
        pl_depth_note_drafts(d, k, accepted);
    }
    w->last = pl_depth_choose(d, n);
    if (w->last == k)
        pl_depth_note_step(d, n, k, took);
    *seconds += seconds_of(w, n, k);
    return n * tokens_of(w, k);
}

static double rate_over(pl_depth *d, world *w, int32_t n, int steps)
{
    double seconds = 0, tokens = 0;

    for (int i = 0; i < steps; i++)
        tokens += step(d, w, n, &seconds);
    return tokens / seconds;
}

static const world worlds[] = {
    {1, 0.02, 0.02, 0.8, 1, 0},  /* drafts nearly free: deep */
    {1, 0.3, 0.05, 0.7, 2, 0},   /* one or two */
    {0.1, 1, 0.1, 0.9, 3, 0},    /* each token costs: none */
    {1, 0.05, 0.01, 0.05, 4, 0}, /* nothing is accepted */
    {1, 0.05, 0.01, 1, 5, 0},    /* everything is */
};

static void comes_to_the_best(void **unused)
{
    static const int32_t sizes[] = {1, 7, 64};

    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            const int32_t n = sizes[s];
            world w = worlds[i];
            pl_depth d;
            double best;

            pl_depth_init(&d, 8);
            (void)rate_over(&d, &w, n, 200);
            best = best_rate(&w, n, 8);
            assert_true(rate_over(&d, &w, n, 1000) > 0.9 * best);
        }
}

static void trying_costs_little(void **unused)
{
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        world w = worlds[i];
        pl_depth d;

        pl_depth_init(&d, 8);
        assert_true(rate_over(&d, &w, 1, 500) > 0.88 * best_rate(&w, 1, 8));
    }
}

static void follows_a_change(void **unused)
{
    world w = worlds[0];
    pl_depth d;

    pl_depth_init(&d, 8);
    (void)rate_over(&d, &w, 1, 3000);
    assert_true(w.last > 4);
    w.chance = 0.1;
    (void)rate_over(&d, &w, 1, 1500);
    assert_true(rate_over(&d, &w, 1, 1000) > 0.9 * best_rate(&w, 1, 8));
    w.chance = 0.9;
    (void)rate_over(&d, &w, 1, 4000);
    assert_true(rate_over(&d, &w, 1, 1000) > 0.9 * best_rate(&w, 1, 8));
}

/* A number of requests that was not seen has costs of its own. */
static void batches_are_apart(void **unused)
{
    world w = {1, 0.2, 0.01, 0.75, 9, 0};
    pl_depth d;

    pl_depth_init(&d, 8);
    (void)rate_over(&d, &w, 1, 300);
    assert_true(rate_over(&d, &w, 1, 300) > 0.9 * best_rate(&w, 1, 8));
    (void)rate_over(&d, &w, 32, 300);
    assert_true(rate_over(&d, &w, 32, 300) > 0.9 * best_rate(&w, 32, 8));
    assert_true(rate_over(&d, &w, 1, 300) > 0.9 * best_rate(&w, 1, 8));
}

/* Where prompts run beside every step nothing is learnt of costs; drafts are then neither given up nor without bound. */
static void without_samples(void **unused)
{
    pl_depth d;

    pl_depth_init(&d, 4);
    for (int i = 0; i < 1000; i++) {
        const int32_t k = pl_depth_choose(&d, 3);
        assert_true(k >= 0 && k <= 4);
    }
    assert_int_equal(pl_depth_choose(&d, 3), 1);
    pl_depth_init(&d, 0);
    assert_int_equal(pl_depth_choose(&d, 1), 0);
}

/* Expected tokens fall behind no draft and never rise by more than one a draft. */
static void tokens_are_sound(void **unused)
{
    pl_depth d;

    pl_depth_init(&d, 8);
    for (int i = 0; i < 500; i++)
        pl_depth_note_drafts(&d, 3, i % 4);
    assert_true(pl_depth_tokens(&d, 0) == 1);
    for (int32_t k = 1; k <= 8; k++) {
        const double more = pl_depth_tokens(&d, k) - pl_depth_tokens(&d, k - 1);
        assert_true(more >= 0 && more <= 1);
    }
    assert_true(pl_depth_tokens(&d, 3) > 2.4 &&
                pl_depth_tokens(&d, 3) < 2.6); /* 1 + 3/4 + 2/4 + 1/4 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_to_the_best), cmocka_unit_test(trying_costs_little),
        cmocka_unit_test(follows_a_change),  cmocka_unit_test(batches_are_apart),
        cmocka_unit_test(without_samples),   cmocka_unit_test(tokens_are_sound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
