/* Shared by the tests of single operators. */
#include "support/operators.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/numfmt.h"

const pl_ops *ops;
pl_op_env env;
static uint64_t random_state = 1;

int run_operator_tests(const pl_ops *table, const char *name, const struct CMUnitTest *tests,
                       size_t n)
{
    pl_ops_shape shape = {.max_k = 2048, .topk = 20, .max_keys = 1024, .n_experts = 16};
    pl_fpenv saved = pl_fpenv_begin();
    int failed;

    ops = table;
    env.scratch = take(table->scratch_bytes(&shape));
    failed = _cmocka_run_group_tests(name, tests, n, NULL, NULL);
    free(env.scratch);
    pl_fpenv_end(saved);
    return failed;
}

uint32_t random_u32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

/* Uniform in [-1, 1). */
float random_float(void)
{
    return (float)(int32_t)random_u32() * 0x1p-31f;
}

uint16_t random_bf16(void)
{
    return pl_f32_to_bf16(random_float());
}

void *take(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

    assert_non_null(p);
    memset(p, 0xA5, bytes);
    return p;
}

/* A bf16 output whose value is known in double: at most `halves` half units in the last place away
 * (2^-8 relative, right above a power of two). */
void check_bf16(const char *what, int64_t i, uint16_t got, double want, double halves)
{
    double error = fabs((double)pl_bf16_to_f32(got) - want);

    if (!(error <= halves * 0x1p-8 * fabs(want) + 1e-30))
        fail_msg("%s[%lld]: got %.9g, want %.9g", what, (long long)i, (double)pl_bf16_to_f32(got),
                 want);
}

void check_close(const char *what, const float *got, const float *want, size_t n, double rel)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= rel * fabs((double)want[i]) + 1e-12))
            fail_msg("%s[%zu]: got %.9g, want %.9g", what, i, (double)got[i], (double)want[i]);
}

pl_weight_view view(pl_weight_format format, int64_t rows, int64_t cols, const void *data,
                    const void *scale)
{
    return (pl_weight_view){format, rows, cols, data, scale};
}
