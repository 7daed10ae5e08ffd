/* Linear layers of level avx512: pairs of columns by two fmas. */
#define PL_DOT_BF16 0
#include "ops/avx512/fp4_exact.h"

#include "ops/scalar/scalar.h"

LEVEL(avx512)
