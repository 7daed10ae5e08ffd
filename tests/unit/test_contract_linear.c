/* Level scalar word for word: linear layers with shards, norms, hyper-connections (docs/NUMERICS.md 4, 5, 7, 8). */
#include <stdlib.h>
#include <string.h>

#include "support/contract.h"

/* ---- sections 4 and 5 ---- */

enum { K = 512, K16 = 456, ROWS = 20 }; /* bf16: the last block is filled up from 72 to 128 */

typedef struct matrix {
    pl_weight_view view;
    float value[ROWS][K]; /* codes as numbers, zero-filled */
    uint8_t data[ROWS * K * 2];
    union {
        uint8_t e8m0[ROWS * K / 32];
        float f32[K / 128];
    } scale;
} matrix;

static matrix *random_matrix(pl_weight_format format, int64_t cols)
{
    matrix *m = take(sizeof *m);

    memset(m->value, 0, sizeof m->value);
    for (int r = 0; r < ROWS; r++)
        for (int64_t k = 0; k < cols; k++) {
            uint8_t code = (uint8_t)random_u32();
            int64_t at = r * cols + k;
            if (format == PL_WEIGHT_BF16) {
                uint16_t b = spread_bf16();
                memcpy(m->data + 2 * at, &b, 2);
                m->value[r][k] = pl_bf16_to_f32(b);
            } else if (format == PL_WEIGHT_FP4) {
                m->data[at / 2] = (uint8_t)(k % 2 ? m->data[at / 2] | (code & 15) << 4 : code & 15);
                m->value[r][k] = pl_e2m1_to_f32(code & 15);
            } else {
                m->data[at] = (code & 0x7F) == 0x7F ? 0 : code;
                m->value[r][k] = pl_e4m3_to_f32(m->data[at]);
            }
        }
    if (format == PL_WEIGHT_FP8_F32)
        for (int b = 0; b < K / 128; b++)
            m->scale.f32[b] = fabsf(spread()) + 0x1p-9f;
    else
        for (size_t i = 0; i < sizeof m->scale.e8m0; i++)
            m->scale.e8m0[i] = (uint8_t)(122 + random_u32() % 10);
    m->view = view(format, ROWS, cols, m->data, &m->scale);
    return m;
}

static float weight_scale(const matrix *m, int r, int at)
{
    if (m->view.format == PL_WEIGHT_FP4)
        return pl_e8m0_to_f32(m->scale.e8m0[r * (K / 32) + at]);
    return m->view.format == PL_WEIGHT_FP8_F32 ? m->scale.f32[at]
                                               : pl_e8m0_to_f32(m->scale.e8m0[at]);
}

/* The table of section 4 over blocks first .. stop - 1; xs is NULL where x is bf16. */
static float dot_blocks(const matrix *m, int r, const float *x, const float *xs, int first,
                        int stop)
{
    float acc = 0;

    for (int b = first; b < stop; b++) {
        const float *w = m->value[r] + 128 * b, *v = x + 128 * b;
        float q = 0;
        if (m->view.format == PL_WEIGHT_FP4) {
            for (int g = 0; g < 4; g++)
                q = pl_fma_f32(chain(0, w + 32 * g, v + 32 * g, 32), weight_scale(m, r, 4 * b + g),
                               q);
            acc = pl_fma_f32(q, xs[b], acc);
        } else if (m->view.format == PL_WEIGHT_BF16) {
            acc = acc + chain(0, w, v, 128);
        } else {
            float s = xs ? xs[b] * weight_scale(m, r, b) : weight_scale(m, r, b);
            acc = pl_fma_f32(chain(0, w, v, 128), s, acc);
        }
    }
    return acc;
}

static float dot_shards(const matrix *m, int r, const float *x, const float *xs, int n_shards)
{
    int nb = (int)(m->view.cols + 127) / 128;
    float total = 0;

    if (n_shards == 0)
        return dot_blocks(m, r, x, xs, 0, nb);
    for (int s = 0; s < n_shards; s++)
        if (s * nb / n_shards < (s + 1) * nb / n_shards)
            total = total + dot_blocks(m, r, x, xs, s * nb / n_shards, (s + 1) * nb / n_shards);
    return total;
}

/* What ranks do: every shard of the job on its own, added up apart. */
static void check_parts(pl_linear_fn *linear, pl_linear_job job, const matrix *m, const float *x,
                        const float *xs)
{
    int nb = (int)(m->view.cols + 127) / 128, n_shards = job.n_shards;
    float part[8][ROWS] = {{0}};
    uint16_t y[ROWS];
    pl_shard_sum_args sum = {ROWS, n_shards, nb, part, sizeof part[0], NULL, y};

    for (int s = 0; s < n_shards; s++) {
        int first = s * nb / n_shards, stop = (s + 1) * nb / n_shards;

        job.one_shard = s + 1;
        job.y = part[s];
        if (first == stop) { /* not to be read */
            memset(part[s], 0xFF, sizeof part[s]);
            continue;
        }
        linear(&env, &job, 0, 2);
        for (int r = 0; r < ROWS; r++)
            check_bits("part", r, part[s][r], dot_blocks(m, r, x, xs, first, stop));
    }
    ops->shard_sum(&env, &sum, 0, 1);
    for (int r = 0; r < ROWS; r++)
        assert_int_equal(y[r], pl_f32_to_bf16(dot_shards(m, r, x, xs, n_shards)));
}

static void check_linear(pl_weight_format format, bool a16, int n_shards)
{
    int64_t cols = format == PL_WEIGHT_BF16 ? K16 : K;
    matrix *m = random_matrix(format, cols);
    uint16_t x[K];
    uint8_t *codes = take(K + 2 * K / 128);
    float y[ROWS], v[K] = {0}, xs[K / 128];
    bool quantised = format != PL_WEIGHT_BF16 && !a16;
    pl_quantise_args q = {K, x, sizeof x, codes, K + 2 * K / 128};
    pl_linear_job job = {.w = m->view,
                         .n_rows = ROWS,
                         .a16 = a16,
                         .x = quantised ? (const void *)codes : x,
                         .n = 1,
                         .n_shards = n_shards,
                         .out = PL_LINEAR_ACC,
                         .y = y};
    pl_linear_fn *linear = format == PL_WEIGHT_BF16  ? ops->linear_bf16
                           : format == PL_WEIGHT_FP4 ? ops->linear_fp4
                           : a16                     ? ops->linear_fp8_a16
                                                     : ops->linear_fp8;

    for (int k = 0; k < K; k++)
        x[k] = spread_bf16();
    ops->quantise(&env, &q, 0, 1);
    for (int64_t k = 0; k < cols; k++)
        v[k] = quantised ? pl_e4m3_to_f32(codes[k]) : pl_bf16_to_f32(x[k]);
    for (int b = 0; b < K / 128; b++)
        xs[b] = pl_e8m0_to_f32(codes[K + b]);
    linear(&env, &job, 0, 2);
    for (int r = 0; r < ROWS; r++)
        check_bits("y", r, y[r], dot_shards(m, r, v, quantised ? xs : NULL, n_shards));
    if (n_shards)
        check_parts(linear, job, m, v, quantised ? xs : NULL);
    free(m);
    free(codes);
}

static void linear_layers(void **state)
{
    (void)state;
    for (int n_shards = 0; n_shards <= 8;
         n_shards++) { /* 4 blocks: shards of several, of one, empty */
        check_linear(PL_WEIGHT_FP8_E8M0, false, n_shards);
        check_linear(PL_WEIGHT_FP8_F32, false, n_shards);
        check_linear(PL_WEIGHT_FP8_E8M0, true, n_shards);
        check_linear(PL_WEIGHT_FP8_F32, true, n_shards);
        check_linear(PL_WEIGHT_FP4, false, n_shards);
        check_linear(PL_WEIGHT_BF16, false, n_shards);
    }
}

/* 1, t, t, -1 in four shards: the order tells, and an empty shard adds not even a zero. */
static void shards_are_added_in_order(void **state)
{
    float part[5][1] = {{1}, {0x1p-24f}, {0x1p-24f}, {-1}, {0}};
    uint16_t y, shared = pl_f32_to_bf16(3);
    pl_shard_sum_args sum = {1, 4, 4, part, sizeof part[0], NULL, &y};

    (void)state;
    ops->shard_sum(&env, &sum, 0, 1);
    assert_int_equal(y, pl_f32_to_bf16(0)); /* ((1 + t) + t) - 1 */
    part[0][0] = -1, part[3][0] = 1;
    ops->shard_sum(&env, &sum, 0, 1);
    assert_int_equal(y, pl_f32_to_bf16(0x1p-23f)); /* ((-1 + t) + t) + 1 */
    sum.shared = &shared;
    ops->shard_sum(&env, &sum, 0, 1);
    assert_int_equal(y, pl_f32_to_bf16(3));
    /* Two items in five shards: 2 and 4 have one each. */
    sum = (pl_shard_sum_args){1, 5, 2, part, sizeof part[0], NULL, &y};
    for (int s = 0; s < 5; s++)
        part[s][0] = s == 2 ? -0x1p-126f : s == 4 ? 0x1.8p-127f * 2 : NAN;
    ops->shard_sum(&env, &sum, 0, 1);
    assert_int_equal(y, pl_f32_to_bf16(0)); /* the difference is below 2^-126 */
    part[2][0] = 0x1p-126f, part[4][0] = -0x1.8p-126f;
    ops->shard_sum(&env, &sum, 0, 1);
    assert_int_equal(y, 0x8000); /* -0: one more +0 would have made it +0 */
}

/* ---- section 7 ---- */

static float square_sum(const uint16_t *x, int n)
{
    float acc = 0, block[128];

    for (int b = 0; b < n; b += 128) {
        for (int i = 0; i < 128; i++)
            block[i] = b + i < n ? pl_bf16_to_f32(x[b + i]) : 0;
        acc = acc + chain(0, block, block, 128);
    }
    return acc;
}

static void norms(void **state)
{
    uint16_t x[K16], w[K16] = {0}, y[K16], q[512], was[512];
    float cosines[32], sines[32], r;
    pl_rms_norm_args norm = {view(PL_WEIGHT_BF16, 1, K16, w, NULL), 1e-6f, K16, x, y};
    pl_q_norm_rope_args head = {1, 1e-6f, {cosines, sines}, q};

    (void)state;
    for (int i = 0; i < K16; i++)
        x[i] = spread_bf16(), w[i] = spread_bf16();
    for (int i = 0; i < 512; i++)
        q[i] = was[i] = spread_bf16();
    for (int i = 0; i < 32; i++)
        cosines[i] = random_float(), sines[i] = random_float();
    ops->rms_norm(&env, &norm, 0, 1);
    r = 1 / pl_sqrt_f32(square_sum(x, K16) / (float)K16 + 1e-6f);
    for (int i = 0; i < K16; i++)
        check_bf16_bits("norm", i, y[i], pl_bf16_to_f32(w[i]) * (pl_bf16_to_f32(x[i]) * r));
    ops->q_norm_rope(&env, &head, 0, 1);
    r = 1 / pl_sqrt_f32(square_sum(was, 512) / 512.0f + 1e-6f);
    for (int i = 0; i < 448; i++)
        check_bf16_bits("q", i, q[i], pl_bf16_to_f32(was[i]) * r);
    for (int i = 0; i < 32; i++) {
        float a = pl_bf16_to_f32(was[448 + 2 * i]) * r, b = pl_bf16_to_f32(was[449 + 2 * i]) * r;
        check_bf16_bits("q", 448 + 2 * i, q[448 + 2 * i], a * cosines[i] - b * sines[i]);
        check_bf16_bits("q", 449 + 2 * i, q[449 + 2 * i], a * sines[i] + b * cosines[i]);
    }
}

/* ---- section 8 ---- */

enum { DIM = 72 }; /* 4 * 72 = 2 * 128 + 32: a last block to fill up */

static float fn_dot(const float *fn, const uint16_t *v, int n)
{
    float acc = 0;

    for (int b = 0; b < n; b += 128) {
        float p = 0;
        for (int i = b; i < b + 128; i++)
            p = pl_fma_f32(i < n ? fn[i] : 0, i < n ? pl_bf16_to_f32(v[i]) : 0, p);
        acc = acc + p;
    }
    return acc;
}

static void divide(float *c, int step, float eps)
{
    float sum = ((c[0] + c[step]) + (c[2 * step] + c[3 * step])) + eps;

    for (int i = 0; i < 4; i++)
        c[i * step] = c[i * step] / sum;
}

static void sinkhorn(float C[16], int iters, float eps)
{
    for (int j = 0; j < 4; j++) {
        float *c = C + 4 * j, max = -INFINITY, e[4], sum;
        for (int k = 0; k < 4; k++)
            max = c[k] > max ? c[k] : max;
        for (int k = 0; k < 4; k++)
            e[k] = pl_exp_f32(c[k] - max);
        sum = (e[0] + e[1]) + (e[2] + e[3]);
        for (int k = 0; k < 4; k++)
            c[k] = e[k] / sum + eps;
    }
    for (int k = 0; k < 4; k++)
        divide(C + k, 4, eps);
    for (int i = 1; i < iters; i++) {
        for (int j = 0; j < 4; j++)
            divide(C + 4 * j, 1, eps);
        for (int k = 0; k < 4; k++)
            divide(C + k, 4, eps);
    }
}

static float mix(const float w[4], const uint16_t *X, int c)
{
    float sum = w[0] * pl_bf16_to_f32(X[c]);

    for (int i = 1; i < 4; i++)
        sum = sum + w[i] * pl_bf16_to_f32(X[i * DIM + c]);
    return sum;
}

static void hyper_connections(void **state)
{
    static float fn[24 * 4 * DIM];
    float base[24] = {0}, scale[3] = {0.7f, 1.3f, 0.9f}, m[25], mh[5], post[4], comb[16], C[16],
          pre[4], rr;
    uint16_t X[4 * DIM], was[4 * DIM], y[DIM], f[DIM];
    pl_weight_view w = view(PL_WEIGHT_F32, 24, 4 * DIM, fn, NULL);
    pl_weight_view b = view(PL_WEIGHT_F32, 1, 24, base, NULL);
    pl_weight_view s = view(PL_WEIGHT_F32, 1, 3, scale, NULL);
    pl_hc_dots_args dots = {w, X, NULL, m};
    pl_hc_pre_args args = {b, s, 1e-6f, 1e-6f, 20, DIM, m, X, y, post, comb};
    pl_hc_post_args back = {DIM, f, post, comb, X};
    pl_hc_head_args head = {b, s, 1e-6f, 1e-6f, DIM, mh, X, NULL, y};

    (void)state;
    for (int i = 0; i < 24 * 4 * DIM; i++)
        fn[i] = spread() / 8;
    for (int i = 0; i < 24; i++)
        base[i] = random_float();
    for (int i = 0; i < 4 * DIM; i++)
        X[i] = was[i] = spread_bf16();
    for (int i = 0; i < DIM; i++)
        f[i] = spread_bf16();
    ops->hc_dots(&env, &dots, 0, 25);
    for (int o = 0; o < 24; o++)
        check_bits("dot", o, m[o], fn_dot(fn + o * 4 * DIM, X, 4 * DIM));
    check_bits("mean", 0, m[24], square_sum(X, 4 * DIM) / (float)(4 * DIM));
    rr = 1 / pl_sqrt_f32(m[24] + 1e-6f);

    ops->hc_pre(&env, &args, 0, 1);
    for (int i = 0; i < 4; i++) {
        pre[i] = pl_sigmoid_f32((m[i] * rr) * scale[0] + base[i]) + 1e-6f;
        check_bits("post", i, post[i],
                   2 * pl_sigmoid_f32((m[4 + i] * rr) * scale[1] + base[4 + i]));
    }
    for (int i = 0; i < 16; i++)
        C[i] = (m[8 + i] * rr) * scale[2] + base[8 + i];
    sinkhorn(C, 20, 1e-6f);
    for (int i = 0; i < 16; i++)
        check_bits("C", i, comb[i], C[i]);
    for (int c = 0; c < DIM; c++)
        check_bf16_bits("x", c, y[c], mix(pre, X, c));

    ops->hc_post(&env, &back, 0, 1);
    for (int k = 0; k < 4; k++)
        for (int c = 0; c < DIM; c++) {
            float sum = post[k] * pl_bf16_to_f32(f[c]);
            for (int j = 0; j < 4; j++)
                sum = sum + C[4 * j + k] * pl_bf16_to_f32(was[j * DIM + c]);
            check_bf16_bits("X'", k * DIM + c, X[k * DIM + c], sum);
        }

    for (int i = 0; i < 5; i++)
        mh[i] = i < 4 ? m[i] : m[24];
    ops->hc_head(&env, &head, 0, 1);
    for (int c = 0; c < DIM; c++)
        check_bf16_bits("head", c, y[c], mix(pre, X, c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_layers),
        cmocka_unit_test(shards_are_added_in_order),
        cmocka_unit_test(norms),
        cmocka_unit_test(hyper_connections),
    };
    return RUN_OPERATOR_TESTS(pl_ops_scalar(), tests);
}
