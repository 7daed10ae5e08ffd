/* Rows of the three cache layouts, one at a time in plain C. Vector levels widen rows of their own; which rows a
 * query reads is the operators' affair. */
#include "ops/cache_rows.h"

#include <string.h>

#include "base/numfmt.h"
#include "ops/quant.h"
#include "ops/shape.h"

enum { V4_DATA = PL_NOPE_DIM + 2 * PL_ROPE_DIM, V4_SCALES = PL_NOPE_DIM / PL_KV_BLOCK + 1 };

int64_t pl_cache_row_bytes(pl_cache_format format, int32_t dim)
{
    return format == PL_CACHE_V4    ? V4_DATA + V4_SCALES
           : format == PL_CACHE_V32 ? PL_V32_ROW_BYTES
                                    : (int64_t)2 * dim;
}

int32_t pl_cache_scale_bytes(pl_cache_format format)
{
    return format == PL_CACHE_V4    ? V4_SCALES
           : format == PL_CACHE_V32 ? PL_V32_NOPE / PL_V32_BLOCK * (int32_t)sizeof(float)
                                    : 0;
}

int32_t pl_cache_coded_dims(pl_cache_format format)
{
    return format == PL_CACHE_V4 ? PL_NOPE_DIM : format == PL_CACHE_V32 ? PL_V32_NOPE : 0;
}

pl_cache_row pl_cache_row_at(const pl_cache_rows *r, int64_t i)
{
    uint8_t *page = r->base + i / r->page_rows * r->page_bytes;
    int64_t at = i % r->page_rows;
    pl_cache_row row = {page, page, page};

    if (r->format == PL_CACHE_V4) {
        row.data = page + at * V4_DATA;
        row.scales = page + (int64_t)r->page_rows * V4_DATA + at * V4_SCALES;
        row.tail = row.data + PL_NOPE_DIM;
    } else if (r->format == PL_CACHE_V32) {
        row.data = page + at * PL_V32_ROW_BYTES;
        row.scales = row.data + PL_V32_NOPE;
        row.tail = row.scales + pl_cache_scale_bytes(PL_CACHE_V32);
    } else {
        row.data = page + at * 2 * r->dim;
    }
    return row;
}

void pl_cache_row_put(const pl_cache_rows *r, int64_t i, const uint16_t *x)
{
    pl_cache_row row = pl_cache_row_at(r, i);
    int32_t coded = pl_cache_coded_dims(r->format);
    uint8_t scale[PL_V32_NOPE / PL_V32_BLOCK];

    if (r->format == PL_CACHE_BF16) {
        memcpy(row.data, x, (size_t)r->dim * sizeof *x);
        return;
    }
    memcpy(row.tail, x + coded, PL_ROPE_DIM * sizeof *x);
    if (r->format == PL_CACHE_V4) {
        pl_quant_e4m3(x, coded, PL_KV_BLOCK, row.data, row.scales);
        row.scales[V4_SCALES - 1] = 0;
        return;
    }
    pl_quant_e4m3(x, coded, PL_V32_BLOCK, row.data, scale);
    for (int b = 0; b < PL_V32_NOPE / PL_V32_BLOCK; b++) {
        float s = pl_e8m0_to_f32(scale[b]);
        memcpy(row.scales + b * sizeof s, &s, sizeof s);
    }
}

void pl_cache_row_widen(const pl_cache_rows *r, int64_t i, float *x)
{
    pl_cache_row row = pl_cache_row_at(r, i);
    int32_t coded = pl_cache_coded_dims(r->format), block = PL_KV_BLOCK;
    uint16_t tail[PL_CACHE_MAX_DIM];
    const uint8_t *plain = r->format == PL_CACHE_BF16 ? row.data : row.tail;
    float s = 0;

    block = r->format == PL_CACHE_V32 ? PL_V32_BLOCK : block;
    for (int32_t d = 0; d < coded; d++) {
        if (r->format == PL_CACHE_V4)
            s = pl_e8m0_to_f32(row.scales[d / block]);
        else
            memcpy(&s, row.scales + d / block * (int32_t)sizeof s, sizeof s);
        x[d] = pl_bf16_round(pl_e4m3_to_f32(row.data[d]) * s);
    }
    memcpy(tail, plain, (size_t)(r->dim - coded) * sizeof *tail);
    for (int32_t d = coded; d < r->dim; d++)
        x[d] = pl_bf16_to_f32(tail[d - coded]);
}

void pl_cache_row_get(const pl_cache_rows *r, int64_t i, uint16_t *x)
{
    pl_cache_row row = pl_cache_row_at(r, i);
    int32_t coded = pl_cache_coded_dims(r->format);
    float wide[PL_CACHE_MAX_DIM];

    if (r->format == PL_CACHE_BF16) {
        memcpy(x, row.data, (size_t)r->dim * sizeof *x);
        return;
    }
    pl_cache_row_widen(r, i, wide);
    for (int32_t d = 0; d < coded; d++)
        x[d] = pl_f32_to_bf16(wide[d]);
    memcpy(x + coded, row.tail, PL_ROPE_DIM * sizeof *x);
}
