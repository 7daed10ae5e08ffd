/* A state at any position without the pass that leads there: measurements at a million tokens would take hours of
 * prefill otherwise.
 *
 * Rows are random vectors that go through the operators which store true ones, so that they are sound in every format; the
 * step's buffers for finished entries, idle between two steps, hold them on the way. What tells a synthetic state from a
 * true one is its contents, never its amount: as many window keys, entries and indexer keys as the position has. */
#include <string.h>

#include "base/error.h"
#include "model/deepseek_v4.h"

enum { BOUNDARY = 128, CHUNK_ROWS = 64 };

static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* Where a kind of rows of one layer goes, and what its first row's position is. */
typedef struct filling {
    pl_forward *f;
    pl_compress_ws *ws;
    const pl_rows *rows;
    int32_t ratio; /* positions of a row */
    int32_t slots; /* of a ring, where rows go round; 0: none */
    int64_t dim;   /* 512, 128 */
    int angles;    /* 0 plain, 1 compressed */
    uint64_t seed;
} filling;

/* Row r is of position r * ratio. Values of variance 1, as behind a norm. */
static void make_row(const filling *l, int64_t r, void *out)
{
    float v[PL_HEAD_DIM];
    uint64_t x = 0;

    for (int64_t i = 0; i < l->dim; i++) {
        if (i % 4 == 0)
            x = mix(l->seed ^ mix((uint64_t)r * PL_HEAD_DIM + (uint64_t)i));
        v[i] = ((float)(x & 0xFFFF) - 32767.5f) * (3.4641016f / 65536.0f);
        x >>= 16;
    }
    l->f->exec.ops->act_set(v, l->dim, out);
}

static void store(const filling *l, int64_t n)
{
    const pl_exec *x = &l->f->exec;
    pl_compress_ws *ws = l->ws;
    pl_angles angles = {ws->cos, ws->sin};

    pl_run_rope_angles(
        x, &(pl_rope_angles_args){l->f->freq[l->angles], ws->position, ws->cos, ws->sin}, n);
    if (l->dim == PL_INDEX_DIM)
        pl_run_key_store(x, &(pl_key_store_args){ws->pooled, angles, ws->dest}, n);
    else
        pl_run_kv_store(x, &(pl_kv_store_args){ws->pooled, angles, ws->dest}, n);
}

static int64_t chunk_rows(const pl_forward *f)
{
    /* As many as finished entries of the largest step, whatever else it holds (workspace.c). */
    const int64_t n = f->limits.max_tokens / 4 + 1;

    return n < CHUNK_ROWS ? n : CHUNK_ROWS;
}

static void fill(const filling *l, int64_t begin, int64_t end)
{
    const int64_t bytes = l->dim * l->f->exec.ops->act_bytes, most = chunk_rows(l->f);

    while (begin < end) {
        const int64_t n = end - begin < most ? end - begin : most;

        for (int64_t i = 0; i < n; i++) {
            make_row(l, begin + i, (uint8_t *)l->ws->pooled + i * bytes);
            l->ws->position[i] = (int32_t)((begin + i) * l->ratio);
            l->ws->dest[i] = (pl_row_dest){l->rows, l->slots ? (begin + i) % l->slots : begin + i};
        }
        store(l, n);
        begin += n;
    }
}

static void fill_layer(pl_forward *f, pl_state *s, int32_t layer, int32_t from, int32_t n,
                       uint64_t seed)
{
    pl_layer_state *to = &s->layer[layer];
    filling l = {.f = f, .ws = &f->ws.main, .rows = &to->ring, .ratio = 1, .dim = PL_HEAD_DIM};

    l.seed = mix(seed ^ mix((uint64_t)layer));
    l.slots = s->ring_rows;
    l.angles = to->ratio != 0;
    fill(&l, n > s->ring_rows ? n - s->ring_rows : 0, n);
    if (!to->ratio)
        return;
    l.slots = 0;
    l.seed++;
    l.ratio = to->ratio;
    l.rows = &to->entries;
    fill(&l, from / to->ratio, n / to->ratio);
    s->ops->compress_reset(to->main.state, to->main.ratio, to->main.dim);
    if (to->ratio != 4)
        return;
    l.seed++;
    l.ws = &f->ws.index;
    l.dim = PL_INDEX_DIM;
    l.rows = &to->keys;
    fill(&l, from / 4, n / 4);
    s->ops->compress_reset(to->index.state, to->index.ratio, to->index.dim);
}

pl_status pl_forward_inject(pl_forward *f, pl_state *state, int32_t from, int32_t n, uint64_t seed,
                            pl_error *err)
{
    PL_CHECK(f->share.n_ranks == 1, err, "inject: one rank (got %d)", f->share.n_ranks);
    PL_CHECK(state->n_layers == f->config->n_layers && state->ops == f->exec.ops, err,
             "inject: the state belongs to another model or level");
    PL_CHECK(n >= 0 && n <= state->max_len && n <= f->limits.max_len && n % BOUNDARY == 0, err,
             "inject: position (got %d, want a multiple of %d up to %d)", n, BOUNDARY,
             state->max_len < f->limits.max_len ? state->max_len : f->limits.max_len);
    PL_CHECK(from >= 0 && from <= n && from % BOUNDARY == 0, err,
             "inject: first position (got %d, want a multiple of %d up to %d)", from, BOUNDARY, n);
    for (int32_t layer = 0; layer < state->n_layers + state->has_mtp; layer++)
        fill_layer(f, state, layer, from, n, seed);
    state->n = state->n_settled = state->n_mtp = n;
    return PL_OK;
}
