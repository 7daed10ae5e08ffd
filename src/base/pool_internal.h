/* Inside of the pool: what pool.c (running) and pool_threads.c (creation) share. */
#ifndef PL_BASE_POOL_INTERNAL_H
#define PL_BASE_POOL_INTERNAL_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/meminfo.h"
#include "base/pool.h"

/* A line of its own, and the one that the prefetcher brings along. */
enum { PL__POOL_LINE_BYTES = 128 };

struct pl__pool_slot {
    _Alignas(PL__POOL_LINE_BYTES) _Atomic uint64_t claim; /* generation << 32 | tiles left */
    int64_t end;                                          /* tiles left are end - left .. end - 1 */
};

struct pl__pool_worker {
    pl_pool *pool;
    int index;
    pthread_t thread;
    uint8_t *stack;  /* of stack_bytes bytes, a guard page below; NULL for the caller */
    pl_status start; /* of touching the stack; read after pending became 0 */
};

struct pl_pool {
    int n_workers;
    int n_started; /* threads that exist; n_workers - 1 after creation */
    int max_wake;
    bool spin;
    bool restore_caller;
    size_t stack_bytes;
    pl_mem stacks;
    cpu_set_t caller_mask;
    pthread_mutex_t turn; /* held during a run */
    pl_pool_fn *fn;       /* the job: written before publication, read under a claim */
    void *user;
    struct pl__pool_worker *workers; /* n_workers; entry 0 is the caller and has no thread */
    struct pl__pool_slot *slots;     /* n_workers */

    _Alignas(PL__POOL_LINE_BYTES) _Atomic uint32_t generation;
    _Atomic uint32_t n_sleeping;
    _Atomic bool stop;

    _Alignas(PL__POOL_LINE_BYTES) _Atomic uint32_t pending; /* tiles not yet done */
    _Atomic uint32_t caller_sleeps;
};

/* What a created thread runs; arg is its struct pl__pool_worker. Reports one tile done once it has started. */
void *pl__pool_worker_main(void *arg);

/* Waits until `pending` is 0. */
void pl__pool_wait(pl_pool *p);

/* Makes all created threads end. */
void pl__pool_stop(pl_pool *p);

#endif
