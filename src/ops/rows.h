/* Cache rows in planar pages: window keys, compressed entries, indexer keys.
 *
 * A page holds the data of its rows, then their scales:
 *
 *     data   of row i: base + (i / page_rows) * page_bytes + (i % page_rows) * data_bytes
 *     scales of row i: base + (i / page_rows) * page_bytes + page_rows * data_bytes
 *                      + (i % page_rows) * scale_bytes
 *
 *                    data_bytes                             scale_bytes
 *     keys, entries  448 e4m3 (dims 0..447), 64 bf16: 576   7 e8m0 of 64 dims, one 0: 8
 *     indexer keys   128 e2m1, even dim in the low nibble: 64    4 e8m0 of 32 dims: 4
 *     level f64      512 or 128 doubles                     0
 *
 * Source: specification sections 4.2 and 4.4. */
#ifndef PL_OPS_ROWS_H
#define PL_OPS_ROWS_H

#include <stdint.h>
#include <string.h>

typedef struct pl_rows {
    uint8_t *base;
    int64_t page_bytes; /* from one page to the next */
    int32_t page_rows;
    int32_t data_bytes, scale_bytes; /* of one row */
} pl_rows;

static inline uint8_t *pl_rows_data(const pl_rows *r, int64_t i)
{
    return r->base + i / r->page_rows * r->page_bytes + i % r->page_rows * r->data_bytes;
}

static inline uint8_t *pl_rows_scales(const pl_rows *r, int64_t i)
{
    return r->base + i / r->page_rows * r->page_bytes + (int64_t)r->page_rows * r->data_bytes +
           i % r->page_rows * r->scale_bytes;
}

/* Bytes of a page without padding behind it. */
static inline int64_t pl_rows_page_bytes(int32_t page_rows, int32_t data_bytes, int32_t scale_bytes)
{
    return (int64_t)page_rows * ((int64_t)data_bytes + scale_bytes);
}

/* Row `from` of src becomes row `to` of dst; both of one format. */
static inline void pl_rows_copy(const pl_rows *dst, int64_t to, const pl_rows *src, int64_t from)
{
    memcpy(pl_rows_data(dst, to), pl_rows_data(src, from), (size_t)dst->data_bytes);
    memcpy(pl_rows_scales(dst, to), pl_rows_scales(src, from), (size_t)dst->scale_bytes);
}

#endif
