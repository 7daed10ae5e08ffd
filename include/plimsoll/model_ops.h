/* The operators of DeepSeek-V4 around attention, for programs of your own: norms, rotations, hyper-connections, the
 * compressor, the indexer, the router, gated units, elementary functions. Contexts and what all entries promise:
 * plimsoll/ops.h; contracts and speeds: docs/OPERATORS.md; bits: docs/NUMERICS.md.
 *
 * Arrays are packed unless a stride is named, bf16 numbers are uint16_t bits, fp32 are floats, both aligned to their size. Outputs
 * overlap neither inputs nor each other, except where "may be" allows an output to be an input exactly. Unless an
 * entry takes a workspace it needs none. Everything is checked before anything is written. */
#ifndef PL_PLIMSOLL_MODEL_OPS_H
#define PL_PLIMSOLL_MODEL_OPS_H

#include "plimsoll/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- rows: NUMERICS 3 and 7 */

/* y = weight * (x / sqrt(mean of squares + eps)); on request also the e4m3 codes of y and their e8m0 scales, while the row
 * is in the cache. */
typedef struct pl_op_rms_norm_args {
    int32_t n, dim; /* rows of 1 .. 65536 numbers; with codes a multiple of 128 */
    float eps;
    const uint16_t *weight; /* [dim] bf16 */
    const uint16_t *x;      /* [n][dim] bf16 */
    uint16_t *y;            /* [n][dim] bf16; may be x */
    uint8_t *codes;         /* [n][dim]; NULL, and scales too: not wanted */
    uint8_t *scales;        /* [n][dim / 128]; 255: the block held a NaN or an infinity */
} pl_op_rms_norm_args;
PL_API PL_MUST_CHECK pl_status pl_op_rms_norm(pl_ops_context *context,
                                              const pl_op_rms_norm_args *args, pl_error *err);

/* The quantiser alone. */
typedef struct pl_op_quantise_args {
    int32_t n, dim;    /* a multiple of 128 */
    const uint16_t *x; /* [n][dim] bf16 */
    uint8_t *codes;    /* [n][dim] e4m3 */
    uint8_t *scales;   /* [n][dim / 128] e8m0 */
} pl_op_quantise_args;
PL_API PL_MUST_CHECK pl_status pl_op_quantise(pl_ops_context *context,
                                              const pl_op_quantise_args *args, pl_error *err);

/* The two tables of frequencies: plain where factor is 0, else stretched (YaRN). */
typedef struct pl_op_rope_table {
    double base; /* above 1 */
    double factor, original_max_position, beta_fast, beta_slow;
} pl_op_rope_table;
PL_API PL_MUST_CHECK pl_status pl_op_rope_frequencies(const pl_op_rope_table *table,
                                                      float frequencies[32], pl_error *err);

/* Rotates the last 64 numbers of each head by position * frequency, in place. */
typedef struct pl_op_rope_args {
    int32_t n, n_heads, head_dim; /* 64 .. 65536 */
    int inverse;
    const float *frequencies;          /* [32] */
    const int32_t *positions;          /* [n], 0 .. 2^24 - 1 */
    uint16_t *x;                       /* [n][n_heads][head_dim] bf16 */
    int64_t token_stride, head_stride; /* elements; 0: packed */
} pl_op_rope_args;
PL_API PL_MUST_CHECK pl_status pl_op_rope(pl_ops_context *context, const pl_op_rope_args *args,
                                          pl_error *err);

/* Query heads of 512: the norm without a weight, then rotation, fp32 between the two; in place. */
typedef struct pl_op_head_norm_rope_args {
    int32_t n, n_heads;
    float eps;
    const float *frequencies; /* [32] */
    const int32_t *positions; /* [n], 0 .. 2^24 - 1 */
    uint16_t *q;              /* [n][n_heads][512] bf16 */
} pl_op_head_norm_rope_args;
PL_API PL_MUST_CHECK pl_status pl_op_head_norm_rope(pl_ops_context *context,
                                                    const pl_op_head_norm_rope_args *args,
                                                    pl_error *err);

/* The 128-point Walsh-Hadamard transform in natural order, times 128^-0.5. */
typedef struct pl_op_hadamard_args {
    int32_t n;
    const uint16_t *x; /* [n][128] bf16 */
    uint16_t *y;       /* [n][128] bf16; may be x */
} pl_op_hadamard_args;
PL_API PL_MUST_CHECK pl_status pl_op_hadamard(pl_ops_context *context,
                                              const pl_op_hadamard_args *args, pl_error *err);

#ifdef __cplusplus
}
#endif

#endif
