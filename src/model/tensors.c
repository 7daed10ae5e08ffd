/* The walk over the tensor list: rows "kind, name, form, rows x columns, when" of tensors_table.c.
 *
 * A row speaks of a block in symbols (D, qr, I, ...); the walk resolves them per block and spells the
 * full name. Nothing here knows a file. */
#include "model/tensors.h"

#include <assert.h>
#include <string.h>

#include "model/tensors_table.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[PL_DTYPE_COUNT] = {
    [PL_DTYPE_BF16] = {"BF16", 2},       [PL_DTYPE_F32] = {"F32", 4},
    [PL_DTYPE_F8_E4M3] = {"F8_E4M3", 1}, [PL_DTYPE_F8_E8M0] = {"F8_E8M0", 1},
    [PL_DTYPE_I8] = {"I8", 1},           [PL_DTYPE_I64] = {"I64", 8},
};

const char *pl_dtype_name(pl_dtype dtype)
{
    return dtypes[dtype].name;
}

bool pl_dtype_from_name(const char *name, size_t length, pl_dtype *dtype)
{
    for (int i = 0; i < PL_DTYPE_COUNT; i++)
        if (strlen(dtypes[i].name) == length && memcmp(dtypes[i].name, name, length) == 0) {
            *dtype = (pl_dtype)i;
            return true;
        }
    return false;
}

size_t pl_dtype_bytes(pl_dtype dtype)
{
    return dtypes[dtype].bytes;
}

uint64_t pl_tensor_spec_bytes(const pl_tensor_spec *spec)
{
    uint64_t n = pl_dtype_bytes(spec->dtype);

    for (int32_t i = 0; i < spec->rank; i++)
        n *= (uint64_t)spec->shape[i];
    return n;
}

/* ---- the walk */

struct walk {
    const pl_config *config;
    const pl_storage *storage;
    pl_tensor_visit *visit;
    void *user;
    int32_t ratio; /* of the block walked */
    bool hashed;
    int64_t dims[PL__DIM_COUNT];
    size_t prefix; /* length of the block's prefix in spec.name */
    pl_tensor_spec spec;
};

static size_t put_text(char *name, size_t at, const char *text)
{
    size_t n = strlen(text);

    assert(at + n < PL_TENSOR_NAME_BYTES);
    memcpy(name + at, text, n + 1);
    return at + n;
}

static size_t put_number(char *name, size_t at, int32_t number)
{
    char digits[12];
    size_t n = sizeof digits - 1;

    digits[n] = 0;
    do
        digits[--n] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    return put_text(name, at, digits + n);
}

static void set_dims(struct walk *w)
{
    const pl_config *c = w->config;
    const int64_t coff = w->ratio == 4 ? 2 : 1;
    const int64_t D = c->hidden_size;
    const int64_t dims[PL__DIM_COUNT] = {
        [PL__DIM_1] = 1,
        [PL__DIM_3] = 3,
        [PL__DIM_V] = c->vocab_size,
        [PL__DIM_D] = D,
        [PL__DIM_4D] = PL_HC_MULT * D,
        [PL__DIM_TAPS] = c->n_dspark_target_layers * D,
        [PL__DIM_CONF] = D + c->dspark_markov_rank,
        [PL__DIM_MARKOV] = c->dspark_markov_rank,
        [PL__DIM_HC] = PL_HC_OUT,
        [PL__DIM_S] = PL_HC_MULT,
        [PL__DIM_H] = c->n_heads,
        [PL__DIM_HEAD] = PL_HEAD_DIM,
        [PL__DIM_HQ] = (int64_t)c->n_heads * PL_HEAD_DIM,
        [PL__DIM_QR] = c->q_lora_rank,
        [PL__DIM_GR] = (int64_t)c->o_groups * c->o_lora_rank,
        [PL__DIM_GROUP] = (int64_t)(c->n_heads / c->o_groups) * PL_HEAD_DIM,
        [PL__DIM_RATIO] = w->ratio,
        [PL__DIM_COMP] = coff * PL_HEAD_DIM,
        [PL__DIM_ICOMP] = coff * PL_INDEX_DIM,
        [PL__DIM_IDIM] = PL_INDEX_DIM,
        [PL__DIM_IH] = c->index_n_heads,
        [PL__DIM_IHQ] = (int64_t)c->index_n_heads * PL_INDEX_DIM,
        [PL__DIM_E] = c->n_experts,
        [PL__DIM_TOPK] = c->n_experts_per_tok,
        [PL__DIM_I] = c->moe_intermediate_size,
    };

    memcpy(w->dims, dims, sizeof dims);
}

static bool emit(struct walk *w, size_t name_end, const char *suffix, pl_dtype dtype, bool is_scale,
                 int64_t rows, int64_t cols)
{
    put_text(w->spec.name, name_end, suffix);
    w->spec.dtype = dtype;
    w->spec.is_scale = is_scale;
    w->spec.rank = cols ? 2 : 1;
    w->spec.shape[0] = rows;
    w->spec.shape[1] = cols ? cols : 1;
    return w->visit(w->user, &w->spec);
}

static bool emit_fp8(struct walk *w, size_t end, pl_dtype scale, int64_t rows, int64_t cols)
{
    return emit(w, end, ".weight", PL_DTYPE_F8_E4M3, false, rows, cols) &&
           emit(w, end, ".scale", scale, true, (rows + 127) / 128, (cols + 127) / 128);
}

static bool emit_fp4(struct walk *w, size_t end, int64_t rows, int64_t cols)
{
    return emit(w, end, ".weight", PL_DTYPE_I8, false, rows, cols / 2) &&
           emit(w, end, ".scale", PL_DTYPE_F8_E8M0, true, rows, cols / 32);
}

static bool emit_experts(struct walk *w, const char *matrix, int64_t rows, int64_t cols)
{
    const size_t at = put_text(w->spec.name, w->prefix, "ffn.experts.");
    bool go_on = true;

    for (int32_t e = 0; go_on && e < w->config->n_experts; e++) {
        size_t end = put_number(w->spec.name, at, e);
        end = put_text(w->spec.name, end, ".");
        end = put_text(w->spec.name, end, matrix);
        w->spec.expert = e;
        go_on = w->storage->experts_fp8 ? emit_fp8(w, end, w->storage->expert_scale, rows, cols)
                                        : emit_fp4(w, end, rows, cols);
    }
    w->spec.expert = -1;
    return go_on;
}

static bool applies(const struct walk *w, enum pl__tensor_when when)
{
    switch (when) {
    case PL__COMPRESSED:
        return w->ratio != 0;
    case PL__INDEXED:
        return w->ratio == 4;
    case PL__HASHED:
        return w->hashed;
    case PL__LEARNED:
        return !w->hashed;
    default:
        return true;
    }
}

static bool walk_rows(struct walk *w, const struct pl__tensor_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++) {
        const struct pl__tensor_row *r = &rows->row[i];
        const int64_t o = w->dims[r->rows], k = w->dims[r->cols];
        bool go_on;

        if (!applies(w, r->when))
            continue;
        w->spec.kind = r->kind;
        if (r->form == PL__FORM_EXPERT) {
            go_on = emit_experts(w, r->name, o, k);
        } else {
            size_t end = put_text(w->spec.name, w->prefix, r->name);
            if (r->form == PL__FORM_FP8)
                go_on = emit_fp8(w, end, w->storage->scale, o, k);
            else
                go_on = emit(w, end, "",
                             r->form == PL__FORM_BF16  ? PL_DTYPE_BF16
                             : r->form == PL__FORM_F32 ? PL_DTYPE_F32
                                                       : PL_DTYPE_I64,
                             false, o, k);
        }
        if (!go_on)
            return false;
    }
    return true;
}

static struct walk begin(const pl_config *config, const pl_storage *storage, pl_tensor_visit *visit,
                         void *user)
{
    struct walk w = {.config = config, .storage = storage, .visit = visit, .user = user};

    w.spec.layer = PL_LAYER_GLOBAL;
    w.spec.expert = -1;
    set_dims(&w);
    return w;
}

static void enter(struct walk *w, int32_t layer, const char *prefix, int32_t number, int32_t shard)
{
    const bool main_stack = layer >= 0;
    size_t at = put_text(w->spec.name, 0, prefix);

    if (number >= 0)
        at = put_text(w->spec.name, put_number(w->spec.name, at, number), ".");
    w->prefix = at;
    w->spec.layer = layer;
    w->spec.shard = shard;
    w->ratio = main_stack ? w->config->compress_ratio[layer] : 0;
    w->hashed = main_stack && layer < w->config->n_hash_layers;
    set_dims(w);
}

static bool walk_embed(struct walk *w)
{
    enter(w, PL_LAYER_GLOBAL, "", -1, 0);
    return walk_rows(w, &pl__embed_tensors);
}

static bool walk_end(struct walk *w)
{
    enter(w, PL_LAYER_GLOBAL, "", -1, 1 + w->config->n_layers);
    return walk_rows(w, &pl__end_tensors);
}

static bool walk_layer(struct walk *w, int32_t layer)
{
    enter(w, layer, "layers.", layer, 1 + layer);
    return walk_rows(w, &pl__block_tensors);
}

static bool walk_mtp(struct walk *w)
{
    enter(w, PL_LAYER_MTP, "mtp.", 0, 2 + w->config->n_layers);
    return walk_rows(w, &pl__block_tensors) && walk_rows(w, &pl__mtp_tensors) &&
           (!w->storage->has_copies || walk_rows(w, &pl__copy_tensors));
}

static bool walk_stage(struct walk *w, int32_t stage)
{
    enter(w, PL_LAYER_MTP - stage, "mtp.", stage, 2 + w->config->n_layers + stage);
    return walk_rows(w, &pl__block_tensors) &&
           (stage != 0 || walk_rows(w, &pl__first_stage_tensors)) &&
           (stage != w->storage->n_dspark_stages - 1 || walk_rows(w, &pl__last_stage_tensors));
}

bool pl_tensors_each_in(const pl_config *config, const pl_storage *storage, int32_t layer,
                        pl_tensor_visit *visit, void *user)
{
    struct walk w = begin(config, storage, visit, user);

    if (layer >= 0)
        return walk_layer(&w, layer);
    if (layer == PL_LAYER_GLOBAL)
        return walk_embed(&w) && walk_end(&w);
    return storage->has_mtp ? walk_mtp(&w) : walk_stage(&w, PL_LAYER_MTP - layer);
}

bool pl_tensors_each(const pl_config *config, const pl_storage *storage, pl_tensor_visit *visit,
                     void *user)
{
    struct walk w = begin(config, storage, visit, user);

    if (!walk_embed(&w))
        return false;
    for (int32_t l = 0; l < config->n_layers; l++)
        if (!walk_layer(&w, l))
            return false;
    if (!walk_end(&w) || (storage->has_mtp && !walk_mtp(&w)))
        return false;
    for (int32_t s = 0; s < storage->n_dspark_stages; s++)
        if (!walk_stage(&w, s))
            return false;
    return true;
}

int32_t pl_tensors_n_shards(const pl_config *config, const pl_storage *storage)
{
    return 2 + config->n_layers + (storage->has_mtp ? 1 : storage->n_dspark_stages);
}

pl_storage pl_storage_of_config(const pl_config *config)
{
    const bool base = config->expert_dtype_fp8;
    pl_storage s = {
        .scale = base ? PL_DTYPE_F32 : PL_DTYPE_F8_E8M0,
        .experts_fp8 = base,
        .expert_scale = base ? PL_DTYPE_F32 : PL_DTYPE_F8_E8M0,
    };

    if (config->has_dspark_keys)
        s.n_dspark_stages = config->n_ratios - config->n_layers;
    else
        s.has_mtp = config->n_nextn_layers > 0;
    s.has_copies = base && s.has_mtp;
    return s;
}
