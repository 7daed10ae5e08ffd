/* The residual streams X[n][4][D] (act): start, mixing by hyper-connections, end.
 *
 * Source: specification sections 2 and 6.1. */
#ifndef PL_OPS_STREAMS_H
#define PL_OPS_STREAMS_H

#include "ops/op.h"

/* x[t][0..n_copies-1][:] = embed row tokens[t]; token -1 gives zeros. Unit: a token. */
typedef struct pl_embed_args {
    pl_weight_view embed;  /* BF16 [V][D] */
    const int32_t *tokens; /* [n], each -1 or below V */
    int32_t n_copies;      /* 4: streams; 1: the embedding itself */
    void *x;               /* act [n][n_copies][D] */
} pl_embed_args;
typedef void pl_embed_fn(const pl_op_env *env, const pl_embed_args *a, int64_t begin, int64_t end);

/* The long sums of a hyper-connection site: with v = the 4 D values of token t,
 *     m[t][o] = sum_i fn[o][i] v[i]   for o < k;   m[t][k] = mean_i v[i]^2.
 * Unit: one (t, o), t * (k + 1) + o. */
typedef struct pl_hc_dots_args {
    pl_weight_view fn;   /* F32 [k][4 D]; k = 24, or 4 for the head */
    const void *x;       /* act [..][4][D] */
    const int32_t *rows; /* token t reads x[rows[t]]; NULL: x[t] */
    void *m;             /* acc [n][k + 1] */
} pl_hc_dots_args;
typedef void pl_hc_dots_fn(const pl_op_env *env, const pl_hc_dots_args *a, int64_t begin,
                           int64_t end);

/* Section 2.2 from m on: sigmoids, Sinkhorn, and the weighted sum of the streams. Unit: a token. */
typedef struct pl_hc_pre_args {
    pl_weight_view base, scale; /* F32 [24], [3] */
    float rms_eps, hc_eps;
    int32_t sinkhorn_iters;
    int64_t dim;   /* D */
    const void *m; /* acc [n][25] of hc_dots */
    const void *x; /* act [n][4][D] */
    void *y;       /* act [n][D] */
    void *post;    /* acc [n][4] */
    void *comb;    /* acc [n][4][4]: C[j][k], j the source stream, k the destination */
} pl_hc_pre_args;
typedef void pl_hc_pre_fn(const pl_op_env *env, const pl_hc_pre_args *a, int64_t begin,
                          int64_t end);

/* x[t][k] = post[k] f[t] + sum_j C[j][k] x[t][j]: section 2.3, in place. Unit: a token. */
typedef struct pl_hc_post_args {
    int64_t dim;
    const void *f;           /* act [n][D], the sub-layer's output */
    const void *post, *comb; /* of hc_pre */
    void *x;                 /* act [n][4][D] */
} pl_hc_post_args;
typedef void pl_hc_post_fn(const pl_op_env *env, const pl_hc_post_args *a, int64_t begin,
                           int64_t end);

/* Section 2.5 from m on, before the final norm. Unit: a token. */
typedef struct pl_hc_head_args {
    pl_weight_view base, scale; /* F32 [4], [1] */
    float rms_eps, hc_eps;
    int64_t dim;
    const void *m;       /* acc [n][5] of hc_dots */
    const void *x;       /* act [..][4][D] */
    const int32_t *rows; /* as in hc_dots */
    void *y;             /* act [n][D] */
} pl_hc_head_args;
typedef void pl_hc_head_fn(const pl_op_env *env, const pl_hc_head_args *a, int64_t begin,
                           int64_t end);

/* x[t][s] = e[t] + h[t][s], rounded to bf16: the streams an mtp block starts from. x may be h.
 * Unit: a token. */
typedef struct pl_mtp_join_args {
    int64_t dim;
    const void *e; /* act [n][D] */
    const void *h; /* act [n][4][D] */
    void *x;       /* act [n][4][D] */
} pl_mtp_join_args;
typedef void pl_mtp_join_fn(const pl_op_env *env, const pl_mtp_join_args *a, int64_t begin,
                            int64_t end);

#endif
