/* Operators of levels avx512 and avx512bf16; whatever is not here is level avx2's or scalar's. */
#ifndef PL_OPS_AVX512_AVX512_H
#define PL_OPS_AVX512_AVX512_H

#include "ops/ops.h"

pl_linear_fn pl__avx512_linear_fp8;
pl_linear_fn pl__avx512_linear_fp8_a16;
pl_linear_fn pl__avx512_linear_fp4;
pl_linear_fn pl__avx512_linear_bf16;

pl_linear_fn pl__avx512bf16_linear_fp8;
pl_linear_fn pl__avx512bf16_linear_fp8_a16;
pl_linear_fn pl__avx512bf16_linear_fp4;
pl_linear_fn pl__avx512bf16_linear_bf16;

#endif
