/* Norms and rotations of rows. Source: specification sections 0.7, 0.8, 3.1. */
#ifndef PL_OPS_NORM_H
#define PL_OPS_NORM_H

#include "ops/op.h"

/* y[r] = w * (x[r] * rsqrt(mean(x[r]^2) + eps)). y may be x. Unit: a row. */
typedef struct pl_rms_norm_args {
    pl_weight_view w; /* BF16 [dim] */
    float eps;
    int64_t dim;
    const void *x; /* act [n][dim] */
    void *y;       /* act [n][dim] */
} pl_rms_norm_args;
typedef void pl_rms_norm_fn(const pl_op_env *env, const pl_rms_norm_args *a, int64_t begin,
                            int64_t end);

/* cos and sin of the fp32 angle position * freq[i]. Unit: a row. */
typedef struct pl_rope_angles_args {
    const float *freq;       /* [32] of the plain or the compressed table */
    const int32_t *position; /* [n] */
    void *cos, *sin;         /* acc [n][32] */
} pl_rope_angles_args;
typedef void pl_rope_angles_fn(const pl_op_env *env, const pl_rope_angles_args *a, int64_t begin,
                               int64_t end);

/* Query heads: weightless RMS norm over each head's 512 dims, then rotation of the last 64; in place.
 * Between the two stays fp32, except in mode ref. Unit: one (t, h), t * n_heads + h. */
typedef struct pl_q_norm_rope_args {
    int32_t n_heads;
    float eps;
    pl_angles angles; /* of the tokens */
    void *q;          /* act [n][n_heads][512] */
} pl_q_norm_rope_args;
typedef void pl_q_norm_rope_fn(const pl_op_env *env, const pl_q_norm_rope_args *a, int64_t begin,
                               int64_t end);

/* Rotates the last 64 dims of each head back (section 3.5), in place. Unit: one (t, h). */
typedef struct pl_unrope_args {
    int32_t n_heads;
    pl_angles angles;
    void *o; /* act [n][n_heads][512] */
} pl_unrope_args;
typedef void pl_unrope_fn(const pl_op_env *env, const pl_unrope_args *a, int64_t begin,
                          int64_t end);

/* Rotates the last 64 dims of each head, forth or back, in place, and nothing else: for callers whose heads are of other
 * sizes. Level f64 has none. Unit: a token. */
typedef struct pl_rope_args {
    int32_t n_heads, dim; /* of a head, 64 or more */
    bool inverse;
    pl_angles angles;                  /* of the tokens */
    void *x;                           /* act */
    int64_t token_stride, head_stride; /* elements */
} pl_rope_args;
typedef void pl_rope_fn(const pl_op_env *env, const pl_rope_args *a, int64_t begin, int64_t end);

/* The transform of ops/hadamard.h, rounded to bf16. y may be x. Level f64 has none. Unit: a row. */
typedef struct pl_hadamard_args {
    const void *x; /* act [n][128] */
    void *y;       /* act [n][128] */
} pl_hadamard_args;
typedef void pl_hadamard_fn(const pl_op_env *env, const pl_hadamard_args *a, int64_t begin,
                            int64_t end);

#endif
