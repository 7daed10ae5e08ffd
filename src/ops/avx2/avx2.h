/* Operators of level avx2; whatever is not here is level scalar's. */
#ifndef PL_OPS_AVX2_AVX2_H
#define PL_OPS_AVX2_AVX2_H

#include "ops/simd/kernels.h"

pl_linear_fn pl__avx2_linear_fp8;
pl_linear_fn pl__avx2_linear_fp8_a16;
pl_linear_fn pl__avx2_linear_fp4;
pl_linear_fn pl__avx2_linear_bf16;

PL__SIMD_PROTOTYPES(avx2);

#endif
