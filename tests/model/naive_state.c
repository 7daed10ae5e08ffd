/* The naive state: a true one of max_draft 0 whose windows are replaced by ones as long as the sequence, and a log. */
#include "naive_state.h"

#include <stdlib.h>
#include <string.h>

static void *own(naive_state *v, size_t n, size_t bytes, bool contents)
{
    void *p = calloc(n, bytes);

    assert_non_null(p);
    assert_true(v->n_owned < NAIVE_PIECES);
    v->owned[v->n_owned++] = p;
    if (contents) {
        assert_true(v->n_pieces < NAIVE_PIECES);
        v->piece[v->n_pieces].data = p;
        v->piece[v->n_pieces++].bytes = n * bytes;
    }
    return p;
}

static void add_piece(naive_state *v, void *data, size_t bytes)
{
    assert_true(v->n_pieces < NAIVE_PIECES);
    v->piece[v->n_pieces].data = data;
    v->piece[v->n_pieces++].bytes = bytes;
}

static size_t state_bytes(const naive_state *v, const pl_compressor_state *c)
{
    return c->state ? (size_t)v->s->ops->compress_state_bytes(c->ratio, c->dim) : 0;
}

static void widen_ring(naive_state *v, pl_rows *ring)
{
    ring->page_rows = v->max_len;
    ring->page_bytes = pl_rows_page_bytes(v->max_len, ring->data_bytes, ring->scale_bytes);
    ring->base = own(v, 1, (size_t)ring->page_bytes, true);
}

static void add_rows(naive_state *v, const pl_rows *rows, int32_t ratio)
{
    const int64_t n = (v->max_len / ratio + rows->page_rows - 1) / rows->page_rows;

    add_piece(v, rows->base, (size_t)(n * rows->page_bytes));
}

naive_state *naive_open(test_model *m, int32_t max_len)
{
    naive_state *v = calloc(1, sizeof *v);

    assert_non_null(v);
    assert_int_equal(m->limits.max_draft, 0);
    v->m = m;
    v->max_len = max_len;
    v->s = test_state_new(m);
    for (int32_t l = 0; l < v->s->n_layers + v->s->has_mtp; l++) {
        pl_layer_state *layer = &v->s->layer[l];

        widen_ring(v, &layer->ring);
        if (layer->ratio)
            add_rows(v, &layer->entries, layer->ratio);
        if (layer->ratio == 4)
            add_rows(v, &layer->keys, 4);
        v->pool_bytes += state_bytes(v, &layer->main) + state_bytes(v, &layer->index);
    }
    v->s->ring_rows = max_len;
    v->stream_bytes = 4 * (size_t)m->config->hidden_size * (size_t)m->ops->act_bytes;
    v->tokens = own(v, (size_t)max_len + 1, sizeof *v->tokens, true);
    v->pools = own(v, NAIVE_KEPT, v->pool_bytes, true);
    v->streams = own(v, NAIVE_KEPT, v->stream_bytes, true);
    v->logits = own(v, NAIVE_KEPT, (size_t)m->config->vocab_size * sizeof(float), true);
    naive_reset(v);
    return v;
}

void naive_close(naive_state *v)
{
    for (int i = 0; i < v->n_owned; i++)
        free(v->owned[i]);
    test_state_free(v->s);
    free(v);
}

/* Copies all compressors to or from the log. */
static void log_pools(naive_state *v, int32_t n, bool save)
{
    uint8_t *at = v->pools + (size_t)(n % NAIVE_KEPT) * v->pool_bytes;

    for (int32_t l = 0; l < v->s->n_layers; l++) {
        const pl_compressor_state *two[2] = {&v->s->layer[l].main, &v->s->layer[l].index};

        for (int i = 0; i < 2; i++) {
            const size_t bytes = state_bytes(v, two[i]);

            if (bytes)
                memcpy(save ? (void *)at : two[i]->state, save ? two[i]->state : (void *)at, bytes);
            at += bytes;
        }
    }
}

const void *naive_pool(const naive_state *v, int32_t n, int32_t layer, bool is_index)
{
    const uint8_t *at = v->pools + (size_t)(n % NAIVE_KEPT) * v->pool_bytes;

    for (int32_t l = 0; l < layer; l++)
        at += state_bytes(v, &v->s->layer[l].main) + state_bytes(v, &v->s->layer[l].index);
    return at + (is_index ? state_bytes(v, &v->s->layer[layer].main) : 0);
}

const float *naive_logits(const naive_state *v, int32_t position)
{
    return v->logits + (size_t)(position % NAIVE_KEPT) * (size_t)v->m->config->vocab_size;
}

void naive_reset(naive_state *v)
{
    pl_state_reset(v->s);
    log_pools(v, 0, true);
}

void naive_copy(naive_state *dst, const naive_state *src)
{
    assert_int_equal(dst->n_pieces, src->n_pieces);
    for (int i = 0; i < src->n_pieces; i++)
        memcpy(dst->piece[i].data, src->piece[i].data, src->piece[i].bytes);
    dst->s->n = src->s->n;
    dst->s->n_settled = src->s->n_settled;
    dst->s->n_mtp = src->s->n_mtp;
    log_pools(dst, dst->s->n, false);
}

void naive_append(naive_state *v)
{
    const int32_t n = v->s->n, at = n % NAIVE_KEPT;

    test_run(v->m, v->s, &v->tokens[n], 1, true);
    test_logits(v->m, 0, v->logits + (size_t)at * (size_t)v->m->config->vocab_size);
    memcpy(v->streams + (size_t)at * v->stream_bytes, pl_forward_streams(v->m->forward),
           v->stream_bytes);
    log_pools(v, n + 1, true);
}

void naive_back(naive_state *v, int32_t n)
{
    assert_true(n <= v->s->n && n > v->s->n - NAIVE_KEPT);
    v->s->n = v->s->n_settled = n;
    log_pools(v, n, false);
}

void naive_follow(naive_state *v)
{
    while (v->s->n_mtp < v->s->n) {
        const int32_t at = v->s->n_mtp;

        assert_true(v->s->n - at <= NAIVE_KEPT);
        test_run_mtp(v->m, v->s, v->streams + (size_t)(at % NAIVE_KEPT) * v->stream_bytes, 0,
                     &v->tokens[at + 1], 1, false);
    }
}
