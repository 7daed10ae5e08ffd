/* Keys and queries of the indexer for vector levels: rotation, Hadamard, e2m1 (NUMERICS 3, 7).
 *
 * A row's 128 values are 16 vectors. Butterflies of strides 1, 2 and 4 pair lanes of one vector, where a - b is the
 * partner plus the value with its sign turned, those from 8 on pair vectors: each of the additions of the scalar form, in
 * its order. */
#include <string.h>

#include "ops/simd/quantise.h"
#include "ops/simd/rotate.h"

enum { VECTORS = PL_INDEX_DIM / LANES, GROUP = 32, GROUP_VECTORS = GROUP / LANES };

/* Partner plus value, where the sign of the lanes in `upper` is turned. */
INLINE vf butterfly(vf partner, vf x, vf upper)
{
    return vf_add(partner, _mm256_xor_ps(x, upper));
}

INLINE void hadamard(vf *v)
{
    const vf minus1 = _mm256_setr_ps(0, -0.0f, 0, -0.0f, 0, -0.0f, 0, -0.0f);
    const vf minus2 = _mm256_setr_ps(0, 0, -0.0f, -0.0f, 0, 0, -0.0f, -0.0f);
    const vf minus4 = _mm256_setr_ps(0, 0, 0, 0, -0.0f, -0.0f, -0.0f, -0.0f);

    UNROLL
    for (int i = 0; i < VECTORS; i++) {
        v[i] = butterfly(_mm256_permute_ps(v[i], 0xB1), v[i], minus1);
        v[i] = butterfly(_mm256_permute_ps(v[i], 0x4E), v[i], minus2);
        v[i] = butterfly(_mm256_permute2f128_ps(v[i], v[i], 1), v[i], minus4);
    }
    UNROLL
    for (int stride = 1; stride < VECTORS; stride *= 2)
        for (int i = 0; i < VECTORS; i++) {
            vf a = v[i], b;

            if (i & stride)
                continue;
            b = v[i + stride];
            v[i] = vf_add(a, b);
            v[i + stride] = vf_sub(a, b);
        }
}

/* Codes in the low byte of each 64 bits, two to a byte: a tie goes to the even code. */
INLINE __m256i codes_of(vf y)
{
    const vf a = _mm256_andnot_ps(vf_set(-0.0f), y);
    static const float above[] = {0.25f, 1.25f, 2.5f, 5.0f}, from[] = {0.75f, 1.75f, 3.5f};
    __m256i code = _mm256_and_si256(_mm256_srli_epi32(vf_bits(y), 28), _mm256_set1_epi32(8));

    UNROLL
    for (int i = 0; i < 4; i++)
        code = _mm256_sub_epi32(code, vf_bits(vf_gt(a, vf_set(above[i]))));
    UNROLL
    for (int i = 0; i < 3; i++)
        code = _mm256_sub_epi32(code, vf_bits(_mm256_cmp_ps(a, vf_set(from[i]), _CMP_GE_OQ)));
    return _mm256_or_si256(code, _mm256_srli_epi64(code, 28));
}

/* 32 numbers to 16 bytes and the byte of their scale; 255 for a lost group. */
INLINE uint8_t quantise_group(const uint16_t *x, uint8_t *packed)
{
    const __m128i transpose = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i dwords = _mm256_setr_epi32(0, 2, 4, 6, 0, 0, 0, 0);
    const uint32_t top = bf16_largest(x, GROUP);
    float amax = pl_bf16_to_f32((uint16_t)top);
    __m256i bytes = _mm256_setzero_si256();
    uint8_t scale;
    uint32_t u;
    vf inverse;

    if (top >= 0x7F80) {
        memset(packed, 0, GROUP / 2);
        return 255;
    }
    u = pl_f32_bits((amax > 0x1.8p-124f ? amax : 0x1.8p-124f) * (1.0f / 6.0f));
    scale = (uint8_t)((u >> 23) + ((u & 0x7FFFFF) != 0));
    inverse = vf_set(pl_f32_from_bits((uint32_t)(254 - scale) << 23));
    UNROLL
    for (int k = 0; k < GROUP_VECTORS; k++) {
        __m256i low = _mm256_and_si256(codes_of(vf_mul(vf_load_bf16(x + k * LANES), inverse)),
                                       _mm256_set1_epi64x(0xFF));
        bytes = _mm256_or_si256(bytes, _mm256_slli_epi64(low, 8 * k));
    }
    _mm_storeu_si128(
        (__m128i *)packed,
        _mm_shuffle_epi8(_mm256_castsi256_si128(_mm256_permutevar8x32_epi32(bytes, dwords)),
                         transpose));
    return scale;
}

INLINE void store_row(const pl_angles *angles, int64_t t, const uint16_t *y, const pl_rows *rows,
                      int64_t index)
{
    uint8_t *data = pl_rows_data(rows, index), *scales = pl_rows_scales(rows, index);
    uint16_t row[PL_INDEX_DIM];
    vf v[VECTORS];

    memcpy(row, y, sizeof row);
    vf_rotate(angles, t, false, vf_set(1.0f), row + PL_INDEX_DIM - PL_ROPE_DIM);
    UNROLL
    for (int i = 0; i < VECTORS; i++)
        v[i] = vf_load_bf16(row + i * LANES);
    hadamard(v);
    UNROLL
    for (int i = 0; i < VECTORS; i++)
        vf_store_bf16(row + i * LANES, vf_mul(v[i], vf_set(0x1.6a09e6p-4f)));
    for (int g = 0; g < PL_INDEX_DIM / GROUP; g++)
        scales[g] = quantise_group(row + g * GROUP, data + g * GROUP / 2);
}

void PL__AT(key_store)(const pl_op_env *env, const pl_key_store_args *a, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++)
        store_row(&a->angles, r, (const uint16_t *)a->y + r * PL_INDEX_DIM, a->dest[r].rows,
                  a->dest[r].index);
}

void PL__AT(index_query)(const pl_op_env *env, const pl_index_query_args *a, int64_t begin,
                         int64_t end)
{
    for (int64_t u = begin; u < end; u++)
        store_row(&a->angles, u / a->n_heads, (const uint16_t *)a->q + u * PL_INDEX_DIM, &a->out,
                  u);
}

void PL__AT(hadamard)(const pl_op_env *env, const pl_hadamard_args *a, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++) {
        vf v[VECTORS];

        UNROLL
        for (int i = 0; i < VECTORS; i++)
            v[i] = vf_load_bf16((const uint16_t *)a->x + r * PL_INDEX_DIM + i * LANES);
        hadamard(v);
        UNROLL
        for (int i = 0; i < VECTORS; i++)
            vf_store_bf16((uint16_t *)a->y + r * PL_INDEX_DIM + i * LANES,
                          vf_mul(v[i], vf_set(0x1.6a09e6p-4f)));
    }
}
