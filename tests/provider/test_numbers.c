/* From a provider's numbers to ours: test_numbers FOLDER. The sink's formula bit for bit, special values, logarithms to base
 * 2 in the other layout, soft caps that are none. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

static const char *folder;
static pl_ops_context *context;
static pl_providers *set;

static float from_bf16(uint16_t b)
{
    uint32_t u = (uint32_t)b << 16;
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

/* Nearest even by comparing with both neighbours, unlike the code under test. */
static uint16_t round_bf16(float x)
{
    uint32_t u;
    double low, high;

    memcpy(&u, &x, sizeof u);
    if (isnan(x))
        return 0x7FC0;
    if (isinf(x) || !(u & 0xFFFF))
        return (uint16_t)(u >> 16);
    low = fabs((double)from_bf16((uint16_t)(u >> 16)));
    high =
        (u >> 16 & 0x7FFF) == 0x7F7F ? 0x1p128 : fabs((double)from_bf16((uint16_t)((u >> 16) + 1)));
    if (fabs((double)x) - low == high - fabs((double)x))
        return (uint16_t)((u >> 16) + (u >> 16 & 1));
    return (uint16_t)((u >> 16) + (fabs((double)x) - low > high - fabs((double)x)));
}

/* Of table A9.4 of the specification. */
static float weight(float l, float z)
{
    if (isnan(l) || isnan(z))
        return NAN;
    if (l == -INFINITY || z == INFINITY)
        return 0;
    return (float)(1 / (1 + exp(-(double)(l - z))));
}

static bool same_bf16(uint16_t a, uint16_t b)
{
    return a == b || (isnan(from_bf16(a)) && isnan(from_bf16(b)));
}

static const float lses[] = {-INFINITY, INFINITY, NAN,  0.0f, -0.0f, 1e-40f, -1e-40f, 3e38f,
                             -3e38f,    88,       -104, 1e4f, 1.25f, -2.5f,  7.75f,   0.001f};
static const float zs[] = {0.5f, -1, 40, -40, -INFINITY, INFINITY, NAN, 3e38f};

static void sink_correction_is_the_formula_bit_for_bit(void **state)
{
    enum { T = sizeof lses / sizeof lses[0], H = sizeof zs / sizeof zs[0], D = 256 };
    static uint16_t out[T][H][D], before[T][H][D];
    static float lse[H][T];
    pl_tensor t = pl_tensor_of(out, PL_TENSOR_BF16, 3, T, H, D);
    pl_error err;

    for (int i = 0; i < T * H * D; i++) /* subnormals, infinities and NaN among them */
        (&out[0][0][0])[i] = (uint16_t)(i * 2 + i / (T * H * D / 2));
    memcpy(before, out, sizeof out);
    for (int h = 0; h < H; h++)
        memcpy(lse[h], lses, sizeof lses);
    check_ok(pl_sink_correct(&t, &lse[0][0], zs, 1, &err), &err);
    for (int i = 0; i < T; i++)
        for (int h = 0; h < H; h++)
            for (int d = 0; d < D; d++) {
                uint16_t want = round_bf16(from_bf16(before[i][h][d]) * weight(lses[i], zs[h]));
                if (!same_bf16(out[i][h][d], want))
                    fail_msg("L %g Z %g out %04x: got %04x, want %04x", (double)lses[i],
                             (double)zs[h], before[i][h][d], out[i][h][d], want);
            }
    (void)state;
}

static void several_sinks_are_one_logarithm_of_their_sum(void **state)
{
    static const float sinks[3][2] = {{0.25f, -INFINITY}, {1.5f, -INFINITY}, {-3, -INFINITY}};
    float lse[2] = {0.75f, 0.75f}, z;
    uint16_t out[1][2][8];
    pl_tensor t = pl_tensor_of(out, PL_TENSOR_BF16, 3, 1, 2, 8);
    pl_error err;

    for (int i = 0; i < 16; i++)
        (&out[0][0][0])[i] = 0x3F80;
    check_ok(pl_sink_correct(&t, lse, &sinks[0][0], 3, &err), &err);
    z = (float)log(exp(0.25) + exp(1.5) + exp(-3));
    assert_int_equal(out[0][0][0], round_bf16(weight(0.75f, z)));
    assert_int_equal(out[0][1][0], 0x3F80); /* sinks of -infinity: no effect */
    check_error(pl_sink_correct(&t, lse, NULL, 1, &err), PL_ERR_INVALID, &err, "sink", NULL);
    t.strides[0] = -8;
    t.shape[0] = 2;
    check_error(pl_sink_correct(&t, lse, &sinks[0][0], 1, &err), PL_ERR_INVALID, &err, "out", NULL);
    (void)state;
}

static pl_status run(int i, const case_call *c, uint32_t flags, pl_provider_outcome *outcome,
                     pl_error *err)
{
    pl_provider_call call = c->call;

    call.flags |= flags;
    *err = (pl_error){0};
    return pl_provider_run(set, i, &call, outcome, err);
}

/* MAGI-2: 24 heads of 128, two branches, a sink, a soft cap of -1 that is none. */
static case_call magi2(bool sink)
{
    case_call c = varlen_case((int32_t[]){41, 1, 7, 30, -1}, (int32_t[]){41, 1, 0, 30, -1}, 24, 24,
                              128, 128, sink);

    c.call.softcap = -1;
    return c;
}

static void magi2_is_corrected_by_the_formula(void **state)
{
    case_call with = magi2(true), without = magi2(false);
    const float *lse = without.call.lse.data, *z = with.call.sink.data;
    const uint16_t *got = with.call.out.data, *plain = without.call.out.data;
    pl_provider_outcome outcome;
    pl_error err;

    without.call.softcap = 0;
    check_ok(run(0, &with, 0, &outcome, &err), &err);
    check_ok(run(0, &without, 0, &outcome, &err), &err);
    check_same_f32("lse counts no sink", with.call.lse.data, lse, 24 * 79);
    for (int t = 0; t < 79; t++)
        for (int h = 0; h < 24; h++)
            for (int d = 0; d < 128; d++) {
                int at = (t * 24 + h) * 128 + d;
                assert_int_equal(got[at],
                                 round_bf16(from_bf16(plain[at]) * weight(lse[h * 79 + t], z[h])));
            }
    assert_true(lse[42] == -INFINITY); /* the sequence without keys */
    assert_true(lse[41] != -INFINITY);
    case_free(&with);
    case_free(&without);
    (void)state;
}

/* A short sequence has its bits whether others are packed with it or not. */
static void short_sequences_need_no_path_of_their_own(void **state)
{
    for (int n = 1; n < 32; n += 5) {
        case_call both =
            varlen_case((int32_t[]){n, 40, -1}, (int32_t[]){n, 40, -1}, 3, 3, 128, 128, true);
        case_call alone = varlen_case((int32_t[]){n, -1}, (int32_t[]){n, -1}, 3, 3, 128, 128, true);
        pl_provider_outcome outcome;
        pl_error err;

        check_ok(run(0, &both, 0, &outcome, &err), &err);
        check_ok(run(0, &alone, 0, &outcome, &err), &err);
        check_same_bytes("short", alone.call.out.data, both.call.out.data, (size_t)n * 3 * 128 * 2);
        case_free(&both);
        case_free(&alone);
    }
    (void)state;
}

/* Without a sink out has equal bits, and LSE differs by the rounding of its conversion alone. */
static void base_two_in_the_other_layout_becomes_ours(void **state)
{
    int i = add_provider(set, folder, "base2", NULL);
    case_call a = magi2(false), b = magi2(false);
    pl_provider_outcome outcome;
    pl_error err;

    for (int edge = 0; edge < 4; edge++) {
        const float *got = a.call.lse.data, *want = b.call.lse.data;
        a.call.softcap = edge & 1 ? 0 : -1;
        a.call.lse_layout = edge & 2 ? PL_LSE_TH : PL_LSE_HT;
        a.call.lse.shape[0] = edge & 2 ? 79 : 24;
        a.call.lse.shape[1] = edge & 2 ? 24 : 79;
        a.call.lse.strides[0] = a.call.lse.shape[1];
        check_ok(run(i, &a, 0, &outcome, &err), &err);
        assert_int_equal(outcome.direct, 1);
        check_ok(run(0, &b, 0, &outcome, &err), &err);
        check_same_bytes("out", a.call.out.data, b.call.out.data, 79 * 24 * 128 * 2);
        for (int h = 0; h < 24; h++)
            for (int t = 0; t < 79; t++) {
                float x = edge & 2 ? got[t * 24 + h] : got[h * 79 + t], y = want[h * 79 + t];
                assert_true(x == y || fabsf(x - y) <= 4e-7f * (1 + fabsf(y)));
            }
        assert_true(got[edge & 2 ? 42 * 24 : 42] == -INFINITY);
    }
    a.call.softcap = 5;
    assert_int_equal(pl_provider_gate(set, i, &a.call, NULL), PL_PROVIDER_SOFTCAP);
    case_free(&a);
    case_free(&b);
    (void)state;
}

/* A kernel without a sink is corrected after it; asked for a native one, it is refused, never corrected as well. */
static void the_sink_is_applied_once(void **state)
{
    int i = add_provider(set, folder, "base2", NULL);
    case_call a = magi2(true), b = magi2(true);
    pl_provider_outcome outcome;
    pl_error err;
    int differ = 0;

    check_ok(run(i, &a, 0, &outcome, &err), &err);
    assert_int_equal(outcome.direct, 1);
    check_ok(run(0, &b, 0, &outcome, &err), &err);
    for (int k = 0; k < 79 * 24 * 128; k++) {
        uint16_t x = ((uint16_t *)a.call.out.data)[k], y = ((uint16_t *)b.call.out.data)[k];
        differ += x != y;
        assert_true(abs((int)(x & 0x7FFF) - (int)(y & 0x7FFF)) <= 1);
    }
    assert_true(differ < 79 * 24 * 128 /
                             100); /* the logarithm's rounding moves a weight by an ulp of fp32 */
    case_remember(&a);
    check_error(run(i, &a, PL_PROVIDER_NATIVE_SINK | PL_PROVIDER_NO_PUBLIC, &outcome, &err),
                PL_ERR_UNSUPPORTED, &err, "sink_native", NULL);
    case_unchanged("native sink", &a);
    a.call.lse = (pl_tensor){0}; /* the correction needs one of its own then */
    check_ok(run(i, &a, 0, &outcome, &err), &err);
    case_free(&a);
    case_free(&b);
    (void)state;
}

static void lse_shapes_say_their_layout_or_are_refused(void **state)
{
    const float th[3][2] = {{1, 4}, {2, NAN}, {INFINITY, -INFINITY}};
    const float want[6] = {1, 2, -INFINITY, 4, NAN, -INFINITY};
    float got[6];
    pl_error err;

    check_ok(
        pl_lse_normalise(&th[0][0], (int64_t[]){3, 2}, PL_LSE_UNDECLARED, 0, 1, 2, 3, got, &err),
        &err);
    check_same_f32("undeclared", got, want, 6);
    check_ok(pl_lse_normalise(&th[0][0], (int64_t[]){3, 2}, PL_LSE_TH, 0, 0, 2, 3, got, &err),
             &err);
    assert_true(got[2] == INFINITY);
    assert_true(isnan(got[4]));
    check_error(pl_lse_normalise(&th[0][0], (int64_t[]){3, 2}, PL_LSE_HT, 0, 0, 2, 3, got, &err),
                PL_ERR_INVALID, &err, "got [3, 2], want [2, 3]", NULL);
    check_error(
        pl_lse_normalise(&th[0][0], (int64_t[]){2, 2}, PL_LSE_UNDECLARED, 0, 0, 2, 2, got, &err),
        PL_ERR_INVALID, &err, "cannot be told apart", NULL);
    check_ok(pl_lse_normalise(&th[0][0], (int64_t[]){2, 2}, PL_LSE_TH, 1, 0, 2, 2, got, &err),
             &err);
    assert_true(got[0] == (float)0.69314718055994531 && got[1] == (float)(2 * 0.69314718055994531));
    (void)state;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sink_correction_is_the_formula_bit_for_bit),
        cmocka_unit_test(several_sinks_are_one_logarithm_of_their_sum),
        cmocka_unit_test(magi2_is_corrected_by_the_formula),
        cmocka_unit_test(short_sequences_need_no_path_of_their_own),
        cmocka_unit_test(base_two_in_the_other_layout_becomes_ours),
        cmocka_unit_test(the_sink_is_applied_once),
        cmocka_unit_test(lse_shapes_say_their_layout_or_are_refused),
    };
    pl_error err;
    int failed;

    if (argc != 2)
        return 2;
    folder = argv[1];
    context = case_context();
    if (pl_providers_create(context, &set, &err) != PL_OK)
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    pl_providers_destroy(set);
    pl_ops_context_destroy(context);
    return failed;
}
