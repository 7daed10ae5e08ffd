/* Operators over the pool: what can run side by side, chains of operators and lists of linear layers, is cut into tiles,
 * a few per worker so that uneven ones even out, none so small that handing it over costs more than running it: what is
 * too little for two tiles runs on the calling thread. Which tile a unit lands in never matters to the bits. */
#include "ops/run.h"

#include <assert.h>

#include "ops/run_internal.h"

enum {
    TILES_PER_WORKER = 4,
    TILE_STEPS = 32768, /* multiply-adds or so, a few microseconds of vector code */
    MATRIX_ROWS = 16,   /* rows of a tile that reads a whole matrix, where there are as many */
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

/* A piece; links over a range of rows, or of the units that all of them count in; or a list of linear layers. Its tiles
 * follow those of the part before. */
typedef struct part {
    const pl_piece *piece;
    const pl_link *links; /* NULL, and no piece: linear layers */
    int32_t n_links;
    bool by_row;
    int64_t units, steps; /* steps of a unit */
    int64_t least;        /* units of a tile */
    int64_t together;     /* of which it has a multiple */
    int64_t grain, first_tile, n_tiles;
} part;

/* The jobs' tiles of 16 rows stand in one row; job->first_unit is where a job's begin. */
typedef struct linear_list {
    const pl_linear_job *jobs;
    int32_t n_jobs;
    int64_t units;
} linear_list;

typedef struct region {
    const pl_exec *x;
    linear_list linear;
    int32_t n_parts;
    part part[PL_TOGETHER_CHAINS + PL_TOGETHER_PIECES + 1];
} region;

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

pl_profile_op pl__linear_op(const pl_linear_job *job)
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

void pl_call_linear(const pl_exec *x, int worker, const pl_linear_job *job, int64_t begin,
                    int64_t end)
{
    double from = x->profile ? pl__profile_now() : 0;

    linear_of(x->ops, job)(&x->env[worker], job, begin, end);
    if (x->profile)
        x->profile->worker[worker].op_ns[pl__linear_op(job)] += pl__profile_now() - from;
}

static int64_t job_end(const linear_list *l, int32_t j)
{
    return j + 1 < l->n_jobs ? l->jobs[j + 1].first_unit : l->units;
}

/* The job that unit u belongs to. */
static int32_t find_job(const linear_list *l, int64_t u)
{
    int32_t lo = 0, hi = l->n_jobs - 1;

    while (lo < hi) {
        int32_t mid = (lo + hi + 1) / 2;
        if (l->jobs[mid].first_unit <= u)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

static void run_jobs(const pl_exec *x, int worker, const linear_list *l, int64_t begin, int64_t end)
{
    for (int32_t j = find_job(l, begin); begin < end; j++) {
        const pl_linear_job *job = &l->jobs[j];
        int64_t stop = job_end(l, j) < end ? job_end(l, j) : end;

        if (stop > begin)
            pl_call_linear(x, worker, job, begin - job->first_unit, stop - job->first_unit);
        begin = stop > begin ? stop : begin;
    }
}

/* Some of the tokens of a linear layer. */
static void run_tokens(const pl_exec *x, int worker, pl_linear_job job, int64_t begin, int64_t end)
{
    job.x = (const uint8_t *)job.x + begin * job.x_stride;
    job.y = (uint8_t *)job.y + begin * job.y_stride;
    job.n = (int32_t)(end - begin);
    pl_call_linear(x, worker, &job, 0, (job.n_rows + PL_TILE_ROWS - 1) / PL_TILE_ROWS);
}

static void run_link(const pl_exec *x, int worker, const pl_link *l, int64_t begin, int64_t end)
{
    if (l->unit == PL_UNIT_MATRIX) {
        run_tokens(x, worker, l->args.linear, begin, end);
        return;
    }
    switch (l->op) {
#define PL_CALL(name, unit, per, steps)                       \
    case PL_PROFILE_##name:                                   \
        pl_call_##name(x, worker, &l->args.name, begin, end); \
        break;
        PL_OPERATOR_MAP(PL_CALL)
#undef PL_CALL
    default:
        assert(!"no operator over rows");
    }
}

static void run_part(const region *r, const part *p, int64_t begin, int64_t end, int worker)
{
    if (p->piece) {
        p->piece->fn(r->x, worker, p->piece->user, begin, end);
        return;
    }
    if (!p->links) {
        run_jobs(r->x, worker, &r->linear, begin, end);
        return;
    }
    for (int32_t i = 0; i < p->n_links; i++) {
        const int64_t per = p->by_row ? p->links[i].per : 1;

        run_link(r->x, worker, &p->links[i], begin * per, end * per);
    }
}

static void tile_of(void *user, int64_t tile, int worker)
{
    const region *r = user;
    const part *p = r->part;
    int64_t begin, end;

    while (tile >= p->first_tile + p->n_tiles)
        p++;
    begin = (tile - p->first_tile) * p->grain;
    end = begin + p->grain;
    run_part(r, p, begin, end < p->units ? end : p->units, worker);
}

/* All of it, on one worker. */
static void whole(void *user, int64_t tile, int worker)
{
    const region *r = user;

    for (int32_t i = 0; i < r->n_parts; i++)
        run_part(r, &r->part[i], 0, r->part[i].units, worker);
}

/* Tiles of a part by its share of all steps. Returns the first tile behind it. */
static int64_t cut(part *p, int64_t first_tile, double share, int64_t tiles)
{
    const int64_t wanted = (int64_t)((double)tiles * share + 0.5), mine = wanted > 1 ? wanted : 1;
    const int64_t small = TILE_STEPS / (p->steps > 0 ? p->steps : 1);

    p->grain = (p->units + mine - 1) / mine;
    p->grain = p->grain > small ? p->grain : small;
    p->grain = p->grain > p->least ? p->grain : p->least;
    p->grain = (p->grain + p->together - 1) / p->together * p->together;
    p->first_tile = first_tile;
    p->n_tiles = (p->units + p->grain - 1) / p->grain;
    return first_tile + p->n_tiles;
}

static void run_region(region *r)
{
    const pl_exec *x = r->x;
    const int64_t tiles = (int64_t)pl_pool_n_workers(x->pool) * TILES_PER_WORKER;
    double steps = 0;
    int64_t n = 0;

    for (int32_t i = 0; i < r->n_parts; i++)
        steps += (double)r->part[i].units * (double)r->part[i].steps;
    for (int32_t i = 0; i < r->n_parts; i++) {
        part *p = &r->part[i];
        n = cut(p, n, (double)p->units * (double)p->steps / (steps > 1 ? steps : 1), tiles);
    }
    if (n == 0)
        return;
    if (steps < 2.0 * TILE_STEPS)
        n = 1;
    if (x->profile)
        pl__profile_run(x->profile, x->pool, n, n > 1 ? tile_of : whole, r);
    else
        pl_pool_run(x->pool, n, n > 1 ? tile_of : whole, r);
}

static bool has_matrix(const pl_link *links, int32_t n_links)
{
    for (int32_t i = 0; i < n_links; i++)
        if (links[i].unit == PL_UNIT_MATRIX)
            return true;
    return false;
}

/* Heads of a token that one tile should take together, since attention shares among them what it prepares of the token's
 * keys: half of them again and again while there are more than kernels take at once, or fewer pieces than workers. */
static int64_t heads_together(const pl_exec *x, const pl_link *links, int32_t n_links,
                              int64_t units)
{
    enum { MOST = 32, LEAST = 4 };
    bool shared = false;
    int64_t n = links->per;

    for (int32_t i = 0; i < n_links; i++)
        shared |= links[i].op == PL_PROFILE_attention;
    while (shared && (n > MOST || (n > LEAST && units / n < pl_pool_n_workers(x->pool))))
        n = (n + 1) / 2;
    return shared ? n : 1;
}

static void add_links(region *r, const pl_link *links, int32_t n_links, int64_t n, bool by_row)
{
    const int64_t workers = pl_pool_n_workers(r->x->pool), share = (n + workers - 1) / workers;
    part *p = &r->part[r->n_parts];

    /* A rank may have no heads. */
    if (n <= 0 || n_links == 0 || (!by_row && links->per == 0))
        return;
    *p = (part){.links = links,
                .n_links = n_links,
                .by_row = by_row,
                .units = n,
                .least = 1,
                .together = 1};
    if (!by_row) {
        p->units *= links->per;
        p->together = heads_together(r->x, links, n_links, p->units);
    }
    for (int32_t i = 0; i < n_links; i++)
        p->steps += (by_row ? links[i].per : 1) * links[i].steps;
    if (has_matrix(links, n_links))
        p->least = share < MATRIX_ROWS ? share : MATRIX_ROWS;
    r->n_parts++;
}

static void add_linear(region *r, pl_linear_job *jobs, int32_t n_jobs)
{
    int64_t steps = 0, units = 0;

    for (int32_t j = 0; j < n_jobs; j++) {
        jobs[j].first_unit = units;
        if (jobs[j].n > 0)
            units += (jobs[j].n_rows + PL_TILE_ROWS - 1) / PL_TILE_ROWS;
        steps += jobs[j].n_rows * jobs[j].w.cols * jobs[j].n;
    }
    if (!units)
        return;
    r->linear = (linear_list){jobs, n_jobs, units};
    r->part[r->n_parts++] =
        (part){.units = units, .steps = steps / units, .least = 1, .together = 1};
}

void pl_run_linear(const pl_exec *x, pl_linear_job *jobs, int32_t n_jobs)
{
    region r = {.x = x};

    add_linear(&r, jobs, n_jobs);
    run_region(&r);
}

static bool is_of_one_unit(const pl_link *links, int32_t n_links)
{
    for (int32_t i = 1; i < n_links; i++)
        if (links[i].unit != links->unit || links[i].per != links->per)
            return false;
    return links->unit != PL_UNIT_MATRIX;
}

void pl__run_links(const pl_exec *x, const pl_link *links, int32_t n_links, int64_t n)
{
    region r = {.x = x};

    assert(is_of_one_unit(links, n_links));
    add_links(&r, links, n_links, n, false);
    run_region(&r);
}

bool pl_rows_are_many(const pl_exec *x, int64_t n_rows)
{
    const int64_t workers = pl_pool_n_workers(x->pool);

    return workers == 1 || n_rows >= 2 * workers;
}

/* Few rows: as many links at a time as count in the same. */
static void run_pieces(const pl_exec *x, pl_chain *c)
{
    for (int32_t i = 0, n; i < c->n_links; i += n) {
        n = 1;
        if (c->link[i].unit == PL_UNIT_MATRIX) {
            pl_run_linear(x, &c->link[i].args.linear, 1);
            continue;
        }
        while (i + n < c->n_links && is_of_one_unit(c->link + i, n + 1))
            n++;
        pl__run_links(x, c->link + i, n, c->n_rows);
    }
}

void pl_chain_run(const pl_exec *x, pl_chain *c)
{
    region r = {.x = x};

    if (pl_rows_are_many(x, c->n_rows)) {
        add_links(&r, c->link, c->n_links, c->n_rows, true);
        run_region(&r);
    } else {
        run_pieces(x, c);
    }
    c->n_links = 0;
}

void pl_run_together(const pl_exec *x, const pl_together *t)
{
    region r = {.x = x};

    assert(t->n_chains <= PL_TOGETHER_CHAINS && t->n_pieces <= PL_TOGETHER_PIECES);
    for (int32_t i = 0; i < t->n_chains; i++) {
        pl_chain *c = t->chains[i];

        if (c->n_links)
            add_links(&r, c->link, c->n_links, c->n_rows, !is_of_one_unit(c->link, c->n_links));
    }
    for (int32_t i = 0; i < t->n_pieces; i++)
        if (t->pieces[i].units > 0)
            r.part[r.n_parts++] = (part){
                .piece = &t->pieces[i],
                .units = t->pieces[i].units,
                .steps = t->pieces[i].steps,
                .least = 1,
                .together = 1,
            };
    add_linear(&r, t->jobs, t->n_jobs);
    run_region(&r);
    for (int32_t i = 0; i < t->n_chains; i++)
        t->chains[i]->n_links = 0;
}

bool pl_pieces_are_many(const pl_exec *x, int64_t units)
{
    return units >= (int64_t)pl_pool_n_workers(x->pool) * TILES_PER_WORKER;
}
