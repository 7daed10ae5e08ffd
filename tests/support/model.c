/* Opening models for tests. */
#include "support/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint.h"

static void *aligned(uint64_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);

    assert_non_null(p);
    return p;
}

static void load(test_model *m, pl_weight_layout layout)
{
    const pl_load_params params = {.layout = layout};
    pl_checkpoint *checkpoint;
    pl_error err;

    check_ok(pl_checkpoint_open(m->path, &checkpoint, &err), &err);
    m->weights_memory = aligned(pl_weights_bytes(checkpoint));
    check_ok(pl_weights_load_as(checkpoint, m->weights_memory, &params, &m->weights, NULL, &err),
             &err);
    pl_checkpoint_close(checkpoint);
}

void test_model_tile(test_model *m)
{
    pl_weights_close(m->weights);
    free(m->weights_memory);
    load(m, PL_WEIGHT_TILES);
}

test_model *test_model_open(const char *name, const pl_ops *ops, pl_forward_limits limits,
                            int n_workers)
{
    const char *dir = getenv("PL_CHECKPOINT_DIR");
    test_model *m = calloc(1, sizeof *m);
    uint64_t bytes;
    bool rows = ops == pl_ops_scalar() || strcmp(ops->name, pl_ops_f64(ops->mode)->name) == 0;
    pl_error err;

    if (!dir)
        fail_msg("PL_CHECKPOINT_DIR is not set: run the tests through meson");
    limits.max_seqs = limits.max_seqs ? limits.max_seqs : 1;
    limits.max_logits = limits.max_logits ? limits.max_logits : limits.max_tokens;
    limits.max_len = limits.max_len ? limits.max_len : limits.max_tokens;
    snprintf(m->path, sizeof m->path, "%s/%s", dir, name);
    load(m, rows ? PL_WEIGHT_ROWS : PL_WEIGHT_TILES);
    m->config = pl_weights_config(m->weights);
    m->ops = ops;
    m->limits = limits;
    check_ok(
        pl_pool_create(&(pl_pool_params){.n_workers = n_workers, .no_pin = true}, &m->pool, &err),
        &err);
    bytes =
        pl_forward_bytes(m->config, ops, pl_weights_slots(m->weights)->has_mtp, n_workers, &limits);
    m->memory = aligned(bytes);
    check_ok(pl_forward_init(m->memory, m->weights, ops, m->pool, &limits, &m->forward, &err),
             &err);
    if (limits.n_ranks > 1) {
        check_ok(pl_ranks_create(limits.n_ranks, &m->ranks, &err), &err);
        check_ok(pl_forward_set_ranks(m->forward, m->ranks, &err), &err);
    }
    return m;
}

void test_model_close(test_model *m)
{
    pl_ranks_destroy(m->ranks);
    pl_pool_destroy(m->pool);
    pl_weights_close(m->weights);
    free(m->memory);
    free(m->weights_memory);
    free(m);
}

static pl_state *new_state(const test_model *m)
{
    pl_state_shape shape = pl_forward_state_shape(
        m->config, m->ops, pl_weights_slots(m->weights)->has_mtp, &m->limits);
    pl_arena arena;
    pl_state counted, *s;
    size_t bytes;

    pl_arena_init_dry(&arena);
    pl_state_layout(&counted, &arena, &shape);
    bytes = pl_arena_peak_bytes(&arena);
    s = aligned(sizeof *s + 64 + bytes);
    pl_arena_init(&arena, (uint8_t *)s + (sizeof *s + 63) / 64 * 64, bytes);
    pl_state_layout(s, &arena, &shape);
    check_ok(pl_arena_check(&arena, "state", NULL), NULL);
    pl_state_reset(s);
    return s;
}

pl_state *test_state_new(const test_model *m)
{
    pl_state *s = new_state(m);

    for (int r = 1; r < m->limits.n_ranks; r++) {
        pl_state *other = new_state(m);
        other->next_rank = s->next_rank;
        s->next_rank = other;
    }
    return s;
}

void test_state_free(pl_state *s)
{
    while (s) {
        pl_state *next = s->next_rank;
        free(s);
        s = next;
    }
}

static pl_step one_sequence(pl_step_seq *seq, const int32_t *tokens, int32_t n, bool logits,
                            int32_t *rows)
{
    for (int32_t i = 0; logits && i < n; i++)
        rows[i] = i;
    return (pl_step){
        .n_tokens = n,
        .tokens = tokens,
        .n_seqs = 1,
        .seqs = seq,
        .n_logits = logits ? n : 0,
        .logit_rows = rows,
    };
}

void test_run(test_model *m, pl_state *s, const int32_t *tokens, int32_t n, bool logits)
{
    pl_step_seq seq = {s, 0, n, 0};
    int32_t *rows = calloc((size_t)n, sizeof *rows);
    pl_step step = one_sequence(&seq, tokens, n, logits, rows);
    pl_error err;

    check_ok(pl_forward_run(m->forward, &step, &err), &err);
    free(rows);
}

void test_run_mtp(test_model *m, pl_state *s, const void *streams, int32_t first_row,
                  const int32_t *tokens, int32_t n, bool logits)
{
    pl_step_seq seq = {s, 0, n, 0};
    int32_t *rows = calloc((size_t)n, sizeof *rows), *from = calloc((size_t)n, sizeof *from);
    pl_step step = one_sequence(&seq, tokens, n, logits, rows);
    pl_error err;

    for (int32_t i = 0; i < n; i++)
        from[i] = first_row + i;
    check_ok(pl_forward_run_mtp(m->forward, &step, streams, from, &err), &err);
    free(rows);
    free(from);
}

void test_logits(const test_model *m, int32_t i, float *out)
{
    int64_t V = m->config->vocab_size;

    m->ops->acc_get((const uint8_t *)pl_forward_logits(m->forward) + i * V * m->ops->acc_bytes, V,
                    out);
}
