/* Builds the list of a trace's tensors and the header of its file. */
#include "model/trace_layout.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const char *const type_names[] = {"I64", "F32", "BF16"};
static const uint64_t type_bytes[] = {8, 4, 2};

static pl_trace_tensor tensor(const char *name, pl_trace_type type, int64_t rows, int64_t a,
                              int64_t b)
{
    pl_trace_tensor t = {
        .type = type,
        .rank = b   ? 3
                : a ? 2
                    : 1,
        .shape = {rows, a, b},
        .cols = (a ? a : 1) * (b ? b : 1),
    };

    snprintf(t.name, sizeof t.name, "%s", name);
    t.row_bytes = (uint64_t)t.cols * type_bytes[type];
    return t;
}

/* bf16 values as such, in mode exact as F32. */
static pl_trace_type act_type(const pl_ops *ops)
{
    return ops->mode == PL_MODE_EXACT ? PL_TRACE_F32 : PL_TRACE_BF16;
}

/* Shape of a tap's row; dims are at least 1 but for the scores of fewer than 4 tokens. */
static void tap_shape(const pl_config *c, pl_tap tap, int32_t T, int64_t *a, int64_t *b)
{
    *b = 0;
    switch (tap) {
    case PL_TAP_ATTN_Q:
    case PL_TAP_ATTN_O:
        *a = c->n_heads;
        *b = PL_HEAD_DIM;
        break;
    case PL_TAP_STREAMS_MID:
    case PL_TAP_STREAMS:
        *a = PL_HC_MULT;
        *b = c->hidden_size;
        break;
    case PL_TAP_ATTN_KV:
        *a = PL_HEAD_DIM;
        break;
    case PL_TAP_ATTN_SCORES:
        *a = T / 4;
        break;
    case PL_TAP_ATTN_SEL:
        *a = c->index_topk;
        break;
    case PL_TAP_FFN_IDS:
    case PL_TAP_FFN_WEIGHTS:
        *a = c->n_experts_per_tok;
        break;
    default:
        *a = c->hidden_size;
    }
}

static bool has_tap(int32_t ratio, pl_tap tap, int32_t T)
{
    if (tap == PL_TAP_ATTN_SCORES)
        return ratio == 4 && T >= 4;
    return tap != PL_TAP_LOGITS && (tap != PL_TAP_ATTN_SEL || ratio == 4);
}

static void list_layer(pl_trace_layout *l, const pl_config *c, const pl_ops *ops, int32_t T,
                       int32_t i)
{
    static const pl_trace_type fixed[] = {
        [PL_TAP_KIND_ACC] = PL_TRACE_F32, [PL_TAP_KIND_I32] = PL_TRACE_I64};
    pl_trace_tensor *t = l->layer[i];
    int32_t ratio = c->compress_ratio[i];
    char name[64];

    for (int tap = 0; tap < PL_TAP_COUNT; tap++) {
        pl_tap_kind kind = pl_tap_kind_of((pl_tap)tap);
        bool act = kind == PL_TAP_KIND_ACT || kind == PL_TAP_KIND_ROWS;
        int64_t a, b;

        if (!has_tap(ratio, (pl_tap)tap, T))
            continue;
        tap_shape(c, (pl_tap)tap, T, &a, &b);
        snprintf(name, sizeof name, "layers.%d.%s", i, pl_tap_name((pl_tap)tap));
        t[tap] = tensor(name, act ? act_type(ops) : fixed[kind], T, a, b);
    }
    snprintf(name, sizeof name, "layers.%d.sums", i);
    t[PL_TRACE_SUMS] = tensor(name, PL_TRACE_F32, T, 3, 0);
    snprintf(name, sizeof name, "layers.%d.attn.entries", i);
    if (ratio)
        t[PL_TRACE_ENTRIES] = tensor(name, act_type(ops), T / ratio, PL_HEAD_DIM, 0);
    snprintf(name, sizeof name, "layers.%d.attn.index_entries", i);
    if (ratio == 4)
        t[PL_TRACE_INDEX_ENTRIES] = tensor(name, act_type(ops), T / ratio, PL_INDEX_DIM, 0);
}

static void list_globals(pl_trace_layout *l, const pl_config *c, bool has_mtp, const pl_ops *ops,
                         int32_t T)
{
    pl_trace_tensor *t = l->global;

    t[PL_TRACE_TOKENS] = tensor("tokens", PL_TRACE_I64, T, 0, 0);
    t[PL_TRACE_POSITIONS] = tensor("positions", PL_TRACE_I64, T, 0, 0);
    t[PL_TRACE_Q_POSITIONS] = tensor("q_positions", PL_TRACE_I64, T, 0, 0);
    t[PL_TRACE_LOGITS] = tensor("logits", PL_TRACE_F32, T, c->vocab_size, 0);
    if (!has_mtp)
        return;
    t[PL_TRACE_MTP_POSITIONS] = tensor("mtp.positions", PL_TRACE_I64, T - 1, 0, 0);
    t[PL_TRACE_MTP_LOGITS] = tensor("mtp.logits", PL_TRACE_F32, T - 1, c->vocab_size, 0);
    t[PL_TRACE_MTP_STREAMS] =
        tensor("mtp.streams", act_type(ops), T - 1, PL_HC_MULT, c->hidden_size);
}

/* Calls `each` for every tensor; wide elements first, so that all lie aligned. */
static void for_each(pl_trace_layout *l, void (*each)(void *user, pl_trace_tensor *t), void *user)
{
    for (int type = 0; type < PL_TRACE_TYPE_COUNT; type++) {
        for (int i = 0; i < PL_TRACE_GLOBAL_COUNT; i++)
            if (l->global[i].name[0] && l->global[i].type == (pl_trace_type)type)
                each(user, &l->global[i]);
        for (int32_t n = 0; n < l->n_layers; n++)
            for (int i = 0; i < PL_TRACE_PER_LAYER; i++)
                if (l->layer[n][i].name[0] && l->layer[n][i].type == (pl_trace_type)type)
                    each(user, &l->layer[n][i]);
    }
}

typedef struct placing {
    uint64_t at;
    json_t *json;
} placing;

static void place(void *user, pl_trace_tensor *t)
{
    placing *p = user;
    uint64_t end = p->at + (uint64_t)t->shape[0] * t->row_bytes;
    json_t *shape = json_array();

    for (int i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer(t->shape[i]));
    json_object_set_new(p->json, t->name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", type_names[t->type], "shape",
                                  shape, "data_offsets", (json_int_t)p->at, (json_int_t)end));
    t->offset = p->at;
    p->at = end;
}

static void shift(void *user, pl_trace_tensor *t)
{
    t->offset += *(const uint64_t *)user;
}

static const char *mode_name(pl_mode mode)
{
    return mode == PL_MODE_REF ? "ref" : mode == PL_MODE_REC ? "rec" : "exact";
}

pl_status pl_trace_layout_init(pl_trace_layout *l, const pl_config *config, bool has_mtp,
                               const pl_ops *ops, int32_t T, pl_error *err)
{
    placing p = {0, json_object()};
    char *text;

    *l = (pl_trace_layout){.n_layers = config->n_layers};
    l->layer = calloc((size_t)config->n_layers, sizeof *l->layer);
    if (!l->layer || !p.json)
        return pl_error_set(err, PL_ERR_NOMEM, "trace: out of memory");
    list_globals(l, config, has_mtp, ops, T);
    for (int32_t i = 0; i < config->n_layers; i++)
        list_layer(l, config, ops, T, i);
    json_object_set_new(p.json, "__metadata__",
                        json_pack("{s:s, s:s}", "level", ops->name, "mode", mode_name(ops->mode)));
    for_each(l, place, &p);
    text = json_dumps(p.json, JSON_COMPACT);
    json_decref(p.json);
    if (text) {
        uint64_t length = (strlen(text) + 7) / 8 * 8;

        l->header_bytes = 8 + length;
        l->header = malloc(l->header_bytes);
        if (l->header) {
            memcpy(l->header, &length, 8);
            memset(l->header + 8, ' ', length);
            memcpy(l->header + 8, text, strlen(text));
        }
        free(text);
    }
    if (!l->header)
        return pl_error_set(err, PL_ERR_NOMEM, "trace: out of memory");
    for_each(l, shift, &l->header_bytes);
    l->file_bytes = l->header_bytes + p.at;
    return PL_OK;
}

void pl_trace_layout_fini(pl_trace_layout *l)
{
    free(l->header);
    free(l->layer);
}
