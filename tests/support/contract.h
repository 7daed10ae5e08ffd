/* What the tests of docs/NUMERICS.md share. They read the page a second time: operators bit by bit against plain
 * loops that follow it and share nothing with the level but formats, elementary functions and the fused
 * multiply-add. Other tests allow for rounding, so they cannot see a sum in the wrong order; here every order
 * counts. */
#ifndef PL_TESTS_CONTRACT_H
#define PL_TESTS_CONTRACT_H

#include <math.h>

#include "base/math.h"
#include "support/operators.h"

/* Many magnitudes, so that the order of a sum shows. */
static inline float spread(void)
{
    float x = random_float();

    return ldexpf(x, (int)(random_u32() % 12) - 6);
}

static inline uint16_t spread_bf16(void)
{
    return pl_f32_to_bf16(spread());
}

static inline void check_bits(const char *what, int64_t i, float got, float want)
{
    if (pl_f32_bits(got) != pl_f32_bits(want))
        fail_msg("%s[%lld]: got %a, want %a", what, (long long)i, (double)got, (double)want);
}

static inline void check_bf16_bits(const char *what, int64_t i, uint16_t got, float want)
{
    check_bits(what, i, pl_bf16_to_f32(got), pl_bf16_round(want));
}

/* Section 1. */
static inline float chain(float c, const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i += 2)
        c = pl_fma_f32(a[i], b[i], pl_fma_f32(a[i + 1], b[i + 1], c));
    return c;
}

#endif
