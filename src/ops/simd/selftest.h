/* Start-up test of a vector level's linear layers. */
#ifndef PL_OPS_SIMD_SELFTEST_H
#define PL_OPS_SIMD_SELFTEST_H

#include "ops/ops.h"
#include "plimsoll/status.h"

/* Two tiles by 256 columns that hold every code, 1 to 8 tokens, against level scalar; a16: bf16 inputs for FP8
 * weights. Takes 300 KiB of stack. */
pl_status pl__simd_linear_selftest(const pl_ops *ops, pl_weight_format format, bool a16,
                                   pl_error *err);

#endif
