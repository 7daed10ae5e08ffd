/* How a checkpoint stores what it has, told by the tensors themselves: scales, routed experts of each block, the mtp block.
 *
 * A tensor that decides may be missing: then the configuration's word stands, and checkpoint_check.c reports the tensor. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/checkpoint_impl.h"

const struct pl__tensor *pl__checkpoint_find(const pl_checkpoint *c, const char *name)
{
    uint32_t number = pl__names_find(&c->names, name, strlen(name));

    return number == PL_NO_NAME ? NULL : &c->tensors[number];
}

void pl__checkpoint_sniff_block(const pl_checkpoint *c, const char *prefix, struct pl__block *block)
{
    char name[PL_TENSOR_NAME_BYTES];
    const struct pl__tensor *weight, *scale;

    snprintf(name, sizeof name, "%sffn.experts.0.w1.weight", prefix);
    weight = pl__checkpoint_find(c, name);
    snprintf(name, sizeof name, "%sffn.experts.0.w1.scale", prefix);
    scale = pl__checkpoint_find(c, name);
    if (weight && (weight->dtype == PL_DTYPE_I8 || weight->dtype == PL_DTYPE_F8_E4M3))
        block->experts_fp8 = weight->dtype == PL_DTYPE_F8_E4M3;
    if (!block->experts_fp8)
        block->expert_scale = PL_DTYPE_F8_E8M0;
    else if (scale && (scale->dtype == PL_DTYPE_F8_E8M0 || scale->dtype == PL_DTYPE_F32))
        block->expert_scale = scale->dtype;
}

pl_status pl__checkpoint_sniff_storage(pl_checkpoint *c, pl_error *err)
{
    const int32_t n_layers = c->config.n_layers;
    const struct pl__tensor *scale = pl__checkpoint_find(c, "layers.0.attn.wq_a.scale");
    pl_storage *s = &c->storage;

    *s = pl_storage_of_config(&c->config);
    s->n_dspark_stages = 0;
    s->has_mtp = pl__checkpoint_find(c, "mtp.0.e_proj.weight") ||
                 pl__checkpoint_find(c, "mtp.0.e_proj.scale");
    s->has_copies = s->has_mtp && (pl__checkpoint_find(c, "mtp.0.emb.tok_emb.weight") ||
                                   pl__checkpoint_find(c, "mtp.0.head.weight"));
    if (scale && (scale->dtype == PL_DTYPE_F8_E8M0 || scale->dtype == PL_DTYPE_F32))
        s->scale = (pl_dtype)scale->dtype;
    c->blocks = calloc((size_t)n_layers + 1, sizeof *c->blocks);
    if (!c->blocks)
        return pl_error_set(err, PL_ERR_NOMEM, "%s: no memory for %" PRId32 " layers", c->path,
                            n_layers);
    for (int32_t l = 0; l <= n_layers; l++) {
        char prefix[32] = "mtp.0.";

        if (l < n_layers)
            snprintf(prefix, sizeof prefix, "layers.%" PRId32 ".", l);
        c->blocks[l] = (struct pl__block){s->experts_fp8, (uint8_t)s->expert_scale};
        pl__checkpoint_sniff_block(c, prefix, &c->blocks[l]);
    }
    s->experts_fp8 = c->blocks[0].experts_fp8;
    s->expert_scale = (pl_dtype)c->blocks[0].expert_scale;
    return PL_OK;
}

pl_storage pl__checkpoint_block_storage(const pl_checkpoint *c, int32_t layer)
{
    pl_storage s = c->storage;

    if (layer != PL_LAYER_GLOBAL) {
        const struct pl__block *b = &c->blocks[layer == PL_LAYER_MTP ? c->config.n_layers : layer];
        s.experts_fp8 = b->experts_fp8;
        s.expert_scale = (pl_dtype)b->expert_scale;
    }
    return s;
}

bool pl__checkpoint_walk(const pl_checkpoint *c, pl_tensor_visit *visit, void *user)
{
    for (int32_t l = PL_LAYER_GLOBAL; l < c->config.n_layers; l++) {
        pl_storage s = pl__checkpoint_block_storage(c, l);
        if (!pl_tensors_each_in(&c->config, &s, l, visit, user))
            return false;
    }
    if (c->storage.has_mtp) {
        pl_storage s = pl__checkpoint_block_storage(c, PL_LAYER_MTP);
        return pl_tensors_each_in(&c->config, &s, PL_LAYER_MTP, visit, user);
    }
    return true;
}
