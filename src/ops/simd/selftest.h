/* Start-up tests of a vector level's kernels. */
#ifndef PL_OPS_SIMD_SELFTEST_H
#define PL_OPS_SIMD_SELFTEST_H

#include "ops/ops.h"
#include "plimsoll/status.h"

/* Five tiles by 256 columns that hold every code, 1 to 13 tokens, against level scalar; a16: bf16 inputs for FP8
 * weights. Takes 340 KiB of stack. */
pl_status pl__simd_linear_selftest(const pl_ops *ops, pl_weight_format format, bool a16,
                                   pl_error *err);

typedef enum pl_simd_rows_test {
    PL_SIMD_ATTENTION,
    PL_SIMD_VARLEN,
    PL_SIMD_SPARSE,
    PL_SIMD_INDEXER,
    PL_SIMD_STREAMS,
    PL_SIMD_NORM,
    PL_SIMD_EXPERTS,
    PL_SIMD_MAP,
    PL_SIMD_COMPRESS,
    PL_SIMD_CACHE,
} pl_simd_rows_test;

/* A few tokens through the other kernels of the level, against level scalar. Takes 900 KiB of stack. */
pl_status pl__simd_rows_selftest(const pl_ops *ops, pl_simd_rows_test which, pl_error *err);

#endif
