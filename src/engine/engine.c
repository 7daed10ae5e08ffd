/* Opening an engine: plan, threads, memory, weights, in the order in which a refusal costs least.
 *
 * Three mappings hold everything that is exact: weights, caches, work. They are carved by the function that planned
 * them, and the two tables of regions are compared. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "engine/internal.h"
#include "ops/level.h"
#include "plimsoll/version.h"

enum { DIGEST_LIMIT_BYTES = 1 << 30, TOUCH_BYTES = 2 << 20 };

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- what the checkpoint is */

static uint64_t data_bytes(const pl_checkpoint *c)
{
    uint64_t bytes = 0;

    for (int64_t i = 0; i < pl_checkpoint_n_tensors(c); i++)
        bytes += pl_checkpoint_tensor_at(c, i).bytes;
    return bytes;
}

static pl_status read_digest(pl_engine *e, const pl_checkpoint *c, pl_error *err)
{
    const bool whole = data_bytes(c) <= DIGEST_LIMIT_BYTES;
    pl_digest digest;

    PL_TRY(whole ? pl_checkpoint_digest(c, &digest, err)
                 : pl_checkpoint_header_digest(c, &digest, err));
    (void)snprintf(e->checkpoint, sizeof e->checkpoint, "%s%s",
                   whole ? "" : "headers:", digest.text);
    return PL_OK;
}

/* What parsing took is free again, but glibc keeps it; the weights then need the room. */
static void give_heap_back(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

static pl_status open_tokenizer(pl_engine *e, const char *path, pl_error *err)
{
    char file[4096];
    int n = snprintf(file, sizeof file, "%s/tokenizer.json", path);

    PL_CHECK(n > 0 && (size_t)n < sizeof file, err, "model: path is too long (want less than %zu)",
             sizeof file);
    if (access(file, F_OK) == 0)
        PL_TRY(pl_tokenizer_open(file, &e->tokenizer, err));
    give_heap_back();
    return PL_OK;
}

/* ---- memory */

struct touching {
    const pl_mem *memory;
    _Atomic int failed;
};

static void touch_share(void *user, int64_t tile, int worker)
{
    struct touching *t = user;
    const uint64_t begin = (uint64_t)tile * TOUCH_BYTES, left = t->memory->bytes - begin;

    if (pl_mem_touch(t->memory->base + begin, left < TOUCH_BYTES ? left : TOUCH_BYTES, NULL) !=
        PL_OK)
        t->failed = 1;
}

/* Each worker touches its share, so that it lies on its node. */
static pl_status map(pl_engine *e, uint64_t bytes, pl_mem *m, pl_error *err)
{
    struct touching t = {.memory = m};

    PL_TRY(pl_mem_map(bytes, PL_MEM_HUGE, m, err));
    pl_pool_run(e->pool, (int64_t)((m->bytes + TOUCH_BYTES - 1) / TOUCH_BYTES), touch_share, &t);
    /* Once more for the text of the error. */
    return t.failed ? pl_mem_touch(m->base, m->bytes, err) : PL_OK;
}

static pl_status carve(pl_engine *e, pl_error *err)
{
    const pl_engine_shape *s = &e->plan->shape;
    pl_engine_parts parts;
    pl_regions carved;
    pl_arena work, cache;
    pl_status status;

    pl_regions_init(&carved);
    pl_arena_init_dry(&work);
    pl_arena_init_dry(&cache);
    pl__engine_layout(s, &carved, &work, &cache, &parts);
    pl_regions_fini(&carved);
    PL_TRY(map(e, pl_arena_peak_bytes(&cache), &e->cache_memory, err));
    PL_TRY(map(e, pl_arena_peak_bytes(&work), &e->work_memory, err));
    pl_arena_init(&e->cache, e->cache_memory.base, pl_arena_peak_bytes(&cache));
    pl_arena_init(&e->work, e->work_memory.base, pl_arena_peak_bytes(&work));
    pl_regions_init(&carved);
    pl__engine_layout(s, &carved, &e->work, &e->cache, &e->parts);
    status = pl_arena_check(&e->cache, "cache", err);
    if (status == PL_OK)
        status = pl_arena_check(&e->work, "engine", err);
    if (status == PL_OK)
        status = pl_regions_check(&carved, &e->work, err);
    if (status == PL_OK)
        status = pl_regions_compare(&e->plan->regions, &carved, err);
    pl_regions_fini(&carved);
    return status;
}

/* ---- opening */

static pl_status open_with(pl_engine *e, pl_checkpoint *c, const pl_engine_params *params,
                           pl_error *err)
{
    const pl_engine_shape *s = &e->plan->shape;
    pl_load_params load = {.layout = pl_ops_layout(e->plan->level)};

    PL_TRY(pl_load_mode_parse(params->load, &load.mode, err));
    PL_TRY(read_digest(e, c, err));
    PL_TRY(open_tokenizer(e, pl_checkpoint_path(c), err));
    PL_TRY(pl_pool_create(&(pl_pool_params){.n_workers = s->n_workers, .no_pin = params->no_pin},
                          &e->pool, err));
    if (s->limits.n_ranks > 1)
        PL_TRY(pl_ranks_create(s->limits.n_ranks, &e->ranks, err));
    PL_TRY(carve(e, err));
    PL_TRY(map(e, pl_weights_bytes(c), &e->weights_memory, err));
    pl_checkpoint_on_progress(c, params->on_load, params->on_load_user);
    load.pool = e->pool;
    load.buffers = e->parts.load_buffers;
    PL_TRY(pl_weights_load_as(c, e->weights_memory.base, &load, &e->weights, &e->load, err));
    PL_TRY(pl_forward_init(e->parts.forward, e->weights, s->ops, e->pool, &s->limits, &e->forward,
                           err));
    if (e->ranks)
        PL_TRY(pl_forward_set_ranks(e->forward, e->ranks, err));
    pl__requests_init(e);
    pl__depth_init(e);
    pl__prefix_init(e);
    return PL_OK;
}

static pl_status open_checkpoint(pl_engine *e, pl_checkpoint *c, const pl_engine_params *params,
                                 pl_error *err)
{
    PL_TRY(pl__plan_of_checkpoint(c, params, &e->plan, err));
    PL_TRY(pl_plan_check_fits(e->plan, err));
    if (!pl_checkpoint_has_data(c))
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "%s: holds headers without data: it can be planned for, not run",
                            pl_checkpoint_path(c));
    return open_with(e, c, params, err);
}

pl_status pl_engine_open(const char *path, const pl_engine_params *params, pl_engine **out,
                         pl_error *err)
{
    const double begin = now();
    pl_checkpoint *c;
    pl_engine *e;
    pl_status s;

    *out = NULL;
    PL_CHECK(path && params, err, "engine: no path or no parameters");
    PL_TRY(pl_checkpoint_open(path, &c, err));
    e = calloc(1, sizeof *e);
    s = e ? open_checkpoint(e, c, params, err)
          : pl_error_set(err, PL_ERR_NOMEM, "engine: out of memory");
    pl_checkpoint_close(c);
    if (s != PL_OK) {
        pl_engine_close(e);
        return s;
    }
    e->stats.load_s = now() - begin;
    *out = e;
    return PL_OK;
}

void pl_engine_close(pl_engine *e)
{
    if (!e)
        return;
    pl_weights_close(e->weights);
    if (e->cache_memory.base)
        pl_arena_fini(&e->cache);
    if (e->work_memory.base)
        pl_arena_fini(&e->work);
    pl_mem_unmap(&e->weights_memory);
    pl_mem_unmap(&e->cache_memory);
    pl_mem_unmap(&e->work_memory);
    pl_ranks_destroy(e->ranks);
    pl_pool_destroy(e->pool);
    pl_tokenizer_close(e->tokenizer);
    pl_plan_destroy(e->plan);
    free(e);
}

/* ---- reports */

const pl_plan *pl_engine_plan(const pl_engine *e)
{
    return e->plan;
}

const pl_tokenizer *pl_engine_tokenizer(const pl_engine *e)
{
    return e->tokenizer;
}

pl_engine_model pl_engine_model_of(const pl_engine *e)
{
    return pl_plan_model_of(e->plan);
}

pl_numerics_report pl_engine_numerics(const pl_engine *e)
{
    return (pl_numerics_report){PL_NUMERICS_VERSION, 1, pl_level_name(e->plan->level),
                                e->checkpoint};
}

pl_status pl_engine_memory(const pl_engine *e, pl_memory_report *report, pl_error *err)
{
    pl_mem_usage usage;

    PL_TRY(pl_mem_read_usage(&usage, err));
    report->plan_bytes = e->plan->totals.total_bytes;
    report->peak_resident_bytes = usage.peak_resident_bytes;
    return PL_OK;
}

pl_engine_stats pl_engine_stats_of(const pl_engine *e)
{
    pl_engine_stats s = e->stats;

    s.load_mode = e->load.direct ? "direct" : "buffered";
    s.load_reason = e->load.reason;
    s.running = e->running.n;
    s.queued = e->queue.n;
    s.depth = e->n_depth;
    return s;
}

/* ---- drafts in numbers */

static uint64_t sum_of(const uint64_t counts[PL_MAX_SPECULATIVE])
{
    uint64_t sum = 0;

    for (int i = 0; i < PL_MAX_SPECULATIVE; i++)
        sum += counts[i];
    return sum;
}

/* A step that had drafts had one at position 0. */
double pl_speculation_mean_length(const pl_speculation *s)
{
    return 1 + (s->drafted[0] ? (double)sum_of(s->accepted) / (double)s->drafted[0] : 0);
}

double pl_speculation_acceptance(const pl_speculation *s)
{
    const uint64_t drafted = sum_of(s->drafted);

    return drafted ? (double)sum_of(s->accepted) / (double)drafted : 0;
}
