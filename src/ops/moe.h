/* Mixture of experts: choosing, weighing, the gated unit, the sum.
 *
 * Source: specification section 5. */
#ifndef PL_OPS_MOE_H
#define PL_OPS_MOE_H

#include "ops/op.h"

/* score[t][e] = sqrt(softplus(logit)); ids = the token's row of tid2eid, or the top_k largest score +
 * bias, best first, ties to the lower id. Unit: a token. */
typedef struct pl_route_args {
    int32_t n_experts, top_k;
    bool by_token;         /* hash layer: `table`, else `bias` */
    pl_weight_view table;  /* I64 [V][top_k] */
    pl_weight_view bias;   /* F32 [n_experts] */
    const int32_t *tokens; /* [n]; the hash layers read it */
    void *score;           /* acc [n][n_experts]: in logits, out scores without bias */
    int32_t *ids;          /* [n][top_k] */
} pl_route_args;
typedef void pl_route_fn(const pl_op_env *env, const pl_route_args *a, int64_t begin, int64_t end);

/* weight[t][j] = score[ids[j]] / sum_j score[ids[j]] * scale. Unit: a token. */
typedef struct pl_route_weights_args {
    int32_t n_experts, top_k;
    float scale;
    const void *score; /* acc [n][n_experts] */
    const int32_t *ids;
    void *weight; /* acc [n][top_k] */
} pl_route_weights_args;
typedef void pl_route_weights_fn(const pl_op_env *env, const pl_route_weights_args *a,
                                 int64_t begin, int64_t end);

/* a[r] = clamp(g) sigmoid(clamp(g)) clamp(u) [* weight]: g from above only. a may be g or u.
 * Unit: a row. */
typedef struct pl_swiglu_args {
    int64_t dim; /* I */
    float limit;
    const void *g, *u;        /* act [n][dim] */
    const void *weight;       /* acc */
    const int32_t *weight_at; /* [n] index into weight; -1: none (shared expert) */
    void *a;                  /* act [n][dim] */
} pl_swiglu_args;
typedef void pl_swiglu_fn(const pl_op_env *env, const pl_swiglu_args *a, int64_t begin,
                          int64_t end);

/* MAGI-2's unit: g up to 7, l within -7 .. 7; a = g sigmoid(1.702 g) (l + 1), rounded once to bf16. Level f64 has none.
 * Unit: a row. Source: docs/NUMERICS.md 12. */
typedef struct pl_swiglu7_args {
    int64_t dim;
    bool wide;         /* g and l are acc, else act */
    bool interleaved;  /* g and l alternate in g's rows of 2 dim; l is not read */
    const void *g, *l; /* [n][dim] */
    void *a;           /* act [n][dim] */
} pl_swiglu7_args;
typedef void pl_swiglu7_fn(const pl_op_env *env, const pl_swiglu7_args *a, int64_t begin,
                           int64_t end);

/* f[t] = sum over the token's experts in ascending id, in canonical shards of the experts (level f64:
 * one chain), + the shared expert. Unit: a token. */
typedef struct pl_moe_sum_args {
    int64_t dim; /* D */
    int32_t top_k, n_experts, n_shards;
    const void *y;       /* act [..][dim]: outputs of w2 */
    const int32_t *rows; /* [n][top_k] rows of y, ascending expert id */
    const int32_t *ids;  /* [n][top_k] those experts, ascending */
    const void *shared;  /* act [n][dim] */
    void *f;             /* act [n][dim] */
} pl_moe_sum_args;
typedef void pl_moe_sum_fn(const pl_op_env *env, const pl_moe_sum_args *a, int64_t begin,
                           int64_t end);

/* The same sum, taken apart for ranks (docs/NUMERICS.md 5, 12). Level f64 has neither of the two: there a sum is
 * one, and rounded once.
 *
 * part[s][t] = sum from +0 over the token's experts of shard s in ascending id, for shards shard .. shard_end - 1.
 * Unit: a token. */
typedef struct pl_moe_parts_args {
    int64_t dim; /* D */
    int32_t top_k, n_experts, n_shards, shard, shard_end;
    const void *y;       /* act [..][dim]: outputs of w2; rows of these shards' experts are read */
    const int32_t *rows; /* as above */
    const int32_t *ids;
    void *part;         /* acc [n_shards][n][dim] */
    int64_t part_bytes; /* from one shard to the next */
} pl_moe_parts_args;
typedef void pl_moe_parts_fn(const pl_op_env *env, const pl_moe_parts_args *a, int64_t begin,
                             int64_t end);

/* y[t] = the parts added from +0, ascending, those of empty shards skipped [+ shared], one rounding. Unit: a
 * token. */
typedef struct pl_shard_sum_args {
    int64_t dim;
    int32_t n_shards;
    int64_t n_items;  /* what the shards divide: blocks of K, experts */
    const void *part; /* acc [n_shards][n][dim] */
    int64_t part_bytes;
    const void *shared; /* act [n][dim]; NULL: none */
    void *y;            /* act [n][dim] */
} pl_shard_sum_args;
typedef void pl_shard_sum_fn(const pl_op_env *env, const pl_shard_sum_args *a, int64_t begin,
                             int64_t end);

#endif
