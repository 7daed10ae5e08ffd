/* Operators over the pool: a range of units is cut into tiles, a few per worker so that uneven ones even
 * out, none so small that handing it over costs more than running it: what is too little for two tiles runs
 * on the calling thread. Which tile a unit lands in never matters to the bits. */
#include "ops/run.h"

enum {
    TILES_PER_WORKER = 4,
    TILE_STEPS = 32768, /* multiply-adds or so, a few microseconds of vector code */
};

void pl_exec_layout(pl_exec *x, pl_arena *arena, const pl_ops *ops, int n_workers,
                    const pl_ops_shape *shape)
{
    uint64_t bytes = ops->scratch_bytes(shape);

    x->ops = ops;
    x->env = pl_arena_array(arena, (size_t)n_workers, sizeof *x->env, 0);
    for (int w = 0; w < n_workers; w++) {
        void *scratch = pl_arena_alloc(arena, bytes, 0);
        if (x->env)
            x->env[w] = (pl_op_env){ops->mode, scratch};
    }
}

/* Units of a tile; `steps` is what one unit costs. */
static int64_t grain_of(const pl_exec *x, int64_t units, int64_t steps)
{
    int64_t tiles = (int64_t)pl_pool_n_workers(x->pool) * TILES_PER_WORKER;
    int64_t grain = (units + tiles - 1) / tiles, least = TILE_STEPS / (steps > 0 ? steps : 1);

    grain = grain > least ? grain : least;
    return grain > 0 ? grain : 1;
}

typedef struct run {
    const pl_exec *x;
    const void *args;
    int64_t units, grain;
} run;

static void run_tiles(const pl_exec *x, pl_profile_op op, int64_t n_tiles, pl_pool_fn *fn,
                      void *user)
{
    if (x->profile)
        pl__profile_run(x->profile, op, x->pool, n_tiles, fn, user);
    else
        pl_pool_run(x->pool, n_tiles, fn, user);
}

/* Heads of a token that one tile should take together, since they share what is prepared of its keys: half of them
 * again and again while there are more than kernels take at once, or fewer pieces than workers. */
static int64_t heads_together(const pl_exec *x, int64_t units, int64_t n_heads)
{
    enum { MOST = 32, LEAST = 4 };
    int64_t n = n_heads;

    while (n > MOST || (n > LEAST && units / n < pl_pool_n_workers(x->pool)))
        n = (n + 1) / 2;
    return n;
}

/* Tiles are multiples of `together` units. */
static void run_units(const pl_exec *x, pl_profile_op op, pl_pool_fn *fn, const void *args,
                      int64_t units, int64_t steps, int64_t together)
{
    int64_t grain = grain_of(x, units, steps);
    run r = {x, args, units, (grain + together - 1) / together * together};

    if (units > 0)
        run_tiles(x, op, (units + r.grain - 1) / r.grain, fn, &r);
}

/* pl_run_NAME: `count` units of about `steps` each, expressions of a and n (which is not 0). */
#define PL_DEFINE_RUN(op, count, steps) PL_DEFINE_RUN_BY(op, count, steps, 1)
#define PL_DEFINE_RUN_BY(op, count, steps, together)                                   \
    static void op##_tile(void *user, int64_t tile, int worker)                        \
    {                                                                                  \
        const run *r = user;                                                           \
        int64_t begin = tile * r->grain, end = begin + r->grain;                       \
                                                                                       \
        r->x->ops->op(&r->x->env[worker], (const pl_##op##_args *)r->args, begin,      \
                      end < r->units ? end : r->units);                                \
    }                                                                                  \
    void pl_run_##op(const pl_exec *x, const pl_##op##_args *a, int64_t n)             \
    {                                                                                  \
        if (n > 0)                                                                     \
            run_units(x, PL_PROFILE_##op, op##_tile, a, (count), (steps), (together)); \
    }

PL_DEFINE_RUN(embed, n, a->n_copies * a->embed.cols)
PL_DEFINE_RUN(hc_dots, n *(a->fn.rows + 1), a->fn.cols)
PL_DEFINE_RUN(hc_pre, n, 4 * a->dim + 4096)
PL_DEFINE_RUN(hc_post, n, 20 * a->dim)
PL_DEFINE_RUN(hc_head, n, 4 * a->dim)
PL_DEFINE_RUN(mtp_join, n, 4 * a->dim)
PL_DEFINE_RUN(rms_norm, n, 4 * a->dim)
PL_DEFINE_RUN(rope_angles, n, 2048)
PL_DEFINE_RUN(q_norm_rope, n * a->n_heads, 4 * PL_HEAD_DIM)
PL_DEFINE_RUN(unrope, n * a->n_heads, PL_HEAD_DIM)
PL_DEFINE_RUN(quantise, n, 4 * a->dim)
PL_DEFINE_RUN(kv_store, n, 4 * PL_HEAD_DIM)
PL_DEFINE_RUN_BY(attention, n * a->n_heads, 2 * PL_WINDOW * PL_HEAD_DIM,
                 heads_together(x, n * a->n_heads, a->n_heads))
PL_DEFINE_RUN(compress, n *(a->dim / PL_COMPRESS_TILE), 64 * PL_COMPRESS_TILE * a->jobs[0].n)
PL_DEFINE_RUN(key_store, n, 16 * PL_INDEX_DIM)
PL_DEFINE_RUN(index_query, n * a->n_heads, 16 * PL_INDEX_DIM)
PL_DEFINE_RUN(index_topk, n * a->n_parts,
              (a->position[0] / 4 / a->n_parts + 1) * (int64_t)a->n_heads * PL_INDEX_DIM)
PL_DEFINE_RUN(index_merge, n, 64 * a->n_parts * a->topk)
PL_DEFINE_RUN(route, n, 64 * a->n_experts)
PL_DEFINE_RUN(route_weights, n, 16 * a->top_k)
PL_DEFINE_RUN(swiglu, n, 32 * a->dim)
PL_DEFINE_RUN(moe_sum, n, (a->top_k + 1) * a->dim)
PL_DEFINE_RUN(moe_parts, n, (a->top_k + 1) * a->dim)
PL_DEFINE_RUN(shard_sum, n, (a->n_shards + 1) * a->dim)

static pl_linear_fn *linear_of(const pl_ops *ops, const pl_linear_job *job)
{
    switch (job->w.format) {
    case PL_WEIGHT_FP8_E8M0:
    case PL_WEIGHT_FP8_F32:
        return job->a16 ? ops->linear_fp8_a16 : ops->linear_fp8;
    case PL_WEIGHT_FP4:
        return ops->linear_fp4;
    default:
        return ops->linear_bf16;
    }
}

static pl_profile_op kind_of(const pl_linear_job *job)
{
    switch (job->w.format) {
    case PL_WEIGHT_FP8_E8M0:
    case PL_WEIGHT_FP8_F32:
        return job->a16 ? PL_PROFILE_linear_fp8_a16 : PL_PROFILE_linear_fp8;
    case PL_WEIGHT_FP4:
        return PL_PROFILE_linear_fp4;
    default:
        return PL_PROFILE_linear_bf16;
    }
}

/* The jobs' tiles of 16 rows stand in one row; job->first_unit is where a job's begin. */
typedef struct linear_run {
    const pl_exec *x;
    const pl_linear_job *jobs;
    int32_t n_jobs;
    int64_t units, grain;
} linear_run;

static int64_t job_end(const linear_run *r, int32_t j)
{
    return j + 1 < r->n_jobs ? r->jobs[j + 1].first_unit : r->units;
}

/* The job that unit u belongs to. */
static int32_t find_job(const linear_run *r, int64_t u)
{
    int32_t lo = 0, hi = r->n_jobs - 1;

    while (lo < hi) {
        int32_t mid = (lo + hi + 1) / 2;
        if (r->jobs[mid].first_unit <= u)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

static void run_rows(const pl_exec *x, int worker, const pl_linear_job *job, int64_t begin,
                     int64_t end)
{
    double from = x->profile ? pl__profile_now() : 0;

    linear_of(x->ops, job)(&x->env[worker], job, begin, end);
    if (x->profile)
        x->profile->worker[worker].linear_ns[kind_of(job) - PL_PROFILE_LINEAR] +=
            pl__profile_now() - from;
}

static void linear_tile(void *user, int64_t tile, int worker)
{
    const linear_run *r = user;
    int64_t begin = tile * r->grain, end = begin + r->grain;

    end = end < r->units ? end : r->units;
    for (int32_t j = find_job(r, begin); begin < end; j++) {
        const pl_linear_job *job = &r->jobs[j];
        int64_t stop = job_end(r, j) < end ? job_end(r, j) : end;

        if (stop > begin)
            run_rows(r->x, worker, job, begin - job->first_unit, stop - job->first_unit);
        begin = stop > begin ? stop : begin;
    }
}

void pl_run_linear(const pl_exec *x, pl_linear_job *jobs, int32_t n_jobs)
{
    linear_run r = {x, jobs, n_jobs, 0, 0};
    int64_t steps = 0;

    for (int32_t j = 0; j < n_jobs; j++) {
        jobs[j].first_unit = r.units;
        if (jobs[j].n > 0)
            r.units += (jobs[j].n_rows + PL_TILE_ROWS - 1) / PL_TILE_ROWS;
        steps += jobs[j].n_rows * jobs[j].w.cols * jobs[j].n;
    }
    r.grain = grain_of(x, r.units, r.units ? steps / r.units : 0);
    if (r.units > 0)
        run_tiles(x, (pl_profile_op)PL_PROFILE_LINEAR, (r.units + r.grain - 1) / r.grain,
                  linear_tile, &r);
}
