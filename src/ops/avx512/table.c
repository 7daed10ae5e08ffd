/* The operator tables of levels avx512 and avx512bf16: linear layers of their own, the rest is avx2's, which these
 * processors have too. Nothing in this file is compiled for AVX-512: it is read before the level is chosen. */
#include "ops/avx2/avx2.h"
#include "ops/avx512/avx512.h"
#include "ops/scalar/scalar.h"
#include "ops/simd/attention.h"
#include "ops/simd/linear.h"
#include "ops/simd/streams.h"

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t scratch_bytes(const pl_ops_shape *shape)
{
    uint64_t scalar = pl_ops_scalar()->scratch_bytes(shape);
    uint64_t own = max_u64(pl__simd_linear_scratch_bytes(shape->max_k),
                           max_u64(PL_SIMD_ATTENTION_BYTES, PL_SIMD_STREAMS_BYTES));

    return max_u64(own, scalar);
}

/* The levels differ in which linear layers they have. */
/* clang-format off */
#define TABLE(of) \
    static const pl_ops of = { \
        PL__SCALAR_SHARED, \
        .name = #of, \
        .scratch_bytes = scratch_bytes, \
        .linear_fp8 = pl__##of##_linear_fp8, \
        .linear_fp8_a16 = pl__##of##_linear_fp8_a16, \
        .linear_fp4 = pl__##of##_linear_fp4, \
        .linear_bf16 = pl__##of##_linear_bf16, \
        PL__SIMD_ENTRIES(avx2), \
    }
/* clang-format on */

TABLE(avx512);
TABLE(avx512bf16);

const pl_ops *pl_ops_avx512(void)
{
    return &avx512;
}

const pl_ops *pl_ops_avx512bf16(void)
{
    return &avx512bf16;
}
