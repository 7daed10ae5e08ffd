/* Rotation of a head's last 64 dims (NUMERICS 7). Included by kernels only (simd/vec.h). */
#ifndef PL_OPS_SIMD_ROTATE_H
#define PL_OPS_SIMD_ROTATE_H

#include "ops/simd/vec.h"

/* x * r, rotated by row t of the angles, back where it says so, rounded to bf16. Pairs are neighbours, so that the partner
 * is one swap away and the sine changes sign in every other lane: a * c - b * s, b * c + a * s. */
INLINE void vf_rotate(const pl_angles *angles, int64_t t, bool back, vf r, uint16_t *x)
{
    const float *cosines = (const float *)angles->cos + t * PL_ROPE_PAIRS;
    const float *sines = (const float *)angles->sin + t * PL_ROPE_PAIRS;
    const vi twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    const vf first = _mm256_setr_ps(-0.0f, 0, -0.0f, 0, -0.0f, 0, -0.0f, 0);
    const vf turned = back ? vf_swap(first) : first;

    for (int d = 0; d < PL_ROPE_DIM; d += LANES) {
        vf c = _mm256_castps128_ps256(_mm_loadu_ps(cosines + d / 2));
        vf s = _mm256_castps128_ps256(_mm_loadu_ps(sines + d / 2));
        vf v = vf_mul(vf_load_bf16(x + d), r);

        c = _mm256_permutevar8x32_ps(c, twice);
        s = _mm256_xor_ps(_mm256_permutevar8x32_ps(s, twice), turned);
        vf_store_bf16(x + d, vf_add(vf_mul(v, c), vf_mul(vf_swap(v), s)));
    }
}

#endif
