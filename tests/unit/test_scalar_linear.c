/* Level scalar, linear layers: every storage against sums in double, a token alone and in company, and
 * inputs on which each stated order of additions shows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/numfmt.h"
#include "ops/quant.h"
#include "support/operators.h"

/* A random matrix of any storage, with its values in double before the block scales. */
typedef struct matrix {
    pl_weight_view w;
    double *value; /* [rows][cols], scale included */
    void *data, *scale;
} matrix;

static matrix random_matrix(pl_weight_format format, int64_t rows, int64_t cols)
{
    matrix m = {.value = take(sizeof(double) * (size_t)(rows * cols)),
                .data = take((size_t)(rows * cols) * 2),
                .scale = take(sizeof(float) * (size_t)(rows * (cols / 32 + 1)))};
    int64_t tiles = cols / 128;

    for (int64_t i = 0; i < rows * ((cols + 31) / 32); i++) {
        if (format == PL_WEIGHT_FP8_F32)
            ((float *)m.scale)[i] = 0.01f * (1.1f + random_float());
        else
            ((uint8_t *)m.scale)[i] = (uint8_t)(118 + random_u32() % 5);
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++) {
            int64_t i = r * cols + k, block = r / 128 * tiles + k / 128;
            double v = 0;

            if (format == PL_WEIGHT_BF16) {
                ((uint16_t *)m.data)[i] = random_bf16();
                v = (double)pl_bf16_to_f32(((uint16_t *)m.data)[i]);
            } else if (format == PL_WEIGHT_FP4) {
                uint8_t *pair = (uint8_t *)m.data + i / 2, code = random_u32() & 15;
                *pair = k & 1 ? (uint8_t)(*pair | code << 4) : code;
                v = (double)pl_e2m1_to_f32(code) *
                    pl_e8m0_to_f64(((uint8_t *)m.scale)[r * (cols / 32) + k / 32]);
            } else {
                uint8_t code = pl_f32_to_e4m3(448 * random_float());
                ((uint8_t *)m.data)[i] = code;
                v = (double)pl_e4m3_to_f32(code) *
                    (format == PL_WEIGHT_FP8_F32 ? (double)((float *)m.scale)[block]
                                                 : pl_e8m0_to_f64(((uint8_t *)m.scale)[block]));
            }
            m.value[i] = v;
        }
    m.w = view(format, rows, cols, m.data, format == PL_WEIGHT_BF16 ? NULL : m.scale);
    return m;
}

static void free_matrix(matrix *m)
{
    free(m->value);
    free(m->data);
    free(m->scale);
}

typedef struct linear_case {
    pl_weight_format format;
    bool a16;
    int64_t rows, cols;
    int32_t n, n_shards;
} linear_case;

static pl_linear_fn *kernel(const linear_case *c)
{
    if (c->format == PL_WEIGHT_BF16)
        return ops->linear_bf16;
    if (c->format == PL_WEIGHT_FP4)
        return ops->linear_fp4;
    return c->a16 ? ops->linear_fp8_a16 : ops->linear_fp8;
}

/* Error of a chain of n steps against the double sum: n eps sum |x w|, and then the rest in passing. */
static void check_linear(const linear_case *c)
{
    matrix m = random_matrix(c->format, c->rows, c->cols);
    bool quantised = c->format != PL_WEIGHT_BF16 && !c->a16;
    int64_t nb = c->cols / 128, x_bytes = 2 * c->cols, q_stride = (nb * 130 + 15) / 16 * 16;
    uint16_t *x = take((size_t)(c->n * x_bytes));
    uint8_t *q = take((size_t)(c->n * q_stride));
    float *y = take(sizeof(float) * (size_t)(c->n * c->rows));
    float *alone = take(sizeof(float) * (size_t)c->rows);
    int64_t units = (c->rows + 15) / 16;
    pl_linear_job job = {.w = m.w,
                         .n_rows = c->rows,
                         .a16 = c->a16,
                         .n = c->n,
                         .n_shards = c->n_shards,
                         .out = PL_LINEAR_ACC,
                         .y = y,
                         .y_stride = c->rows * 4};

    for (int64_t i = 0; i < c->n * c->cols; i++)
        x[i] = random_bf16();
    if (quantised) {
        pl_quantise_args a = {c->cols, x, x_bytes, q, q_stride};
        ops->quantise(&env, &a, 0, c->n);
        job.x = q, job.x_stride = q_stride;
        for (int32_t t = 0; t < c->n; t++)
            pl_quant_e4m3_fake(x + t * c->cols, c->cols, 128, x + t * c->cols);
    } else {
        job.x = x, job.x_stride = x_bytes;
    }
    for (int64_t u = units; u-- > 0;) /* any order */
        kernel(c)(&env, &job, u, u + 1);
    for (int32_t t = 0; t < c->n; t++)
        for (int64_t r = 0; r < c->rows; r++) {
            double sum = 0, size = 0, error;
            for (int64_t k = 0; k < c->cols; k++) {
                double p = (double)pl_bf16_to_f32(x[t * c->cols + k]) * m.value[r * c->cols + k];
                sum += p;
                size += fabs(p);
            }
            error = fabs((double)y[t * c->rows + r] - sum);
            if (!(error <= 0x1p-24 * 140 * size))
                fail_msg("format %d row %lld token %d: got %.9g, want %.9g", c->format,
                         (long long)r, t, (double)y[t * c->rows + r], sum);
        }
    /* The last token alone, found through `rows`, in one call; then as bf16. */
    job.rows = (const int32_t[]){c->n - 1};
    job.n = 1;
    job.y = alone;
    kernel(c)(&env, &job, 0, units);
    check_same_f32("alone", alone, y + (c->n - 1) * c->rows, (size_t)c->rows);
    job.out = PL_LINEAR_ACT;
    kernel(c)(&env, &job, 0, units);
    for (int64_t r = 0; r < c->rows; r++)
        assert_int_equal(((uint16_t *)alone)[r], pl_f32_to_bf16(y[(c->n - 1) * c->rows + r]));
    free_matrix(&m);
    free(x);
    free(q);
    free(y);
    free(alone);
}

static void linear_layers_match_double(void **state)
{
    static const linear_case cases[] = {
        {PL_WEIGHT_FP8_E8M0, false, 256, 256, 5, 0}, {PL_WEIGHT_FP8_E8M0, false, 130, 384, 3, 2},
        {PL_WEIGHT_FP8_F32, false, 144, 512, 4, 3},  {PL_WEIGHT_FP8_E8M0, true, 32, 640, 2, 0},
        {PL_WEIGHT_FP8_F32, true, 16, 128, 3, 0},    {PL_WEIGHT_FP4, false, 48, 512, 7, 0},
        {PL_WEIGHT_FP4, false, 1, 128, 1, 0},        {PL_WEIGHT_BF16, false, 7, 64, 3, 0},
        {PL_WEIGHT_BF16, false, 33, 200, 2, 0},      {PL_WEIGHT_BF16, false, 16, 1024, 9, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_linear(&cases[i]);
}

/* One output, values chosen so that each rounding of the contract shows. */
static float one_output(const pl_weight_view *w, const uint16_t *x, int32_t n_shards)
{
    pl_linear_job job = {.w = *w,
                         .n_rows = 1,
                         .x = x,
                         .x_stride = 2 * w->cols,
                         .n = 1,
                         .n_shards = n_shards,
                         .out = PL_LINEAR_ACC};
    float y;

    job.y = &y;
    job.y_stride = 4;
    ops->linear_bf16(&env, &job, 0, 1);
    return y;
}

static void chains_have_the_stated_order(void **state)
{
    uint16_t one = pl_f32_to_bf16(1), tiny = pl_f32_to_bf16(0x1p-24f), x[512], wt[512] = {0};
    pl_weight_view w = view(PL_WEIGHT_BF16, 1, 512, wt, NULL);

    /* The odd element first: 2^-24 and 2^-24 add up before 1 swallows them, the other way they vanish. */
    memset(x, 0, sizeof x);
    for (int i = 0; i < 512; i++)
        wt[i] = one;
    w.cols = 128;
    x[0] = one, x[1] = tiny;
    assert_true(one_output(&w, x, 0) == 1.0f);
    x[0] = tiny, x[1] = tiny, x[2] = one;
    assert_true(one_output(&w, x, 0) == 1.0f + 0x1p-23f);
    x[0] = one, x[1] = tiny, x[2] = 0, x[3] = tiny; /* 1 + 2^-24 ties to 1, twice */
    assert_true(one_output(&w, x, 0) == 1.0f);

    /* Blocks: p_b are formed apart. Shards: so are their sums. */
    memset(x, 0, sizeof x);
    w.cols = 512;
    x[0] = one, x[128] = tiny, x[256] = tiny, x[384] = 0;
    assert_true(one_output(&w, x, 0) == 1.0f); /* (1 + t) + t */
    x[256] = tiny, x[384] = tiny, x[128] = 0;
    assert_true(one_output(&w, x, 0) == 1.0f);            /* ((1 + 0) + t) + t */
    assert_true(one_output(&w, x, 2) == 1.0f + 0x1p-23f); /* (1 + 0) + (t + t) */
    assert_true(one_output(&w, x, 4) == 1.0f);
    assert_true(one_output(&w, x, 7) == 1.0f); /* empty shards are skipped */
}

static void denormals_are_flushed_inside_a_chain(void **state)
{
    uint16_t small = pl_f32_to_bf16(0x1p-70f), x[128] = {0}, wt[128] = {0};
    pl_weight_view w = view(PL_WEIGHT_BF16, 1, 128, wt, NULL);

    /* Each product is 2^-140, and so is each sum: flushed to zero, 128 times. Behind 2^-63 * 2^-63 the
     * sums are in range and every one of the other products counts: fma flushes results, not products. */
    for (int i = 0; i < 128; i++)
        x[i] = wt[i] = small;
    assert_int_equal(pl_f32_bits(one_output(&w, x, 0)), 0);
    x[1] = wt[1] = pl_f32_to_bf16(0x1p-63f);
    assert_true(one_output(&w, x, 0) == 0x1p-126f * (1 + 127 * 0x1p-14f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_layers_match_double),
        cmocka_unit_test(chains_have_the_stated_order),
        cmocka_unit_test(denormals_are_flushed_inside_a_chain),
    };
    return RUN_OPERATOR_TESTS(pl_ops_scalar(), tests);
}
