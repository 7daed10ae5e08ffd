/* Which operator tables there are to check. */
#include "kernels/levels.h"

const kern_level kern_levels[] = {
    {"scalar", PL_LEVEL_SCALAR, pl_ops_scalar},
#ifdef PL_HAVE_AVX2
    {"avx2", PL_LEVEL_AVX2, pl_ops_avx2},
#endif
    {0},
};
