/* A quantised row made in parts is the row made at once, at every level that runs here. */
#include <string.h>

#include "base/cpu.h"
#include "ops/ops.h"
#include "support/check.h"

enum { DIM = 768, ROWS = 3, STRIDE = 832 };

static void fill(const pl_ops *ops, void *x)
{
    float v[ROWS * DIM];
    uint32_t random = 7;

    for (int i = 0; i < ROWS * DIM; i++) {
        random = random * 1664525u + 1013904223u;
        v[i] = ((float)(random >> 8) / (1 << 24) - 0.5f) * (float)(1 + i % 300);
    }
    ops->act_set(v, ROWS * DIM, x);
}

static void parts_make_the_row(void **unused)
{
    static const int64_t cuts[] = {0, 128, 512, DIM};
    pl_cpu cpu;

    pl_cpu_detect(&cpu, NULL);
    for (pl_level l = PL_LEVEL_SCALAR; l < PL_LEVEL_COUNT; l++) {
        const pl_ops *ops = pl_ops_at(l, PL_MODE_REC);
        static double x[ROWS * DIM], whole[ROWS * STRIDE], parts[ROWS * STRIDE];
        pl_op_env env = {PL_MODE_REC, NULL};
        int64_t act, stride;
        pl_quantise_args a;

        if (!ops || (l != PL_LEVEL_F64 && l > cpu.level))
            continue;
        act = ops->act_bytes;
        stride = (DIM / 128 * ops->quant_block_bytes + 15) / 16 * 16;
        fill(ops, x);
        memset(whole, 0x55, sizeof whole);
        memset(parts, 0x55, sizeof parts);
        a = (pl_quantise_args){
            .dim = DIM, .x = x, .x_stride = DIM * act, .q = whole, .q_stride = stride};
        ops->quantise(&env, &a, 0, ROWS);
        for (int i = 0; i < 3; i++) {
            a.dim = cuts[i + 1] - cuts[i];
            a.row_dim = DIM;
            a.first = cuts[i];
            a.x = (const char *)x + cuts[i] * act;
            a.q = parts;
            ops->quantise(&env, &a, 0, ROWS);
        }
        check_same_bytes(ops->name, parts, whole, sizeof whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_make_the_row)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
