/* Which operator tables there are to check. */
#include "kernels/levels.h"

#ifdef PL_KERN_EMULATE
#define EMULATED(name) kern_simde_##name
#else
#define EMULATED(name) NULL
#endif

const kern_level kern_levels[] = {
    {"scalar", PL_LEVEL_SCALAR, pl_ops_scalar, NULL},
#ifdef PL_HAVE_AVX2
    {"avx2", PL_LEVEL_AVX2, pl_ops_avx2, NULL},
#endif
#ifdef PL_HAVE_AVX512
    {"avx512", PL_LEVEL_AVX512, pl_ops_avx512, EMULATED(avx512)},
    {"avx512bf16", PL_LEVEL_AVX512BF16, pl_ops_avx512bf16, EMULATED(avx512bf16)},
#endif
    {0},
};
