/* A weight as an operator sees it. */
#ifndef PL_OPS_WEIGHT_VIEW_H
#define PL_OPS_WEIGHT_VIEW_H

#include <stdint.h>

typedef enum pl_weight_format {
    PL_WEIGHT_BF16,     /* data: uint16_t [rows][cols] */
    PL_WEIGHT_F32,      /* data: float [rows][cols] */
    PL_WEIGHT_I64,      /* data: int64_t [rows][cols] */
    PL_WEIGHT_FP8_E8M0, /* data: e4m3 [rows][cols]; scale: e8m0 [ceil(rows/128)][cols/128] */
    PL_WEIGHT_FP8_F32,  /* data: e4m3 [rows][cols]; scale: float [ceil(rows/128)][cols/128] */
    PL_WEIGHT_FP4,      /* data: e2m1 pairs [rows][cols/2], even k in the low nibble;
                           scale: e8m0 [rows][cols/32] */
} pl_weight_format;

/* How the elements of `data` (and of FP4's `scale`) are ordered; both have the same bytes (ops/tile.h). */
typedef enum pl_weight_layout {
    PL_WEIGHT_ROWS,  /* as above, as in the files */
    PL_WEIGHT_TILES, /* tiles of 16 rows; data 64-byte aligned; FP8 holds no NaN code */
} pl_weight_layout;

/* rows = outputs (1 for vectors), cols = inputs K. Only linear layers take tiles, and level f64 takes
 * rows alone. */
typedef struct pl_weight_view {
    pl_weight_format format;
    int64_t rows, cols;
    const void *data;
    const void *scale; /* NULL where the format has none */
    pl_weight_layout layout;
} pl_weight_view;

#endif
