/* Rows go to their place in the file as taps hand them out, a step at a time. */
#include "model/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/numfmt.h"
#include "model/trace_layout.h"

typedef struct writer {
    const char *path;
    char *part; /* name while it is written */
    int fd;
    pl_trace_layout layout;
    const pl_ops *ops;
    int32_t T, first; /* tokens; position of the step's first */
    float *row;       /* the longest row */
    uint8_t *bytes;   /* the same in the file's type */
    pl_status status; /* the first failure */
    pl_error *err;
} writer;

static void put(writer *w, uint64_t at, const void *data, size_t n)
{
    const uint8_t *from = data;

    while (n && w->status == PL_OK) {
        ssize_t done = pwrite(w->fd, from, n, (off_t)at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            w->status = pl_error_set(w->err, PL_ERR_IO, "%s: cannot write (got %s)", w->path,
                                     done < 0 ? strerror(errno) : "nothing written");
            return;
        }
        from += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
}

/* w->row as row `r` of t. Values of type BF16 are bf16 numbers: cutting is exact. */
static void put_row(writer *w, const pl_trace_tensor *t, int64_t r)
{
    uint64_t at = t->offset + (uint64_t)r * t->row_bytes;
    uint16_t *narrow = (uint16_t *)w->bytes;

    if (t->type == PL_TRACE_F32) {
        put(w, at, w->row, t->row_bytes);
        return;
    }
    for (int64_t i = 0; i < t->cols; i++)
        narrow[i] = (uint16_t)(pl_f32_bits(w->row[i]) >> 16);
    put(w, at, narrow, t->row_bytes);
}

static void put_ids(writer *w, const pl_trace_tensor *t, int64_t r, const int32_t *ids)
{
    int64_t *wide = (int64_t *)w->bytes;

    for (int64_t i = 0; i < t->cols; i++)
        wide[i] = ids[i];
    put(w, t->offset + (uint64_t)r * t->row_bytes, wide, t->row_bytes);
}

/* What golden files hold as `sums` of the streams in w->row. */
static void put_sums(writer *w, const pl_trace_tensor *t, int64_t r, int64_t cols)
{
    double sum = 0, squares = 0, pattern = 0;
    float out[3];

    for (int64_t i = 0; i < cols; i++) {
        double x = (double)w->row[i];

        sum += x;
        squares += x * x;
        pattern += x * (double)(i % 7 - 3);
    }
    out[0] = (float)sum;
    out[1] = (float)sqrt(squares);
    out[2] = (float)pattern;
    put(w, t->offset + (uint64_t)r * t->row_bytes, out, sizeof out);
}

/* Scores past what a token sees are 1e30. */
static void blank_scores(writer *w, int64_t position, int64_t cols)
{
    for (int64_t i = (position + 1) / 4; i < cols; i++)
        w->row[i] = 1e30f;
}

static void visit_layer(writer *w, const pl_tap_view *view)
{
    const pl_trace_tensor *tensors = w->layout.layer[view->layer], *t = &tensors[view->tap];

    if (!t->name[0])
        return;
    for (int64_t r = 0; r < view->rows; r++) {
        int64_t position = w->first + r;

        if (view->kind == PL_TAP_KIND_I32) {
            put_ids(w, t, position, (const int32_t *)view->data + r * view->cols);
            continue;
        }
        pl_tap_get(view, r, 1, w->row);
        if (view->tap == PL_TAP_ATTN_SCORES)
            blank_scores(w, position, view->cols);
        put_row(w, t, position);
        if (view->tap == PL_TAP_STREAMS)
            put_sums(w, &tensors[PL_TRACE_SUMS], position, view->cols);
    }
}

static void visit(void *user, const pl_tap_view *view)
{
    writer *w = user;
    bool mtp = view->layer == PL_TAP_LAYER_MTP;
    const pl_trace_tensor *t = NULL;

    if (view->layer >= 0)
        visit_layer(w, view);
    else if (view->tap == PL_TAP_LOGITS)
        t = &w->layout.global[mtp ? PL_TRACE_MTP_LOGITS : PL_TRACE_LOGITS];
    else if (mtp && view->tap == PL_TAP_STREAMS)
        t = &w->layout.global[PL_TRACE_MTP_STREAMS];
    for (int64_t r = 0; t && r < view->rows; r++) {
        pl_tap_get(view, r, 1, w->row);
        put_row(w, t, w->first + r);
    }
}

/* Entries and keys finished so far; from `before` on they are new. */
static void put_entries(writer *w, const pl_state *s, int32_t before)
{
    for (int32_t l = 0; l < s->n_layers; l++) {
        const pl_layer_state *layer = &s->layer[l];

        for (int32_t i = layer->ratio ? before / layer->ratio : 0;
             layer->ratio && i < s->n / layer->ratio; i++) {
            w->ops->kv_get(&layer->entries, i, w->row);
            put_row(w, &w->layout.layer[l][PL_TRACE_ENTRIES], i);
            if (layer->ratio == 4) {
                w->ops->key_get(&layer->keys, i, w->row);
                put_row(w, &w->layout.layer[l][PL_TRACE_INDEX_ENTRIES], i);
            }
        }
    }
}

static void put_globals(writer *w, const int32_t *tokens)
{
    const pl_trace_tensor *g = w->layout.global;

    put(w, 0, w->layout.header, w->layout.header_bytes);
    for (int32_t i = 0; i < w->T; i++) {
        put_ids(w, &g[PL_TRACE_TOKENS], i, &tokens[i]);
        put_ids(w, &g[PL_TRACE_POSITIONS], i, &i);
        put_ids(w, &g[PL_TRACE_Q_POSITIONS], i, &i);
        if (g[PL_TRACE_MTP_POSITIONS].name[0] && i + 1 < w->T)
            put_ids(w, &g[PL_TRACE_MTP_POSITIONS], i, &i);
    }
}

/* A hook may have failed inside a run that did not. */
static void first_failure(writer *w, pl_status status)
{
    if (w->status == PL_OK)
        w->status = status;
}

/* Tokens first .. first + n - 1, and as many through the mtp block as have a successor. */
static void run_step(writer *w, pl_forward *f, pl_state *s, const int32_t *tokens, int32_t n,
                     const int32_t *rows)
{
    pl_step_seq seq = {s, 0, n, 0};
    pl_step step = {n, tokens, 1, &seq, n, rows};
    int32_t before = s->n;

    w->first = before;
    first_failure(w, pl_forward_run(f, &step, w->err));
    if (w->status != PL_OK)
        return;
    put_entries(w, s, before);
    seq.n = step.n_tokens = step.n_logits = before + n < w->T ? n : n - 1;
    step.tokens = tokens + 1;
    if (seq.n > 0 && w->layout.global[PL_TRACE_MTP_LOGITS].name[0] && w->status == PL_OK)
        first_failure(w, pl_forward_run_mtp(f, &step, pl_forward_streams(f), rows, w->err));
}

static void run_all(writer *w, pl_forward *f, pl_state *s, const int32_t *tokens, int32_t max_step,
                    const int32_t *rows)
{
    pl_hooks hooks = {w, visit, true};

    pl_forward_set_hooks(f, &hooks);
    pl_state_reset(s);
    put_globals(w, tokens);
    while (s->n < w->T && w->status == PL_OK) {
        int32_t left = w->T - s->n;

        run_step(w, f, s, tokens + s->n, left < max_step ? left : max_step, rows);
    }
}

/* Memory of the run in one block: forward pass, state, a row, its bytes. */
typedef struct memory {
    void *forward;
    pl_state state;
    float *row;
    uint8_t *bytes;
    int32_t *rows;
} memory;

static void layout_memory(memory *m, pl_arena *arena, const pl_weights *weights, const pl_ops *ops,
                          int n_workers, const pl_forward_limits *limits)
{
    const pl_config *c = pl_weights_config(weights);
    bool has_mtp = pl_weights_slots(weights)->has_mtp;
    pl_state_shape shape = pl_forward_state_shape(c, ops, has_mtp, limits);
    size_t longest = (size_t)c->n_heads * PL_HEAD_DIM,
           lengths[] = {
               (size_t)c->vocab_size,        PL_HC_MULT * (size_t)c->hidden_size,
               (size_t)limits->max_len / 4,  (size_t)c->index_topk,
               (size_t)c->n_experts_per_tok,
           };

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        longest = lengths[i] > longest ? lengths[i] : longest;
    m->forward = pl_arena_alloc(arena, pl_forward_bytes(c, ops, has_mtp, n_workers, limits), 0);
    pl_state_layout(&m->state, arena, &shape);
    m->row = pl_arena_array(arena, longest, sizeof *m->row, 0);
    m->bytes = pl_arena_array(arena, longest, 8, 0);
    m->rows = pl_arena_array(arena, (size_t)limits->max_tokens, sizeof *m->rows, 0);
}

static pl_status open_part(writer *w)
{
    size_t length = strlen(w->path) + 6;

    w->part = malloc(length);
    if (!w->part)
        return pl_error_set(w->err, PL_ERR_NOMEM, "trace: out of memory");
    snprintf(w->part, length, "%s.part", w->path);
    w->fd = open(w->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0)
        return pl_error_set(w->err, PL_ERR_IO, "%s: cannot create (got %s)", w->part,
                            strerror(errno));
    if (ftruncate(w->fd, (off_t)w->layout.file_bytes) != 0)
        return pl_error_set(w->err, PL_ERR_IO, "%s: cannot grow to %llu bytes (got %s)", w->part,
                            (unsigned long long)w->layout.file_bytes, strerror(errno));
    return PL_OK;
}

/* The file gets its name, or disappears. */
static void close_part(writer *w)
{
    if (w->fd >= 0) {
        if (close(w->fd) != 0 && w->status == PL_OK)
            w->status = pl_error_set(w->err, PL_ERR_IO, "%s: cannot write (got %s)", w->path,
                                     strerror(errno));
        if (w->status == PL_OK && rename(w->part, w->path) != 0)
            w->status = pl_error_set(w->err, PL_ERR_IO, "%s: cannot rename to it (got %s)", w->path,
                                     strerror(errno));
        if (w->status != PL_OK)
            unlink(w->part);
    }
    free(w->part);
}

static pl_status run_in(writer *w, void *block, size_t bytes, const pl_weights *weights,
                        pl_pool *pool, const pl_forward_limits *limits, const int32_t *tokens)
{
    pl_arena arena;
    pl_forward *f;
    memory m;

    pl_arena_init(&arena, block, bytes);
    layout_memory(&m, &arena, weights, w->ops, pl_pool_n_workers(pool), limits);
    PL_TRY(pl_arena_check(&arena, "trace", w->err));
    PL_TRY(pl_forward_init(m.forward, weights, w->ops, pool, limits, &f, w->err));
    for (int32_t i = 0; i < limits->max_tokens; i++)
        m.rows[i] = i;
    w->row = m.row;
    w->bytes = m.bytes;
    run_all(w, f, &m.state, tokens, limits->max_tokens, m.rows);
    pl_arena_fini(&arena);
    return w->status;
}

pl_status pl_trace_write(const char *path, const pl_weights *weights, const pl_ops *ops,
                         pl_pool *pool, const int32_t *tokens, int32_t n, int32_t max_step,
                         pl_error *err)
{
    const pl_config *config = pl_weights_config(weights);
    pl_forward_limits limits = {
        .max_tokens = n < max_step ? n : max_step,
        .max_seqs = 1,
        .max_logits = n < max_step ? n : max_step,
        .max_len = n,
        .want_scores = true,
    };
    writer w = {.path = path, .fd = -1, .ops = ops, .T = n, .err = err};
    pl_arena arena;
    memory counted;
    void *block;
    size_t bytes;

    PL_CHECK(n >= 1 && n <= config->max_position_embeddings, err,
             "trace: number of tokens (got %d, want 1 to %d)", n, config->max_position_embeddings);
    pl_arena_init_dry(&arena);
    layout_memory(&counted, &arena, weights, ops, pl_pool_n_workers(pool), &limits);
    PL_TRY(pl_arena_check(&arena, "trace", err));
    bytes = pl_arena_peak_bytes(&arena);
    block = aligned_alloc(PL_ARENA_ALIGN,
                          (bytes + PL_ARENA_ALIGN - 1) / PL_ARENA_ALIGN * PL_ARENA_ALIGN);
    w.status = block ? pl_trace_layout_init(&w.layout, config, pl_weights_slots(weights)->has_mtp,
                                            ops, n, err)
                     : pl_error_set(err, PL_ERR_NOMEM,
                                    "trace: out of memory (got none of %zu bytes)", bytes);
    if (w.status == PL_OK)
        w.status = open_part(&w);
    if (w.status == PL_OK)
        w.status = run_in(&w, block, bytes, weights, pool, &limits, tokens);
    close_part(&w);
    pl_trace_layout_fini(&w.layout);
    free(block);
    return w.status;
}
