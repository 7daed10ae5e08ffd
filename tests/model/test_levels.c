/* The forward pass at every level that this processor has, weights laid out as the level wants them: the
 * logits of a prompt and of single tokens behind it have the bits of level scalar. */
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "ops/level.h"
#include "support/model.h"

enum { PROMPT = 150, STEPS = 3 };

static const char *model_name;

/* Logits of all rows of the prompt, then of STEPS single tokens: [PROMPT + STEPS][V], freed by the caller. */
static float *logits_at(const pl_ops *ops, size_t *n)
{
    test_model *m = test_model_open(
        model_name, ops, (pl_forward_limits){.max_tokens = PROMPT, .max_len = PROMPT + STEPS}, 2);
    int64_t v = m->config->vocab_size;
    float *out = malloc((size_t)((PROMPT + STEPS) * v) * sizeof *out);
    int32_t tokens[PROMPT + STEPS];
    pl_state *s = test_state_new(m);

    assert_non_null(out);
    *n = (size_t)((PROMPT + STEPS) * v);
    for (int32_t i = 0; i < PROMPT + STEPS; i++)
        tokens[i] = (int32_t)((i * 7919 + 13) % v);
    test_run(m, s, tokens, PROMPT, true);
    for (int32_t i = 0; i < PROMPT; i++)
        test_logits(m, i, out + i * v);
    for (int32_t i = PROMPT; i < PROMPT + STEPS; i++) {
        test_run(m, s, tokens + i, 1, true);
        test_logits(m, 0, out + i * v);
    }
    test_state_free(s);
    test_model_close(m);
    return out;
}

static void every_level_has_the_bits_of_scalar(void **state)
{
    size_t n_want, n_got;
    float *want = logits_at(pl_ops_scalar(), &n_want);
    pl_cpu cpu;
    int n = 0;

    pl_cpu_detect(&cpu, NULL);
    for (pl_level l = PL_LEVEL_AVX2; l <= cpu.level; l++) {
        float *got;
        if (!(pl_level_built() >> l & 1))
            continue;
        got = logits_at(pl_ops_at(l, PL_MODE_REC), &n_got);
        assert_int_equal(n_got, n_want);
        check_same_f32(pl_level_name(l), got, want, n_want);
        free(got);
        n++;
    }
    free(want);
    if (n == 0)
        skip();
}

/* Level f64 reads rows; weights in tiles would be noise to it. */
static void f64_refuses_tiles(void **state)
{
    test_model *m =
        test_model_open(model_name, pl_ops_scalar(), (pl_forward_limits){.max_tokens = 1}, 2);
    pl_forward *f = NULL;
    pl_error err;

    test_model_tile(m);
    check_error(pl_forward_init(m->memory, m->weights, pl_ops_f64(PL_MODE_REC), m->pool, &m->limits,
                                &f, &err),
                PL_ERR_INVALID, &err, "tiles", NULL);
    test_model_close(m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_has_the_bits_of_scalar),
        cmocka_unit_test(f64_refuses_tiles),
    };

    model_name = argc > 1 ? argv[1] : "nano";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
