/* The worker pool: one operator is split into tiles, the tiles are run, everyone meets at the end.
 *
 * A tile is a whole unit of work (rows, heads, keys, experts), never a part of a chain of additions, so
 * which worker runs it and in what order cannot change a bit of the result.
 *
 * Each worker owns a contiguous share of the tiles, always the same for equal counts (its memory stays
 * near it), and helps the others when its own is done. Nothing is allocated after creation. */
#ifndef PL_BASE_POOL_H
#define PL_BASE_POOL_H

#include <stdbool.h>

#include "base/topology.h"
#include "plimsoll/status.h"

enum {
    PL_POOL_MAX_WORKERS = 4096,
    PL_POOL_STACK_BYTES = 256 * 1024,
};

typedef struct pl_pool pl_pool;

typedef struct pl_pool_params {
    int n_workers;      /* the calling thread included; 0: pl_topology_default_threads() */
    size_t stack_bytes; /* of each created thread, whole pages; 0: PL_POOL_STACK_BYTES */
    bool no_pin;        /* leave the placement of threads to the system */
    bool pin_caller;    /* also pin the creating thread, until it destroys the pool; it must be the
                           one that calls pl_pool_run */
    bool
        tiles_meet; /* tiles of a run may wait for each other: up to n_workers of them run at the same time,
                        however few cores there are; idle workers sleep at once */
    const pl_topology *topology; /* borrowed during creation; NULL: read the machine (some ms) */
} pl_pool_params;

/* One tile: 0 <= tile < n_tiles, 0 <= worker < n_workers. Runs in the environment of base/fpenv.h. Two
 * tiles never run at once under the same worker number: scratch may be indexed by it. */
typedef void pl_pool_fn(void *user, int64_t tile, int worker);

/* Starts n_workers - 1 threads, with all signals blocked, and waits until their stacks are touched. With no more workers
 * than usable cores each is pinned to a core of its own, with no more than hardware threads to one of
 * those; with more none is pinned, and waiting workers sleep at once instead of spinning first. On
 * failure *pool is NULL: INVALID for parameters out of range, NOMEM where a thread cannot be made. */
PL_MUST_CHECK pl_status pl_pool_create(const pl_pool_params *params, pl_pool **pool, pl_error *err);

/* Waits for the threads to end; NULL is fine. No run may be in progress. */
void pl_pool_destroy(pl_pool *pool);

int pl_pool_n_workers(const pl_pool *pool);

/* Runs fn once for each tile and returns when all are done; their writes are then visible to the caller.
 * The caller is worker 0, and its floating-point environment is restored before the return. Allocates
 * nothing and cannot fail.
 *
 * Calls from several threads take turns. A call from within a tile of the same pool runs its tiles one
 * after another in place, under the number of the worker it was made from. */
void pl_pool_run(pl_pool *pool, int64_t n_tiles, pl_pool_fn *fn, void *user);

/* Closed forms for the memory plan: what create allocates on the heap, and the stacks' mappings (touched
 * whole; each also has one guard page without memory). */
size_t pl_pool_heap_bytes(int n_workers);
size_t pl_pool_stacks_bytes(int n_workers, size_t stack_bytes);

#endif
