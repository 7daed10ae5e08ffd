/* Level scalar, compressor and indexer: golden pools, choices against scores in double, the total order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/numfmt.h"
#include "ops/topk.h"
#include "support/golden.h"
#include "support/operators.h"

static void pools_match_golden(void **state)
{
    golden *g = golden_open("ops.safetensors");
    static const int32_t ratios[] = {4, 128};

    for (int i = 0; i < 2; i++) {
        int32_t r = ratios[i], dim = 64;
        golden_tensor kv = golden_get(g, "F32", "pool.%d.kv", r),
                      sc = golden_get(g, "F32", "pool.%d.score", r);
        golden_tensor want = golden_get(g, "F32", "pool.%d.out", r);
        int64_t n = kv.shape[0], cols = kv.shape[1], width = r == 4 ? 2 * dim : dim;
        float *rows = take(4 * (size_t)(n * width)), *gate = take(4 * (size_t)(n * width));
        float *ape = take(4 * (size_t)(r * width));
        uint16_t *pooled = take(2 * (size_t)(n / r * dim)), *cut = take(2 * (size_t)(n / r * dim));
        void *st = take(ops->compress_state_bytes(r, dim));
        pl_compress_job job = {st, rows, gate, (int32_t)n, 0, pooled};
        pl_compress_args a = {r, dim, view(PL_WEIGHT_F32, r, width, ape, NULL), &job};

        for (int64_t t = 0; t < n; t++)
            for (int64_t c = 0; c < width; c++) {
                /* A quarter of the score comes from ape, whose row repeats with t mod r. */
                rows[t * width + c] = ((const float *)kv.data)[t * cols + c % cols];
                gate[t * width + c] = ((const float *)sc.data)[t * cols + c % cols];
            }
        memset(ape, 0, 4 * (size_t)(r * width));
        ops->compress_reset(st, r, dim);
        ops->compress(&env, &a, 0, 1);
        for (int64_t e = 0; e < n / r; e++)
            for (int64_t c = 0; c < want.shape[1]; c++) {
                double v = (double)((const float *)want.data)[e * want.shape[1] + c];
                if (fabs(v) > 1e-2)
                    check_bf16("pooled", e * 100 + c, pooled[e * dim + c], v, 1.02);
            }
        /* Cut into single tokens: the same bits. */
        ops->compress_reset(st, r, dim);
        for (int32_t t = 0; t < n; t++) {
            pl_compress_job one = {st, rows + t * width, gate + t * width, 1, t, cut + t / r * dim};
            a.jobs = &one;
            ops->compress(&env, &a, 0, 1);
        }
        check_same_bytes("cut", cut, pooled, 2 * (size_t)(n / r * dim));
        free(rows);
        free(gate);
        free(ape);
        free(pooled);
        free(cut);
        free(st);
    }
    golden_close(g);
}

enum { IH = 5, KEYS = 333, TOPK = 20 };

static void index_choice_matches_double(void **state)
{
    pl_rows keys = {.page_rows = 32, .data_bytes = 64, .scale_bytes = 4, .page_bytes = 32 * 68};
    pl_rows query = keys;
    pl_attention_seq seq = {.n = 1};
    int32_t zero = 0, position = 4 * KEYS - 1, best[7 * TOPK], n_best[7], sel[TOPK], n_sel;
    float best_score[7 * TOPK], cos32[32], sin32[32] = {0}, scores[KEYS], q[128], k[128];
    uint16_t w[IH], y[128];
    double want[KEYS];
    pl_index_topk_args a = {.n_heads = IH,
                            .topk = TOPK,
                            .n_parts = 1,
                            .w = w,
                            .factor = 0.044194173f,
                            .seqs = &seq,
                            .seq_of = &zero,
                            .position = &position,
                            .best_score = best_score,
                            .best = best,
                            .n_best = n_best,
                            .scores = scores,
                            .scores_stride = sizeof scores};
    pl_index_merge_args merge = {TOPK, 1, best_score, best, n_best, sel, &n_sel};

    keys.base = take((KEYS + 31) / 32 * 32 * 68);
    query.base = take(32 * 68);
    for (int i = 0; i < 32; i++)
        cos32[i] = 1;
    for (int64_t i = 0; i < KEYS + IH; i++) {
        pl_row_dest dest = {i < KEYS ? &keys : &query, i < KEYS ? i : i - KEYS};
        pl_key_store_args store = {y, {cos32, sin32}, &dest};

        for (int d = 0; d < 128; d++)
            y[d] = random_bf16();
        ops->key_store(&env, &store, 0, 1);
    }
    pl_rows_copy(&keys, 300, &keys, 17); /* equal scores: the lower index wins */
    for (int h = 0; h < IH; h++)
        w[h] = random_bf16();
    for (int64_t i = 0; i < KEYS; i++) {
        want[i] = 0;
        for (int64_t h = 0; h < IH; h++) {
            double dot = 0;
            ops->key_get(&query, h, q);
            ops->key_get(&keys, i, k);
            for (int d = 0; d < 128; d++)
                dot += (double)q[d] * (double)k[d];
            if (dot > 0)
                want[i] += dot * (double)pl_bf16_round(pl_bf16_to_f32(w[h]) * a.factor);
        }
    }
    seq.keys = keys;
    a.query = query;
    for (int32_t parts = 1; parts <= 7; parts++) {
        a.n_parts = merge.n_parts = parts;
        ops->index_topk(&env, &a, 0, parts);
        ops->index_merge(&env, &merge, 0, 1);
        assert_int_equal(n_sel, TOPK);
        for (int i = 0; i < KEYS; i++)
            if (!(fabs((double)scores[i] - want[i]) <= 1e-6))
                fail_msg("score %d: got %.9g, want %.9g", i, (double)scores[i], want[i]);
        for (int i = 0, at = 0; i < KEYS; i++) {
            int better = 0;
            for (int j = 0; j < KEYS; j++)
                better += scores[j] > scores[i] || (scores[j] == scores[i] && j < i);
            if (better < TOPK)
                assert_int_equal(sel[at++], i);
        }
    }
    /* With no more visible than wanted all are taken, scored or not. */
    position = 4 * TOPK - 1;
    a.scores = NULL;
    ops->index_topk(&env, &a, 0, 7);
    ops->index_merge(&env, &merge, 0, 1);
    assert_int_equal(n_sel, TOPK);
    for (int i = 0; i < TOPK; i++)
        assert_int_equal(sel[i], i);
    free(keys.base);
    free(query.base);
}

static void topk_is_a_total_order(void **state)
{
    double score[4];
    int32_t entry[4];
    pl_topk t = {score, entry, 0, 4};
    static const double in[] = {-0.0, 1, NAN, 0.0, 1, -INFINITY, 0.0};

    for (int32_t i = 6; i >= 0; i--)
        pl_topk_push(&t, in[i], i);
    pl_topk_sort_by_score(&t);
    assert_int_equal(t.n, 4);
    assert_int_equal(entry[0], 1);
    assert_int_equal(entry[1], 4);
    assert_int_equal(entry[2], 0);
    assert_int_equal(entry[3], 3);
    t = (pl_topk){score, entry, 0, 4};
    for (int32_t i = 0; i < 4; i++)
        pl_topk_push(&t, i == 1 ? NAN : i == 2 ? -INFINITY : 5 - i, i);
    pl_topk_sort_by_score(&t); /* NaN counts as -inf: 0, 3, then 1 before 2 */
    assert_int_equal(entry[0], 0);
    assert_int_equal(entry[1], 3);
    assert_int_equal(entry[2], 1);
    assert_int_equal(entry[3], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_match_golden),
        cmocka_unit_test(index_choice_matches_double),
        cmocka_unit_test(topk_is_a_total_order),
    };
    return RUN_OPERATOR_TESTS(pl_ops_scalar(), tests);
}
