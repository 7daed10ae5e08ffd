/* A model opened for `bench latency`: as an engine does it, but without one, since here the figures say which step runs.
 *
 * What memory it takes is summed up and compared with the machine's before anything is read. Deliberately not here: which
 * figures are made of it. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "cli/bench_latency.h"
#include "model/weights.h"
#include "ops/level.h"

enum { STORE_BYTES = 256 << 20 };

static pl_forward_limits limits_of(const pl_latency_session *s)
{
    const pl_config *c = pl_checkpoint_config(s->checkpoint);
    const int32_t batch = (int32_t)pl_latency_last_of(&s->lists.batches);
    const int32_t rows = batch * (1 + (int32_t)pl_latency_last_of(&s->lists.depths));
    int64_t deepest = pl_latency_last_of(&s->lists.contexts) + PL_LATENCY_ROOM;

    deepest = deepest > s->lists.batch_context + PL_LATENCY_ROOM
                  ? deepest
                  : s->lists.batch_context + PL_LATENCY_ROOM;
    deepest = deepest > pl_latency_last_of(&s->lists.prefill)
                  ? deepest
                  : pl_latency_last_of(&s->lists.prefill);
    if (deepest > c->max_position_embeddings)
        deepest = c->max_position_embeddings;
    return (pl_forward_limits){
        .max_tokens = rows > s->max_tokens ? rows : (int32_t)s->max_tokens,
        .max_seqs = batch,
        .max_logits = rows,
        .max_len = (int32_t)deepest,
        .max_draft = (int32_t)pl_latency_last_of(&s->lists.depths),
    };
}

/* The deep state first, then shallow ones for a batch. */
static void layout_states(pl_latency_session *s, pl_arena *arena, const pl_forward_limits *limits,
                          const pl_ops *ops, bool has_mtp, pl_state *states)
{
    const pl_config *c = pl_checkpoint_config(s->checkpoint);
    pl_state_shape shape = pl_forward_state_shape(c, ops, has_mtp, limits);
    pl_state scratch;

    for (int64_t i = 0; i <= pl_latency_last_of(&s->lists.batches); i++) {
        pl_state_layout(states ? &states[i] : &scratch, arena, &shape);
        shape.max_len = (int32_t)s->lists.batch_context + PL_LATENCY_ROOM;
    }
}

static pl_status check_memory(uint64_t bytes, pl_error *err)
{
    pl_mem_machine m;

    PL_TRY(pl_mem_read_machine(&m, err));
    PL_CHECK(bytes <= m.limit_bytes, err,
             "bench latency: needs more memory than there is (got %" PRIu64 " bytes, want %" PRIu64
             "): fewer --batches or lower --contexts",
             m.limit_bytes, bytes);
    return PL_OK;
}

static pl_status read_model(pl_latency_session *s, pl_error *err)
{
    pl_latency *l = &s->l;
    const pl_ops *ops = pl_ops_at(s->level, PL_MODE_REC);
    const pl_config *c = pl_checkpoint_config(s->checkpoint);
    const pl_forward_limits limits = limits_of(s);
    const int n_workers = pl_pool_n_workers(s->pool);
    const bool has_mtp = pl_checkpoint_storage(s->checkpoint)->has_mtp;
    pl_load_params load = {.layout = pl_ops_layout(s->level), .pool = s->pool};
    uint64_t work, states;
    pl_arena arena;

    PL_TRY(pl_load_mode_parse(s->load_mode, &load.mode, err));
    work = pl_forward_bytes(c, ops, has_mtp, n_workers, &limits);
    pl_arena_init_dry(&arena);
    layout_states(s, &arena, &limits, ops, has_mtp, NULL);
    states = pl_arena_peak_bytes(&arena);
    work = (work + 63) / 64 * 64;
    PL_TRY(
        check_memory(work + states + pl_weights_bytes(s->checkpoint) + STORE_BYTES / 8 * 9, err));
    PL_TRY(pl_mem_map(work + states, PL_MEM_HUGE | PL_MEM_TOUCH, &l->memory, err));
    PL_TRY(pl_mem_map(pl_weights_bytes(s->checkpoint), PL_MEM_HUGE | PL_MEM_TOUCH,
                      &l->weights_memory, err));
    PL_TRY(
        pl_weights_load_as(s->checkpoint, l->weights_memory.base, &load, &s->weights, NULL, err));
    PL_TRY(pl_forward_init(l->memory.base, s->weights, ops, s->pool, &limits, &l->forward, err));
    pl_arena_init(&arena, l->memory.base + work, states);
    layout_states(s, &arena, &limits, ops, has_mtp, l->states);
    PL_TRY(pl_arena_check(&arena, "bench latency", err));
    l->config = c;
    l->cost = pl_latency_cost_of(s->checkpoint, ops);
    l->max_tokens = (int32_t)s->max_tokens;
    return PL_OK;
}

static pl_status take_profile_memory(pl_latency *l, int n_workers, pl_error *err)
{
    l->profile = aligned_alloc(64, (pl_profile_bytes(n_workers) + 63) / 64 * 64);
    l->states = calloc(1 + PL_LATENCY_MAX_BATCH, sizeof *l->states);
    if (!l->profile || !l->states)
        return pl_error_set(err, PL_ERR_NOMEM, "bench latency: out of memory");
    pl_profile_reset(l->profile, n_workers);
    return PL_OK;
}

pl_status pl_latency_open(pl_latency_session *s, int n_workers, pl_error *err)
{
    pl_latency *l = &s->l;

    PL_TRY(pl_pool_create(&(pl_pool_params){.n_workers = n_workers, .pin_caller = true}, &s->pool,
                          err));
    PL_TRY(take_profile_memory(l, pl_pool_n_workers(s->pool), err));
    PL_TRY(read_model(s, err));
    l->clock = pl_bench_wall_clock();
    return pl_bench_open(&l->bench, s->level, s->pool, STORE_BYTES, err);
}

void pl_latency_close(pl_latency_session *s)
{
    pl_bench_close(&s->l.bench);
    pl_weights_close(s->weights);
    pl_mem_unmap(&s->l.memory);
    pl_mem_unmap(&s->l.weights_memory);
    pl_pool_destroy(s->pool);
    pl_checkpoint_close(s->checkpoint);
    free(s->l.profile);
    free(s->l.states);
}
