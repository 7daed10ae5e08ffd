/* The public row operators (plimsoll/model_ops.h): sums and rotations in double as the judge, every kind of context,
 * refusals that write nothing. Bits of the kernels: checkkern. */
#include "plimsoll/model_ops.h"

#include <math.h>
#include <string.h>

#include "base/numfmt.h"
#include "ops/quant.h"
#include "ops/rope_table.h"
#include "support/contexts.h"

enum { N = 9, D = 384, HEADS = 3, PAIRS = 32 };

static double wide(uint16_t x)
{
    return (double)pl_bf16_to_f32(x);
}

/* Half a step of bf16 and a little for sums in fp32, relative to `size`. */
static void check_near(uint16_t got, double want, double size)
{
    if (!(fabs(wide(got) - want) <= size * (0x1p-8 + 0x1p-16)))
        fail_msg("got %.9g, want %.9g", wide(got), want);
}

/* ---- norm and quantiser */

typedef struct norm_out {
    uint16_t y[N][D];
    uint8_t codes[N][D], scales[N][D / 128];
} norm_out;

static pl_status call_norm(pl_ops_context *context, void *user, pl_error *err)
{
    return pl_op_rms_norm(context, user, err);
}

static pl_status call_quantise(pl_ops_context *context, void *user, pl_error *err)
{
    return pl_op_quantise(context, user, err);
}

static void norms_are_the_means_in_double(void **state)
{
    static uint16_t x[N][D], w[D];
    static norm_out out;
    static uint8_t codes[N][D], scales[N][D / 128];
    pl_op_rms_norm_args a = {N, D, 1e-6f, w, x[0], out.y[0], out.codes[0], out.scales[0]};
    pl_op_quantise_args q = {N, D, x[0], out.codes[0], out.scales[0]};
    uint32_t r = 1;

    contexts_bf16(&r, x[0], (size_t)N * D);
    contexts_bf16(&r, w, D);
    contexts_run(call_norm, &a, &out, sizeof out);
    for (int t = 0; t < N; t++) {
        double sum = 0;
        for (int i = 0; i < D; i++)
            sum += wide(x[t][i]) * wide(x[t][i]);
        for (int i = 0; i < D; i++) {
            double want = wide(w[i]) * wide(x[t][i]) / sqrt(sum / D + 1e-6);
            check_near(out.y[t][i], want, fabs(want));
        }
    }
    pl_quant_e4m3(out.y[0], (int64_t)N * D, 128, codes[0], scales[0]);
    assert_memory_equal(codes, out.codes, sizeof codes);
    assert_memory_equal(scales, out.scales, sizeof scales);
    memcpy(x, out.y, sizeof x);
    contexts_run(call_quantise, &q, &out, sizeof out);
    assert_memory_equal(codes, out.codes, sizeof codes);
    assert_memory_equal(scales, out.scales, sizeof scales);
}

/* A row of more than one chunk of the quantiser, and y that is x. */
static void long_rows_in_place(void **state)
{
    enum { LONG = 4096 + 256 };
    static uint16_t x[2][LONG], w[LONG], y[2][LONG];
    static uint8_t codes[2][LONG], scales[2][LONG / 128], want[2][LONG], want_scales[2][LONG / 128];
    pl_op_rms_norm_args a = {2, LONG, 1e-6f, w, x[0], y[0], NULL, NULL};
    pl_ops_context *context = contexts_scalar();
    uint32_t r = 2;
    pl_error err;

    contexts_bf16(&r, x[0], (size_t)2 * LONG);
    contexts_bf16(&r, w, LONG);
    check_ok(pl_op_rms_norm(context, &a, &err), &err);
    a.y = x[0], a.codes = codes[0], a.scales = scales[0];
    check_ok(pl_op_rms_norm(context, &a, &err), &err);
    assert_memory_equal(x, y, sizeof x);
    pl_quant_e4m3(y[0], (int64_t)2 * LONG, 128, want[0], want_scales[0]);
    assert_memory_equal(codes, want, sizeof codes);
    assert_memory_equal(scales, want_scales, sizeof scales);
    pl_ops_context_destroy(context);
}

/* ---- rotations */

static const pl_op_rope_table plain = {.base = 10000}, yarn = {160000, 16, 65536, 32, 1};

static void frequencies_are_those_of_the_tables(void **state)
{
    const pl_rope_yarn stretch = {16, 65536, 32, 1};
    float got[PAIRS], want[PAIRS];
    pl_error err;

    check_ok(pl_op_rope_frequencies(&plain, got, &err), &err);
    pl_rope_table_freq(10000, NULL, want);
    assert_memory_equal(got, want, sizeof got);
    check_ok(pl_op_rope_frequencies(&yarn, got, &err), &err);
    pl_rope_table_freq(160000, &stretch, want);
    assert_memory_equal(got, want, sizeof got);
}

typedef struct rope_call {
    pl_op_rope_args args;
    const void *from;
    size_t bytes;
} rope_call;

static pl_status call_rope(pl_ops_context *context, void *user, pl_error *err)
{
    rope_call *c = user;

    memcpy(c->args.x, c->from, c->bytes);
    return pl_op_rope(context, &c->args, err);
}

static void judge_rotation(const uint16_t *got, const uint16_t *x, const float *freq, int32_t at,
                           bool inverse)
{
    for (int i = 0; i < PAIRS; i++) {
        double angle = (double)((float)at * freq[i]) * (inverse ? -1 : 1);
        double a = wide(x[2 * i]), b = wide(x[2 * i + 1]), size = hypot(a, b);

        check_near(got[2 * i], a * cos(angle) - b * sin(angle), size);
        check_near(got[2 * i + 1], a * sin(angle) + b * cos(angle), size);
    }
}

static void rotations_are_those_in_double(void **state)
{
    enum { DIM = 72, HEAD = 80, TOKEN = HEADS * HEAD + 5 };
    static uint16_t x[N][TOKEN], out[N][TOKEN];
    static const int32_t positions[N] = {0, 1, 2, 127, 65535, 65536, 999999, 16777215, 5};
    float freq[PAIRS];
    rope_call c = {{N, HEADS, DIM, 0, freq, positions, out[0], TOKEN, HEAD}, x, sizeof x};
    uint32_t r = 3;
    pl_error err;

    for (int inverse = 0; inverse < 2; inverse++) {
        contexts_bf16(&r, x[0], (size_t)N * TOKEN);
        check_ok(pl_op_rope_frequencies(inverse ? &yarn : &plain, freq, &err), &err);
        c.args.inverse = inverse;
        c.bytes = sizeof x - (TOKEN - (HEADS - 1) * HEAD - DIM) * sizeof(uint16_t);
        contexts_run(call_rope, &c, out, sizeof out);
        for (int t = 0; t < N; t++)
            for (int i = 0; i < TOKEN; i++) {
                int h = i / HEAD, d = i % HEAD;
                if (t == N - 1 && i >= (HEADS - 1) * HEAD + DIM)
                    assert_int_equal(out[t][i], 0xA5A5);
                else if (h < HEADS && d == 8)
                    judge_rotation(&out[t][i], &x[t][i], freq, positions[t], inverse);
                else if (h >= HEADS || d < 8 || d >= DIM) /* not rotated, between heads */
                    assert_int_equal(out[t][i], x[t][i]);
            }
    }
}

/* Heads outermost give the same rotation. */
static void strides_are_the_callers(void **state)
{
    enum { DIM = 64 };
    static uint16_t x[N][HEADS][DIM], y[HEADS][N][DIM];
    static const int32_t positions[N] = {3, 1, 4, 1, 5, 9, 2, 6, 5};
    pl_ops_context *context = contexts_scalar();
    float freq[PAIRS];
    pl_op_rope_args a = {N, HEADS, DIM, 0, freq, positions, x[0][0], 0, 0};
    uint32_t r = 4;
    pl_error err;

    check_ok(pl_op_rope_frequencies(&plain, freq, &err), &err);
    contexts_bf16(&r, x[0][0], (size_t)N * HEADS * DIM);
    for (int i = 0; i < N * HEADS; i++)
        memcpy(y[i % HEADS][i / HEADS], x[i / HEADS][i % HEADS], sizeof y[0][0]);
    check_ok(pl_op_rope(context, &a, &err), &err);
    a.x = y[0][0], a.token_stride = DIM, a.head_stride = (int64_t)N * DIM;
    check_ok(pl_op_rope(context, &a, &err), &err);
    for (int i = 0; i < N * HEADS; i++)
        assert_memory_equal(y[i % HEADS][i / HEADS], x[i / HEADS][i % HEADS], sizeof y[0][0]);
    pl_ops_context_destroy(context);
}

typedef struct head_call {
    pl_op_head_norm_rope_args args;
    const void *from;
    size_t bytes;
} head_call;

static pl_status call_head(pl_ops_context *context, void *user, pl_error *err)
{
    head_call *c = user;

    memcpy(c->args.q, c->from, c->bytes);
    return pl_op_head_norm_rope(context, &c->args, err);
}

static void heads_are_normed_and_rotated(void **state)
{
    static uint16_t x[N][HEADS][512], q[N][HEADS][512];
    static const int32_t positions[N] = {0, 7, 100, 1000, 10000, 100000, 1000000, 3, 2};
    float freq[PAIRS];
    head_call c = {{N, HEADS, 1e-6f, freq, positions, q[0][0]}, x, sizeof x};
    uint32_t r = 5;
    pl_error err;

    contexts_bf16(&r, x[0][0], (size_t)N * HEADS * 512);
    check_ok(pl_op_rope_frequencies(&yarn, freq, &err), &err);
    contexts_run(call_head, &c, q, sizeof q);
    for (int t = 0; t < N; t++)
        for (int h = 0; h < HEADS; h++) {
            const uint16_t *v = x[t][h];
            double sum = 0, s;
            for (int d = 0; d < 512; d++)
                sum += wide(v[d]) * wide(v[d]);
            s = 1 / sqrt(sum / 512 + 1e-6);
            for (int d = 0; d < 448; d++)
                check_near(q[t][h][d], wide(v[d]) * s, fabs(wide(v[d]) * s));
            for (int i = 0; i < PAIRS; i++) {
                double angle = (double)((float)positions[t] * freq[i]);
                double a = wide(v[448 + 2 * i]) * s, b = wide(v[449 + 2 * i]) * s;
                check_near(q[t][h][448 + 2 * i], a * cos(angle) - b * sin(angle), hypot(a, b));
                check_near(q[t][h][449 + 2 * i], a * sin(angle) + b * cos(angle), hypot(a, b));
            }
        }
}

/* ---- Hadamard */

static pl_status call_hadamard(pl_ops_context *context, void *user, pl_error *err)
{
    return pl_op_hadamard(context, user, err);
}

static void transforms_are_those_in_double(void **state)
{
    static uint16_t x[N][128], y[N][128];
    pl_op_hadamard_args a = {N, x[0], y[0]};
    uint32_t r = 6;

    contexts_bf16(&r, x[0], (size_t)N * 128);
    contexts_run(call_hadamard, &a, y, sizeof y);
    for (int t = 0; t < N; t++)
        for (int k = 0; k < 128; k++) {
            double sum = 0, size = 0;
            for (int i = 0; i < 128; i++) {
                sum += wide(x[t][i]) * (__builtin_parity((unsigned)(i & k)) ? -1 : 1);
                size += fabs(wide(x[t][i]));
            }
            if (fabs(wide(y[t][k]) - sum / sqrt(128)) > fabs(sum) * 0x1p-11 + size * 0x1p-20)
                check_near(y[t][k], sum / sqrt(128), fabs(sum / sqrt(128)) + size * 0x1p-14);
        }
}

/* ---- refusals */

static void refusals_name_the_argument(void **state)
{
    static uint16_t x[4 * 256];
    static uint8_t codes[512], scales[4];
    static const int32_t positions[2] = {5, 1 << 24};
    float freq[PAIRS] = {0};
    pl_ops_context *c = contexts_scalar();
    pl_op_rms_norm_args n = {2, 256, 1e-6f, x, x + 256, x + 256, codes, scales};
    pl_op_rope_args p = {2, 1, 64, 0, freq, positions, x, 0, 0};
    pl_op_hadamard_args h = {2, x, x + 64};
    pl_op_rope_table table = plain;
    uint16_t before[4 * 256];
    pl_error err;

    memset(x, 1, sizeof x);
    memcpy(before, x, sizeof x);
#define REFUSE(change, call, ...)                                                 \
    do {                                                                          \
        change;                                                                   \
        check_error(call, PL_ERR_INVALID, &err, __VA_ARGS__, (const char *)NULL); \
    } while (0)
    REFUSE((void)0, pl_op_rms_norm(NULL, &n, &err), "context");
    REFUSE((void)0, pl_op_rms_norm(c, NULL, &err), "args");
    REFUSE(n.scales = NULL, pl_op_rms_norm(c, &n, &err), "codes");
    REFUSE((n.scales = scales, n.dim = 200), pl_op_rms_norm(c, &n, &err), "dim", "200", "128");
    REFUSE((n.dim = 256, n.n = -1), pl_op_rms_norm(c, &n, &err), "n:", "-1", "0 ..");
    REFUSE((n.n = 2, n.eps = NAN), pl_op_rms_norm(c, &n, &err), "eps", "nan");
    REFUSE((n.eps = 0, n.y = x + 255), pl_op_rms_norm(c, &n, &err), "y", "overlaps weight");
    REFUSE(n.y = x + 257, pl_op_rms_norm(c, &n, &err), "y", "overlaps x");
    REFUSE((n.y = x + 256, n.codes = (uint8_t *)x), pl_op_rms_norm(c, &n, &err), "codes",
           "overlaps weight");
    REFUSE((n.codes = codes, n.scales = codes + 500), pl_op_rms_norm(c, &n, &err), "overlaps");
    REFUSE(n.x = NULL, pl_op_rms_norm(c, &n, &err), "x: missing");
    REFUSE((n.x = n.y = (uint16_t *)(void *)((char *)x + 513)), pl_op_rms_norm(c, &n, &err),
           "not aligned");
    REFUSE((void)0, pl_op_rope(c, &p, &err), "positions[1]", "16777216", "0 .. 16777215");
    REFUSE(p.head_dim = 60, pl_op_rope(c, &p, &err), "head_dim", "60");
    REFUSE((p.head_dim = 64, p.token_stride = 63), pl_op_rope(c, &p, &err), "token_stride", "63");
    REFUSE((p.token_stride = 0, p.n_heads = 2, p.head_stride = 10), pl_op_rope(c, &p, &err),
           "head_stride", "10", "64");
    REFUSE((void)0, pl_op_hadamard(c, &h, &err), "y", "overlaps x");
    REFUSE(table.base = 1, pl_op_rope_frequencies(&table, freq, &err), "base", "1");
    REFUSE((table.base = 10, table.factor = 2), pl_op_rope_frequencies(&table, freq, &err),
           "original_max_position", "0");
    assert_memory_equal(before, x, sizeof x);
    pl_ops_context_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_are_the_means_in_double),
        cmocka_unit_test(long_rows_in_place),
        cmocka_unit_test(frequencies_are_those_of_the_tables),
        cmocka_unit_test(rotations_are_those_in_double),
        cmocka_unit_test(strides_are_the_callers),
        cmocka_unit_test(heads_are_normed_and_rotated),
        cmocka_unit_test(transforms_are_those_in_double),
        cmocka_unit_test(refusals_name_the_argument),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
