/* Running operators over the worker pool: how many units there are, how they are grouped into tiles, and
 * which worker's scratch a tile gets. Bits do not depend on any of it.
 *
 * One function per operator, named like its entry in pl_ops; `n` counts tokens or rows. An operator with
 * few units runs on the calling thread. */
#ifndef PL_OPS_RUN_H
#define PL_OPS_RUN_H

#include "base/arena.h"
#include "base/pool.h"
#include "ops/ops.h"
#include "ops/profile.h"

typedef struct pl_exec {
    const pl_ops *ops;
    pl_pool *pool;       /* borrowed */
    pl_op_env *env;      /* one per worker */
    pl_profile *profile; /* borrowed, for as many workers; NULL: nothing is measured */
} pl_exec;

/* Carves the workers' scratch (a dry run of the arena counts it); sets `ops` and `env`. */
void pl_exec_layout(pl_exec *x, pl_arena *arena, const pl_ops *ops, int n_workers,
                    const pl_ops_shape *shape);

void pl_run_embed(const pl_exec *x, const pl_embed_args *a, int64_t n);
void pl_run_hc_dots(const pl_exec *x, const pl_hc_dots_args *a, int64_t n);
void pl_run_hc_pre(const pl_exec *x, const pl_hc_pre_args *a, int64_t n);
void pl_run_hc_post(const pl_exec *x, const pl_hc_post_args *a, int64_t n);
void pl_run_hc_head(const pl_exec *x, const pl_hc_head_args *a, int64_t n);
void pl_run_mtp_join(const pl_exec *x, const pl_mtp_join_args *a, int64_t n);

void pl_run_rms_norm(const pl_exec *x, const pl_rms_norm_args *a, int64_t n);
void pl_run_rope_angles(const pl_exec *x, const pl_rope_angles_args *a, int64_t n);
void pl_run_q_norm_rope(const pl_exec *x, const pl_q_norm_rope_args *a, int64_t n);
void pl_run_unrope(const pl_exec *x, const pl_unrope_args *a, int64_t n);

void pl_run_quantise(const pl_exec *x, const pl_quantise_args *a, int64_t n);

/* All jobs in one parallel region, each by the kernel that its weight and input ask for. Jobs without
 * tokens are fine. */
void pl_run_linear(const pl_exec *x, pl_linear_job *jobs, int32_t n_jobs);

void pl_run_kv_store(const pl_exec *x, const pl_kv_store_args *a, int64_t n);
void pl_run_attention(const pl_exec *x, const pl_attention_args *a, int64_t n);

void pl_run_compress(const pl_exec *x, const pl_compress_args *a, int64_t n_jobs);
void pl_run_key_store(const pl_exec *x, const pl_key_store_args *a, int64_t n);

void pl_run_index_query(const pl_exec *x, const pl_index_query_args *a, int64_t n);
void pl_run_index_topk(const pl_exec *x, const pl_index_topk_args *a, int64_t n);
void pl_run_index_merge(const pl_exec *x, const pl_index_merge_args *a, int64_t n);

void pl_run_route(const pl_exec *x, const pl_route_args *a, int64_t n);
void pl_run_route_weights(const pl_exec *x, const pl_route_weights_args *a, int64_t n);
void pl_run_swiglu(const pl_exec *x, const pl_swiglu_args *a, int64_t n);
void pl_run_moe_sum(const pl_exec *x, const pl_moe_sum_args *a, int64_t n);
void pl_run_moe_parts(const pl_exec *x, const pl_moe_parts_args *a, int64_t n);
void pl_run_shard_sum(const pl_exec *x, const pl_shard_sum_args *a, int64_t n);

#endif
