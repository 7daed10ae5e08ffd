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

void pl__scalar_act_get(const void *act, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = pl_bf16_to_f32(((const uint16_t *)act)[i]);
}

void pl__scalar_act_set(const float *in, int64_t n, void *act)
{
    for (int64_t i = 0; i < n; i++)
        ((uint16_t *)act)[i] = pl_f32_to_bf16(in[i]);
}

void pl__scalar_acc_get(const void *acc, int64_t n, float *out)
{
    memcpy(out, acc, (size_t)n * sizeof *out);
}

void pl__scalar_key_get(const pl_rows *rows, int64_t i, float *out)
{
    const uint8_t *data = pl_rows_data(rows, i), *scales = pl_rows_scales(rows, i);

    for (int d = 0; d < PL_INDEX_DIM; d++)
        out[d] = pl_e2m1_to_f32(data[d / 2] >> 4 * (d & 1) & 15) * pl_e8m0_to_f32(scales[d / 32]);
}

static const pl_ops table = {
    PL__SCALAR_SHARED,
    .name = "scalar",
    .scratch_bytes = scratch_bytes,
    .linear_fp8 = pl__scalar_linear_fp8,
    .linear_fp8_a16 = pl__scalar_linear_fp8_a16,
    .linear_fp4 = pl__scalar_linear_fp4,
    .linear_bf16 = pl__scalar_linear_bf16,
    .hc_dots = pl__scalar_hc_dots,
    .hc_pre = pl__scalar_hc_pre,
    .hc_post = pl__scalar_hc_post,
    .hc_head = pl__scalar_hc_head,
    .rms_norm = pl__scalar_rms_norm,
    .q_norm_rope = pl__scalar_q_norm_rope,
    .unrope = pl__scalar_unrope,
    .rope = pl__scalar_rope,
    .hadamard = pl__scalar_hadamard,
    .quantise = pl__scalar_quantise,
    .kv_store = pl__scalar_kv_store,
    .cache_put = pl__scalar_cache_put,
    .cache_get = pl__scalar_cache_get,
    .attention = pl__scalar_attention,
    .attention_varlen = pl__scalar_attention_varlen,
    .attention_sparse = pl__scalar_attention_sparse,
    .key_store = pl__scalar_key_store,
    .index_query = pl__scalar_index_query,
    .index_topk = pl__scalar_index_topk,
    .route = pl__scalar_route,
    .swiglu = pl__scalar_swiglu,
    .swiglu7 = pl__scalar_swiglu7,
    .map = pl__scalar_map,
    .compress = pl__scalar_compress,
    .moe_sum = pl__scalar_moe_sum,
};

const pl_ops *pl_ops_scalar(void)
{
    return &table;
}
