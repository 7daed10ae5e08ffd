/* Cached keys in the layouts that other engines have too: where a row lies, and the plain conversions of one.
 *
 *     BF16  dim bf16 numbers, rows adjacent within a page
 *     V4    512 dims. A page: first 576 bytes a row (448 e4m3, 64 bf16), then 8 a row (7 e8m0, one per 64 dims; 0)
 *     V32   576 dims. A row of 656 bytes: 512 e4m3, 4 floats (scales, one per 128 dims), 64 bf16
 *
 * Conversions run in the environment of base/fpenv.h. Source: specification section 4.2, docs/NUMERICS.md 3 and 9. */
#ifndef PL_OPS_CACHE_ROWS_H
#define PL_OPS_CACHE_ROWS_H

#include <stdint.h>

#include "ops/op.h"

typedef enum pl_cache_format { PL_CACHE_BF16, PL_CACHE_V4, PL_CACHE_V32 } pl_cache_format;

enum { PL_CACHE_MAX_DIM = 576, PL_V32_NOPE = 512, PL_V32_BLOCK = 128, PL_V32_ROW_BYTES = 656 };

typedef struct pl_cache_rows {
    pl_cache_format format;
    int32_t dim; /* 512 or 576: V4 has the one, V32 the other */
    uint8_t *base;
    int64_t page_bytes; /* from one page to the next */
    int32_t page_rows;
    int64_t n; /* rows */
} pl_cache_rows;

/* Codes and their scales, or the numbers themselves; `tail`: the last 64 dims. BF16 has neither scales nor
 * tail. */
typedef struct pl_cache_row {
    uint8_t *data, *scales, *tail;
} pl_cache_row;

/* Bytes of a row, scales included; of V4's scales and of V32's. */
int64_t pl_cache_row_bytes(pl_cache_format format, int32_t dim);
int32_t pl_cache_scale_bytes(pl_cache_format format);
/* Dims kept as codes: 448, 512, and 0 of BF16. */
int32_t pl_cache_coded_dims(pl_cache_format format);

/* Row i, 0 <= i < n. */
pl_cache_row pl_cache_row_at(const pl_cache_rows *rows, int64_t i);

/* dim bf16 numbers become the row, and the row dim bf16 numbers, or floats with the same values. */
void pl_cache_row_put(const pl_cache_rows *rows, int64_t i, const uint16_t *x);
void pl_cache_row_get(const pl_cache_rows *rows, int64_t i, uint16_t *x);
void pl_cache_row_widen(const pl_cache_rows *rows, int64_t i, float *x);

/* Row i of x is put into slot slots[i], or got out of it; -1: put skips it, get gives zeros. Unit: a place of the list.
 * Level f64 has neither. */
typedef struct pl_cache_move_args {
    pl_cache_rows rows;
    const int32_t *slots; /* [n], below rows.n */
    uint16_t *x;          /* bf16 [n][dim]; put only reads it */
    int64_t x_stride;     /* elements */
} pl_cache_move_args;
typedef void pl_cache_move_fn(const pl_op_env *env, const pl_cache_move_args *a, int64_t begin,
                              int64_t end);

#endif
