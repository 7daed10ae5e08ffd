/* Elementary functions against long double: error bounds over every bf16 and a stride through all
 * floats, special arguments, and the same bits with and without FTZ and DAZ. */
#include <math.h>
#include <stdbool.h>

#include "base/math.h"
#include "support/check.h"
#include "support/fpmode.h"

static long double sigmoid_exact(long double x)
{
    return 1 / (1 + expl(-x));
}

static long double softplus_exact(long double x)
{
    return x > 20 ? x : x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x));
}

/* Bounds in units of the last place; the measured maxima are in docs/NUMERICS.md 6. Arguments outside
 * lo .. hi give a constant, checked below. */
static const struct function {
    const char *name;
    float (*f32)(float);
    double (*f64)(double);
    long double (*exact)(long double);
    float lo, hi;
    double bound32, bound64;
} functions[] = {
    {"exp", pl_exp_f32, pl_exp_f64, expl, -0x1.5d589ep+6f, 0x1.62e42ep+6f, 1.0, 1.0},
    {"log", pl_log_f32, pl_log_f64, logl, 0x1p-126f, 0x1.fffffep+127f, 1.0, 1.25},
    {"sigmoid", pl_sigmoid_f32, pl_sigmoid_f64, sigmoid_exact, -87, 200, 2.5, 2.5},
    {"softplus", pl_softplus_f32, pl_softplus_f64, softplus_exact, -87, 0x1.fffffep+127f, 2.0, 2.0},
    {"tanh", pl_tanh_f32, pl_tanh_f64, tanhl, -0x1.fffffep+127f, 0x1.fffffep+127f, 1.5, 1024},
};

enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

static double ulps(long double got, long double want, int digits, int min_exponent)
{
    int e;

    if (got == want)
        return 0;
    frexpl(want, &e);
    e = e > min_exponent ? e : min_exponent;
    return (double)(fabsl(got - want) / ldexpl(1, e - digits));
}

static void check_f32(const struct function *f, float x)
{
    float got = f->f32(x);
    double error = ulps((long double)got, f->exact((long double)x), 24, -125);

    if (!(error <= f->bound32))
        fail_msg("%s(%a) = %a, want %La: %.3f units of the last place", f->name, (double)x,
                 (double)got, f->exact((long double)x), error);
}

static bool in_domain(const struct function *f, float x)
{
    return x >= f->lo && x <= f->hi && (pl_f32_bits(x) & 0x7F800000) != 0;
}

static void errors_stay_below_their_bounds(void **state)
{
    if (!long_double_is_wide())
        skip();
    for (int i = 0; i < N_FUNCTIONS; i++) {
        const struct function *f = &functions[i];
        for (uint32_t b = 0; b < 65536; b++)
            if (in_domain(f, pl_f32_from_bits(b << 16)))
                check_f32(f, pl_f32_from_bits(b << 16));
        for (uint64_t u = 0; u <= UINT32_MAX; u += 2 * 257)
            if (in_domain(f, pl_f32_from_bits((uint32_t)u)))
                check_f32(f, pl_f32_from_bits((uint32_t)u));
        for (uint32_t d = 0; d < 5000;
             d++) { /* the ends of the domain, and where formulas change */
            const float edges[] = {f->lo, f->hi, 0.625f, 20, 1, -1, 0x1.6a09e6p-1f, 0x1.6a09e6p0f};
            for (size_t e = 0; e < sizeof edges / sizeof *edges; e++) {
                uint32_t u = pl_f32_bits(edges[e]);
                if (in_domain(f, pl_f32_from_bits(u - d)))
                    check_f32(f, pl_f32_from_bits(u - d));
                if (in_domain(f, pl_f32_from_bits(u + d)))
                    check_f32(f, pl_f32_from_bits(u + d));
            }
        }
    }
}

static void doubles_are_right_to_the_last_places(void **state)
{
    uint64_t seed = 5;

    if (!long_double_is_wide())
        skip();
    for (int i = 0; i < N_FUNCTIONS; i++) {
        const struct function *f = &functions[i];
        for (int n = 0; n < 300000; n++) {
            double x, got, error;
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            x = ldexp(1 + (double)(seed >> 12) * 0x1p-52, n % 40 - 30);
            if (n % 2 && f->lo < 0)
                x = -x;
            if (x < (double)f->lo || x > (double)f->hi)
                continue;
            got = f->f64(x);
            error = ulps((long double)got, f->exact((long double)x), 53, -1021);
            if (!(error <= f->bound64))
                fail_msg("%s(%a) = %a, want %La: %.3f units", f->name, x, got,
                         f->exact((long double)x), error);
        }
    }
}

static void special_arguments(void **state)
{
    const float nan_f = pl_f32_from_bits(0x7FC00001);
    const struct {
        float (*f)(float);
        float x, want;
    } cases[] = {
        {pl_exp_f32, 0, 1},
        {pl_exp_f32, -0.0f, 1},
        {pl_exp_f32, 0x1p-140f, 1},
        {pl_exp_f32, INFINITY, INFINITY},
        {pl_exp_f32, -INFINITY, 0},
        {pl_exp_f32, 0x1.62e43p+6f, INFINITY},
        {pl_exp_f32, -0x1.5d58ap+6f, 0},
        {pl_exp_f32, -1e30f, 0},
        {pl_log_f32, 1, 0},
        {pl_log_f32, 0, -INFINITY},
        {pl_log_f32, -0.0f, -INFINITY},
        {pl_log_f32, 0x1p-127f, -INFINITY},
        {pl_log_f32, INFINITY, INFINITY},
        {pl_log_f32, -1, NAN},
        {pl_log_f32, -INFINITY, NAN},
        {pl_sigmoid_f32, 0, 0.5f},
        {pl_sigmoid_f32, INFINITY, 1},
        {pl_sigmoid_f32, -INFINITY, 0},
        {pl_sigmoid_f32, -88.0f, 0}, /* 6e-39 is below the normal range */
        {pl_sigmoid_f32, -1e30f, 0},
        {pl_softplus_f32, INFINITY, INFINITY},
        {pl_softplus_f32, -INFINITY, 0},
        {pl_softplus_f32, -1e30f, 0},
        {pl_softplus_f32, 20.000002f, 20.000002f},
        {pl_softplus_f32, 1e30f, 1e30f},
        {pl_tanh_f32, -0.0f, -0.0f},
        {pl_tanh_f32, 0x1p-130f, 0},
        {pl_tanh_f32, -0x1p-130f, -0.0f},
        {pl_tanh_f32, INFINITY, 1},
        {pl_tanh_f32, -INFINITY, -1},
        {pl_tanh_f32, -1e30f, -1},
        {pl_exp_f32, nan_f, NAN},
        {pl_log_f32, nan_f, NAN},
        {pl_log_f32, -nan_f, NAN},
        {pl_sigmoid_f32, nan_f, NAN},
        {pl_softplus_f32, nan_f, NAN},
        {pl_softplus_f32, -nan_f, NAN},
        {pl_tanh_f32, nan_f, NAN},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float got = cases[i].f(cases[i].x);
        check_same_f32("special argument", &got, &cases[i].want, 1);
    }
    assert_true(pl_exp_f64(0) == 1 && pl_exp_f64(-709) == 0 && isinf(pl_exp_f64(710)));
    assert_true(pl_exp_f64(-PL_F64_INF) == 0 && isnan(pl_exp_f64(NAN)));
    assert_true(pl_log_f64(1) == 0 && pl_log_f64(0) == -PL_F64_INF && isnan(pl_log_f64(-1)));
    assert_true(isinf(pl_log_f64(PL_F64_INF)) && isnan(pl_log_f64(NAN)));
    assert_true(pl_sigmoid_f64(0) == 0.5 && pl_sigmoid_f64(-708.5) == 0 &&
                pl_sigmoid_f64(1e9) == 1);
    assert_true(pl_softplus_f64(21) == 21 && pl_softplus_f64(-1e9) == 0 &&
                isnan(pl_softplus_f64(NAN)));
    assert_true(pl_tanh_f64(-1e9) == -1 && pl_tanh_f64(PL_F64_INF) == 1 && isnan(pl_tanh_f64(NAN)));
}

/* Specification appendix A. */
static void router_scores_of_the_specification(void **state)
{
    static const double cases[][2] = {
        {-3, 0.2204254}, {0, 0.8325546}, {1.5, 1.3043823}, {8, 2.8284864}, {25, 5}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(fabs((double)pl_sqrt_f32(pl_softplus_f32((float)cases[i][0])) - cases[i][1]) <
                    1.5e-7);
        assert_true(fabs(pl_sqrt_f64(pl_softplus_f64(cases[i][0])) - cases[i][1]) < 6e-8);
    }
}

/* Products of powers that operators use as literals: specification appendix A. */
static void factors_of_the_specification(void **state)
{
    assert_true((float)(1 / pl_sqrt_f64(512)) == 0x1.6a09e6p-5f);
    assert_true((float)0.04419417382415922 == 0x1.6a09e6p-5f);
    assert_true((float)(1 / pl_sqrt_f64(128)) == 0x1.6a09e6p-4f);
    assert_true((float)0.08838834764831845 == 0x1.6a09e6p-4f);
    assert_true((float)(1 / pl_sqrt_f64(128) * (1 / pl_sqrt_f64(64))) == 0x1.6a09e6p-7f);
    assert_true((float)0.011048543456039806 == 0x1.6a09e6p-7f);
}

static void check_f64_in_both_modes(double (*f)(double), double x)
{
    double a, b;

    fpmode_ieee(NULL);
    a = f(x);
    fpmode_flush(NULL);
    b = f(x);
    if (pl_f64_bits(a) != pl_f64_bits(b) && !(isnan(a) && isnan(b)))
        fail_msg("at %a: %a, and %a where denormals are flushed", x, a, b);
}

static void bits_do_not_depend_on_flushing(void **state)
{
    for (int i = 0; i < N_FUNCTIONS; i++)
        for (uint64_t u = 0; u <= UINT32_MAX; u += 4099) {
            float x = pl_f32_from_bits((uint32_t)u), a, b;
            fpmode_ieee(NULL);
            a = functions[i].f32(x);
            fpmode_flush(NULL);
            b = functions[i].f32(x);
            check_same_f32(functions[i].name, &a, &b, 1);
            assert_true((pl_f32_bits(a) & 0x7F800000) != 0 || (pl_f32_bits(a) & 0x7FFFFF) == 0);
            check_f64_in_both_modes(functions[i].f64, (double)x * (1 + (double)u * 0x1p-50));
        }
}

static void sine_and_cosine(void **state)
{
    uint64_t seed = 9;
    double s, c, worst = 0;

    if (!long_double_is_wide())
        skip();
    for (int n = 0; n < 1000000; n++) {
        float angle;
        double error;
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        angle = (float)(seed >> 40) * 0x1p-24f * ldexpf(1, n % 61 - 40);
        if (n % 3 == 0) /* beside multiples of pi / 2, where the result is small */
            angle = (float)((double)(seed >> 45) * 0x1.921fb54442d18p0);
        angle = n % 2 ? -angle : angle;
        pl_sincos_f64((double)angle, &s, &c);
        error = fmax(ulps((long double)s, sinl((long double)angle), 53, -1021),
                     ulps((long double)c, cosl((long double)angle), 53, -1021));
        worst = fmax(worst, error);
        if (!(error <= 2.5))
            fail_msg("sincos(%a): %a %a: %.3f units", (double)angle, s, c, error);
        assert_true((float)s == (float)sinl((long double)angle));
        assert_true((float)c == (float)cosl((long double)angle));
    }
    assert_true(worst > 0.3); /* the comparison did see rounding */
    pl_sincos_f64(0, &s, &c);
    assert_true(s == 0 && c == 1);
    pl_sincos_f64(NAN, &s, &c);
    assert_true(isnan(s) && isnan(c));
    pl_sincos_f64(PL_F64_INF, &s, &c);
    assert_true(isnan(s) && isnan(c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles_are_right_to_the_last_places),
        cmocka_unit_test(special_arguments),
        cmocka_unit_test(router_scores_of_the_specification),
        cmocka_unit_test(factors_of_the_specification),
        cmocka_unit_test(sine_and_cosine),
    };
    const struct CMUnitTest once[] = {
        cmocka_unit_test(errors_stay_below_their_bounds),
        cmocka_unit_test(bits_do_not_depend_on_flushing),
    };

    return RUN_IN_BOTH_FPMODES(tests) + cmocka_run_group_tests(once, fpmode_ieee, fpmode_ieee);
}
