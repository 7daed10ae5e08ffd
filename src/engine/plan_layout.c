/* Laying out an engine: every region with its closed form, in one function for plan and carving. */
#include <inttypes.h>
#include <stdio.h>

#include "base/pool.h"
#include "comm/comm.h"
#include "engine/internal.h"
#include "ops/ops.h"

const pl_ops *pl__engine_ops(pl_level level)
{
    return pl_ops_at(level, PL_MODE_REC);
}

static void layout_requests(const pl_engine_shape *s, pl_regions *t, pl_arena *a,
                            pl_engine_parts *p)
{
    size_t n = (size_t)s->max_num_seqs + (size_t)s->max_queued, seqs = (size_t)s->max_num_seqs;
    size_t tokens = (size_t)s->limits.max_len, states = (size_t)s->limits.n_ranks * seqs;
    size_t strips = seqs + (size_t)s->max_preempted;

    pl_region_begin(t, a, "engine.requests", "engine");
    p->requests = pl_arena_array(a, n, sizeof *p->requests, 0);
    p->states = pl_arena_array(a, states, sizeof *p->states, 0);
    p->free_places = pl_arena_array(a, seqs, sizeof *p->free_places, 0);
    p->free_strips = pl_arena_array(a, strips, sizeof *p->free_strips, 0);
    pl_region_end(t,
                  "%zu requests * %zu + up(%zu places * %zu, 64) + up(%zu places * %zu, 64) + "
                  "up(%zu strips * %zu, 64)",
                  n, sizeof *p->requests, states, sizeof *p->states, seqs, sizeof *p->free_places,
                  strips, sizeof *p->free_strips);
    pl_region_begin(t, a, "engine.outputs", "engine");
    p->outputs = pl_arena_array(a, strips * tokens, sizeof *p->outputs, 0);
    p->logprobs = pl_arena_array(a, strips * tokens, sizeof *p->logprobs, 0);
    pl_region_end(t, "2 * up(%zu strips * %zu tokens * %zu, 64)", strips, tokens,
                  sizeof *p->outputs);
}

static void layout_step(const pl_engine_shape *s, pl_regions *t, pl_arena *a, pl_engine_parts *p)
{
    size_t tokens = (size_t)s->limits.max_tokens, seqs = (size_t)s->limits.max_seqs;
    size_t rows = (size_t)s->limits.max_logits;

    pl_region_begin(t, a, "engine.step", "engine");
    p->step_tokens = pl_arena_array(a, tokens, sizeof *p->step_tokens, 0);
    p->step_seqs = pl_arena_array(a, seqs, sizeof *p->step_seqs, 0);
    p->step_requests = pl_arena_array(a, seqs, sizeof *p->step_requests, 0);
    p->first_row = pl_arena_array(a, seqs + 1, sizeof *p->first_row, 0);
    p->logit_rows = pl_arena_array(a, rows, sizeof *p->logit_rows, 0);
    p->rows = pl_arena_array(a, rows, sizeof *p->rows, 0);
    pl_region_end(t,
                  "up(%zu tokens * 4, 64) + up(%zu * %zu, 64) + up(%zu * %zu, 64) + up(%zu * 4, "
                  "64) + up(%zu rows * 4, 64) + up(%zu * %zu, 64)",
                  tokens, seqs, sizeof *p->step_seqs, seqs, sizeof *p->step_requests, seqs + 1,
                  rows, rows, sizeof *p->rows);
    pl_region_begin(t, a, "engine.sampler", "engine");
    pl_sampler_layout(&p->sampler, a, s->model->config.vocab_size);
    pl_region_end(t, "4 * up(%d ids * 4, 64) + up(up(%d ids, 32) / 8, 64)",
                  s->model->config.vocab_size, s->model->config.vocab_size);
}

/* Of every draft that waits to be verified, what it was drawn from. */
static void layout_draft_probs(const pl_engine_shape *s, pl_regions *t, pl_arena *a,
                               pl_engine_parts *p)
{
    const size_t seqs = (size_t)s->max_num_seqs, drafts = (size_t)s->limits.max_draft;
    const size_t vocab = (size_t)s->model->config.vocab_size;

    if (!s->rejects)
        return;
    pl_region_begin(t, a, "engine.draft_probs", "engine");
    p->draft_probs = pl_arena_array(a, seqs * drafts * vocab, sizeof *p->draft_probs, 0);
    pl_region_end(t, "up(%zu places * %zu drafts * %zu ids * 4, 64)", seqs, drafts, vocab);
}

static void layout_drafts(const pl_engine_shape *s, pl_regions *t, pl_arena *a, pl_engine_parts *p)
{
    size_t tokens = (size_t)s->limits.max_tokens, seqs = (size_t)s->limits.max_seqs;

    if (!s->limits.max_draft)
        return;
    pl_region_begin(t, a, "engine.drafts", "engine");
    p->draft_tokens = pl_arena_array(a, tokens, sizeof *p->draft_tokens, 0);
    p->draft_streams = pl_arena_array(a, tokens, sizeof *p->draft_streams, 0);
    p->draft_seqs = pl_arena_array(a, seqs, sizeof *p->draft_seqs, 0);
    p->draft_logit_rows = pl_arena_array(a, seqs, sizeof *p->draft_logit_rows, 0);
    p->draft_requests = pl_arena_array(a, seqs, sizeof *p->draft_requests, 0);
    pl_region_end(t,
                  "2 * up(%zu tokens * 4, 64) + up(%zu * %zu, 64) + up(%zu * 4, 64) + up(%zu * "
                  "%zu, 64)",
                  tokens, seqs, sizeof *p->draft_seqs, seqs, seqs, sizeof *p->draft_requests);
    layout_draft_probs(s, t, a, p);
}

/* The states of all requests at one rank after those at the rank before. */
static void layout_states(const pl_engine_shape *s, const pl_state_shape *shape, pl_arena *a,
                          pl_state *states)
{
    const int32_t n = s->max_num_seqs;
    pl_state counted;

    for (int32_t i = 0; i < s->limits.n_ranks * n; i++) {
        pl_state_layout(states ? &states[i] : &counted, a, shape);
        if (states && i >= n)
            states[i - n].next_rank = &states[i];
    }
}

static void layout_prefix(const pl_engine_shape *s, const pl_state_shape *shape, pl_regions *t,
                          pl_arena *a, pl_engine_parts *p)
{
    const pl_prefix_size z = pl_prefix_size_of(shape, s->prefix_bytes);

    if (!z.n_blocks)
        return;
    pl_region_begin(t, a, "cache.prefix", "cache");
    pl_prefix_layout(&p->prefix, a, shape, &z);
    pl_region_end(
        t,
        "up(%d blocks * %zu, 64) + up(%d * 4, 64) + up(%d states * 4, 64) + %d * up(%" PRIu64
        ", 64) + %d * up(%" PRIu64 ", 64)",
        z.n_blocks, sizeof(pl_prefix_block), z.n_blocks, z.n_states, z.n_blocks, z.block_bytes,
        z.n_states, z.state_bytes);
}

/* States lie in an arena of their own; its regions go across them. */
static void layout_cache(const pl_engine_shape *s, pl_regions *t, pl_arena *a, pl_engine_parts *p)
{
    pl_state_shape shape =
        pl_forward_state_shape(&s->model->config, s->ops, s->model->has_mtp, &s->limits);
    pl_cache_geometry g = pl_cache_geometry_of(&shape);
    const uint64_t n = (uint64_t)s->max_num_seqs, n_ranks = (uint64_t)s->limits.n_ranks;
    char ranks[32] = "";

    if (n_ranks > 1)
        (void)snprintf(ranks, sizeof ranks, "%" PRIu64 " ranks * ", n_ranks);
    layout_states(s, &shape, a, p->states);
    for (int32_t i = 0; i < g.n_parts; i++) {
        const pl_cache_part *part = &g.part[i];
        char name[PL_REGION_NAME_BYTES];

        (void)snprintf(name, sizeof name, "cache.%s", part->name);
        pl_region_add(
            t, name, "cache", PL_REGION_EXACT, n_ranks * n * pl_cache_part_bytes(&g, part),
            "%s%" PRIu64 " requests * %d layers * %d * up(%" PRId64 " * %" PRIu64 ", 64)", ranks, n,
            part->n_layers, part->n_pieces, part->per_block ? g.n_blocks : 1, part->piece_bytes);
    }
    layout_prefix(s, &shape, t, a, p);
    /* A row that no formula can give: the table then tells that the closed form is wrong. */
    if (pl_regions_bytes_of(t, "cache") != pl_arena_planned_peak_bytes(a))
        pl_region_add(t, "cache.lost", "cache", PL_REGION_EXACT, 0, "%zu bytes carved",
                      pl_arena_planned_peak_bytes(a));
}

/* What lies outside of the three mappings, and what mapping itself takes. */
static void add_others(const pl_engine_shape *s, pl_regions *t, const pl_arena *work,
                       const pl_arena *cache)
{
    const uint64_t parts[] = {s->model->weights.bytes, pl_arena_planned_peak_bytes(cache),
                              pl_arena_planned_peak_bytes(work)};
    const uint64_t vocab = (uint64_t)s->model->config.vocab_size;
    uint64_t rounding = 0;

    for (int i = 0; i < 3; i++)
        rounding += pl_mem_mapped_bytes(parts[i]) - parts[i];
    pl_region_add(t, "pages.rounding", "engine", PL_REGION_EXACT, rounding, "%" PRIu64, rounding);
    pl_region_add(t, "pool.stacks", "base", PL_REGION_EXACT, pl_pool_stacks_bytes(s->n_workers, 0),
                  "%d threads * %d", s->n_workers - 1, PL_POOL_STACK_BYTES);
    pl_region_add(t, "pool.record", "base", PL_REGION_EXACT, pl_pool_heap_bytes(s->n_workers),
                  "%zu", pl_pool_heap_bytes(s->n_workers));
    if (s->limits.n_ranks > 1) {
        const int n = s->limits.n_ranks;

        pl_region_add(t, "ranks.stacks", "comm", PL_REGION_EXACT, pl_ranks_stacks_bytes(n),
                      "%d threads * %d", n - 1, PL_POOL_STACK_BYTES);
        pl_region_add(t, "ranks.record", "comm", PL_REGION_EXACT, pl_ranks_heap_bytes(n), "%zu",
                      pl_ranks_heap_bytes(n));
    }
    pl_region_add(t, "heap.headers", "model", PL_REGION_CAPPED,
                  s->model->n_tensors * PL_HEADER_BYTES_PER_TENSOR, "%" PRIu64 " tensors * %d",
                  s->model->n_tensors, PL_HEADER_BYTES_PER_TENSOR);
    pl_region_add(t, "heap.tokenizer", "text", PL_REGION_CAPPED, vocab * PL_TOKENIZER_BYTES_PER_ID,
                  "%" PRIu64 " ids * %d", vocab, PL_TOKENIZER_BYTES_PER_ID);
    pl_region_add(t, "heap.prompts", "engine", PL_REGION_CAPPED,
                  (uint64_t)s->max_num_seqs * (uint64_t)s->limits.max_len * sizeof(int32_t) +
                      PL_WAITING_BYTES,
                  "%d requests * %d tokens * %zu + %d KiB waiting", s->max_num_seqs,
                  s->limits.max_len, sizeof(int32_t), PL_WAITING_BYTES / 1024);
    pl_region_add(t, "heap.other", "engine", PL_REGION_CAPPED, PL_OTHER_HEAP_BYTES, "%d KiB",
                  PL_OTHER_HEAP_BYTES / 1024);
    if (s->program_heap_bytes)
        pl_region_add(t, "heap.program", "engine", PL_REGION_CAPPED, s->program_heap_bytes,
                      "%" PRIu64, s->program_heap_bytes);
    pl_region_add(t, "program", "engine", PL_REGION_MEASURED, s->program_bytes,
                  "code, libraries and data before the engine is opened");
}

void pl__engine_layout(const pl_engine_shape *s, pl_regions *t, pl_arena *work, pl_arena *cache,
                       pl_engine_parts *p)
{
    *p = (pl_engine_parts){0};
    pl__model_regions(s->model, t);
    p->forward = pl_forward_layout(t, work, &s->model->config, s->ops, s->model->has_mtp,
                                   s->n_workers, &s->limits);
    pl_region_begin(t, work, "load.buffers", "model");
    p->load_buffers =
        pl_arena_alloc(work, pl_weights_buffers_bytes(&s->model->weights, s->n_workers), 0);
    pl_region_end(t, "%d workers * %" PRIu64 " + %d", s->n_workers, s->model->weights.buffer_bytes,
                  PL_READ_ALIGN);
    layout_requests(s, t, work, p);
    layout_step(s, t, work, p);
    layout_drafts(s, t, work, p);
    layout_cache(s, t, cache, p);
    add_others(s, t, work, cache);
}

pl_status pl__engine_plan_regions(const pl_engine_shape *s, pl_regions *regions, pl_error *err)
{
    pl_engine_parts parts;
    pl_arena work, cache;

    pl_arena_init_dry(&work);
    pl_arena_init_dry(&cache);
    pl__engine_layout(s, regions, &work, &cache, &parts);
    return pl_regions_check(regions, &work, err);
}

pl_status pl__engine_bytes(const pl_engine_shape *s, uint64_t *total, uint64_t *caches,
                           pl_error *err)
{
    pl_regions regions;
    pl_status status;

    pl_regions_init(&regions);
    status = pl__engine_plan_regions(s, &regions, err);
    *total = pl_regions_bytes(&regions, PL_REGION_PART_COUNT);
    *caches = pl_regions_bytes_of(&regions, "cache");
    pl_regions_fini(&regions);
    return status;
}
