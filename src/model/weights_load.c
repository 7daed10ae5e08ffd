/* Reading weights: chunks of tensors over the worker pool, each into its place and into tiles on the way.
 *
 * A chunk is whole panels of 16 rows where its tensor becomes tiles. Which worker reads it and when cannot matter:
 * chunks do not overlap, and of several errors the one of the first chunk in the order of the list is told. A NaN
 * among FP8 codes is found by some chunk of its matrix; that matrix is read once more, as rows, at the end.
 * Deliberately not here: what a value may be (weight_values.c), how a file is read (shard_read.c). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "model/weight_values.h"
#include "model/weights_impl.h"
#include "ops/tile.h"

/* What is copied from the page cache should still be near when it is tiled. With the gaps between long rows it fits into a
 * buffer for direct reads, as do 16 rows that are longer. */
enum { CACHED_CHUNK_BYTES = 256 << 10 };

/* A tensor of the list, and where it goes. */
struct piece {
    pl_checkpoint_tensor tensor;
    pl_tensor_kind kind;
    bool is_scale, tiles;
    atomic_bool has_nan;
    pl_weight_view *view;
    uint8_t *to;
    int64_t first_unit;
    size_t chunk;
};

struct load {
    const pl_checkpoint *checkpoint;
    pl_weights *weights;
    const pl_load_params *params;
    bool direct;
    size_t chunk; /* to read at a time, but for wider panels */
    struct piece *pieces;
    int64_t n_pieces, n_units;
    int32_t n_slots; /* of the pieces so far */
    uint64_t total;
    pl_reader *readers; /* one a worker */
    _Atomic uint64_t done;
    _Atomic int64_t failed; /* the first unit that did; INT64_MAX */
    pthread_mutex_t lock;   /* of `failed` with the error */
    pl_error error;
};

/* ---- the list */

static pl_status count_piece(void *user, const pl_tensor_spec *spec,
                             const pl_checkpoint_tensor *tensor, pl_error *err)
{
    struct load *l = user;

    l->n_pieces += pl__weights_is_loaded(spec) ? 1 : 0;
    return PL_OK;
}

/* Bytes to read at a time: whole panels where they are to become tiles. */
static size_t chunk_bytes(const struct load *l, const pl_tensor_spec *spec, bool tiles)
{
    const uint64_t panel = tiles ? pl__weights_panel_bytes(spec) : 1;
    const uint64_t n = l->chunk / panel;

    return (size_t)(n > 0 ? n * panel : panel);
}

static void place_units(struct load *l, struct piece *p)
{
    p->first_unit = l->n_units;
    l->n_units += (int64_t)((p->tensor.bytes + p->chunk - 1) / p->chunk);
    l->total += p->tensor.bytes;
    l->n_pieces++;
}

static pl_status add_piece(void *user, const pl_tensor_spec *spec,
                           const pl_checkpoint_tensor *tensor, pl_error *err)
{
    struct load *l = user;
    struct piece *p = &l->pieces[l->n_pieces];
    pl_weight_view *view;
    bool tiles;

    if (!pl__weights_is_loaded(spec))
        return PL_OK;
    if (!l->weights) {
        *p = (struct piece){.tensor = *tensor, .chunk = l->chunk};
        place_units(l, p);
        return PL_OK;
    }
    l->n_slots += spec->is_scale ? 0 : 1;
    view = &l->weights->views[l->n_slots - 1];
    if (!spec->is_scale && l->params->layout == PL_WEIGHT_TILES && pl__weights_may_be_tiled(spec))
        view->layout = PL_WEIGHT_TILES;
    /* Of scales only FP4's follow their weights, which came before. */
    tiles = view->layout == PL_WEIGHT_TILES && (!spec->is_scale || view->format == PL_WEIGHT_FP4);
    *p = (struct piece){
        .tensor = *tensor,
        .kind = spec->kind,
        .is_scale = spec->is_scale,
        .tiles = tiles,
        .view = view,
        .to = (uint8_t *)(spec->is_scale ? view->scale : view->data),
        .chunk = chunk_bytes(l, spec, tiles),
    };
    place_units(l, p);
    return PL_OK;
}

static struct piece *piece_of(const struct load *l, int64_t unit)
{
    int64_t low = 0, high = l->n_pieces - 1;

    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (l->pieces[middle].first_unit <= unit)
            low = middle;
        else
            high = middle - 1;
    }
    return &l->pieces[low];
}

/* ---- a chunk */

/* Of a row in the file. */
static size_t row_bytes_of(const struct piece *p)
{
    const pl_weight_view *v = p->view;

    return (size_t)(p->is_scale ? v->cols / 32 : pl_tile_row_bytes(v->format, v->cols));
}

/* `n` bytes of whole panels of a matrix, or of FP4's scales, become tiles; `gap` bytes follow each row. */
static void tile_panels(const struct piece *p, const uint8_t *from, size_t n, size_t gap,
                        uint8_t *to)
{
    const pl_weight_view *v = p->view;
    const size_t row = row_bytes_of(p), step = row * PL_TILE_ROWS;

    for (; n > 0; n -= step, from += step + gap * PL_TILE_ROWS, to += step) {
        if (p->is_scale)
            pl_tile_pack_scales(from, (int64_t)row, PL_TILE_ROWS, (int64_t)row, to);
        else
            pl_tile_pack_past_cache(v->format, from, (int64_t)(row + gap), v->cols, to);
    }
}

static pl_status check(const struct load *l, const struct piece *p, uint64_t at, const void *data,
                       size_t n, pl_error *err)
{
    const pl_tensor_spec spec = {.kind = p->kind, .is_scale = p->is_scale};

    return pl__check_values(l->checkpoint, &spec, &p->tensor, at, data, n, err);
}

static bool is_fp8(const pl_weight_view *v)
{
    return v->format == PL_WEIGHT_FP8_E8M0 || v->format == PL_WEIGHT_FP8_F32;
}

/* Whole panels that become tiles. Only bytes can be wrong in what has tiles. */
static pl_status read_panels(const struct load *l, pl_reader *r, struct piece *p, uint64_t at,
                             size_t n, pl_error *err)
{
    const size_t row = row_bytes_of(p);
    const size_t gap = l->direct || p->is_scale ? 0 : (size_t)pl_reader_row_gap(row);
    const uint8_t *from = r->buffer;

    if (l->direct)
        PL_TRY(pl_reader_direct(r, &p->tensor, at, n, &from, err));
    else
        PL_TRY(pl_reader_rows(r, &p->tensor, at, n, row, gap, r->buffer, err));
    if (p->is_scale)
        PL_TRY(check(l, p, at, from, n, err));
    for (size_t i = 0; is_fp8(p->view) && !p->is_scale && i < n / row; i++)
        if (pl_tile_has_nan(from + i * (row + gap), row))
            p->has_nan = true;
    if (!p->has_nan)
        tile_panels(p, from, n, gap, p->to + at);
    return PL_OK;
}

static pl_status read_chunk(const struct load *l, pl_reader *r, struct piece *p, uint64_t at,
                            size_t n, pl_error *err)
{
    const uint8_t *from = r->buffer;

    if (p->tiles)
        return read_panels(l, r, p, at, n, err);
    if (l->direct)
        PL_TRY(pl_reader_direct(r, &p->tensor, at, n, &from, err));
    else
        PL_TRY(pl_checkpoint_read(l->checkpoint, &p->tensor, at, r->buffer, n, err));
    if (!l->weights)
        return PL_OK;
    pl_tile_copy_past_cache(from, n, p->to + at);
    return check(l, p, at, p->to + at, n, err); /* aligned, as in the buffer it may not be */
}

static void fail(struct load *l, int64_t unit, const pl_error *err)
{
    pthread_mutex_lock(&l->lock);
    if (unit < l->failed) {
        l->failed = unit;
        l->error = *err;
    }
    pthread_mutex_unlock(&l->lock);
}

static void run_unit(void *user, int64_t unit, int worker)
{
    struct load *l = user;
    struct piece *p = piece_of(l, unit);
    const uint64_t at = (uint64_t)(unit - p->first_unit) * p->chunk, left = p->tensor.bytes - at;
    const size_t n = left < p->chunk ? (size_t)left : p->chunk;
    pl_error err;

    if (unit > l->failed)
        return;
    if (read_chunk(l, &l->readers[worker], p, at, n, &err) != PL_OK) {
        fail(l, unit, &err);
        return;
    }
    atomic_fetch_add(&l->done, n);
    if (worker == 0) /* the calling thread: listeners are told by no other */
        pl_checkpoint_report(l->checkpoint, l->done, l->total);
}

/* ---- all of it */

static pl_status read_again_as_rows(const struct load *l, struct piece *p, pl_error *err)
{
    p->view->layout = PL_WEIGHT_ROWS;
    return pl_checkpoint_read(l->checkpoint, &p->tensor, 0, p->to, (size_t)p->tensor.bytes, err);
}

static pl_status run_units(struct load *l, pl_error *err)
{
    pl_checkpoint_report(l->checkpoint, 0, l->total);
    if (l->params->pool)
        pl_pool_run(l->params->pool, l->n_units, run_unit, l);
    else
        for (int64_t u = 0; u < l->n_units; u++)
            run_unit(l, u, 0);
    if (l->failed != INT64_MAX) {
        *err = l->error;
        return err->status;
    }
    for (int64_t i = 0; i < l->n_pieces; i++)
        if (l->pieces[i].has_nan)
            PL_TRY(read_again_as_rows(l, &l->pieces[i], err));
    pl_checkpoint_report(l->checkpoint, l->total, l->total);
    return pl__shards_unchanged(l->checkpoint, err);
}

static int n_workers_of(const pl_load_params *params)
{
    return params->pool ? pl_pool_n_workers(params->pool) : 1;
}

/* Buffers for all workers lie in one block, which need not be aligned for direct reads. */
static void set_readers(struct load *l, uint8_t *block, uint64_t buffer_bytes)
{
    const uintptr_t at = ((uintptr_t)block + PL_READ_ALIGN - 1) / PL_READ_ALIGN * PL_READ_ALIGN;

    for (int w = 0; w < n_workers_of(l->params); w++)
        l->readers[w] = (pl_reader){l->checkpoint, -1, -1,
                                    block + (at - (uintptr_t)block) + (uint64_t)w * buffer_bytes};
}

uint64_t pl_weights_buffers_bytes(const pl_weights_plan *plan, int n_workers)
{
    return (uint64_t)n_workers * plan->buffer_bytes + PL_READ_ALIGN;
}

static pl_status read_with(struct load *l, uint64_t buffer_bytes, pl_error *err)
{
    const int n_workers = n_workers_of(l->params);
    const pl_weights_plan sizes = {.buffer_bytes = buffer_bytes};
    uint8_t *own = NULL;
    pl_status s = PL_OK;

    l->pieces = malloc((size_t)(l->n_pieces > 0 ? l->n_pieces : 1) * sizeof *l->pieces);
    l->readers = malloc((size_t)n_workers * sizeof *l->readers);
    if (!l->params->buffers)
        own = malloc(pl_weights_buffers_bytes(&sizes, n_workers));
    if (!l->pieces || !l->readers || (!own && !l->params->buffers))
        s = pl_error_set(err, PL_ERR_NOMEM, "%s: no memory for the list of its tensors",
                         pl_checkpoint_path(l->checkpoint));
    if (s == PL_OK) {
        l->n_pieces = 0;
        s = pl_checkpoint_each(l->checkpoint, add_piece, l, err);
    }
    if (s == PL_OK) {
        set_readers(l, own ? own : l->params->buffers, buffer_bytes);
        s = run_units(l, err);
        for (int w = 0; w < n_workers; w++)
            pl_reader_close(&l->readers[w]);
    }
    free(own);
    free(l->readers);
    free(l->pieces);
    return s;
}

pl_status pl__weights_read(const pl_checkpoint *checkpoint, pl_weights *weights,
                           const pl_load_params *params, uint64_t buffer_bytes,
                           pl_load_report *report, pl_error *err)
{
    struct load l = {.checkpoint = checkpoint,
                     .weights = weights,
                     .params = params,
                     .failed = INT64_MAX,
                     .lock = PTHREAD_MUTEX_INITIALIZER};
    const char *reason = "";
    pl_status s;

    if (pl_checkpoint_has_data(checkpoint)) /* else reading says so, with the tensor */
        PL_TRY(pl__load_decide(checkpoint, params->mode, &l.direct, &reason, err));
    l.chunk = l.direct ? PL_LOAD_CHUNK_BYTES : CACHED_CHUNK_BYTES;
    PL_TRY(pl_checkpoint_each(checkpoint, count_piece, &l, err));
    s = read_with(&l, buffer_bytes, err);
    pthread_mutex_destroy(&l.lock);
    pl_log(PL_LOG_INFO, "load", "mode=%s reason=\"%s\" bytes=%llu",
           l.direct ? "direct" : "buffered", reason, (unsigned long long)l.total);
    if (report)
        *report = (pl_load_report){l.direct, reason, l.total};
    return s;
}
