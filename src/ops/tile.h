/* Weight tiles: 16 rows by K, ordered so that vector kernels expand codes with shifts and masks.
 *
 * A matrix in layout PL_WEIGHT_TILES is its tiles one after the other; tile t holds rows 16 t .. 16 t + 15.
 * A tile is a sequence of steps of 64 bytes, K ascending: one dword for each of the 16 rows.
 *
 *             a step covers   dword of a row, lowest bits first
 *     BF16    2 columns       k0, k1
 *     FP8     4 columns       bytes k0, k2, k1, k3
 *     FP4     8 columns       nibbles k0, k2, k4, k6, k1, k3, k5, k7
 *
 * So in both quantised formats the two 16-bit halves hold the even and the odd columns, and shifting both
 * alike brings up one bf16 pair (k even, k odd) after the other. A block of 128 columns is contiguous.
 * FP4's scales are tiled too: 16 bytes, one a row, for each group of 32 columns.
 *
 * Tiling moves bytes within 16 rows and changes none: a matrix is as long as before, and its scales apart from
 * FP4's stay where they are. */
#ifndef PL_OPS_TILE_H
#define PL_OPS_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/shape.h"
#include "ops/weight_view.h"

enum { PL_TILE_STEP_BYTES = 64 };

/* Columns that a step covers; 0 for formats that have no tiles. */
static inline int pl_tile_step_cols(pl_weight_format format)
{
    switch (format) {
    case PL_WEIGHT_BF16:
        return 2;
    case PL_WEIGHT_FP8_E8M0:
    case PL_WEIGHT_FP8_F32:
        return 4;
    case PL_WEIGHT_FP4:
        return 8;
    default:
        return 0;
    }
}

/* Bytes of n columns of one row, n even. */
static inline int64_t pl_tile_row_bytes(pl_weight_format format, int64_t n)
{
    return format == PL_WEIGHT_BF16 ? 2 * n : format == PL_WEIGHT_FP4 ? n / 2 : n;
}

/* Whether a matrix of this format and shape can be tiled: whole tiles of whole blocks of 128. */
bool pl_tile_possible(pl_weight_format format, int64_t rows, int64_t cols);

/* Whether n e4m3 codes hold a NaN; such a matrix is not tiled. */
bool pl_tile_has_nan(const uint8_t *codes, size_t n);

/* n_rows (1..16) rows of `cols` columns, row_stride bytes apart, become one tile of cols_filled columns; rows and
 * columns that are missing become zeros. cols_filled is a multiple of the step, cols of 2 but for BF16.
 * tile has 16 * pl_tile_row_bytes(format, cols_filled) bytes and does not overlap rows. */
void pl_tile_pack(pl_weight_format format, const void *rows, int64_t row_stride, int64_t n_rows,
                  int64_t cols, int64_t cols_filled, void *tile);

/* The same for 16 rows whose tile is not needed soon: written past the cache where the processor can and the tile is
 * 16-byte aligned. Other threads see it whole once the call has returned and they have heard of it. */
void pl_tile_pack_past_cache(pl_weight_format format, const void *rows, int64_t row_stride,
                             int64_t cols, void *tile);

/* n bytes of rows that stay rows, written in the same way. */
void pl_tile_copy_past_cache(const void *rows, size_t n, void *to);

/* The reverse for a whole tile: 16 rows, row_stride bytes apart. */
void pl_tile_unpack(pl_weight_format format, const void *tile, int64_t cols, void *rows,
                    int64_t row_stride);

/* FP4's scales: n_rows rows of n_groups bytes, row_stride apart, become [n_groups][16], zeros where rows are
 * missing; and the reverse for 16 rows. */
void pl_tile_pack_scales(const uint8_t *rows, int64_t row_stride, int64_t n_rows, int64_t n_groups,
                         uint8_t *tile);
void pl_tile_unpack_scales(const uint8_t *tile, int64_t n_groups, uint8_t *rows,
                           int64_t row_stride);

/* Where column k of row r of a tile stands: index of its byte (BF16: of its uint16_t), for FP4 that of its
 * nibble, twice the byte plus 1 for the high one. For code that reads single elements. */
static inline int64_t pl_tile_index(pl_weight_format format, int64_t r, int64_t k)
{
    switch (format) {
    case PL_WEIGHT_BF16:
        return k / 2 * 32 + r * 2 + k % 2;
    case PL_WEIGHT_FP4:
        return k / 8 * 128 + r * 8 + k % 2 * 4 + k % 8 / 2;
    default:
        return k / 4 * 64 + r * 4 + (k % 2 * 2 + k % 4 / 2);
    }
}

#endif
