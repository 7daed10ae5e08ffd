/* Level scalar: the definition. Every operator here is docs/NUMERICS.md turned into plain C, one
 * statement per rounding; faster levels must give the same bits.
 *
 * All of it runs in the floating-point environment of NUMERICS 1 (base/fpenv.h), which the worker pool
 * sets: denormal operands count as zero and denormal results are flushed by the processor, so +, -, *,
 * / and sqrt need no flush of their own. */
#ifndef PL_OPS_SCALAR_SCALAR_H
#define PL_OPS_SCALAR_SCALAR_H

#include "base/math.h"
#include "base/numfmt.h"
#include "ops/ops.h"

/* fma(a, b, c) for products of at most 24 significant bits: the sum in double is rounded once more
 * without harm (NUMERICS 1). pl_fma_f32 is for all others. */
static inline float pl__fma24(float a, float b, float c)
{
    return (float)((double)a * (double)b + (double)c);
}

/* One link of a chain over bf16 pairs: the odd element first, as vdpbf16ps has it. */
static inline float pl__pair(float c, float a0, float b0, float a1, float b1)
{
    return pl__fma24(a0, b0, pl__fma24(a1, b1, c));
}

/* Elements i of a BF16 or F32 vector. */
static inline float pl__bf16_at(const pl_weight_view *w, int64_t i)
{
    return pl_bf16_to_f32(((const uint16_t *)w->data)[i]);
}

static inline float pl__f32_at(const pl_weight_view *w, int64_t i)
{
    return ((const float *)w->data)[i];
}

/* Sum of squares of n bf16 values: chains of 128, added ascending (NUMERICS: norms). */
float pl__scalar_sum_squares(const uint16_t *x, int64_t n);

/* 1 / sqrt(mean + eps). */
float pl__scalar_rsqrt(float mean, float eps);

/* Rotates the pairs x[0..63] by row t of the angles; fp32 in and out. */
void pl__scalar_rotate(const pl_angles *angles, int64_t t, bool inverse, float *x);

/* A cache row as 512 floats. */
void pl__scalar_kv_widen(const pl_rows *rows, int64_t i, float *out);

/* What hc_pre and hc_head do but for the sum over streams: the weights of the 4 streams of token t; hc_pre's post
 * and comb. */
void pl__scalar_hc_mix(const pl_hc_pre_args *a, int64_t t, float *pre);
void pl__scalar_hc_head_mix(const pl_hc_head_args *a, int64_t t, float *p);

/* What is left of a row of attention_varlen: its LSE is stored, *den is what o is divided by. `any`: it saw a key. */
void pl__scalar_varlen_finish(const pl_varlen_args *a, int64_t token, int32_t head, bool any,
                              float m, float l, float *den);

/* The same of attention_sparse, with the largest logit; returns what o is divided by. */
float pl__scalar_sparse_finish(const pl_sparse_args *a, int64_t t, int64_t h, bool any, float m,
                               float l);

pl_embed_fn pl__scalar_embed;
pl_hc_dots_fn pl__scalar_hc_dots;
pl_hc_pre_fn pl__scalar_hc_pre;
pl_hc_post_fn pl__scalar_hc_post;
pl_hc_head_fn pl__scalar_hc_head;
pl_mtp_join_fn pl__scalar_mtp_join;
pl_rms_norm_fn pl__scalar_rms_norm;
pl_rope_angles_fn pl__scalar_rope_angles;
pl_q_norm_rope_fn pl__scalar_q_norm_rope;
pl_unrope_fn pl__scalar_unrope;
pl_rope_fn pl__scalar_rope;
pl_hadamard_fn pl__scalar_hadamard;
pl_quantise_fn pl__scalar_quantise;
pl_linear_fn pl__scalar_linear_fp8;
pl_linear_fn pl__scalar_linear_fp8_a16;
pl_linear_fn pl__scalar_linear_fp4;
pl_linear_fn pl__scalar_linear_bf16;
pl_kv_store_fn pl__scalar_kv_store;
pl_cache_move_fn pl__scalar_cache_put;
pl_cache_move_fn pl__scalar_cache_get;
pl_attention_fn pl__scalar_attention;
pl_varlen_fn pl__scalar_attention_varlen;
pl_sparse_fn pl__scalar_attention_sparse;
pl_compress_fn pl__scalar_compress;
pl_compress_reset_fn pl__scalar_compress_reset;
pl_key_store_fn pl__scalar_key_store;
pl_index_query_fn pl__scalar_index_query;
pl_index_topk_fn pl__scalar_index_topk;
pl_index_merge_fn pl__scalar_index_merge;
pl_route_fn pl__scalar_route;
pl_route_weights_fn pl__scalar_route_weights;
pl_swiglu_fn pl__scalar_swiglu;
pl_swiglu7_fn pl__scalar_swiglu7;
pl_map_fn pl__scalar_map;
pl_moe_sum_fn pl__scalar_moe_sum;
pl_moe_parts_fn pl__scalar_moe_parts;
pl_shard_sum_fn pl__scalar_shard_sum;

uint64_t pl__scalar_compress_state_bytes(int32_t ratio, int32_t dim);
uint64_t pl__scalar_linear_scratch_bytes(int64_t max_k);
uint64_t pl__scalar_attention_scratch_bytes(void);

/* Values in and out (ops.h). */
void pl__scalar_act_get(const void *act, int64_t n, float *out);
void pl__scalar_act_set(const float *in, int64_t n, void *act);
void pl__scalar_acc_get(const void *acc, int64_t n, float *out);
void pl__scalar_key_get(const pl_rows *rows, int64_t i, float *out);

/* Entries that the vector levels take as they are: formats, and operators that no time is spent in or that wait
 * for vector kernels. */
/* clang-format off */
#define PL__SCALAR_SHARED \
    .mode = PL_MODE_REC, \
    .act_bytes = sizeof(uint16_t), \
    .acc_bytes = sizeof(float), \
    .quant_block_bytes = PL_QUANT_BLOCK + 2, \
    .kv_data_bytes = PL_NOPE_DIM + 2 * PL_ROPE_DIM, \
    .kv_scale_bytes = PL_NOPE_DIM / PL_KV_BLOCK + 1, \
    .key_data_bytes = PL_INDEX_DIM / 2, \
    .key_scale_bytes = PL_INDEX_DIM / 32, \
    .compress_state_bytes = pl__scalar_compress_state_bytes, \
    .act_get = pl__scalar_act_get, \
    .act_set = pl__scalar_act_set, \
    .acc_get = pl__scalar_acc_get, \
    .kv_get = pl__scalar_kv_widen, \
    .key_get = pl__scalar_key_get, \
    .embed = pl__scalar_embed, \
    .mtp_join = pl__scalar_mtp_join, \
    .rope_angles = pl__scalar_rope_angles, \
    .compress_reset = pl__scalar_compress_reset, \
    .index_merge = pl__scalar_index_merge, \
    .route_weights = pl__scalar_route_weights, \
    .moe_parts = pl__scalar_moe_parts, \
    .shard_sum = pl__scalar_shard_sum
/* clang-format on */

#endif
