/* Packing rows into tiles and back: moves of bytes and nibbles, done at load and, for matrices that could not
 * be tiled there, block by block in front of a kernel. No arithmetic on values. */
#include "ops/tile.h"

#include <string.h>

enum { LANES = PL_TILE_ROWS, BLOCK = PL_QUANT_BLOCK };

bool pl_tile_possible(pl_weight_format format, int64_t rows, int64_t cols)
{
    return pl_tile_step_cols(format) > 0 && rows > 0 && cols > 0 && rows % LANES == 0 &&
           cols % BLOCK == 0;
}

bool pl_tile_has_nan(const uint8_t *codes, size_t n)
{
    uint8_t found = 0;

    for (size_t i = 0; i < n; i++)
        found |= (codes[i] & 0x7F) == 0x7F;
    return found;
}

static uint32_t load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Bytes k0 k1 k2 k3 <-> k0 k2 k1 k3. */
static uint32_t swap_middle(uint32_t v)
{
    return (v & 0xFF0000FFu) | (v & 0x0000FF00u) << 8 | (v & 0x00FF0000u) >> 8;
}

/* Nibbles k0 .. k7 -> k0 k2 k4 k6 k1 k3 k5 k7. */
static uint32_t gather_even(uint32_t v)
{
    v = (v & 0xF00FF00Fu) | (v & 0x00F000F0u) << 4 | (v & 0x0F000F00u) >> 4;
    return swap_middle(v);
}

static uint32_t spread_even(uint32_t v)
{
    v = swap_middle(v);
    return (v & 0xF00FF00Fu) | (v & 0x00F000F0u) << 4 | (v & 0x0F000F00u) >> 4;
}

static uint32_t to_tile(pl_weight_format format, uint32_t v)
{
    if (format == PL_WEIGHT_BF16)
        return v;
    return format == PL_WEIGHT_FP4 ? gather_even(v) : swap_middle(v);
}

static uint32_t from_tile(pl_weight_format format, uint32_t v)
{
    if (format == PL_WEIGHT_BF16)
        return v;
    return format == PL_WEIGHT_FP4 ? spread_even(v) : swap_middle(v);
}

/* Step by step over the columns, so that a tile is written in one stream while 16 rows are read in 16. */
void pl_tile_pack(pl_weight_format format, const void *rows, int64_t row_stride, int64_t n_rows,
                  int64_t cols, int64_t cols_filled, void *tile)
{
    const uint8_t *from = rows;
    uint8_t *to = tile;
    /* An odd last column of BF16 counts: 2 bytes of a dword. */
    int64_t row_bytes = pl_tile_row_bytes(format, cols), whole = row_bytes / 4 * 4;
    int64_t filled = pl_tile_row_bytes(format, cols_filled);

    if (n_rows < LANES || whole < filled)
        memset(tile, 0, (size_t)(LANES * filled));
    for (int64_t at = 0; at < whole; at += 4)
        for (int64_t r = 0; r < n_rows; r++) {
            uint32_t v = to_tile(format, load32(from + r * row_stride + at));
            memcpy(to + at * LANES + 4 * r, &v, sizeof v);
        }
    for (int64_t r = 0; r < n_rows && whole < row_bytes; r++) {
        uint32_t v = 0;
        memcpy(&v, from + r * row_stride + whole, (size_t)(row_bytes - whole));
        v = to_tile(format, v);
        memcpy(to + whole * LANES + 4 * r, &v, sizeof v);
    }
}

void pl_tile_unpack(pl_weight_format format, const void *tile, int64_t cols, void *rows,
                    int64_t row_stride)
{
    const uint8_t *from = tile;
    uint8_t *to = rows;
    int64_t row_bytes = pl_tile_row_bytes(format, cols);

    for (int64_t at = 0; at < row_bytes; at += 4)
        for (int64_t r = 0; r < LANES; r++) {
            uint32_t v = from_tile(format, load32(from + at * LANES + 4 * r));
            memcpy(to + r * row_stride + at, &v, sizeof v);
        }
}

void pl_tile_pack_scales(const uint8_t *rows, int64_t row_stride, int64_t n_rows, int64_t n_groups,
                         uint8_t *tile)
{
    for (int64_t g = 0; g < n_groups; g++)
        for (int64_t r = 0; r < LANES; r++)
            tile[g * LANES + r] = r < n_rows ? rows[r * row_stride + g] : 0;
}

void pl_tile_unpack_scales(const uint8_t *tile, int64_t n_groups, uint8_t *rows, int64_t row_stride)
{
    for (int64_t g = 0; g < n_groups; g++)
        for (int64_t r = 0; r < LANES; r++)
            rows[r * row_stride + g] = tile[g * LANES + r];
}
