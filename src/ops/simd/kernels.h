/* The kernels that are written once for all vector levels (simd/vec.h): their prototypes and table entries. */
#ifndef PL_OPS_SIMD_KERNELS_H
#define PL_OPS_SIMD_KERNELS_H

#include "ops/ops.h"

#define PL__JOIN2(level, name) pl__##level##_##name
#define PL__JOIN(level, name)  PL__JOIN2(level, name)

/* clang-format off */
#define PL__SIMD_PROTOTYPES(level) \
    pl_hc_dots_fn PL__JOIN(level, hc_dots); \
    pl_hc_pre_fn PL__JOIN(level, hc_pre); \
    pl_hc_post_fn PL__JOIN(level, hc_post); \
    pl_hc_head_fn PL__JOIN(level, hc_head); \
    pl_rms_norm_fn PL__JOIN(level, rms_norm); \
    pl_q_norm_rope_fn PL__JOIN(level, q_norm_rope); \
    pl_unrope_fn PL__JOIN(level, unrope); \
    pl_rope_fn PL__JOIN(level, rope); \
    pl_hadamard_fn PL__JOIN(level, hadamard); \
    pl_quantise_fn PL__JOIN(level, quantise); \
    pl_attention_fn PL__JOIN(level, attention); \
    pl_varlen_fn PL__JOIN(level, attention_varlen); \
    pl_sparse_fn PL__JOIN(level, attention_sparse); \
    pl_key_store_fn PL__JOIN(level, key_store); \
    pl_index_query_fn PL__JOIN(level, index_query); \
    pl_index_topk_fn PL__JOIN(level, index_topk); \
    pl_kv_store_fn PL__JOIN(level, kv_store); \
    pl_cache_move_fn PL__JOIN(level, cache_put); \
    pl_cache_move_fn PL__JOIN(level, cache_get); \
    pl_route_fn PL__JOIN(level, route); \
    pl_swiglu_fn PL__JOIN(level, swiglu); \
    pl_swiglu7_fn PL__JOIN(level, swiglu7); \
    pl_map_fn PL__JOIN(level, map); \
    pl_compress_fn PL__JOIN(level, compress); \
    pl_moe_sum_fn PL__JOIN(level, moe_sum)

#define PL__SIMD_ENTRIES(level) \
    .hc_dots = PL__JOIN(level, hc_dots), \
    .hc_pre = PL__JOIN(level, hc_pre), \
    .hc_post = PL__JOIN(level, hc_post), \
    .hc_head = PL__JOIN(level, hc_head), \
    .rms_norm = PL__JOIN(level, rms_norm), \
    .q_norm_rope = PL__JOIN(level, q_norm_rope), \
    .unrope = PL__JOIN(level, unrope), \
    .rope = PL__JOIN(level, rope), \
    .hadamard = PL__JOIN(level, hadamard), \
    .quantise = PL__JOIN(level, quantise), \
    .attention = PL__JOIN(level, attention), \
    .attention_varlen = PL__JOIN(level, attention_varlen), \
    .attention_sparse = PL__JOIN(level, attention_sparse), \
    .key_store = PL__JOIN(level, key_store), \
    .index_query = PL__JOIN(level, index_query), \
    .index_topk = PL__JOIN(level, index_topk), \
    .kv_store = PL__JOIN(level, kv_store), \
    .cache_put = PL__JOIN(level, cache_put), \
    .cache_get = PL__JOIN(level, cache_get), \
    .route = PL__JOIN(level, route), \
    .swiglu = PL__JOIN(level, swiglu), \
    .swiglu7 = PL__JOIN(level, swiglu7), \
    .map = PL__JOIN(level, map), \
    .compress = PL__JOIN(level, compress), \
    .moe_sum = PL__JOIN(level, moe_sum)
/* clang-format on */

#endif
