/* Rows of caches for vector levels: quantised and stored, read back as bf16 (NUMERICS 3, 7). Layouts: ops/cache_rows.h. */
#include <string.h>

#include "ops/simd/quantise.h"
#include "ops/simd/rotate.h"

enum { TAIL = PL_ROPE_DIM * (int)sizeof(uint16_t), V32_BLOCKS = PL_V32_NOPE / PL_V32_BLOCK };

/* ---- into the cache */

/* `block` numbers to codes; the byte of their scale. */
INLINE uint8_t put_block(const uint16_t *x, int block, uint8_t *codes)
{
    const uint32_t top = bf16_largest(x, block);
    uint8_t scale;
    vf inverse;

    if (top >= 0x7F80) {
        memset(codes, 0x7F, (size_t)block);
        return 255;
    }
    scale = e4m3_scale(top);
    inverse = e4m3_inverse(scale);
    for (int i = 0; i < block; i += 2 * LANES)
        e4m3_store(codes + i, e4m3_codes(vf_load_bf16(x + i), inverse),
                   e4m3_codes(vf_load_bf16(x + i + LANES), inverse));
    return scale;
}

INLINE void put_v4(const uint16_t *x, uint8_t *data, uint8_t *scales)
{
    uint8_t s[PL_NOPE_DIM / PL_KV_BLOCK + 1] = {0};

    for (int b = 0; b < PL_NOPE_DIM / PL_KV_BLOCK; b++)
        s[b] = put_block(x + b * PL_KV_BLOCK, PL_KV_BLOCK, data + b * PL_KV_BLOCK);
    memcpy(scales, s, sizeof s);
    memcpy(data + PL_NOPE_DIM, x + PL_NOPE_DIM, TAIL);
}

INLINE void put_v32(const uint16_t *x, const pl_cache_row *row)
{
    for (int b = 0; b < V32_BLOCKS; b++) {
        uint8_t s = put_block(x + b * PL_V32_BLOCK, PL_V32_BLOCK, row->data + b * PL_V32_BLOCK);
        float wide = pl_e8m0_to_f32(s);
        memcpy(row->scales + b * (int)sizeof wide, &wide, sizeof wide);
    }
    memcpy(row->tail, x + PL_V32_NOPE, TAIL);
}

void PL__AT(cache_put)(const pl_op_env *env, const pl_cache_move_args *a, int64_t begin,
                       int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        const uint16_t *x = a->x + i * a->x_stride;
        pl_cache_row row;

        if (a->slots[i] < 0)
            continue;
        row = pl_cache_row_at(&a->rows, a->slots[i]);
        if (a->rows.format == PL_CACHE_V4)
            put_v4(x, row.data, row.scales);
        else if (a->rows.format == PL_CACHE_V32)
            put_v32(x, &row);
        else
            memcpy(row.data, x, (size_t)a->rows.dim * sizeof *x);
    }
}

void PL__AT(kv_store)(const pl_op_env *env, const pl_kv_store_args *a, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++) {
        const pl_row_dest *dest = &a->dest[r];
        uint16_t x[PL_HEAD_DIM];

        memcpy(x, (const uint16_t *)a->kv + r * PL_HEAD_DIM, sizeof x);
        vf_rotate(&a->angles, r, false, vf_set(1.0f), x + PL_NOPE_DIM);
        put_v4(x, pl_rows_data(dest->rows, dest->index), pl_rows_scales(dest->rows, dest->index));
    }
}

/* ---- out of it */

/* Codes that are NaN, as level scalar has them. */
static void get_lost(const uint8_t *codes, int block, float scale, uint16_t *x)
{
    for (int i = 0; i < block; i++)
        if ((codes[i] & 0x7F) == 0x7F)
            x[i] = pl_f32_to_bf16(pl_bf16_round(pl_e4m3_to_f32(codes[i]) * scale));
}

INLINE vi is_lost(const uint8_t *codes)
{
    const __m128i magnitude = _mm_set1_epi8(0x7F);
    __m128i c = _mm_loadu_si128((const __m128i *)codes);

    return _mm256_castsi128_si256(_mm_cmpeq_epi8(_mm_and_si128(c, magnitude), magnitude));
}

/* The scale is a power of two that leaves room for the 2^8 of vf_load_e4m3: products are bf16 numbers, or flushed. */
INLINE vi get_exact(const uint8_t *codes, int block, vf scale, uint16_t *x)
{
    vi lost = _mm256_setzero_si256();

    for (int i = 0; i < block; i += 2 * LANES) {
        vf lo, hi;
        vi words;

        lost = _mm256_or_si256(lost, is_lost(codes + i));
        vf_load_e4m3(codes + i, &lo, &hi);
        words = _mm256_packus_epi32(_mm256_srli_epi32(vf_bits(vf_mul(lo, scale)), 16),
                                    _mm256_srli_epi32(vf_bits(vf_mul(hi, scale)), 16));
        _mm256_storeu_si256((__m256i *)(x + i), _mm256_permute4x64_epi64(words, 0xD8));
    }
    return lost;
}

INLINE vi get_rounded(const uint8_t *codes, int block, vf scale, uint16_t *x)
{
    const vf up = vf_set(0x1p8f);
    vi lost = _mm256_setzero_si256();

    for (int i = 0; i < block; i += 2 * LANES) {
        vf lo, hi;

        lost = _mm256_or_si256(lost, is_lost(codes + i));
        vf_load_e4m3(codes + i, &lo, &hi);
        vf_store_bf16(x + i, vf_mul(vf_mul(lo, up), scale));
        vf_store_bf16(x + i + LANES, vf_mul(vf_mul(hi, up), scale));
    }
    return lost;
}

INLINE void get_block(const uint8_t *codes, int block, float scale, uint16_t *x)
{
    const uint32_t u = pl_f32_bits(scale);
    vi lost;

    if ((u & 0x807FFFFF) == 0 && u >> 23 >= 1 && u >> 23 <= 246)
        lost = get_exact(codes, block, vf_set(pl_f32_from_bits(u + (8u << 23))), x);
    else
        lost = get_rounded(codes, block, vf_set(scale), x);
    if (!_mm256_testz_si256(lost, lost))
        get_lost(codes, block, scale, x);
}

INLINE void get_row(const pl_cache_rows *rows, int64_t at, uint16_t *x)
{
    const pl_cache_row row = pl_cache_row_at(rows, at);

    if (rows->format == PL_CACHE_V4) {
        for (int b = 0; b < PL_NOPE_DIM / PL_KV_BLOCK; b++) {
            const uint8_t s = row.scales[b];
            float scale = s == 255 ? pl_e8m0_to_f32(s) : pl_f32_from_bits((uint32_t)s << 23);
            get_block(row.data + b * PL_KV_BLOCK, PL_KV_BLOCK, scale, x + b * PL_KV_BLOCK);
        }
        memcpy(x + PL_NOPE_DIM, row.tail, TAIL);
    } else if (rows->format == PL_CACHE_V32) {
        for (int b = 0; b < V32_BLOCKS; b++) {
            float scale;
            memcpy(&scale, row.scales + b * (int)sizeof scale, sizeof scale);
            get_block(row.data + b * PL_V32_BLOCK, PL_V32_BLOCK, scale, x + b * PL_V32_BLOCK);
        }
        memcpy(x + PL_V32_NOPE, row.tail, TAIL);
    } else {
        memcpy(x, row.data, (size_t)rows->dim * sizeof *x);
    }
}

void PL__AT(cache_get)(const pl_op_env *env, const pl_cache_move_args *a, int64_t begin,
                       int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        uint16_t *x = a->x + i * a->x_stride;

        if (a->slots[i] < 0)
            memset(x, 0, (size_t)a->rows.dim * sizeof *x);
        else
            get_row(&a->rows, a->slots[i], x);
    }
}
