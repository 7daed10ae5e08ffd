/* Level f64: every value in double, every sum in double and rounded once, the oracle's choices
 * (docs/NUMERICS.md 14). For tests: it is as slow as it is plain. */
#ifndef PL_OPS_F64_F64_H
#define PL_OPS_F64_F64_H

#include <math.h>

#include "base/math.h"
#include "base/numfmt.h"
#include "ops/ops.h"

/* A result of fp32 arithmetic. */
static inline double pl__f64_acc(const pl_op_env *env, double x)
{
    return env->mode == PL_MODE_EXACT ? x : pl_f64_round_f32(x);
}

/* A result stored as bf16. */
static inline double pl__f64_act(const pl_op_env *env, double x)
{
    return env->mode == PL_MODE_EXACT ? x : pl_f64_round_bf16(x);
}

/* n is a multiple of 8. */
double pl__f64_dot(const double *a, const double *b, int64_t n);
double pl__f64_sum_squares(const double *x, int64_t n);

/* rsqrt(mean + eps) as fp32. */
double pl__f64_rsqrt(const pl_op_env *env, double mean, float eps);
double pl__f64_sigmoid(const pl_op_env *env, double x);

/* y = w * (x * rsqrt(mean(x^2) + eps)). */
void pl__f64_rms_norm_row(const pl_op_env *env, const pl_weight_view *w, float eps, int64_t dim,
                          const double *x, double *y);
/* Rotates the last 64 of `dim` values by row t of the angles; rounds to bf16. */
void pl__f64_rotate(const pl_op_env *env, const pl_angles *angles, int64_t t, bool inverse,
                    int64_t dim, double *x);
/* Rotation, Hadamard, e2m1 round trip of 128 values. */
void pl__f64_index_row(const pl_op_env *env, const pl_angles *angles, int64_t t, const double *x,
                       double *out);

/* Element i of a BF16 or F32 vector. */
static inline double pl__f64_weight(const pl_weight_view *w, int64_t i)
{
    if (w->format == PL_WEIGHT_F32)
        return (double)((const float *)w->data)[i];
    return (double)pl_f32_from_bits((uint32_t)((const uint16_t *)w->data)[i] << 16);
}

pl_embed_fn pl__f64_embed;
pl_hc_dots_fn pl__f64_hc_dots;
pl_hc_pre_fn pl__f64_hc_pre;
pl_hc_post_fn pl__f64_hc_post;
pl_hc_head_fn pl__f64_hc_head;
pl_mtp_join_fn pl__f64_mtp_join;
pl_rms_norm_fn pl__f64_rms_norm;
pl_rope_angles_fn pl__f64_rope_angles;
pl_q_norm_rope_fn pl__f64_q_norm_rope;
pl_unrope_fn pl__f64_unrope;
pl_quantise_fn pl__f64_quantise;
pl_linear_fn pl__f64_linear;
pl_kv_store_fn pl__f64_kv_store;
pl_attention_fn pl__f64_attention;
pl_compress_fn pl__f64_compress;
pl_compress_reset_fn pl__f64_compress_reset;
pl_key_store_fn pl__f64_key_store;
pl_index_query_fn pl__f64_index_query;
pl_index_topk_fn pl__f64_index_topk;
pl_index_merge_fn pl__f64_index_merge;
pl_route_fn pl__f64_route;
pl_route_weights_fn pl__f64_route_weights;
pl_swiglu_fn pl__f64_swiglu;
pl_moe_sum_fn pl__f64_moe_sum;

uint64_t pl__f64_compress_state_bytes(int32_t ratio, int32_t dim);

#endif
