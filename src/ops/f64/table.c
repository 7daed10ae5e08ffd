/* The operator table of level f64, one per mode. */
#include "ops/f64/f64.h"

#include <string.h>

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t scratch_bytes(const pl_ops_shape *shape)
{
    uint64_t n = 4 * (uint64_t)shape->max_k; /* linear: a band of weight rows */

    n = max_u64(n, (uint64_t)shape->max_keys);
    n = max_u64(n, (uint64_t)shape->topk);
    return sizeof(double) * max_u64(n, (uint64_t)shape->n_experts);
}

static void get(const void *from, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)((const double *)from)[i];
}

static void set(const float *in, int64_t n, void *to)
{
    for (int64_t i = 0; i < n; i++)
        ((double *)to)[i] = (double)in[i];
}

static void kv_get(const pl_rows *rows, int64_t i, float *out)
{
    get(pl_rows_data(rows, i), PL_HEAD_DIM, out);
}

static void key_get(const pl_rows *rows, int64_t i, float *out)
{
    get(pl_rows_data(rows, i), PL_INDEX_DIM, out);
}

/* clang-format off */
#define TABLE(mode_value)                          \
    {                                                         \
        .name = "f64",                                        \
        .mode = (mode_value),                                 \
        .act_bytes = sizeof(double),                          \
        .acc_bytes = sizeof(double),                          \
        .quant_block_bytes = PL_QUANT_BLOCK * sizeof(double), \
        .kv_data_bytes = PL_HEAD_DIM * sizeof(double),        \
        .key_data_bytes = PL_INDEX_DIM * sizeof(double),      \
        .compress_state_bytes = pl__f64_compress_state_bytes, \
        .scratch_bytes = scratch_bytes,                       \
        .act_get = get,                                       \
        .act_set = set,                                       \
        .acc_get = get,                                       \
        .kv_get = kv_get,                                     \
        .key_get = key_get,                                   \
        .embed = pl__f64_embed,                               \
        .hc_dots = pl__f64_hc_dots,                           \
        .hc_pre = pl__f64_hc_pre,                             \
        .hc_post = pl__f64_hc_post,                           \
        .hc_head = pl__f64_hc_head,                           \
        .mtp_join = pl__f64_mtp_join,                         \
        .rms_norm = pl__f64_rms_norm,                         \
        .rope_angles = pl__f64_rope_angles,                   \
        .q_norm_rope = pl__f64_q_norm_rope,                   \
        .unrope = pl__f64_unrope,                             \
        .quantise = pl__f64_quantise,                         \
        .linear_fp8 = pl__f64_linear,                         \
        .linear_fp8_a16 = pl__f64_linear,                     \
        .linear_fp4 = pl__f64_linear,                         \
        .linear_bf16 = pl__f64_linear,                        \
        .kv_store = pl__f64_kv_store,                         \
        .attention = pl__f64_attention,                       \
        .compress = pl__f64_compress,                         \
        .compress_reset = pl__f64_compress_reset,             \
        .key_store = pl__f64_key_store,                       \
        .index_query = pl__f64_index_query,                   \
        .index_topk = pl__f64_index_topk,                     \
        .index_merge = pl__f64_index_merge,                   \
        .route = pl__f64_route,                               \
        .route_weights = pl__f64_route_weights,               \
        .swiglu = pl__f64_swiglu,                             \
        .moe_sum = pl__f64_moe_sum,                           \
    }
/* clang-format on */

static const pl_ops tables[] = {
    [PL_MODE_REF] = TABLE(PL_MODE_REF),
    [PL_MODE_REC] = TABLE(PL_MODE_REC),
    [PL_MODE_EXACT] = TABLE(PL_MODE_EXACT),
};

const pl_ops *pl_ops_f64(pl_mode mode)
{
    return &tables[mode];
}
