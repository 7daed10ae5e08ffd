/* The operator tables of levels avx512 and avx512bf16 over their kernels as compiled through SIMDe: meson.build
 * compiles the same files a second time under these names. */
#include "kernels/levels.h"
#include "ops/avx512/avx512.h"
#include "ops/scalar/scalar.h"

static pl_ops emulated(const pl_ops *of, pl_linear_fn *fp8, pl_linear_fn *fp8_a16,
                       pl_linear_fn *fp4, pl_linear_fn *bf16)
{
    pl_ops ops = *of;

    ops.linear_fp8 = fp8;
    ops.linear_fp8_a16 = fp8_a16;
    ops.linear_fp4 = fp4;
    ops.linear_bf16 = bf16;
    return ops;
}

const pl_ops *kern_simde_avx512(void)
{
    static pl_ops ops;

    ops = emulated(pl_ops_avx512(), pl__avx512_linear_fp8, pl__avx512_linear_fp8_a16,
                   pl__avx512_linear_fp4, pl__avx512_linear_bf16);
    return &ops;
}

const pl_ops *kern_simde_avx512bf16(void)
{
    static pl_ops ops;

    ops = emulated(pl_ops_avx512bf16(), pl__avx512bf16_linear_fp8, pl__avx512bf16_linear_fp8_a16,
                   pl__avx512bf16_linear_fp4, pl__avx512bf16_linear_bf16);
    return &ops;
}
