/* Chains: operators that one row goes through without waiting for the other rows.
 *
 * Each operator of a chain reads, of what those before it wrote, only what belongs to the same row. So a tile is a
 * range of rows, which goes through the whole chain, and workers meet once behind it instead of once behind
 * each operator. Where rows are fewer than workers can share, a chain is run as several regions, each over what
 * its operators count in (heads, outputs): many workers then help with one row. Bits do not depend on any of it.
 *
 * Several chains and linear layers that have nothing of each other run together, in one region. */
#ifndef PL_OPS_CHAIN_H
#define PL_OPS_CHAIN_H

#include "ops/ops.h"
#include "ops/profile.h"

/* What an operator counts in. Neighbours of a chain that count in the same are run over it together: unit u of the
 * later one reads only what unit u of the earlier one wrote. */
typedef enum pl_unit {
    PL_UNIT_ROW,
    PL_UNIT_HEAD,
    PL_UNIT_INDEX_HEAD,
    PL_UNIT_OUTPUT, /* of hc_dots */
    PL_UNIT_PART,   /* of a token's keys */
    PL_UNIT_CHANNELS,
    PL_UNIT_MATRIX, /* a linear layer's */
} pl_unit;

/* Operators over rows: name, unit, units of a row, steps of a unit (multiply-adds or so); of arguments `a`. A row of
 * compress is a job. */
/* clang-format off */
#define PL_OPERATOR_MAP(X)                                                                         \
    X(embed, ROW, 1, a->n_copies * a->embed.cols)                                                  \
    X(hc_dots, OUTPUT, a->fn.rows + 1, a->fn.cols)                                                 \
    X(hc_pre, ROW, 1, 4 * a->dim + 4096)                                                           \
    X(hc_post, ROW, 1, 20 * a->dim)                                                                \
    X(hc_head, ROW, 1, 4 * a->dim)                                                                 \
    X(mtp_join, ROW, 1, 4 * a->dim)                                                                \
    X(rms_norm, ROW, 1, 4 * a->dim)                                                                \
    X(rope_angles, ROW, 1, 2048)                                                                   \
    X(q_norm_rope, HEAD, a->n_heads, 4 * PL_HEAD_DIM)                                              \
    X(unrope, HEAD, a->n_heads, PL_HEAD_DIM)                                                       \
    X(quantise, ROW, 1, 4 * a->dim)                                                                \
    X(kv_store, ROW, 1, 4 * PL_HEAD_DIM)                                                           \
    X(attention, HEAD, a->n_heads, 2 * PL_WINDOW * PL_HEAD_DIM)                                    \
    X(compress, CHANNELS, a->dim / PL_COMPRESS_TILE, 64 * PL_COMPRESS_TILE * a->jobs[0].n)         \
    X(key_store, ROW, 1, 16 * PL_INDEX_DIM)                                                        \
    X(index_query, INDEX_HEAD, a->n_heads, 16 * PL_INDEX_DIM)                                      \
    X(index_topk, PART, a->n_parts,                                                                \
      (a->position[0] / 4 / a->n_parts + 1) * (int64_t)a->n_heads * PL_INDEX_DIM)                  \
    X(index_merge, ROW, 1, 64 * a->n_parts * a->topk)                                              \
    X(route, ROW, 1, 64 * a->n_experts)                                                            \
    X(route_weights, ROW, 1, 16 * a->top_k)                                                        \
    X(swiglu, ROW, 1, 32 * a->dim)                                                                 \
    X(moe_sum, ROW, 1, (a->top_k + 1) * a->dim)                                                    \
    X(moe_parts, ROW, 1, (a->top_k + 1) * a->dim)                                                  \
    X(shard_sum, ROW, 1, (a->n_shards + 1) * a->dim)
/* clang-format on */

enum { PL_CHAIN_LINKS = 16 };

/* One operator of a chain and a copy of its arguments. */
typedef struct pl_link {
    pl_profile_op op;
    pl_unit unit;
    int64_t per, steps; /* units of a row; steps of a unit */
    union {
        pl_linear_job linear;
#define PL_LINK_ARGS(name, unit, per, steps) pl_##name##_args name;
        PL_OPERATOR_MAP(PL_LINK_ARGS)
#undef PL_LINK_ARGS
    } args;
} pl_link;

typedef struct pl_chain {
    int64_t n_rows;
    int32_t n_links;
    pl_link link[PL_CHAIN_LINKS];
} pl_chain;

/* An empty chain for n rows. */
void pl_chain_begin(pl_chain *c, int64_t n_rows);

/* pl_chain_NAME appends an operator; what the arguments point at has to be there until the chain has run. At most
 * PL_CHAIN_LINKS. */
#define PL_CHAIN_APPEND(name, unit, per, steps) \
    void pl_chain_##name(pl_chain *c, const pl_##name##_args *a);
PL_OPERATOR_MAP(PL_CHAIN_APPEND)
#undef PL_CHAIN_APPEND

/* A linear layer whose tokens are the rows (job->n = n_rows, no job->rows). For small matrices: each tile of rows reads
 * the whole of it. */
void pl_chain_linear(pl_chain *c, const pl_linear_job *job);

#endif
