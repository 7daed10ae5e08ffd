/* Logarithm and softplus (NUMERICS 6): base/math.c one operation after the other, special arguments selected at the end.
 * Included by kernels only (simd/vec.h, which has exp, sigmoid and tanh). */
#ifndef PL_OPS_SIMD_ELEMENTARY_H
#define PL_OPS_SIMD_ELEMENTARY_H

#include "ops/simd/vec.h"

/* ln(1 + f), f between 1/sqrt(2) - 1 and sqrt(2) - 1. */
INLINE vf log1p_core(vf f)
{
    vf s = vf_div(f, vf_add(vf_set(2.0f), f)), z = vf_mul(s, s), p = vf_set(0x1.c71c72p-3f);

    p = vf_add(vf_mul(p, z), vf_set(0x1.24924ap-2f));
    p = vf_add(vf_mul(p, z), vf_set(0x1.99999ap-2f));
    p = vf_add(vf_mul(p, z), vf_set(0x1.555556p-1f));
    return vf_sub(f, vf_mul(s, vf_sub(f, vf_mul(z, p))));
}

/* (w + n ln2_lo) + n ln2_hi. */
INLINE vf add_ln2(vf w, vf n)
{
    return vf_add(vf_add(w, vf_mul(n, vf_set(0x1.7f7d1cp-20f))), vf_mul(n, vf_set(0x1.62e4p-1f)));
}

INLINE vf vf_log(vf x)
{
    const vi infinite = _mm256_set1_epi32(0x7F800000), zero = _mm256_setzero_si256();
    vi u = vf_bits(x), k = _mm256_and_si256(_mm256_sub_epi32(u, _mm256_set1_epi32(0x3F3504F3)),
                                            _mm256_set1_epi32((int)0xFF800000));
    vf e = _mm256_cvtepi32_ps(_mm256_srai_epi32(k, 23));
    vf w = log1p_core(vf_sub(vf_from_bits(_mm256_sub_epi32(u, k)), vf_set(1.0f)));
    vf y = add_ln2(w, e);
    vi none = _mm256_cmpeq_epi32(_mm256_and_si256(u, infinite), zero);
    /* Negative or a NaN: above infinity as an unsigned number. */
    vi bad = _mm256_or_si256(_mm256_cmpgt_epi32(zero, u), _mm256_cmpgt_epi32(u, infinite));

    y = vf_select(vf_from_bits(_mm256_cmpeq_epi32(u, infinite)), x, y);
    y = vf_select(vf_from_bits(bad), vf_from_bits(_mm256_set1_epi32(0x7FC00000)), y);
    return vf_select(vf_from_bits(none), vf_set(-INFINITY), y);
}

INLINE vf vf_softplus(vf x)
{
    const vf one = vf_set(1.0f), step = vf_set(0x1.a8279ap-2f);
    vf t = vf_exp(_mm256_or_ps(x, vf_set(-0.0f))), above = vf_gt(t, step);
    vf upper = vf_select(above, one, vf_zero());
    vf f = vf_select(above, vf_mul(vf_sub(t, one), vf_set(0.5f)), t);
    vf y = vf_add(add_ln2(log1p_core(f), upper), vf_select(vf_gt(x, vf_zero()), x, vf_zero()));

    return vf_select(_mm256_or_ps(vf_gt(x, vf_set(20.0f)), vf_is_nan(x)), x, y);
}

#endif
