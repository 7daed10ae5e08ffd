/* Packing: one walk over the pieces of a part, which copies out or in. */
#include "cache/pack.h"

#include <assert.h>
#include <string.h>

/* ---- closed form */

static uint64_t compressor_bytes(const pl_ops *ops, pl_pack part, int32_t ratio, int32_t dim,
                                 const pl_pack_span *span)
{
    if (part == PL_PACK_POOLS)
        return ops->compress_state_bytes(ratio, dim);
    return 2 * (uint64_t)(span->n - span->n_settled) * (uint64_t)pl_compressor_width(ratio, dim) *
           (uint64_t)ops->acc_bytes;
}

static uint64_t layer_bytes(const pl_ops *ops, int32_t ratio, pl_pack part,
                            const pl_pack_span *span)
{
    const uint64_t row = (uint64_t)ops->kv_data_bytes + (uint64_t)ops->kv_scale_bytes;
    const uint64_t key = (uint64_t)ops->key_data_bytes + (uint64_t)ops->key_scale_bytes;
    const uint64_t n_window = (uint64_t)(span->n < PL_WINDOW ? span->n : PL_WINDOW);
    const uint64_t n_rows = ratio ? (uint64_t)(span->n / ratio - span->begin / ratio) : 0;

    if (part == PL_PACK_WINDOW)
        return n_window * row;
    if (part == PL_PACK_ENTRIES)
        return n_rows * row;
    if (part == PL_PACK_KEYS)
        return ratio == 4 ? n_rows * key : 0;
    if (!ratio)
        return 0;
    return compressor_bytes(ops, part, ratio, PL_HEAD_DIM, span) +
           (ratio == 4 ? compressor_bytes(ops, part, ratio, PL_INDEX_DIM, span) : 0);
}

uint64_t pl_pack_bytes_of(const pl_state_shape *shape, pl_pack part, const pl_pack_span *span)
{
    uint64_t bytes = 0;

    for (int32_t l = 0; l < shape->n_layers; l++)
        bytes += layer_bytes(shape->ops, shape->ratio[l], part, span);
    return bytes + (shape->has_mtp ? layer_bytes(shape->ops, 0, part, span) : 0);
}

uint64_t pl_pack_bytes(const pl_state *s, pl_pack part, const pl_pack_span *span)
{
    uint64_t bytes = 0;

    for (int32_t l = 0; l < s->n_layers + s->has_mtp; l++)
        bytes += layer_bytes(s->ops, s->layer[l].ratio, part, span);
    return bytes;
}

/* ---- copying */

/* Where packed bytes are: one of both. */
typedef struct cursor {
    uint8_t *to;
    const uint8_t *from;
} cursor;

static void copy(cursor *c, void *piece, size_t bytes)
{
    if (c->to) {
        memcpy(c->to, piece, bytes);
        c->to += bytes;
    } else {
        memcpy(piece, c->from, bytes);
        c->from += bytes;
    }
}

static void copy_row(cursor *c, const pl_rows *rows, int64_t i)
{
    copy(c, pl_rows_data(rows, i), (size_t)rows->data_bytes);
    copy(c, pl_rows_scales(rows, i), (size_t)rows->scale_bytes);
}

static void copy_rows(cursor *c, const pl_rows *rows, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        copy_row(c, rows, i);
}

/* The positions of the window that the layer has done; zeros for the others. */
static void copy_window(cursor *c, const pl_state *s, const pl_rows *ring, const pl_pack_span *span,
                        int32_t n_done)
{
    const size_t row_bytes = (size_t)ring->data_bytes + (size_t)ring->scale_bytes;

    for (int32_t p = span->n < PL_WINDOW ? 0 : span->n - PL_WINDOW; p < span->n; p++) {
        if (p < n_done || !c->to) {
            copy_row(c, ring, p % s->ring_rows);
        } else {
            memset(c->to, 0, row_bytes);
            c->to += row_bytes;
        }
    }
}

static void copy_compressor(cursor *c, const pl_ops *ops, pl_pack part,
                            const pl_compressor_state *state, const pl_pack_span *span)
{
    const size_t bytes = (size_t)compressor_bytes(ops, part, state->ratio, state->dim, span);

    if (part == PL_PACK_POOLS) {
        copy(c, state->state, bytes);
    } else if (bytes) {
        copy(c, state->pending_kv, bytes / 2);
        copy(c, state->pending_gate, bytes / 2);
    }
}

static void copy_layer(cursor *c, const pl_state *s, int32_t l, pl_pack part,
                       const pl_pack_span *span)
{
    const pl_layer_state *layer = &s->layer[l];
    const int32_t ratio = layer->ratio;

    if (part == PL_PACK_WINDOW)
        copy_window(c, s, &layer->ring, span, l < s->n_layers ? span->n : span->n_mtp);
    else if (part == PL_PACK_ENTRIES && ratio)
        copy_rows(c, &layer->entries, span->begin / ratio, span->n / ratio);
    else if (part == PL_PACK_KEYS && ratio == 4)
        copy_rows(c, &layer->keys, span->begin / ratio, span->n / ratio);
    else if ((part == PL_PACK_POOLS || part == PL_PACK_PENDING) && ratio) {
        copy_compressor(c, s->ops, part, &layer->main, span);
        if (ratio == 4)
            copy_compressor(c, s->ops, part, &layer->index, span);
    }
}

static void copy_part(cursor *c, const pl_state *s, pl_pack part, const pl_pack_span *span)
{
    assert(span->begin % PL_WINDOW == 0 && span->n <= s->max_len);
    assert(span->n - span->n_settled <= s->max_draft);
    for (int32_t l = 0; l < s->n_layers + s->has_mtp; l++)
        copy_layer(c, s, l, part, span);
}

void pl_pack_save(const pl_state *s, pl_pack part, const pl_pack_span *span, void *to)
{
    cursor c = {.to = to};

    copy_part(&c, s, part, span);
}

void pl_pack_load(pl_state *s, pl_pack part, const pl_pack_span *span, const void *from)
{
    cursor c = {.from = from};

    copy_part(&c, s, part, span);
}
