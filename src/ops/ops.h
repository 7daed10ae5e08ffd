/* The operator table: one per level, the only thing the forward pass calls.
 *
 * `scalar` is the definition: every bit as docs/NUMERICS.md says. Faster levels start from its table
 * and replace entries by functions with equal bits. `f64` is for tests: activations in double, every
 * sum formed in double and rounded once, the choices of the oracle (tests/oracle). */
#ifndef PL_OPS_OPS_H
#define PL_OPS_OPS_H

#include "base/cpu.h"
#include "ops/attention.h"
#include "ops/cache_rows.h"
#include "ops/compress.h"
#include "ops/indexer.h"
#include "ops/linear.h"
#include "ops/map.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/op.h"
#include "ops/rows.h"
#include "ops/sparse.h"
#include "ops/streams.h"
#include "ops/varlen.h"

/* The largest arguments that will occur; scratch is sized by it. */
typedef struct pl_ops_shape {
    int64_t max_k;    /* inputs of a linear layer */
    int32_t topk;     /* index_topk */
    int64_t max_keys; /* keys a query can see: 128 + compressed entries */
    int32_t n_experts;
} pl_ops_shape;

typedef struct pl_ops {
    const char *name; /* "scalar", "f64" */
    pl_mode mode;

    /* Bytes of one element, of 128 quantised elements, of the parts of a cache row. */
    int32_t act_bytes, acc_bytes, quant_block_bytes;
    int32_t kv_data_bytes, kv_scale_bytes;
    int32_t key_data_bytes, key_scale_bytes;
    uint64_t (*compress_state_bytes)(int32_t ratio, int32_t dim);
    uint64_t (*scratch_bytes)(const pl_ops_shape *shape); /* of one worker */

    /* Values in and out, for tracing, forcing and sampling; exact except that f64 narrows. */
    void (*act_get)(const void *act, int64_t n, float *out);
    void (*act_set)(const float *in, int64_t n, void *act);
    void (*acc_get)(const void *acc, int64_t n, float *out);
    void (*kv_get)(const pl_rows *rows, int64_t i, float *out);  /* 512 values */
    void (*key_get)(const pl_rows *rows, int64_t i, float *out); /* 128 values */

    pl_embed_fn *embed;
    pl_hc_dots_fn *hc_dots;
    pl_hc_pre_fn *hc_pre;
    pl_hc_post_fn *hc_post;
    pl_hc_head_fn *hc_head;
    pl_mtp_join_fn *mtp_join;

    pl_rms_norm_fn *rms_norm;
    pl_rope_angles_fn *rope_angles;
    pl_q_norm_rope_fn *q_norm_rope;
    pl_unrope_fn *unrope;
    pl_rope_fn *rope;         /* NULL at level f64 */
    pl_hadamard_fn *hadamard; /* the same */

    pl_quantise_fn *quantise;
    pl_linear_fn *linear_fp8, *linear_fp8_a16, *linear_fp4, *linear_bf16;

    pl_kv_store_fn *kv_store;
    pl_cache_move_fn *cache_put, *cache_get;
    pl_attention_fn *attention;
    pl_varlen_fn *attention_varlen; /* scratch: PL_VARLEN_SCRATCH_BYTES; NULL at level f64 */
    pl_sparse_fn *attention_sparse; /* scratch: PL_SPARSE_SCRATCH_BYTES; NULL at level f64 */

    pl_compress_fn *compress;
    pl_compress_reset_fn *compress_reset;
    pl_key_store_fn *key_store;

    pl_index_query_fn *index_query;
    pl_index_topk_fn *index_topk;
    pl_index_merge_fn *index_merge;

    pl_route_fn *route;
    pl_route_weights_fn *route_weights;
    pl_swiglu_fn *swiglu;
    pl_swiglu7_fn *swiglu7; /* NULL at level f64 */
    pl_moe_sum_fn *moe_sum;
    pl_moe_parts_fn *moe_parts; /* for ranks; NULL at level f64 */
    pl_shard_sum_fn *shard_sum; /* the same */

    pl_map_fn *map; /* NULL at level f64 */
} pl_ops;

const pl_ops *pl_ops_f64(pl_mode mode);
const pl_ops *pl_ops_scalar(void);
/* Only in builds with those levels (pl_level_built). */
const pl_ops *pl_ops_avx2(void);
const pl_ops *pl_ops_avx512(void);
const pl_ops *pl_ops_avx512bf16(void);

/* The table of a level; `mode` matters to f64 alone. NULL where this build has none. */
const pl_ops *pl_ops_at(pl_level level, pl_mode mode);

#endif
