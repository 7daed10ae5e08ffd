/* The experts of a step are grouped: however many tokens chose an expert, each tile of its three matrices is asked for
 * once, and no tile of an expert that nobody chose. Counted at the operator table, which is all that the forward pass
 * reads weights through; what a kernel does within a tile is its own. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ops/tile.h"
#include "support/model.h"

enum { TOKENS = 24, LINE = 64, WEIGHTS_BYTES = 64 << 20 /* more than nano has */ };

static const uint8_t *base;
static uint64_t n_lines;
static _Atomic uint8_t *asked; /* by the line in which a tile begins */
static _Atomic int64_t pairs;  /* tokens of all tiles that were asked for */
static pl_linear_fn *under;

static uint64_t line_of(const pl_weight_view *w, int64_t row)
{
    const uint8_t *at = (const uint8_t *)w->data + row * pl_tile_row_bytes(w->format, w->cols);

    assert_true(at >= base && (uint64_t)(at - base) / LINE < n_lines);
    return (uint64_t)(at - base) / LINE;
}

static void count(const pl_op_env *env, const pl_linear_job *job, int64_t begin, int64_t end)
{
    for (int64_t u = begin; u < end; u++)
        asked[line_of(&job->w, job->first_row + u * PL_TILE_ROWS)]++;
    pairs += (end - begin) * job->n;
    under(env, job, begin, end);
}

/* How often the tiles of a matrix were asked for; all of them equally often. */
static int times_asked(const test_model *m, pl_slot slot)
{
    const pl_weight_view w = pl_weights_view(m->weights, slot);
    const int times = asked[line_of(&w, 0)];

    assert_int_equal(w.format, PL_WEIGHT_FP4);
    for (int64_t row = PL_TILE_ROWS; row < w.rows; row += PL_TILE_ROWS)
        assert_int_equal(asked[line_of(&w, row)], times);
    return times;
}

/* After `steps` steps of the same tokens; *tiles: all that were asked for. */
static void check_layers(const test_model *m, int steps, int64_t *tiles)
{
    const pl_model_slots *slots = pl_weights_slots(m->weights);

    *tiles = 0;
    for (int32_t l = 0; l < m->config->n_layers; l++) {
        const pl_layer_slots *s = &slots->layer[l];
        int used = 0;

        for (int32_t e = 0; e < m->config->n_experts; e++) {
            const int times = times_asked(m, s->expert_w1 + e);

            assert_true(times == 0 || times == steps);
            assert_int_equal(times_asked(m, s->expert_w3 + e), times);
            assert_int_equal(times_asked(m, s->expert_w2 + e), times);
            used += times > 0;
        }
        assert_true(used >= m->config->n_experts_per_tok);
        /* Else no expert would have had two tokens. */
        assert_true(used < TOKENS * m->config->n_experts_per_tok);
    }
    for (uint64_t i = 0; i < n_lines; i++)
        *tiles += asked[i];
}

static void each_expert_is_read_once_a_step(void **state)
{
    const pl_ops *scalar = pl_ops_scalar();
    pl_ops ops = *scalar;
    int32_t tokens[TOKENS];
    test_model *m;
    int64_t tiles;

    under = scalar->linear_fp4;
    ops.linear_fp4 = count;
    m = test_model_open("nano", &ops, (pl_forward_limits){.max_tokens = TOKENS}, 2);
    base = m->weights_memory;
    n_lines = WEIGHTS_BYTES / LINE;
    asked = calloc(n_lines, sizeof *asked);
    assert_non_null(asked);
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = 7 * i + 3;
    for (int step = 1; step <= 2; step++) {
        pl_state *s = test_state_new(m);

        test_run(m, s, tokens, TOKENS, false);
        check_layers(m, step, &tiles);
        assert_true(pairs > tiles); /* several tokens share what is read once */
        test_state_free(s);
    }
    free((void *)asked);
    test_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_expert_is_read_once_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
