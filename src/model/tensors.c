/* The tensor list: tables of rows "kind, name, form, rows x columns, when", and the walk over them.
 *
 * A row speaks of a block in symbols (D, qr, I, ...); the walk resolves them per block and spells the
 * full name. Nothing here knows a file. */
#include "model/tensors.h"

#include <assert.h>
#include <string.h>

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

/* ---- the tables */

/* A size of a tensor; the comment gives Flash's. */
enum dim {
    DIM_NONE,   /* no second dimension */
    DIM_1,      /* 1 */
    DIM_3,      /* 3 */
    DIM_V,      /* 129280 */
    DIM_D,      /* 4096 */
    DIM_4D,     /* flattened residual streams */
    DIM_TAPS,   /* D times the tapped layers of a DSpark drafter: 12288 */
    DIM_CONF,   /* D + rank of the Markov head: 4352 */
    DIM_MARKOV, /* 256 */
    DIM_HC,     /* 24 */
    DIM_S,      /* 4 */
    DIM_H,      /* 64 */
    DIM_HEAD,   /* 512 */
    DIM_HQ,     /* H*512 */
    DIM_QR,     /* 1024 */
    DIM_GR,     /* G*R */
    DIM_GROUP,  /* H/G*512 inputs of wo_a: 4096 */
    DIM_RATIO,  /* 4 or 128 */
    DIM_COMP,   /* coff*512 */
    DIM_ICOMP,  /* coff*128 */
    DIM_IDIM,   /* 128 */
    DIM_IH,     /* 64 */
    DIM_IHQ,    /* index heads * 128: 8192 */
    DIM_E,      /* 256 */
    DIM_TOPK,   /* 6 */
    DIM_I,      /* 2048 */
    DIM_COUNT
};

enum form {
    FORM_BF16,
    FORM_F32,
    FORM_I64,
    FORM_FP8,    /* .weight and .scale */
    FORM_EXPERT, /* the same for each routed expert, in the storage of experts */
};

enum when {
    ALWAYS,
    COMPRESSED, /* ratio 4 or 128 */
    INDEXED,    /* ratio 4 */
    HASHED,     /* the first n_hash_layers */
    LEARNED,    /* the others */
};

struct row {
    pl_tensor_kind kind;
    enum form form;
    const char *name; /* behind the block's prefix; of an expert, its matrix */
    enum dim rows, cols;
    enum when when;
};

#define ROWS(table) table, sizeof table / sizeof table[0]

static const struct row embed_rows[] = {
    {PL_TENSOR_EMBED, FORM_BF16, "embed.weight", DIM_V, DIM_D, ALWAYS},
};

static const struct row end_rows[] = {
    {PL_TENSOR_NORM, FORM_BF16, "norm.weight", DIM_D, DIM_NONE, ALWAYS},
    {PL_TENSOR_HEAD, FORM_BF16, "head.weight", DIM_V, DIM_D, ALWAYS},
    {PL_TENSOR_HC_HEAD_FN, FORM_F32, "hc_head_fn", DIM_S, DIM_4D, ALWAYS},
    {PL_TENSOR_HC_HEAD_BASE, FORM_F32, "hc_head_base", DIM_S, DIM_NONE, ALWAYS},
    {PL_TENSOR_HC_HEAD_SCALE, FORM_F32, "hc_head_scale", DIM_1, DIM_NONE, ALWAYS},
};

/* clang-format off */
static const struct row block_rows[] = {
    {PL_TENSOR_ATTN_NORM, FORM_BF16, "attn_norm.weight", DIM_D, DIM_NONE, ALWAYS},
    {PL_TENSOR_FFN_NORM, FORM_BF16, "ffn_norm.weight", DIM_D, DIM_NONE, ALWAYS},
    {PL_TENSOR_HC_ATTN_FN, FORM_F32, "hc_attn_fn", DIM_HC, DIM_4D, ALWAYS},
    {PL_TENSOR_HC_ATTN_BASE, FORM_F32, "hc_attn_base", DIM_HC, DIM_NONE, ALWAYS},
    {PL_TENSOR_HC_ATTN_SCALE, FORM_F32, "hc_attn_scale", DIM_3, DIM_NONE, ALWAYS},
    {PL_TENSOR_HC_FFN_FN, FORM_F32, "hc_ffn_fn", DIM_HC, DIM_4D, ALWAYS},
    {PL_TENSOR_HC_FFN_BASE, FORM_F32, "hc_ffn_base", DIM_HC, DIM_NONE, ALWAYS},
    {PL_TENSOR_HC_FFN_SCALE, FORM_F32, "hc_ffn_scale", DIM_3, DIM_NONE, ALWAYS},
    {PL_TENSOR_ATTN_SINK, FORM_F32, "attn.attn_sink", DIM_H, DIM_NONE, ALWAYS},
    {PL_TENSOR_WQ_A, FORM_FP8, "attn.wq_a", DIM_QR, DIM_D, ALWAYS},
    {PL_TENSOR_Q_NORM, FORM_BF16, "attn.q_norm.weight", DIM_QR, DIM_NONE, ALWAYS},
    {PL_TENSOR_WQ_B, FORM_FP8, "attn.wq_b", DIM_HQ, DIM_QR, ALWAYS},
    {PL_TENSOR_WKV, FORM_FP8, "attn.wkv", DIM_HEAD, DIM_D, ALWAYS},
    {PL_TENSOR_KV_NORM, FORM_BF16, "attn.kv_norm.weight", DIM_HEAD, DIM_NONE, ALWAYS},
    {PL_TENSOR_WO_A, FORM_FP8, "attn.wo_a", DIM_GR, DIM_GROUP, ALWAYS},
    {PL_TENSOR_WO_B, FORM_FP8, "attn.wo_b", DIM_D, DIM_GR, ALWAYS},
    {PL_TENSOR_COMP_APE, FORM_F32, "attn.compressor.ape", DIM_RATIO, DIM_COMP, COMPRESSED},
    {PL_TENSOR_COMP_WKV, FORM_BF16, "attn.compressor.wkv.weight", DIM_COMP, DIM_D, COMPRESSED},
    {PL_TENSOR_COMP_WGATE, FORM_BF16, "attn.compressor.wgate.weight", DIM_COMP, DIM_D, COMPRESSED},
    {PL_TENSOR_COMP_NORM, FORM_BF16, "attn.compressor.norm.weight", DIM_HEAD, DIM_NONE, COMPRESSED},
    {PL_TENSOR_INDEX_WQ_B, FORM_FP8, "attn.indexer.wq_b", DIM_IHQ, DIM_QR, INDEXED},
    {PL_TENSOR_INDEX_WEIGHTS_PROJ, FORM_BF16, "attn.indexer.weights_proj.weight", DIM_IH, DIM_D, INDEXED},
    {PL_TENSOR_INDEX_COMP_APE, FORM_F32, "attn.indexer.compressor.ape", DIM_RATIO, DIM_ICOMP, INDEXED},
    {PL_TENSOR_INDEX_COMP_WKV, FORM_BF16, "attn.indexer.compressor.wkv.weight", DIM_ICOMP, DIM_D, INDEXED},
    {PL_TENSOR_INDEX_COMP_WGATE, FORM_BF16, "attn.indexer.compressor.wgate.weight", DIM_ICOMP, DIM_D, INDEXED},
    {PL_TENSOR_INDEX_COMP_NORM, FORM_BF16, "attn.indexer.compressor.norm.weight", DIM_IDIM, DIM_NONE, INDEXED},
    {PL_TENSOR_GATE, FORM_BF16, "ffn.gate.weight", DIM_E, DIM_D, ALWAYS},
    {PL_TENSOR_GATE_TID2EID, FORM_I64, "ffn.gate.tid2eid", DIM_V, DIM_TOPK, HASHED},
    {PL_TENSOR_GATE_BIAS, FORM_F32, "ffn.gate.bias", DIM_E, DIM_NONE, LEARNED},
    {PL_TENSOR_SHARED_W1, FORM_FP8, "ffn.shared_experts.w1", DIM_I, DIM_D, ALWAYS},
    {PL_TENSOR_EXPERT_W1, FORM_EXPERT, "w1", DIM_I, DIM_D, ALWAYS},
    {PL_TENSOR_SHARED_W2, FORM_FP8, "ffn.shared_experts.w2", DIM_D, DIM_I, ALWAYS},
    {PL_TENSOR_EXPERT_W2, FORM_EXPERT, "w2", DIM_D, DIM_I, ALWAYS},
    {PL_TENSOR_SHARED_W3, FORM_FP8, "ffn.shared_experts.w3", DIM_I, DIM_D, ALWAYS},
    {PL_TENSOR_EXPERT_W3, FORM_EXPERT, "w3", DIM_I, DIM_D, ALWAYS},
};
/* clang-format on */

static const struct row mtp_rows[] = {
    {PL_TENSOR_E_PROJ, FORM_FP8, "e_proj", DIM_D, DIM_D, ALWAYS},
    {PL_TENSOR_H_PROJ, FORM_FP8, "h_proj", DIM_D, DIM_D, ALWAYS},
    {PL_TENSOR_ENORM, FORM_BF16, "enorm.weight", DIM_D, DIM_NONE, ALWAYS},
    {PL_TENSOR_HNORM, FORM_BF16, "hnorm.weight", DIM_D, DIM_NONE, ALWAYS},
    {PL_TENSOR_NORM, FORM_BF16, "norm.weight", DIM_D, DIM_NONE, ALWAYS},
    {PL_TENSOR_HC_HEAD_FN, FORM_F32, "hc_head_fn", DIM_S, DIM_4D, ALWAYS},
    {PL_TENSOR_HC_HEAD_BASE, FORM_F32, "hc_head_base", DIM_S, DIM_NONE, ALWAYS},
    {PL_TENSOR_HC_HEAD_SCALE, FORM_F32, "hc_head_scale", DIM_1, DIM_NONE, ALWAYS},
};

static const struct row copy_rows[] = {
    {PL_TENSOR_COPY_EMBED, FORM_BF16, "emb.tok_emb.weight", DIM_V, DIM_D, ALWAYS},
    {PL_TENSOR_COPY_HEAD, FORM_BF16, "head.weight", DIM_V, DIM_D, ALWAYS},
};

static const struct row first_stage_rows[] = {
    {PL_TENSOR_MAIN_PROJ, FORM_FP8, "main_proj", DIM_D, DIM_TAPS, ALWAYS},
    {PL_TENSOR_MAIN_NORM, FORM_BF16, "main_norm.weight", DIM_D, DIM_NONE, ALWAYS},
};

static const struct row last_stage_rows[] = {
    {PL_TENSOR_NORM, FORM_BF16, "norm.weight", DIM_D, DIM_NONE, ALWAYS},
    {PL_TENSOR_HC_HEAD_FN, FORM_F32, "hc_head_fn", DIM_S, DIM_4D, ALWAYS},
    {PL_TENSOR_HC_HEAD_BASE, FORM_F32, "hc_head_base", DIM_S, DIM_NONE, ALWAYS},
    {PL_TENSOR_HC_HEAD_SCALE, FORM_F32, "hc_head_scale", DIM_1, DIM_NONE, ALWAYS},
    {PL_TENSOR_MARKOV_W1, FORM_BF16, "markov_head.markov_w1.weight", DIM_V, DIM_MARKOV, ALWAYS},
    {PL_TENSOR_MARKOV_W2, FORM_BF16, "markov_head.markov_w2.weight", DIM_V, DIM_MARKOV, ALWAYS},
    {PL_TENSOR_CONFIDENCE, FORM_BF16, "confidence_head.proj.weight", DIM_1, DIM_CONF, ALWAYS},
};

/* ---- the walk */

struct walk {
    const pl_config *config;
    const pl_storage *storage;
    pl_tensor_visit *visit;
    void *user;
    int32_t ratio; /* of the block walked */
    bool hashed;
    int64_t dims[DIM_COUNT];
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
    const int64_t dims[DIM_COUNT] = {
        [DIM_1] = 1,
        [DIM_3] = 3,
        [DIM_V] = c->vocab_size,
        [DIM_D] = D,
        [DIM_4D] = PL_HC_MULT * D,
        [DIM_TAPS] = c->n_dspark_target_layers * D,
        [DIM_CONF] = D + c->dspark_markov_rank,
        [DIM_MARKOV] = c->dspark_markov_rank,
        [DIM_HC] = PL_HC_OUT,
        [DIM_S] = PL_HC_MULT,
        [DIM_H] = c->n_heads,
        [DIM_HEAD] = PL_HEAD_DIM,
        [DIM_HQ] = (int64_t)c->n_heads * PL_HEAD_DIM,
        [DIM_QR] = c->q_lora_rank,
        [DIM_GR] = (int64_t)c->o_groups * c->o_lora_rank,
        [DIM_GROUP] = (int64_t)(c->n_heads / c->o_groups) * PL_HEAD_DIM,
        [DIM_RATIO] = w->ratio,
        [DIM_COMP] = coff * PL_HEAD_DIM,
        [DIM_ICOMP] = coff * PL_INDEX_DIM,
        [DIM_IDIM] = PL_INDEX_DIM,
        [DIM_IH] = c->index_n_heads,
        [DIM_IHQ] = (int64_t)c->index_n_heads * PL_INDEX_DIM,
        [DIM_E] = c->n_experts,
        [DIM_TOPK] = c->n_experts_per_tok,
        [DIM_I] = c->moe_intermediate_size,
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

static bool applies(const struct walk *w, enum when when)
{
    switch (when) {
    case COMPRESSED:
        return w->ratio != 0;
    case INDEXED:
        return w->ratio == 4;
    case HASHED:
        return w->hashed;
    case LEARNED:
        return !w->hashed;
    default:
        return true;
    }
}

static bool walk_rows(struct walk *w, const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct row *r = &rows[i];
        const int64_t o = w->dims[r->rows], k = w->dims[r->cols];
        bool go_on;

        if (!applies(w, r->when))
            continue;
        w->spec.kind = r->kind;
        if (r->form == FORM_EXPERT) {
            go_on = emit_experts(w, r->name, o, k);
        } else {
            size_t end = put_text(w->spec.name, w->prefix, r->name);
            if (r->form == FORM_FP8)
                go_on = emit_fp8(w, end, w->storage->scale, o, k);
            else
                go_on = emit(w, end, "",
                             r->form == FORM_BF16  ? PL_DTYPE_BF16
                             : r->form == FORM_F32 ? PL_DTYPE_F32
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
    return walk_rows(w, ROWS(embed_rows));
}

static bool walk_end(struct walk *w)
{
    enter(w, PL_LAYER_GLOBAL, "", -1, 1 + w->config->n_layers);
    return walk_rows(w, ROWS(end_rows));
}

static bool walk_layer(struct walk *w, int32_t layer)
{
    enter(w, layer, "layers.", layer, 1 + layer);
    return walk_rows(w, ROWS(block_rows));
}

static bool walk_mtp(struct walk *w)
{
    enter(w, PL_LAYER_MTP, "mtp.", 0, 2 + w->config->n_layers);
    return walk_rows(w, ROWS(block_rows)) && walk_rows(w, ROWS(mtp_rows)) &&
           (!w->storage->has_copies || walk_rows(w, ROWS(copy_rows)));
}

static bool walk_stage(struct walk *w, int32_t stage)
{
    enter(w, PL_LAYER_MTP - stage, "mtp.", stage, 2 + w->config->n_layers + stage);
    return walk_rows(w, ROWS(block_rows)) && (stage != 0 || walk_rows(w, ROWS(first_stage_rows))) &&
           (stage != w->storage->n_dspark_stages - 1 || walk_rows(w, ROWS(last_stage_rows)));
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
