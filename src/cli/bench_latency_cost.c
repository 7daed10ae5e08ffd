/* What a step has to read and to multiply, in closed form from the tensors of the checkpoint.
 *
 * Bytes are those of the file, as everywhere in `bench`. Elementwise operators are not counted: their operations would
 * make percentages better and not the engine. */
#include "cli/bench_latency.h"
#include "model/checkpoint.h"
#include "model/tensors.h"

/* Tables that are added to or looked up in, not multiplied with. */
static bool is_matrix(const pl_tensor_spec *s)
{
    return s->rank == 2 && !s->is_scale && s->kind != PL_TENSOR_COMP_APE &&
           s->kind != PL_TENSOR_INDEX_COMP_APE && s->kind != PL_TENSOR_GATE_TID2EID &&
           s->kind != PL_TENSOR_EMBED;
}

static pl_status add(void *user, const pl_tensor_spec *s, const pl_checkpoint_tensor *t,
                     pl_error *err)
{
    pl_latency_cost *c = user;
    const uint64_t bytes = pl_tensor_spec_bytes(s);
    const uint64_t codes = bytes / pl_dtype_bytes(s->dtype) * (s->dtype == PL_DTYPE_I8 ? 2 : 1);
    const double weights = is_matrix(s) ? (double)codes : 0;

    if (s->layer == PL_LAYER_GLOBAL && s->kind != PL_TENSOR_EMBED) {
        c->head_bytes += bytes;
        c->head_weights += weights;
    } else if (s->layer >= 0 && s->expert < 0 && s->kind != PL_TENSOR_GATE_TID2EID) {
        c->dense_bytes += bytes;
        c->dense_weights += weights;
    } else if (s->layer == 0 && s->expert == 0) { /* all are alike */
        c->expert_bytes += bytes;
        c->expert_weights += weights;
    }
    return PL_OK;
}

pl_latency_cost pl_latency_cost_of(const pl_checkpoint *checkpoint, const pl_ops *ops)
{
    pl_latency_cost c = {.config = pl_checkpoint_config(checkpoint),
                         .kv_bytes = ops->kv_data_bytes + ops->kv_scale_bytes,
                         .key_bytes = ops->key_data_bytes + ops->key_scale_bytes};

    if (pl_checkpoint_each(checkpoint, add, &c, NULL) != PL_OK)
        return c; /* add never fails */
    return c;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Keys that the token attends to in a layer. */
static int64_t keys_of(const pl_config *c, int32_t ratio, int64_t position)
{
    const int64_t window = least(position + 1, PL_WINDOW);

    if (ratio == 4)
        return window + least((position + 1) / 4, c->index_topk);
    return ratio ? window + (position + 1) / ratio : window;
}

/* Keys that the indexer of a ratio-4 layer scores there: one for each four tokens that are whole. */
static int64_t index_keys_of(int64_t position)
{
    return (position + 1) / 4;
}

double pl_latency_token_flops(const pl_latency_cost *cost, int64_t position)
{
    const pl_config *c = cost->config;
    double flops = 2 * (cost->dense_weights +
                        cost->expert_weights * c->n_experts_per_tok * (double)c->n_layers);

    for (int32_t l = 0; l < c->n_layers; l++) {
        const int32_t ratio = c->compress_ratio[l];

        flops += 4.0 * c->n_heads * PL_HEAD_DIM * (double)keys_of(c, ratio, position);
        if (ratio == 4)
            flops += 2.0 * c->index_n_heads * PL_INDEX_DIM * (double)index_keys_of(position);
    }
    return flops;
}

double pl_latency_token_cache_bytes(const pl_latency_cost *cost, int64_t position)
{
    const pl_config *c = cost->config;
    double bytes = 0;

    for (int32_t l = 0; l < c->n_layers; l++) {
        const int32_t ratio = c->compress_ratio[l];

        bytes += (double)(keys_of(c, ratio, position) * cost->kv_bytes);
        if (ratio == 4)
            bytes += (double)(index_keys_of(position) * cost->key_bytes);
    }
    return bytes;
}
