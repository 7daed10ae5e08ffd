/* Geometry, reset, copy and rewinding of a sequence's state. It knows formats by their bytes only: what
 * the rows mean is the operators' business. */
#include "cache/state.h"

#include <assert.h>
#include <string.h>

enum { PAGE_TOKENS = 128 };

static pl_rows layout_rows(pl_arena *arena, int64_t n_pages, int32_t page_rows, int32_t data_bytes,
                           int32_t scale_bytes)
{
    int64_t page_bytes = pl_rows_page_bytes(page_rows, data_bytes, scale_bytes);

    return (pl_rows){
        .base = pl_arena_array(arena, (size_t)n_pages, (size_t)page_bytes, 0),
        .page_bytes = page_bytes,
        .page_rows = page_rows,
        .data_bytes = data_bytes,
        .scale_bytes = scale_bytes,
    };
}

static size_t pending_bytes(const pl_state *s, const pl_compressor_state *c)
{
    return (size_t)s->max_draft * (size_t)pl_compressor_width(c->ratio, c->dim) *
           (size_t)s->ops->acc_bytes;
}

static pl_compressor_state layout_compressor(pl_arena *arena, const pl_state *s, int32_t ratio,
                                             int32_t dim)
{
    pl_compressor_state c = {.ratio = ratio, .dim = dim};

    c.state = pl_arena_alloc(arena, s->ops->compress_state_bytes(ratio, dim), 0);
    if (s->max_draft) {
        c.pending_kv = pl_arena_alloc(arena, pending_bytes(s, &c), 0);
        c.pending_gate = pl_arena_alloc(arena, pending_bytes(s, &c), 0);
    }
    return c;
}

static pl_layer_state layout_layer(pl_arena *arena, const pl_state *s, int32_t ratio)
{
    int64_t n_pages = ((int64_t)s->max_len + PAGE_TOKENS - 1) / PAGE_TOKENS;
    const pl_ops *ops = s->ops;
    pl_layer_state layer = {.ratio = ratio};

    layer.ring = layout_rows(arena, 1, s->ring_rows, ops->kv_data_bytes, ops->kv_scale_bytes);
    if (ratio) {
        layer.entries = layout_rows(arena, n_pages, PAGE_TOKENS / ratio, ops->kv_data_bytes,
                                    ops->kv_scale_bytes);
        layer.main = layout_compressor(arena, s, ratio, PL_HEAD_DIM);
    }
    if (ratio == 4) {
        layer.keys = layout_rows(arena, n_pages, PAGE_TOKENS / ratio, ops->key_data_bytes,
                                 ops->key_scale_bytes);
        layer.index = layout_compressor(arena, s, ratio, PL_INDEX_DIM);
    }
    return layer;
}

void pl_state_layout(pl_state *s, pl_arena *arena, const pl_state_shape *shape)
{
    int32_t n_layers = shape->n_layers + shape->has_mtp;

    *s = (pl_state){
        .max_len = shape->max_len,
        .max_draft = shape->max_draft,
        .ring_rows = PL_WINDOW + shape->max_draft,
        .n_layers = shape->n_layers,
        .has_mtp = shape->has_mtp,
        .ops = shape->ops,
    };
    s->layer = pl_arena_array(arena, (size_t)n_layers, sizeof *s->layer, 0);
    for (int32_t l = 0; l < n_layers; l++) {
        pl_layer_state layer = layout_layer(arena, s, l < shape->n_layers ? shape->ratio[l] : 0);
        if (s->layer)
            s->layer[l] = layer;
    }
}

static void reset_compressor(const pl_ops *ops, pl_compressor_state *c)
{
    if (c->state)
        ops->compress_reset(c->state, c->ratio, c->dim);
}

void pl_state_reset(pl_state *s)
{
    for (; s; s = s->next_rank) {
        s->n = s->n_settled = s->n_mtp = 0;
        for (int32_t l = 0; l < s->n_layers + s->has_mtp; l++) {
            reset_compressor(s->ops, &s->layer[l].main);
            reset_compressor(s->ops, &s->layer[l].index);
        }
    }
}

static void copy_rows(const pl_rows *dst, const pl_rows *src, int64_t n_rows)
{
    int64_t n_pages = (n_rows + dst->page_rows - 1) / dst->page_rows;

    memcpy(dst->base, src->base, (size_t)(n_pages * dst->page_bytes));
}

static void copy_compressor(const pl_state *s, const pl_compressor_state *dst,
                            const pl_compressor_state *src)
{
    memcpy(dst->state, src->state, s->ops->compress_state_bytes(src->ratio, src->dim));
    if (s->max_draft) {
        memcpy(dst->pending_kv, src->pending_kv, pending_bytes(s, src));
        memcpy(dst->pending_gate, src->pending_gate, pending_bytes(s, src));
    }
}

static void copy_one(pl_state *dst, const pl_state *src)
{
    assert(dst->n_layers == src->n_layers && dst->has_mtp == src->has_mtp && dst->ops == src->ops);
    assert(dst->max_draft == src->max_draft && dst->ring_rows == src->ring_rows);
    assert(src->n <= dst->max_len && src->n_mtp <= dst->max_len);
    dst->n = src->n;
    dst->n_settled = src->n_settled;
    dst->n_mtp = src->n_mtp;
    for (int32_t l = 0; l < src->n_layers + src->has_mtp; l++) {
        const pl_layer_state *from = &src->layer[l];
        pl_layer_state *to = &dst->layer[l];

        assert(to->ratio == from->ratio);
        copy_rows(&to->ring, &from->ring, src->ring_rows);
        if (from->ratio) {
            copy_rows(&to->entries, &from->entries, src->n / from->ratio);
            copy_compressor(src, &to->main, &from->main);
        }
        if (from->ratio == 4) {
            copy_rows(&to->keys, &from->keys, src->n / from->ratio);
            copy_compressor(src, &to->index, &from->index);
        }
    }
}

void pl_state_copy(pl_state *dst, const pl_state *src)
{
    for (; src; src = src->next_rank, dst = dst->next_rank) {
        assert(dst && !dst->next_rank == !src->next_rank);
        copy_one(dst, src);
    }
}

void pl_state_rewind(pl_state *s, int32_t n)
{
    for (; s; s = s->next_rank) {
        assert(s->n_settled <= n && n <= s->n);
        s->n = n;
    }
}

void pl_state_rewind_mtp(pl_state *s, int32_t n)
{
    for (; s; s = s->next_rank) {
        assert(0 <= n && n <= s->n_mtp);
        s->n_mtp = n;
    }
}
