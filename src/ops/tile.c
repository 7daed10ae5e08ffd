/* Packing rows into tiles and back: moves of bytes and nibbles, done at load and, for matrices that could not
 * be tiled there, block by block in front of a kernel. No arithmetic on values. Loading has a way of its own, which
 * shuffles bytes where the processor can (SSSE3) and writes past the cache. */
#include "ops/tile.h"

#include <string.h>
#include <tmmintrin.h>

enum { LANES = PL_TILE_ROWS, BLOCK = PL_QUANT_BLOCK, LINE = 64 };

bool pl_tile_possible(pl_weight_format format, int64_t rows, int64_t cols)
{
    return pl_tile_step_cols(format) > 0 && rows > 0 && cols > 0 && rows % LANES == 0 &&
           cols % BLOCK == 0;
}

bool pl_tile_has_nan(const uint8_t *codes, size_t n)
{
    uint8_t most = 0;

    for (size_t i = 0; i < n; i++) {
        const uint8_t size = codes[i] & 0x7F;
        most = size > most ? size : most;
    }
    return most == 0x7F;
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

/* ---- whole tiles, four dwords of four rows at a time */

static __m128i swap_middle_4(__m128i v)
{
    const __m128i outer = _mm_set1_epi32((int)0xFF0000FFu), low = _mm_set1_epi32(0x0000FF00);
    const __m128i moved = _mm_or_si128(_mm_slli_epi32(_mm_and_si128(v, low), 8),
                                       _mm_and_si128(_mm_srli_epi32(v, 8), low));

    return _mm_or_si128(_mm_and_si128(v, outer), moved);
}

static __m128i gather_even_4(__m128i v)
{
    const __m128i outer = _mm_set1_epi32((int)0xF00FF00Fu), low = _mm_set1_epi32(0x00F000F0);
    const __m128i moved = _mm_or_si128(_mm_slli_epi32(_mm_and_si128(v, low), 4),
                                       _mm_and_si128(_mm_srli_epi32(v, 4), low));

    return swap_middle_4(_mm_or_si128(_mm_and_si128(v, outer), moved));
}

/* 16 bytes of four rows become four steps' quarters. */
static inline __attribute__((always_inline)) void
pack_4(pl_weight_format format, const uint8_t *from, int64_t stride, __m128i *out)
{
    __m128i v[4], a, b, c, d;

    for (int r = 0; r < 4; r++) {
        v[r] = _mm_loadu_si128((const __m128i *)(from + r * stride));
        v[r] = format == PL_WEIGHT_BF16  ? v[r]
               : format == PL_WEIGHT_FP4 ? gather_even_4(v[r])
                                         : swap_middle_4(v[r]);
    }
    a = _mm_unpacklo_epi32(v[0], v[1]);
    b = _mm_unpacklo_epi32(v[2], v[3]);
    c = _mm_unpackhi_epi32(v[0], v[1]);
    d = _mm_unpackhi_epi32(v[2], v[3]);
    _mm_storeu_si128(out, _mm_unpacklo_epi64(a, b));
    _mm_storeu_si128(out + 4, _mm_unpackhi_epi64(a, b));
    _mm_storeu_si128(out + 8, _mm_unpacklo_epi64(c, d));
    _mm_storeu_si128(out + 12, _mm_unpackhi_epi64(c, d));
}

/* A cache line of four rows at once: rows lie a power of two apart, so that 16 of them do not fit into
 * one set of the first cache, and what is not used up at once would be fetched again. */
static inline __attribute__((always_inline)) void pack_whole(pl_weight_format format,
                                                             const uint8_t *from, int64_t stride,
                                                             int64_t row_bytes, uint8_t *to)
{
    for (int64_t at = 0; at < row_bytes; at += LINE)
        for (int g = 0; g < LANES / 4; g++)
            for (int64_t in = at; in < at + LINE; in += 16)
                pack_4(format, from + 4 * g * stride + in, stride,
                       (__m128i *)(to + in * LANES + 16 * g));
}

/* One loop for each format, so that none asks within it. */
static void pack_whole_of(pl_weight_format format, const uint8_t *from, int64_t stride,
                          int64_t row_bytes, uint8_t *to)
{
    if (format == PL_WEIGHT_BF16)
        pack_whole(PL_WEIGHT_BF16, from, stride, row_bytes, to);
    else if (format == PL_WEIGHT_FP4)
        pack_whole(PL_WEIGHT_FP4, from, stride, row_bytes, to);
    else
        pack_whole(PL_WEIGHT_FP8_E8M0, from, stride, row_bytes, to);
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

    if (n_rows == LANES && row_bytes == filled && row_bytes % LINE == 0) {
        pack_whole_of(format, from, row_stride, row_bytes, to);
        return;
    }
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

/* ---- whole tiles past the cache */

/* Bytes k0 k1 k2 k3 -> k0 k2 k1 k3, and nibbles as gather_even, in four dwords. */
__attribute__((target("ssse3"))) static inline __m128i to_tile_ssse3(pl_weight_format format,
                                                                     __m128i v)
{
    const __m128i swapped = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    __m128i apart;

    if (format == PL_WEIGHT_BF16)
        return v;
    if (format == PL_WEIGHT_FP4) { /* the middle nibbles of 16 bits change places */
        apart = _mm_and_si128(_mm_xor_si128(v, _mm_srli_epi16(v, 4)), _mm_set1_epi16(0x00F0));
        v = _mm_xor_si128(v, _mm_mullo_epi16(apart, _mm_set1_epi16(0x11))); /* both at once */
    }
    return _mm_shuffle_epi8(v, swapped);
}

/* Columns of 8 bytes of all rows, so that two steps are written whole, one after the other: no line of the tile has
 * to be fetched, and none drives out what is still to be read. With wider columns the steps do not stay in registers. */
__attribute__((target("ssse3"), always_inline)) static inline void
pack_past(pl_weight_format format, const uint8_t *from, int64_t stride, int64_t row_bytes,
          __m128i *to)
{
    enum { QUARTERS = LANES / 4 };

    for (int64_t at = 0; at < row_bytes; at += 8, to += 2 * QUARTERS) {
        __m128i step[2][QUARTERS];

        for (int g = 0; g < QUARTERS; g++) {
            const uint8_t *p = from + 4 * g * stride + at;
            __m128i v[4], a, b;

            for (int r = 0; r < 4; r++)
                v[r] = _mm_loadl_epi64((const __m128i *)(p + r * stride));
            a = _mm_unpacklo_epi32(v[0], v[1]);
            b = _mm_unpacklo_epi32(v[2], v[3]);
            step[0][g] = to_tile_ssse3(format, _mm_unpacklo_epi64(a, b));
            step[1][g] = to_tile_ssse3(format, _mm_unpackhi_epi64(a, b));
        }
        for (int s = 0; s < 2; s++)
            for (int g = 0; g < QUARTERS; g++)
                _mm_stream_si128(to + s * QUARTERS + g, step[s][g]);
    }
}

__attribute__((target("ssse3"))) static void pack_past_of(pl_weight_format format,
                                                          const uint8_t *from, int64_t stride,
                                                          int64_t row_bytes, __m128i *to)
{
    if (format == PL_WEIGHT_BF16)
        pack_past(PL_WEIGHT_BF16, from, stride, row_bytes, to);
    else if (format == PL_WEIGHT_FP4)
        pack_past(PL_WEIGHT_FP4, from, stride, row_bytes, to);
    else
        pack_past(PL_WEIGHT_FP8_E8M0, from, stride, row_bytes, to);
    _mm_sfence(); /* such stores keep no order of their own; the tile may be another thread's next */
}

void pl_tile_pack_past_cache(pl_weight_format format, const void *rows, int64_t row_stride,
                             int64_t cols, void *tile)
{
    const int64_t row_bytes = pl_tile_row_bytes(format, cols);

    if (row_bytes % 8 == 0 && (uintptr_t)tile % 16 == 0 && __builtin_cpu_supports("ssse3"))
        pack_past_of(format, rows, row_stride, row_bytes, tile);
    else
        pl_tile_pack(format, rows, row_stride, LANES, cols, cols, tile);
}

void pl_tile_copy_past_cache(const void *rows, size_t n, void *to)
{
    enum { AHEAD = 1024 }; /* one stream of lines alone waits for the second cache */
    const uint8_t *from = rows;
    const size_t whole = (uintptr_t)to % 16 == 0 ? n / LINE * LINE : 0;

    for (size_t at = 0; at < whole; at += LINE) {
        const __m128i *p = (const __m128i *)(from + at);
        __m128i *q = (__m128i *)((uint8_t *)to + at);
        const __m128i a = _mm_loadu_si128(p), b = _mm_loadu_si128(p + 1);
        const __m128i c = _mm_loadu_si128(p + 2), d = _mm_loadu_si128(p + 3);

        if (at + AHEAD < n)
            _mm_prefetch((const char *)(from + at + AHEAD), _MM_HINT_T0);
        _mm_stream_si128(q, a);
        _mm_stream_si128(q + 1, b);
        _mm_stream_si128(q + 2, c);
        _mm_stream_si128(q + 3, d);
    }
    _mm_sfence();
    memcpy((uint8_t *)to + whole, from + whole, n - whole);
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

/* 16 bytes of 16 rows: interleaving the halves four times turns rows into columns. */
static void pack_scales_16(const uint8_t *rows, int64_t row_stride, uint8_t *tile)
{
    __m128i v[LANES], w[LANES];

    for (int r = 0; r < LANES; r++)
        v[r] = _mm_loadu_si128((const __m128i *)(rows + r * row_stride));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < LANES / 2; i++) {
            w[2 * i] = _mm_unpacklo_epi8(v[i], v[i + LANES / 2]);
            w[2 * i + 1] = _mm_unpackhi_epi8(v[i], v[i + LANES / 2]);
        }
        for (int i = 0; i < LANES / 2; i++) {
            v[2 * i] = _mm_unpacklo_epi8(w[i], w[i + LANES / 2]);
            v[2 * i + 1] = _mm_unpackhi_epi8(w[i], w[i + LANES / 2]);
        }
    }
    for (int g = 0; g < LANES; g++)
        _mm_storeu_si128((__m128i *)(tile + g * LANES), v[g]);
}

void pl_tile_pack_scales(const uint8_t *rows, int64_t row_stride, int64_t n_rows, int64_t n_groups,
                         uint8_t *tile)
{
    int64_t first = 0;

    for (; n_rows == LANES && first + LANES <= n_groups; first += LANES)
        pack_scales_16(rows + first, row_stride, tile + first * LANES);
    for (int64_t g = first; g < n_groups; g++)
        for (int64_t r = 0; r < LANES; r++)
            tile[g * LANES + r] = r < n_rows ? rows[r * row_stride + g] : 0;
}

void pl_tile_unpack_scales(const uint8_t *tile, int64_t n_groups, uint8_t *rows, int64_t row_stride)
{
    for (int64_t g = 0; g < n_groups; g++)
        for (int64_t r = 0; r < LANES; r++)
            rows[r * row_stride + g] = tile[g * LANES + r];
}
