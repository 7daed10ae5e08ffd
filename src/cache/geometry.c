/* The table of cache parts. Adding a kind of cache is adding a row here; nothing else knows their sizes
 * but cache/state.c, which a test compares with this. */
#include "cache/geometry.h"

enum { R0 = 1, R4 = 2, R128 = 4 }; /* which layers have a part */

typedef struct source {
    const char *name;
    int layers;
    int32_t n_pieces;
    uint64_t bytes;
    bool per_block;
} source;

static int32_t count_layers(const pl_state_shape *shape, int layers)
{
    int32_t n = layers & R0 && shape->has_mtp ? 1 : 0;

    for (int32_t l = 0; l < shape->n_layers; l++) {
        int kind = shape->ratio[l] == 4 ? R4 : shape->ratio[l] == 128 ? R128 : R0;
        n += layers & kind ? 1 : 0;
    }
    return n;
}

static uint64_t row_bytes(const pl_ops *ops)
{
    return (uint64_t)ops->kv_data_bytes + (uint64_t)ops->kv_scale_bytes;
}

static uint64_t key_bytes(const pl_ops *ops)
{
    return (uint64_t)ops->key_data_bytes + (uint64_t)ops->key_scale_bytes;
}

static uint64_t pending_bytes(const pl_state_shape *s, int32_t ratio, int32_t dim)
{
    return (uint64_t)s->max_draft * (uint64_t)pl_compressor_width(ratio, dim) *
           (uint64_t)s->ops->acc_bytes;
}

pl_cache_geometry pl_cache_geometry_of(const pl_state_shape *s)
{
    const pl_ops *ops = s->ops;
    const uint64_t window = PL_WINDOW + (uint64_t)s->max_draft;
    const uint64_t n_layers = (uint64_t)s->n_layers + s->has_mtp;
    /* clang-format off */
    const source rows[] = {
        {"window", R0 | R4 | R128, 1, window * row_bytes(ops), false},
        {"csa_entries", R4, 1, PL_CACHE_BLOCK_TOKENS / 4 * row_bytes(ops), true},
        {"csa_keys", R4, 1, PL_CACHE_BLOCK_TOKENS / 4 * key_bytes(ops), true},
        {"hca_entries", R128, 1, row_bytes(ops), true},
        {"csa_state", R4, 1, ops->compress_state_bytes(4, PL_HEAD_DIM), false},
        {"csa_key_state", R4, 1, ops->compress_state_bytes(4, PL_INDEX_DIM), false},
        {"hca_state", R128, 1, ops->compress_state_bytes(128, PL_HEAD_DIM), false},
        {"csa_drafts", R4, 2, pending_bytes(s, 4, PL_HEAD_DIM), false},
        {"csa_key_drafts", R4, 2, pending_bytes(s, 4, PL_INDEX_DIM), false},
        {"hca_drafts", R128, 2, pending_bytes(s, 128, PL_HEAD_DIM), false},
    };
    /* clang-format on */
    pl_cache_geometry g = {
        .n_blocks = ((int64_t)s->max_len + PL_CACHE_BLOCK_TOKENS - 1) / PL_CACHE_BLOCK_TOKENS,
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int32_t n = count_layers(s, rows[i].layers);
        if (n && rows[i].bytes)
            g.part[g.n_parts++] = (pl_cache_part){rows[i].name, n, rows[i].n_pieces, rows[i].bytes,
                                                  rows[i].per_block};
    }
    g.part[g.n_parts++] = (pl_cache_part){"tables", 1, 1, n_layers * sizeof(pl_layer_state), false};
    return g;
}

static uint64_t up(uint64_t bytes)
{
    return (bytes + PL_ARENA_ALIGN - 1) / PL_ARENA_ALIGN * PL_ARENA_ALIGN;
}

uint64_t pl_cache_part_bytes(const pl_cache_geometry *g, const pl_cache_part *p)
{
    uint64_t blocks = p->per_block ? (uint64_t)g->n_blocks : 1;

    return (uint64_t)p->n_layers * (uint64_t)p->n_pieces * up(blocks * p->piece_bytes);
}

static uint64_t sum(const pl_cache_geometry *g, bool per_block)
{
    uint64_t bytes = 0;

    for (int32_t i = 0; i < g->n_parts; i++) {
        const pl_cache_part *p = &g->part[i];
        if (p->per_block == per_block)
            bytes += (uint64_t)p->n_layers * (uint64_t)p->n_pieces *
                     (per_block ? p->piece_bytes : up(p->piece_bytes));
    }
    return bytes;
}

uint64_t pl_cache_fixed_bytes(const pl_cache_geometry *g)
{
    return sum(g, false);
}

uint64_t pl_cache_block_bytes(const pl_cache_geometry *g)
{
    return sum(g, true);
}

uint64_t pl_cache_request_bytes(const pl_cache_geometry *g)
{
    uint64_t bytes = 0;

    for (int32_t i = 0; i < g->n_parts; i++)
        bytes += pl_cache_part_bytes(g, &g->part[i]);
    return bytes;
}
