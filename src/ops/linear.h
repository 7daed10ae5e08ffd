/* Linear layers y = W x: quantising their input, and the product for every storage of W.
 *
 * A job is one matrix (or a band of its rows) times some rows of activations; a list of jobs is one
 * parallel region: the projections that share an input, the experts that have tokens. One row's result
 * is the same alone, among 5 or among 4096.
 *
 * Source: specification section 0.6; docs/NUMERICS.md. */
#ifndef PL_OPS_LINEAR_H
#define PL_OPS_LINEAR_H

#include "ops/op.h"

/* A row of dim bf16 values as e4m3 codes with a power-of-two scale per block of 128 (section 0.5).
 *
 * A quantised row has dim / 128 * pl_ops.quant_block_bytes bytes. At all levels but f64 that is, for
 * nb = dim / 128 blocks:
 *
 *     codes  uint8_t [nb][128]
 *     scale  uint8_t [nb]   e8m0; 255 marks a lost block (quant.h)
 *     exact  uint8_t [nb]   bit g: group g of 32 may be summed in integers (pl_quant_group_is_exact)
 *
 * At f64 it is double [dim], the values after the round trip (in mode exact: the input).
 * Unit: a row. */
typedef struct pl_quantise_args {
    int64_t dim; /* a multiple of 128 */
    const void *x;
    int64_t x_stride; /* act rows */
    void *q;
    int64_t q_stride; /* quantised rows; q and q_stride are multiples of 16 */
    /* Where the dim values are a part of a quantised row: its elements, and which of them comes first; multiples of 128.
     * 0, 0: they are the row. q is the row in any case. */
    int64_t row_dim, first;
} pl_quantise_args;
typedef void pl_quantise_fn(const pl_op_env *env, const pl_quantise_args *a, int64_t begin,
                            int64_t end);

typedef enum pl_linear_out {
    PL_LINEAR_ACT, /* one rounding to bf16 */
    PL_LINEAR_ACC, /* fp32 as summed */
} pl_linear_out;

typedef struct pl_linear_job {
    pl_weight_view w;    /* the whole matrix, [rows][K] */
    int64_t first_row;   /* the band: a multiple of 16 */
    int64_t n_rows;      /* outputs of this job */
    bool a16;            /* FP8 weights, and yet the input is act rows */
    const void *x;       /* input rows: act [K] for BF16 weights and where a16, else quantised */
    int64_t x_stride;    /* multiple of 16 where quantised */
    const int32_t *rows; /* result t reads input row rows[t]; NULL: row t */
    int32_t n;           /* tokens */
    int32_t n_shards;    /* 0: one chain over K; S: canonical shards of K (docs/NUMERICS.md) */
    int32_t
        one_shard; /* s + 1: not the total but part_s, the sum of shard s alone; out is ACC. 0: the total */
    pl_linear_out out;
    void *y; /* act or acc [n][n_rows]: element o of token t is output row first_row + o */
    int64_t y_stride;
    int64_t first_unit; /* set by pl_run_linear */
} pl_linear_job;

/* FP8 weights (scale E8M0 or F32), quantised input. Level f64 sums exactly, ignores n_shards and has
 * no one_shard.
 * Unit of all of these: a tile of 16 output rows of the job, the last one may be shorter. */
typedef void pl_linear_fn(const pl_op_env *env, const pl_linear_job *job, int64_t begin,
                          int64_t end);

/* The four entries of pl_ops:
 *   linear_fp8      FP8 weights x quantised rows
 *   linear_fp8_a16  FP8 weights x act rows: wo_a. Level f64 rounds q*s to fp32, then bf16, as the
 *                   reference keeps it (section 0.6); mode exact and the other levels do not
 *   linear_fp4      FP4 weights x quantised rows
 *   linear_bf16     BF16 weights x act rows: router, compressor, indexer weights, head */

#endif
