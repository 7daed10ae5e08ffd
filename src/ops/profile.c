/* The clock on operators: wraps one run of the pool and the tiles in it.
 *
 * Two readings of the monotonic clock for each tile, none of them shared between workers. What a step does between
 * operators is no operator's: whoever times the step subtracts. */
#include "ops/profile.h"

#include <string.h>
#include <time.h>

static const char *const names[PL_PROFILE_COUNT] = {
#define NAME(name) #name,
    PL_PROFILE_MAP(NAME)
#undef NAME
};

const char *pl_profile_name(pl_profile_op op)
{
    return names[op];
}

size_t pl_profile_bytes(int n_workers)
{
    return sizeof(pl_profile) + (size_t)n_workers * sizeof(pl_profile_worker);
}

void pl_profile_reset(pl_profile *p, int n_workers)
{
    memset(p, 0, pl_profile_bytes(n_workers));
    p->n_workers = n_workers;
}

double pl__profile_now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

struct timed {
    pl_profile *p;
    pl_pool_fn *fn;
    void *user;
};

static void timed_tile(void *user, int64_t tile, int worker)
{
    const struct timed *t = user;
    const double begin = pl__profile_now();

    t->fn(t->user, tile, worker);
    t->p->worker[worker].busy_ns += pl__profile_now() - begin;
}

static double busy_of(const pl_profile *p)
{
    double sum = 0;

    for (int w = 0; w < p->n_workers; w++)
        sum += p->worker[w].busy_ns;
    return sum;
}

/* Wall time of a run, by operator. */
static void share_out(pl_profile *p, double wall)
{
    double of[PL_PROFILE_COUNT] = {0}, sum = 0;

    for (int w = 0; w < p->n_workers; w++)
        for (int op = 0; op < PL_PROFILE_COUNT; op++) {
            of[op] += p->worker[w].op_ns[op];
            sum += p->worker[w].op_ns[op];
            p->worker[w].op_ns[op] = 0;
        }
    for (int op = 0; op < PL_PROFILE_COUNT; op++) {
        if (!(of[op] > 0))
            continue;
        p->op[op].calls++;
        p->op[op].wall_ns += wall * of[op] / sum;
    }
}

void pl__profile_run(pl_profile *p, pl_pool *pool, int64_t n_tiles, pl_pool_fn *fn, void *user)
{
    struct timed t = {p, fn, user};
    const double busy = busy_of(p), begin = pl__profile_now();
    double wall;

    pl_pool_run(pool, n_tiles, timed_tile, &t);
    wall = pl__profile_now() - begin;
    p->wall_ns += wall;
    if (n_tiles > 1 && p->n_workers > 1) {
        p->regions++;
        p->region_ns += wall;
        p->busy_ns += busy_of(p) - busy;
    }
    share_out(p, wall);
}
