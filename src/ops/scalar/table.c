/* The operator table of level scalar. */
#include "ops/scalar/scalar.h"

#include <string.h>

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t scratch_bytes(const pl_ops_shape *shape)
{
    uint64_t heap = (sizeof(double) + sizeof(int32_t)) *
                    max_u64((uint64_t)shape->topk, (uint64_t)shape->n_experts);

    return max_u64(heap, max_u64(pl__scalar_linear_scratch_bytes(shape->max_k),
                                 pl__scalar_attention_scratch_bytes()));
}

static void act_get(const void *act, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = pl_bf16_to_f32(((const uint16_t *)act)[i]);
}

static void act_set(const float *in, int64_t n, void *act)
{
    for (int64_t i = 0; i < n; i++)
        ((uint16_t *)act)[i] = pl_f32_to_bf16(in[i]);
}

static void acc_get(const void *acc, int64_t n, float *out)
{
    memcpy(out, acc, (size_t)n * sizeof *out);
}

static void key_get(const pl_rows *rows, int64_t i, float *out)
{
    const uint8_t *data = pl_rows_data(rows, i), *scales = pl_rows_scales(rows, i);

    for (int d = 0; d < PL_INDEX_DIM; d++)
        out[d] = pl_e2m1_to_f32(data[d / 2] >> 4 * (d & 1) & 15) * pl_e8m0_to_f32(scales[d / 32]);
}

static const pl_ops table = {
    .name = "scalar",
    .mode = PL_MODE_REC,
    .act_bytes = sizeof(uint16_t),
    .acc_bytes = sizeof(float),
    .quant_block_bytes = PL_QUANT_BLOCK + 2,
    .kv_data_bytes = PL_NOPE_DIM + 2 * PL_ROPE_DIM,
    .kv_scale_bytes = PL_NOPE_DIM / PL_KV_BLOCK + 1,
    .key_data_bytes = PL_INDEX_DIM / 2,
    .key_scale_bytes = PL_INDEX_DIM / 32,
    .compress_state_bytes = pl__scalar_compress_state_bytes,
    .scratch_bytes = scratch_bytes,
    .act_get = act_get,
    .act_set = act_set,
    .acc_get = acc_get,
    .kv_get = pl__scalar_kv_widen,
    .key_get = key_get,
    .embed = pl__scalar_embed,
    .hc_dots = pl__scalar_hc_dots,
    .hc_pre = pl__scalar_hc_pre,
    .hc_post = pl__scalar_hc_post,
    .hc_head = pl__scalar_hc_head,
    .mtp_join = pl__scalar_mtp_join,
    .rms_norm = pl__scalar_rms_norm,
    .rope_angles = pl__scalar_rope_angles,
    .q_norm_rope = pl__scalar_q_norm_rope,
    .unrope = pl__scalar_unrope,
    .quantise = pl__scalar_quantise,
    .linear_fp8 = pl__scalar_linear_fp8,
    .linear_fp8_a16 = pl__scalar_linear_fp8_a16,
    .linear_fp4 = pl__scalar_linear_fp4,
    .linear_bf16 = pl__scalar_linear_bf16,
    .kv_store = pl__scalar_kv_store,
    .attention = pl__scalar_attention,
    .compress = pl__scalar_compress,
    .compress_reset = pl__scalar_compress_reset,
    .key_store = pl__scalar_key_store,
    .index_query = pl__scalar_index_query,
    .index_topk = pl__scalar_index_topk,
    .index_merge = pl__scalar_index_merge,
    .route = pl__scalar_route,
    .route_weights = pl__scalar_route_weights,
    .swiglu = pl__scalar_swiglu,
    .moe_sum = pl__scalar_moe_sum,
};

const pl_ops *pl_ops_scalar(void)
{
    return &table;
}
