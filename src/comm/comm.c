/* Ranks as threads of one process. A rank publishes where its copy lies, all meet, each copies what it lacks from
 * the others, all meet again: only then may a copy change.
 *
 * The threads are a pool whose tiles are ranks. This file knows nothing of models: who owns which share is
 * src/model/share.c's business. */
#include "comm/comm.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/pool.h"

struct pl_comm {
    pl_ranks *ranks;
    int rank;
    const uint8_t *base; /* published between two meetings */
};

struct pl_ranks {
    pl_pool *pool;
    pthread_barrier_t meeting;
    pl_rank_fn *fn; /* of the run in progress */
    void *user;
    int n;
    pl_comm comm[];
};

static size_t record_bytes(int n)
{
    return sizeof(pl_ranks) + (size_t)n * sizeof(pl_comm);
}

size_t pl_ranks_heap_bytes(int n)
{
    return record_bytes(n) + pl_pool_heap_bytes(n);
}

size_t pl_ranks_stacks_bytes(int n)
{
    return pl_pool_stacks_bytes(n, 0);
}

pl_status pl_ranks_create(int n, pl_ranks **out, pl_error *err)
{
    pl_ranks *r;
    pl_status s;

    *out = NULL;
    PL_CHECK(n >= 1 && n <= PL_MAX_RANKS, err, "ranks: out of range (got %d, want 1 to %d)", n,
             PL_MAX_RANKS);
    r = calloc(1, record_bytes(n));
    if (!r)
        return pl_error_set(err, PL_ERR_NOMEM, "ranks: out of memory (want %zu bytes)",
                            record_bytes(n));
    r->n = n;
    for (int i = 0; i < n; i++)
        r->comm[i] = (pl_comm){.ranks = r, .rank = i};
    s = pl_pool_create(&(pl_pool_params){.n_workers = n, .no_pin = true, .tiles_meet = true},
                       &r->pool, err);
    if (s == PL_OK && pthread_barrier_init(&r->meeting, NULL, (unsigned)n) != 0) {
        pl_pool_destroy(r->pool);
        s = pl_error_set(err, PL_ERR_NOMEM, "ranks: no memory for their meetings");
    }
    if (s != PL_OK) {
        free(r);
        return s;
    }
    *out = r;
    return PL_OK;
}

void pl_ranks_destroy(pl_ranks *r)
{
    if (!r)
        return;
    pl_pool_destroy(r->pool);
    pthread_barrier_destroy(&r->meeting);
    free(r);
}

int pl_ranks_count(const pl_ranks *r)
{
    return r->n;
}

static void run_rank(void *user, int64_t rank, int worker)
{
    pl_ranks *r = user;

    r->fn(r->user, &r->comm[rank]);
}

void pl_ranks_run(pl_ranks *r, pl_rank_fn *fn, void *user)
{
    r->fn = fn;
    r->user = user;
    pl_pool_run(r->pool, r->n, run_rank, r);
}

int pl_comm_rank(const pl_comm *c)
{
    return c->rank;
}

int pl_comm_n_ranks(const pl_comm *c)
{
    return c->ranks->n;
}

static void meet(pl_comm *c)
{
    (void)pthread_barrier_wait(&c->ranks->meeting);
}

static void copy_band(const pl_comm_bands *b, const uint8_t *from, int64_t begin, int64_t end)
{
    for (int64_t row = 0; begin < end && row < b->n_rows; row++)
        memcpy((uint8_t *)b->base + row * b->row_bytes + begin, from + row * b->row_bytes + begin,
               (size_t)(end - begin));
}

void pl_comm_all_gather(pl_comm *c, const pl_comm_bands *b)
{
    const pl_ranks *r = c->ranks;

    assert(b->begin[0] == 0 && b->begin[r->n] == b->row_bytes);
    if (r->n == 1)
        return;
    c->base = b->base;
    meet(c);
    for (int i = 0; i < r->n; i++)
        if (i != c->rank)
            copy_band(b, r->comm[i].base, b->begin[i], b->begin[i + 1]);
    meet(c);
}
