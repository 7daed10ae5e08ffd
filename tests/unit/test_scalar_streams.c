/* Level scalar, hyper-connections, head norm, experts: golden cases and sums in double. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/numfmt.h"
#include "support/golden.h"
#include "support/operators.h"

static void hyper_connections_match_golden(void **state)
{
    golden *g = golden_open("ops.safetensors");
    golden_tensor fn = golden_get(g, "F32", "mhc.fn"), base = golden_get(g, "F32", "mhc.base");
    golden_tensor scale = golden_get(g, "F32", "mhc.scale"), x = golden_get(g, "BF16", "mhc.X");
    golden_tensor f = golden_get(g, "BF16", "mhc.f");
    const float *want_x = golden_get(g, "F32", "mhc.x").data,
                *out = golden_get(g, "F32", "mhc.out").data;
    const float *want_head = golden_get(g, "F32", "mhc.head").data;
    int64_t n = x.shape[0], dim = x.shape[2];
    float *m = take(sizeof(float) * (size_t)n * 25), *post = take((size_t)n * 16);
    float *comb = take((size_t)n * 64);
    uint16_t *y = take(2 * (size_t)(n * dim)), *streams = take(x.bytes);
    pl_hc_dots_args dots = {view(PL_WEIGHT_F32, 24, 4 * dim, fn.data, NULL), x.data, NULL, m};
    pl_hc_pre_args pre = {view(PL_WEIGHT_F32, 1, 24, base.data, NULL),
                          view(PL_WEIGHT_F32, 1, 3, scale.data, NULL),
                          1e-6f,
                          1e-6f,
                          20,
                          dim,
                          m,
                          x.data,
                          y,
                          post,
                          comb};
    pl_hc_post_args mix = {dim, f.data, post, comb, streams};
    pl_hc_head_args head = {view(PL_WEIGHT_F32, 1, 4, base.data, NULL),
                            view(PL_WEIGHT_F32, 1, 1, scale.data, NULL),
                            1e-6f,
                            1e-6f,
                            dim,
                            m,
                            x.data,
                            NULL,
                            y};

    ops->hc_dots(&env, &dots, 0, n * 25);
    ops->hc_pre(&env, &pre, 0, n);
    check_close("post", post, golden_get(g, "F32", "mhc.post").data, (size_t)n * 4, 3e-6);
    check_close("comb", comb, golden_get(g, "F32", "mhc.comb").data, (size_t)n * 16, 2e-5);
    for (int64_t i = 0; i < n * dim; i++)
        if (fabs((double)want_x[i]) > 1e-2) /* cancellation below */
            check_bf16("x", i, y[i], (double)want_x[i], 1.1);
    memcpy(streams, x.data, x.bytes);
    ops->hc_post(&env, &mix, 0, n);
    for (int64_t i = 0; i < n * 4 * dim; i++)
        if (fabs((double)out[i]) > 1e-2)
            check_bf16("out", i, streams[i], (double)out[i], 1.1);
    dots.fn.rows = 4;
    ops->hc_dots(&env, &dots, 0, n * 5);
    ops->hc_head(&env, &head, 0, n);
    for (int64_t i = 0; i < n * dim; i++)
        if (fabs((double)want_head[i]) > 1e-2)
            check_bf16("head", i, y[i], (double)want_head[i], 1.1);
    free(m);
    free(post);
    free(comb);
    free(y);
    free(streams);
    golden_close(g);
}

static void q_norm_rope_matches_double(void **state)
{
    float cos32[32], sin32[32];
    uint16_t q[2][512];
    double x[512];
    pl_q_norm_rope_args a = {2, 1e-6f, {cos32, sin32}, q};

    for (int i = 0; i < 32; i++) {
        cos32[i] = (float)cos(0.3 * i);
        sin32[i] = (float)sin(0.3 * i);
    }
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 512; i++)
            q[h][i] = random_bf16();
    for (int h = 1; h >= 0; h--) {
        double ss = 0, r;

        for (int i = 0; i < 512; i++) {
            x[i] = (double)pl_bf16_to_f32(q[h][i]);
            ss += x[i] * x[i];
        }
        r = 1 / sqrt(ss / 512 + 1e-6);
        ops->q_norm_rope(&env, &a, h, h + 1);
        for (int i = 0; i < 448; i++)
            check_bf16("q", i, q[h][i], x[i] * r, 1.01);
        for (int i = 0; i < 32; i++) {
            double p = x[448 + 2 * i] * r, s = x[449 + 2 * i] * r, c = (double)cos32[i],
                   d = (double)sin32[i];
            if (fabs(p * c - s * d) > 1e-2)
                check_bf16("q even", i, q[h][448 + 2 * i], p * c - s * d, 1.01);
            if (fabs(p * d + s * c) > 1e-2)
                check_bf16("q odd", i, q[h][449 + 2 * i], p * d + s * c, 1.01);
        }
    }
}

static void gate_matches_golden(void **state)
{
    golden *g = golden_open("ops.safetensors");
    golden_tensor x = golden_get(g, "BF16", "gate.x"), w = golden_get(g, "BF16", "gate.weight");
    golden_tensor bias = golden_get(g, "F32", "gate.bias"), ids = golden_get(g, "I64", "gate.ids");
    int64_t n = x.shape[0], n_experts = w.shape[0];
    float *score = take(4 * (size_t)(n * n_experts)), *weight = take(4 * (size_t)n * 6);
    int32_t *got = take(4 * (size_t)n * 6);
    pl_linear_job job = {.w = view(PL_WEIGHT_BF16, n_experts, 64, w.data, NULL),
                         .n_rows = n_experts,
                         .x = x.data,
                         .x_stride = 128,
                         .n = (int32_t)n,
                         .out = PL_LINEAR_ACC,
                         .y = score,
                         .y_stride = n_experts * 4};
    pl_route_args route = {.n_experts = (int32_t)n_experts,
                           .top_k = 6,
                           .score = score,
                           .ids = got,
                           .bias = view(PL_WEIGHT_F32, 1, n_experts, bias.data, NULL)};
    pl_route_weights_args rw = {(int32_t)n_experts, 6, 1.5f, score, got, weight};

    ops->linear_bf16(&env, &job, 0, 1);
    ops->route(&env, &route, 0, n);
    ops->route_weights(&env, &rw, 0, n);
    for (int64_t i = 0; i < n * 6; i++)
        assert_int_equal(got[i], ((const int64_t *)ids.data)[i]);
    check_close("weights", weight, golden_get(g, "F32", "gate.weights").data, (size_t)n * 6, 2e-6);
    free(score);
    free(weight);
    free(got);
    golden_close(g);
}

static void swiglu_clamps_as_stated(void **state)
{
    /* g from above only, u on both sides, the weight last. */
    static const float g[] = {20, -20, 1, 1, 1, -3}, u[] = {1, 1, 20, -20, 0.5f, 2};
    uint16_t gb[12], ub[12], a[12];
    float weight = 0.75f;
    int32_t at[2] = {-1, 0};
    pl_swiglu_args args = {6, 10.0f, gb, ub, &weight, at, a};

    for (int i = 0; i < 12; i++) {
        gb[i] = pl_f32_to_bf16(g[i % 6]);
        ub[i] = pl_f32_to_bf16(u[i % 6]);
    }
    ops->swiglu(&env, &args, 1, 2);
    ops->swiglu(&env, &args, 0, 1);
    for (int i = 0; i < 12; i++) {
        double x = fmin((double)g[i % 6], 10), up = fmax(fmin((double)u[i % 6], 10), -10);
        check_bf16("a", i, a[i], x / (1 + exp(-x)) * up * (i < 6 ? 1 : 0.75), 1.01);
    }
}

static void experts_are_added_in_shards(void **state)
{
    /* Experts 0, 1 | 2, 3 in two shards: (1 + t) + (t + t) against ((1 + t) + t) + t. */
    static const float y[4] = {1, 0x1p-24f, 0x1p-24f, 0x1p-24f};
    uint16_t rows[4], shared = pl_f32_to_bf16(-1), f;
    int32_t at[4] = {0, 1, 2, 3};
    pl_moe_sum_args a = {1, 4, 4, 2, rows, at, at, &shared, &f};

    for (int i = 0; i < 4; i++)
        rows[i] = pl_f32_to_bf16(y[i]);
    ops->moe_sum(&env, &a, 0, 1);
    assert_true(pl_bf16_to_f32(f) == 0x1p-23f);
    a.n_shards = 1;
    ops->moe_sum(&env, &a, 0, 1);
    assert_true(pl_bf16_to_f32(f) == 0.0f);
    a.n_shards = 3; /* 0 | 1 | 2, 3 */
    ops->moe_sum(&env, &a, 0, 1);
    assert_true(pl_bf16_to_f32(f) == 0x1p-23f);
}

/* The sum of experts taken apart for two ranks: each makes its shards' parts, from rows of its own experts alone. */
static void experts_are_added_by_ranks(void **state)
{
    enum { N = 5, DIM = 3, K = 4, E = 7 };
    uint16_t y[N * K * DIM], shared[N * DIM], want[N * DIM], got[N * DIM];
    int32_t rows[N][K], ids[N][K];
    float part[4][N * DIM];

    for (int i = 0; i < N * K * DIM; i++)
        y[i] = pl_f32_to_bf16(ldexpf((float)(i * 7919 % 1009 - 500), -(i % 20)));
    for (int t = 0; t < N; t++)
        for (int j = 0; j < K; j++) {
            rows[t][j] = N * K - 1 - (t * K + j);
            ids[t][j] = j + t % (E - K + 1);
        }
    ids[N - 1][1] = ids[N - 1][0]; /* a table may name an expert twice */
    for (int i = 0; i < N * DIM; i++)
        shared[i] = pl_f32_to_bf16((float)(i * 31 % 17) - 8);
    for (int32_t n_shards = 1; n_shards <= 4; n_shards++) {
        pl_moe_sum_args whole = {DIM, K, E, n_shards, y, rows[0], ids[0], shared, want};
        pl_moe_parts_args apart = {DIM,     K,      E,    n_shards,      0, 0, y,
                                   rows[0], ids[0], part, sizeof part[0]};
        pl_shard_sum_args sum = {DIM, n_shards, E, part, sizeof part[0], shared, got};

        ops->moe_sum(&env, &whole, 0, N);
        memset(part, 0xFF, sizeof part);
        apart.shard_end = n_shards / 2;
        ops->moe_parts(&env, &apart, 0, N);
        apart.shard = apart.shard_end;
        apart.shard_end = n_shards;
        ops->moe_parts(&env, &apart, 0, N);
        ops->shard_sum(&env, &sum, 0, N);
        assert_memory_equal(got, want, sizeof want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hyper_connections_match_golden),
        cmocka_unit_test(q_norm_rope_matches_double),
        cmocka_unit_test(gate_matches_golden),
        cmocka_unit_test(swiglu_clamps_as_stated),
        cmocka_unit_test(experts_are_added_in_shards),
        cmocka_unit_test(experts_are_added_by_ranks),
    };
    return RUN_OPERATOR_TESTS(pl_ops_scalar(), tests);
}
