/* Which operator tables there are to check. */
#include "kernels/levels.h"

const kern_level kern_levels[] = {
    {"scalar", PL_LEVEL_SCALAR, pl_ops_scalar, NULL},
#ifdef PL_HAVE_AVX2
    {"avx2", PL_LEVEL_AVX2, pl_ops_avx2, NULL},
#endif
#ifdef PL_HAVE_AVX512
    {"avx512", PL_LEVEL_AVX512, pl_ops_avx512, kern_simde_avx512},
    {"avx512bf16", PL_LEVEL_AVX512BF16, pl_ops_avx512bf16, kern_simde_avx512bf16},
#endif
    {0},
};
