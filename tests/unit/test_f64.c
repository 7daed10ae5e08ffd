/* Level f64, what no golden file holds: a NaN counts as -inf in every choice and passes the indexer's relu
 * (docs/NUMERICS.md 11). */
#include <math.h>
#include <stdlib.h>

#include "base/numfmt.h"
#include "support/operators.h"

static void router_takes_nan_last(void **state)
{
    double score[4] = {NAN, -3, 1, -2};
    float bias[4] = {0, 0, 0, 0};
    int32_t ids[3];
    pl_route_args a = {.n_experts = 4,
                       .top_k = 3,
                       .bias = view(PL_WEIGHT_F32, 1, 4, bias, NULL),
                       .score = score,
                       .ids = ids};

    (void)state;
    ops->route(&env, &a, 0, 1);
    assert_int_equal(ids[0], 2);
    assert_int_equal(ids[1], 3);
    assert_int_equal(ids[2], 1);
}

/* Key 0 is NaN, the others score below zero: key 0 is not among the two best. */
static void indexer_takes_nan_last(void **state)
{
    double keys[3 * 128] = {0}, query[128] = {0}, w = -1, best_score[2];
    int32_t zero = 0, position = 11, best[2], n_best;
    pl_attention_seq seq = {.n = 1, .keys = {(uint8_t *)keys, 3 * 1024, 3, 1024, 0}};
    pl_index_topk_args a = {.n_heads = 1,
                            .topk = 2,
                            .n_parts = 1,
                            .query = {(uint8_t *)query, 1024, 1, 1024, 0},
                            .w = &w,
                            .factor = 1,
                            .seqs = &seq,
                            .seq_of = &zero,
                            .position = &position,
                            .best_score = best_score,
                            .best = best,
                            .n_best = &n_best};

    (void)state;
    query[0] = 1;
    keys[0] = NAN;
    keys[128] = 2;
    keys[256] = 3;
    ops->index_topk(&env, &a, 0, 1);
    assert_int_equal(n_best, 2);
    assert_int_equal(best[0], 1);
    assert_int_equal(best[1], 2);
    assert_true(best_score[0] == -2 && best_score[1] == -3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(router_takes_nan_last),
        cmocka_unit_test(indexer_takes_nan_last),
    };
    return RUN_OPERATOR_TESTS(pl_ops_f64(PL_MODE_REC), tests);
}
