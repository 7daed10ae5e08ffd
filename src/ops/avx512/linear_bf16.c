/* Linear layers of level avx512bf16: pairs of columns by vdpbf16ps. */
#define PL_DOT_BF16 1
#include "ops/avx512/fp4_exact.h"

#include "ops/scalar/scalar.h"

LEVEL(avx512bf16)
