/* What all levels of attention_varlen share: which rows a unit has, what a query sees, where a key lies; and the
 * conversions of half precision in plain C. */
#include "ops/varlen.h"

#include "base/numfmt.h"

enum { MANY_TILES = 256 };

/* Queries and sums of a tile take 128 KiB each at most, in the second cache. Where that leaves many workers
 * without a tile, tiles are smaller. */
int32_t pl_varlen_rows(const pl_varlen_args *a)
{
    const int32_t dim = a->dim > a->value_dim ? a->dim : a->value_dim;
    const int64_t rows = (int64_t)a->cu_q[a->n_seqs] * a->n_heads;

    if (dim > PL_VARLEN_MAX_DIM / 2)
        return PL_VARLEN_ROWS / 4;
    if (dim > PL_VARLEN_MAX_DIM / 4 || rows < (int64_t)PL_VARLEN_ROWS * MANY_TILES)
        return PL_VARLEN_ROWS / 2;
    return PL_VARLEN_ROWS;
}

static int64_t tiles_of(const pl_varlen_args *a, int32_t seq)
{
    int64_t rows = (int64_t)(a->cu_q[seq + 1] - a->cu_q[seq]) * (a->n_heads / a->n_kv_heads);
    int64_t of_tile = pl_varlen_rows(a);

    return (rows + of_tile - 1) / of_tile;
}

int64_t pl_varlen_units(const pl_varlen_args *a)
{
    int64_t n = 0;

    for (int32_t b = 0; b < a->n_seqs; b++)
        n += tiles_of(a, b) * a->n_kv_heads;
    return n;
}

pl_varlen_tile pl_varlen_tile_of(const pl_varlen_args *a, int64_t unit)
{
    pl_varlen_tile t = {0};
    const int32_t of_tile = pl_varlen_rows(a);
    int64_t tiles, rows;

    while (unit >= tiles_of(a, t.seq) * a->n_kv_heads)
        unit -= tiles_of(a, t.seq++) * a->n_kv_heads;
    tiles = tiles_of(a, t.seq);
    t.kv_head = (int32_t)(unit / tiles);
    t.first = unit % tiles * of_tile;
    rows = (int64_t)(a->cu_q[t.seq + 1] - a->cu_q[t.seq]) * (a->n_heads / a->n_kv_heads) - t.first;
    t.n = (int32_t)(rows < of_tile ? rows : of_tile);
    return t;
}

void pl_varlen_visible(const pl_varlen_args *a, int32_t seq, int64_t i, int64_t *begin,
                       int64_t *end)
{
    int64_t n_q = a->cu_q[seq + 1] - a->cu_q[seq], n_k = a->cu_k[seq + 1] - a->cu_k[seq];
    int64_t at = i + n_k - n_q;

    *begin = a->left < 0 || at < a->left ? 0 : at - a->left;
    *end = a->right < 0 || at + a->right >= n_k ? n_k : at + a->right + 1;
}

const void *pl_varlen_row(const pl_varlen_args *a, const pl_varlen_tensor *t, int32_t seq,
                          int64_t j, int32_t kv_head)
{
    int64_t at = kv_head * t->head_stride;

    if (a->pages)
        at += a->pages[seq * a->pages_stride + j / a->page_rows] * t->page_stride +
              j % a->page_rows * t->token_stride;
    else
        at += (a->cu_k[seq] + j) * t->token_stride;
    return (const uint8_t *)t->data + at * (a->type == PL_VARLEN_F32 ? 4 : 2);
}

float pl_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3FF;
    float small;

    if (exponent == 31)
        return pl_f32_from_bits(sign | 0x7F800000 | fraction << 13);
    if (exponent > 0)
        return pl_f32_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    small = (float)fraction * 0x1p-24f;
    return sign ? -small : small;
}

uint16_t pl_f32_to_f16(float x)
{
    uint32_t u = pl_f32_bits(x), sign = u >> 16 & 0x8000, a = u & 0x7FFFFFFF, low;
    int shift = 13;

    if (a > 0x7F800000)
        return (uint16_t)(sign | 0x7E00);
    if (a >= 0x477FF000) /* 65520 and more */
        return (uint16_t)(sign | 0x7C00);
    if (a >= 0x38800000) { /* normal */
        a -= 112u << 23;
    } else {
        shift = 126 - (int)(a >> 23); /* the last bit is 2^-24 */
        if (shift > 24)
            return (uint16_t)sign;
        a = (a & 0x7FFFFF) | 0x800000;
    }
    low = a & ((1u << shift) - 1);
    a >>= shift;
    a += low > 1u << (shift - 1) || (low == 1u << (shift - 1) && (a & 1));
    return (uint16_t)(sign | a);
}
