/* One function adds one tensor; the two walks differ in where tensors come from. */
#include "model/census.h"

#include <string.h>

struct counter {
    const pl_config *config;
    pl_census census;
};

static void add_to(pl_census_part *part, uint64_t bytes)
{
    part->n++;
    part->bytes += bytes;
}

static pl_census_part *part_of(pl_census *c, const pl_tensor_spec *spec, bool is_drafter)
{
    if (spec->layer > PL_LAYER_MTP)
        return &c->main;
    if (is_drafter)
        return &c->drafter;
    if (spec->kind == PL_TENSOR_COPY_EMBED || spec->kind == PL_TENSOR_COPY_HEAD)
        return &c->copies;
    return &c->mtp;
}

static void add_to_token(struct counter *k, const pl_tensor_spec *spec, uint64_t bytes)
{
    if (spec->expert == 0) /* all experts of a block are alike */
        k->census.token_expert_bytes += bytes * (uint64_t)k->config->n_experts_per_tok;
    else if (spec->kind == PL_TENSOR_EMBED || spec->kind == PL_TENSOR_GATE_TID2EID)
        k->census.token_dense_bytes += bytes / (uint64_t)spec->shape[0];
    else if (spec->expert < 0)
        k->census.token_dense_bytes += bytes;
}

static void add(struct counter *k, const pl_tensor_spec *spec, bool is_drafter)
{
    const uint64_t bytes = pl_tensor_spec_bytes(spec);

    add_to(part_of(&k->census, spec, is_drafter), bytes);
    add_to(&k->census.by_dtype[spec->dtype], bytes);
    if (spec->layer <= PL_LAYER_MTP)
        return;
    add_to_token(k, spec, bytes);
    if (!spec->is_scale && spec->kind != PL_TENSOR_GATE_TID2EID)
        k->census.parameters +=
            bytes / pl_dtype_bytes(spec->dtype) * (spec->dtype == PL_DTYPE_I8 ? 2 : 1);
}

static bool add_spec(void *user, const pl_tensor_spec *spec)
{
    add(user, spec, false);
    return true;
}

static bool add_drafter_spec(void *user, const pl_tensor_spec *spec)
{
    add(user, spec, true);
    return true;
}

pl_census pl_census_config(const pl_config *config, const pl_storage *storage)
{
    struct counter k = {.config = config};
    pl_storage model = *storage;

    model.n_dspark_stages = 0;
    (void)pl_tensors_each(config, &model, add_spec, &k);
    for (int32_t s = 0; s < storage->n_dspark_stages; s++)
        (void)pl_tensors_each_in(config, storage, PL_LAYER_MTP - s, add_drafter_spec, &k);
    return k.census;
}

static pl_status add_tensor(void *user, const pl_tensor_spec *spec,
                            const pl_checkpoint_tensor *tensor, pl_error *err)
{
    add(user, spec, false);
    return PL_OK;
}

pl_census pl_census_checkpoint(const pl_checkpoint *checkpoint)
{
    struct counter k = {.config = pl_checkpoint_config(checkpoint)};

    if (pl_checkpoint_each(checkpoint, add_tensor, &k, NULL) != PL_OK)
        return k.census; /* add_tensor never fails */
    for (int64_t i = 0; i < pl_checkpoint_n_tensors(checkpoint); i++) {
        pl_checkpoint_tensor t = pl_checkpoint_tensor_at(checkpoint, i);
        if (t.role != PL_ROLE_DRAFTER)
            continue;
        add_to(&k.census.drafter, t.bytes);
        add_to(&k.census.by_dtype[t.dtype], t.bytes);
    }
    return k.census;
}
