/* The weight store: one block of memory, carved into the slot table and one piece per tensor.
 *
 * The layout walks the tensor list with an arena; over a dry arena that is the plan, over the caller's memory it
 * is the carving. Pieces keep the files' row-major order, or become tiles of 16 rows: both take the same bytes.
 * Reading (weights_load.c) walks the checkpoint in the same order, so that the n-th weight belongs to slot n. */
#include "model/weights.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "model/weights_impl.h"
#include "ops/tile.h"

/* ---- which field of the slot tables holds a kind */

#define LAYER(field) offsetof(pl_layer_slots, field)
#define MODEL(field) offsetof(pl_model_slots, field)

static const size_t layer_fields[PL_TENSOR_KIND_COUNT] = {
    [PL_TENSOR_ATTN_NORM] = LAYER(attn_norm),
    [PL_TENSOR_FFN_NORM] = LAYER(ffn_norm),
    [PL_TENSOR_HC_ATTN_FN] = LAYER(hc_attn_fn),
    [PL_TENSOR_HC_ATTN_BASE] = LAYER(hc_attn_base),
    [PL_TENSOR_HC_ATTN_SCALE] = LAYER(hc_attn_scale),
    [PL_TENSOR_HC_FFN_FN] = LAYER(hc_ffn_fn),
    [PL_TENSOR_HC_FFN_BASE] = LAYER(hc_ffn_base),
    [PL_TENSOR_HC_FFN_SCALE] = LAYER(hc_ffn_scale),
    [PL_TENSOR_ATTN_SINK] = LAYER(attn_sink),
    [PL_TENSOR_WQ_A] = LAYER(wq_a),
    [PL_TENSOR_Q_NORM] = LAYER(q_norm),
    [PL_TENSOR_WQ_B] = LAYER(wq_b),
    [PL_TENSOR_WKV] = LAYER(wkv),
    [PL_TENSOR_KV_NORM] = LAYER(kv_norm),
    [PL_TENSOR_WO_A] = LAYER(wo_a),
    [PL_TENSOR_WO_B] = LAYER(wo_b),
    [PL_TENSOR_COMP_APE] = LAYER(comp_ape),
    [PL_TENSOR_COMP_WKV] = LAYER(comp_wkv),
    [PL_TENSOR_COMP_WGATE] = LAYER(comp_wgate),
    [PL_TENSOR_COMP_NORM] = LAYER(comp_norm),
    [PL_TENSOR_INDEX_WQ_B] = LAYER(index_wq_b),
    [PL_TENSOR_INDEX_WEIGHTS_PROJ] = LAYER(index_weights_proj),
    [PL_TENSOR_INDEX_COMP_APE] = LAYER(index_comp_ape),
    [PL_TENSOR_INDEX_COMP_WKV] = LAYER(index_comp_wkv),
    [PL_TENSOR_INDEX_COMP_WGATE] = LAYER(index_comp_wgate),
    [PL_TENSOR_INDEX_COMP_NORM] = LAYER(index_comp_norm),
    [PL_TENSOR_GATE] = LAYER(gate),
    [PL_TENSOR_GATE_TID2EID] = LAYER(gate_tid2eid),
    [PL_TENSOR_GATE_BIAS] = LAYER(gate_bias),
    [PL_TENSOR_SHARED_W1] = LAYER(shared_w1),
    [PL_TENSOR_SHARED_W2] = LAYER(shared_w2),
    [PL_TENSOR_SHARED_W3] = LAYER(shared_w3),
    [PL_TENSOR_EXPERT_W1] = LAYER(expert_w1),
    [PL_TENSOR_EXPERT_W2] = LAYER(expert_w2),
    [PL_TENSOR_EXPERT_W3] = LAYER(expert_w3),
};

/* Of the model's ends, and of mtp.0 beside its block. */
static const struct {
    size_t global, mtp;
} model_fields[PL_TENSOR_KIND_COUNT] = {
    [PL_TENSOR_EMBED] = {MODEL(embed), 0},
    [PL_TENSOR_NORM] = {MODEL(norm), MODEL(mtp_norm)},
    [PL_TENSOR_HEAD] = {MODEL(head), 0},
    [PL_TENSOR_HC_HEAD_FN] = {MODEL(hc_head_fn), MODEL(mtp_hc_head_fn)},
    [PL_TENSOR_HC_HEAD_BASE] = {MODEL(hc_head_base), MODEL(mtp_hc_head_base)},
    [PL_TENSOR_HC_HEAD_SCALE] = {MODEL(hc_head_scale), MODEL(mtp_hc_head_scale)},
    [PL_TENSOR_E_PROJ] = {0, MODEL(mtp_e_proj)},
    [PL_TENSOR_H_PROJ] = {0, MODEL(mtp_h_proj)},
    [PL_TENSOR_ENORM] = {0, MODEL(mtp_enorm)},
    [PL_TENSOR_HNORM] = {0, MODEL(mtp_hnorm)},
};

static pl_slot *field_of(pl_model_slots *m, const pl_tensor_spec *spec)
{
    const size_t in_layer = layer_fields[spec->kind]; /* 0, the ratio's place, for no field */

    if (spec->layer == PL_LAYER_GLOBAL)
        return (pl_slot *)((char *)m + model_fields[spec->kind].global);
    if (spec->layer == PL_LAYER_MTP && in_layer == 0)
        return (pl_slot *)((char *)m + model_fields[spec->kind].mtp);
    return (pl_slot *)((char *)(spec->layer >= 0 ? &m->layer[spec->layer] : &m->mtp) + in_layer);
}

/* Every slot is a pl_slot behind the ratio, so filling the struct sets them all. */
static void clear_slots(pl_model_slots *m, const pl_config *config, bool has_mtp)
{
    _Static_assert(PL_SLOT_NONE == -1, "all bits set");
    memset(m, 0xFF, sizeof *m);
    m->has_mtp = has_mtp;
    m->mtp.ratio = 0;
    for (int32_t l = 0; l < PL_MAX_LAYERS; l++)
        m->layer[l].ratio = l < config->n_layers ? config->compress_ratio[l] : 0;
}

bool pl__weights_is_loaded(const pl_tensor_spec *spec)
{
    return spec->kind != PL_TENSOR_COPY_EMBED && spec->kind != PL_TENSOR_COPY_HEAD;
}

static pl_weight_format format_of(const pl_tensor_spec *spec)
{
    switch (spec->dtype) {
    case PL_DTYPE_BF16:
        return PL_WEIGHT_BF16;
    case PL_DTYPE_F32:
        return PL_WEIGHT_F32;
    case PL_DTYPE_I64:
        return PL_WEIGHT_I64;
    case PL_DTYPE_I8:
        return PL_WEIGHT_FP4;
    default:
        return PL_WEIGHT_FP8_E8M0; /* until its scale says otherwise */
    }
}

/* The embedding is read by row. */
bool pl__weights_may_be_tiled(const pl_tensor_spec *spec)
{
    const bool in_bytes = spec->dtype == PL_DTYPE_I8;

    if (spec->rank != 2 || spec->kind == PL_TENSOR_EMBED || spec->dtype == PL_DTYPE_F32 ||
        spec->dtype == PL_DTYPE_I64 || spec->is_scale)
        return false;
    return pl_tile_possible(format_of(spec), spec->shape[0], spec->shape[1] * (in_bytes ? 2 : 1));
}

/* ---- the layout */

struct layout {
    pl_arena *arena;
    pl_weights *weights; /* NULL in a dry run */
    int32_t n_slots;
    uint64_t tensor_bytes;
    uint64_t panel_bytes; /* the largest of any matrix that may be tiled */
};

static void place_weight(pl_weights *w, const pl_tensor_spec *spec, void *piece, int32_t slot)
{
    const bool is_vector = spec->rank == 1;

    w->views[slot] = (pl_weight_view){
        .format = format_of(spec),
        .rows = is_vector ? 1 : spec->shape[0],
        .cols = is_vector ? spec->shape[0] : spec->shape[1] * (spec->dtype == PL_DTYPE_I8 ? 2 : 1),
        .data = piece,
    };
    if (spec->expert <= 0)
        *field_of(&w->slots, spec) = slot;
}

static void place_scale(pl_weights *w, const pl_tensor_spec *spec, void *piece, int32_t slot)
{
    w->views[slot].scale = piece;
    if (spec->dtype == PL_DTYPE_F32)
        w->views[slot].format = PL_WEIGHT_FP8_F32;
}

uint64_t pl__weights_panel_bytes(const pl_tensor_spec *spec)
{
    return pl_tensor_spec_bytes(spec) / (uint64_t)spec->shape[0] * PL_TILE_ROWS;
}

static bool lay_out(void *user, const pl_tensor_spec *spec)
{
    struct layout *l = user;
    const uint64_t bytes = pl_tensor_spec_bytes(spec);
    void *piece;

    if (!pl__weights_is_loaded(spec))
        return true;
    piece = pl_arena_alloc(l->arena, bytes, PL_ARENA_ALIGN);
    l->tensor_bytes += bytes;
    l->n_slots += spec->is_scale ? 0 : 1;
    if (pl__weights_may_be_tiled(spec) && pl__weights_panel_bytes(spec) > l->panel_bytes)
        l->panel_bytes = pl__weights_panel_bytes(spec);
    if (!l->weights)
        return true;
    if (!piece)
        return false;
    if (spec->is_scale)
        place_scale(l->weights, spec, piece, l->n_slots - 1);
    else
        place_weight(l->weights, spec, piece, l->n_slots - 1);
    return true;
}

static pl_status lay_out_tensor(void *user, const pl_tensor_spec *spec,
                                const pl_checkpoint_tensor *tensor, pl_error *err)
{
    return lay_out(user, spec) ? PL_OK : PL_ERR_NOMEM;
}

/* Where the specs come from: an open checkpoint, or a configuration. */
struct source {
    const pl_checkpoint *checkpoint;
    const pl_config *config;
    const pl_storage *storage;
};

static void walk(const struct source *s, struct layout *l)
{
    const int32_t first = PL_LAYER_GLOBAL;

    if (s->checkpoint) {
        if (pl_checkpoint_each(s->checkpoint, lay_out_tensor, l, NULL) != PL_OK)
            return; /* the arena has latched it */
        return;
    }
    for (int32_t i = first; i < s->config->n_layers; i++)
        (void)pl_tensors_each_in(s->config, s->storage, i, lay_out, l);
    if (s->storage->has_mtp)
        (void)pl_tensors_each_in(s->config, s->storage, PL_LAYER_MTP, lay_out, l);
}

/* The tables come first; their length is the number of slots, which a walk without pieces counts. */
static pl_weights *carve(const struct source *s, pl_arena *arena, pl_weights_plan *plan)
{
    pl_arena none;
    struct layout l = {.arena = &none};
    pl_weights *w;
    pl_weight_view *views;
    int32_t n_slots;

    pl_arena_init_dry(&none);
    walk(s, &l);
    n_slots = l.n_slots;
    w = pl_arena_alloc(arena, sizeof *w, PL_ARENA_ALIGN);
    views = pl_arena_array(arena, (size_t)n_slots, sizeof *views, PL_ARENA_ALIGN);
    plan->table_bytes = pl_arena_planned_bytes(arena);
    plan->buffer_bytes = pl_reader_buffer_bytes(
        l.panel_bytes > PL_LOAD_CHUNK_BYTES ? l.panel_bytes : PL_LOAD_CHUNK_BYTES);
    if (w && views) {
        memset(w, 0, sizeof *w);
        w->config = *s->config;
        w->views = views;
        w->n_slots = n_slots;
        clear_slots(&w->slots, s->config, s->storage->has_mtp);
    }
    l = (struct layout){.arena = arena, .weights = views ? w : NULL};
    walk(s, &l);
    plan->n_slots = n_slots;
    plan->tensor_bytes = l.tensor_bytes;
    plan->bytes = pl_arena_planned_bytes(arena);
    plan->padding_bytes = plan->bytes - plan->table_bytes - plan->tensor_bytes;
    return views ? w : NULL;
}

static struct source of_checkpoint(const pl_checkpoint *checkpoint)
{
    return (struct source){checkpoint, pl_checkpoint_config(checkpoint),
                           pl_checkpoint_storage(checkpoint)};
}

static pl_weights_plan dry_run(const struct source *s, size_t *carved_bytes)
{
    pl_weights_plan plan = {0};
    pl_arena dry;

    pl_arena_init_dry(&dry);
    (void)carve(s, &dry, &plan);
    *carved_bytes = pl_arena_peak_bytes(&dry);
    return plan;
}

pl_weights_plan pl_weights_plan_config(const pl_config *config, const pl_storage *storage)
{
    const struct source s = {NULL, config, storage};
    size_t carved_bytes;

    return dry_run(&s, &carved_bytes);
}

pl_weights_plan pl_weights_plan_checkpoint(const pl_checkpoint *checkpoint)
{
    const struct source s = of_checkpoint(checkpoint);
    size_t carved_bytes;

    return dry_run(&s, &carved_bytes);
}

uint64_t pl_weights_bytes(const pl_checkpoint *checkpoint)
{
    const struct source s = of_checkpoint(checkpoint);
    size_t carved_bytes;

    (void)dry_run(&s, &carved_bytes);
    return carved_bytes;
}

/* ---- loading */

pl_status pl_weights_load(const pl_checkpoint *checkpoint, void *memory, pl_weights **out,
                          pl_error *err)
{
    const pl_load_params params = {.layout = PL_WEIGHT_ROWS, .mode = PL_LOAD_BUFFERED};

    return pl_weights_load_as(checkpoint, memory, &params, out, NULL, err);
}

pl_status pl_weights_load_as(const pl_checkpoint *checkpoint, void *memory,
                             const pl_load_params *params, pl_weights **out, pl_load_report *report,
                             pl_error *err)
{
    const struct source s = of_checkpoint(checkpoint);
    pl_weights_plan plan = {0};
    pl_weights *weights;
    pl_status status;
    pl_arena arena;

    *out = NULL;
    PL_CHECK(memory && (uintptr_t)memory % PL_ARENA_ALIGN == 0, err,
             "weights: memory is not aligned (got %p, want a multiple of %d)", memory,
             PL_ARENA_ALIGN);
    pl_arena_init(&arena, memory, pl_weights_bytes(checkpoint));
    weights = carve(&s, &arena, &plan);
    status = pl_arena_check(&arena, "weights", err);
    if (status == PL_OK)
        status = pl__weights_read(checkpoint, weights, params, plan.buffer_bytes, report, err);
    if (status != PL_OK) {
        pl_arena_fini(&arena);
        return status;
    }
    weights->arena = arena;
    weights->layout = params->layout;
    *out = weights;
    return PL_OK;
}

pl_status pl_weights_read_only(const pl_checkpoint *checkpoint, const pl_load_params *params,
                               pl_load_report *report, pl_error *err)
{
    const pl_weights_plan plan = pl_weights_plan_checkpoint(checkpoint);

    return pl__weights_read(checkpoint, NULL, params, plan.buffer_bytes, report, err);
}

void pl_weights_close(pl_weights *weights)
{
    pl_arena arena;

    if (!weights)
        return;
    arena = weights->arena; /* lies in the memory that is given back */
    pl_arena_fini(&arena);
}

const pl_config *pl_weights_config(const pl_weights *weights)
{
    return &weights->config;
}

pl_weight_layout pl_weights_layout(const pl_weights *weights)
{
    return weights->layout;
}

const pl_model_slots *pl_weights_slots(const pl_weights *weights)
{
    return &weights->slots;
}

pl_weight_view pl_weights_view(const pl_weights *weights, pl_slot slot)
{
    assert(slot >= 0 && slot < weights->n_slots);
    return weights->views[slot];
}
