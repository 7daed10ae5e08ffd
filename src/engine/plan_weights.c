/* Regions of the weights: the list of tensors, summed by kind. `weights.*` is what the files hold of them and
 * nothing else; what aligning and reaching them takes is `store.*`. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/plan.h"

enum {
    GROUP_EMBED,
    GROUP_HEAD,
    GROUP_STREAMS,
    GROUP_ATTENTION,
    GROUP_COMPRESSOR,
    GROUP_INDEXER,
    GROUP_ROUTER,
    GROUP_SHARED,
    GROUP_EXPERTS,
    GROUP_MTP
};

static const char *const group_names[PL_PLAN_GROUPS] = {
    "weights.embed",     "weights.head",           "weights.hyper_connections",
    "weights.attention", "weights.compressor",     "weights.indexer",
    "weights.router",    "weights.shared_experts", "weights.experts",
    "weights.mtp",
};

static int group_of(const pl_tensor_spec *spec)
{
    const pl_tensor_kind k = spec->kind;

    if (spec->layer == PL_LAYER_MTP)
        return GROUP_MTP;
    if (k == PL_TENSOR_EMBED)
        return GROUP_EMBED;
    if (k <= PL_TENSOR_HC_HEAD_SCALE)
        return GROUP_HEAD;
    if (k >= PL_TENSOR_HC_ATTN_FN && k <= PL_TENSOR_HC_FFN_SCALE)
        return GROUP_STREAMS;
    if (k <= PL_TENSOR_WO_B)
        return GROUP_ATTENTION; /* with the norms of both halves */
    if (k <= PL_TENSOR_COMP_NORM)
        return GROUP_COMPRESSOR;
    if (k <= PL_TENSOR_INDEX_COMP_NORM)
        return GROUP_INDEXER;
    if (k <= PL_TENSOR_GATE_BIAS)
        return GROUP_ROUTER;
    return k <= PL_TENSOR_SHARED_W3 ? GROUP_SHARED : GROUP_EXPERTS;
}

static void end_layer(pl_model_shape *m)
{
    for (int g = 0; g < PL_PLAN_GROUPS; g++) {
        pl_weight_group *group = &m->group[g];
        int32_t i = 0;

        if (!group->layer_bytes)
            continue;
        while (i < group->n_sizes && group->size[i].bytes != group->layer_bytes)
            i++;
        if (i == PL_PLAN_GROUP_SIZES) {
            group->too_many = true;
        } else {
            group->n_sizes += i == group->n_sizes;
            group->size[i].bytes = group->layer_bytes;
            group->size[i].n_layers++;
        }
        group->bytes += group->layer_bytes;
        group->layer_bytes = 0;
    }
}

static bool count(void *user, const pl_tensor_spec *spec)
{
    pl_model_shape *m = user;

    if (spec->kind == PL_TENSOR_COPY_EMBED || spec->kind == PL_TENSOR_COPY_HEAD)
        return true;
    if (spec->layer != m->counted_layer) {
        end_layer(m);
        m->counted_layer = spec->layer;
    }
    m->group[group_of(spec)].layer_bytes += pl_tensor_spec_bytes(spec);
    m->n_tensors++;
    return true;
}

static pl_status count_tensor(void *user, const pl_tensor_spec *spec,
                              const pl_checkpoint_tensor *tensor, pl_error *err)
{
    (void)count(user, spec);
    return PL_OK;
}

pl_status pl__model_shape_of_checkpoint(const pl_checkpoint *checkpoint, pl_model_shape *m,
                                        pl_error *err)
{
    pl_status s;

    memset(m, 0, sizeof *m);
    m->config = *pl_checkpoint_config(checkpoint);
    m->has_mtp = pl_checkpoint_storage(checkpoint)->has_mtp;
    m->counted_layer = PL_LAYER_GLOBAL;
    s = pl_checkpoint_each(checkpoint, count_tensor, m, err);
    end_layer(m);
    m->weights = pl_weights_plan_checkpoint(checkpoint);
    return s;
}

void pl__model_shape_of_config(const pl_config *config, pl_model_shape *m)
{
    pl_storage storage = pl_storage_of_config(config);

    memset(m, 0, sizeof *m);
    m->config = *config;
    m->has_mtp = storage.has_mtp;
    m->counted_layer = PL_LAYER_GLOBAL;
    for (int32_t l = PL_LAYER_GLOBAL; l < config->n_layers; l++)
        (void)pl_tensors_each_in(config, &storage, l, count, m);
    if (storage.has_mtp)
        (void)pl_tensors_each_in(config, &storage, PL_LAYER_MTP, count, m);
    end_layer(m);
    m->weights = pl_weights_plan_config(config, &storage);
}

/* "21 layers * 123 + 20 layers * 456". */
static void group_formula(const pl_weight_group *g, bool is_block, char *text, size_t size)
{
    size_t n = 0;

    if (g->too_many || !is_block) {
        (void)snprintf(text, size, "%" PRIu64, g->bytes);
        return;
    }
    for (int32_t i = 0; i < g->n_sizes && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%d layers * %" PRIu64, i ? " + " : "",
                              g->size[i].n_layers, g->size[i].bytes);
}

void pl__model_regions(const pl_model_shape *m, pl_regions *regions)
{
    char formula[PL_REGION_FORMULA_BYTES];

    for (int g = 0; g < PL_PLAN_GROUPS; g++) {
        const pl_weight_group *group = &m->group[g];

        if (!group->bytes)
            continue;
        group_formula(group, g != GROUP_EMBED && g != GROUP_HEAD && g != GROUP_MTP, formula,
                      sizeof formula);
        if (g == GROUP_EXPERTS && group->n_sizes == 1)
            (void)snprintf(formula, sizeof formula, "%d layers * %d experts * %" PRIu64,
                           group->size[0].n_layers, m->config.n_experts,
                           group->size[0].bytes / (uint64_t)m->config.n_experts);
        pl_region_add(regions, group_names[g], "model", PL_REGION_EXACT, group->bytes, "%s",
                      formula);
    }
    pl_region_add(regions, "store.tables", "model", PL_REGION_EXACT, m->weights.table_bytes,
                  "%d slots * %zu + %" PRIu64, m->weights.n_slots, sizeof(pl_weight_view),
                  m->weights.table_bytes - (uint64_t)m->weights.n_slots * sizeof(pl_weight_view));
    pl_region_add(regions, "store.padding", "model", PL_REGION_EXACT, m->weights.padding_bytes,
                  "%" PRIu64, m->weights.padding_bytes);
    if (pl_regions_bytes_of(regions, "weights") != m->weights.tensor_bytes)
        pl_region_add(regions, "weights", "model", PL_REGION_EXACT, 0,
                      "%" PRIu64 " bytes that the store plans", m->weights.tensor_bytes);
}
