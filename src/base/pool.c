/* The worker pool.
 *
 * A run is published in three steps: job and `pending`, then one claim word per worker, then the
 * generation number that idle workers watch. A claim word holds (generation, tiles left) and is taken from
 * by compare-and-swap, by its owner and by helpers alike. A worker reads the job only after a successful
 * claim: the claimed tile is pending, so the job cannot change under it. That is why nobody needs to wait
 * for workers that slept through a run, and why 64 workers on two cores cost little: only as many are woken
 * as there are cores.
 *
 * A stale claim could succeed only if a worker stopped between load and swap for exactly 2^32 runs.
 *
 * Waiting is on two futexes: `generation` for workers, `pending` for the caller. Each waker changes the word
 * first and then looks at the counter of sleepers, each sleeper counts itself first and then looks at the
 * word; all four are sequentially consistent, so one of the two always sees the other. */
#include "base/pool.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fpenv.h"
#include "base/pool_internal.h"

/* Long enough for the serial stretch between two operators of a step, short beside a step. */
enum { SPIN_NS = 50000 };

/* The run that this thread is inside of: how a nested call is recognised. */
struct frame {
    pl_pool *pool;
    int worker;
    struct frame *outer;
};

static _Thread_local struct frame *innermost;

static void futex_wait(_Atomic uint32_t *word, uint32_t expected)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* True as soon as (*word == value) is `equal`; false when the time is up. */
static bool spin_until(const _Atomic uint32_t *word, uint32_t value, bool equal)
{
    int64_t until = now_ns() + SPIN_NS;

    do {
        for (int i = 0; i < 32; i++) {
            if ((atomic_load_explicit(word, memory_order_acquire) == value) == equal)
                return true;
            __builtin_ia32_pause();
        }
    } while (now_ns() < until);
    return false;
}

/* On success the caller owns *tile and may read the job. */
static bool claim_tile(struct pl__pool_slot *slot, int64_t *tile)
{
    uint64_t c = atomic_load_explicit(&slot->claim, memory_order_acquire);

    while ((uint32_t)c != 0) {
        if (atomic_compare_exchange_weak_explicit(&slot->claim, &c, c - 1, memory_order_acquire,
                                                  memory_order_acquire)) {
            *tile = slot->end - (int64_t)(uint32_t)c;
            return true;
        }
    }
    return false;
}

static void report_done(pl_pool *p, uint32_t n)
{
    if (atomic_fetch_sub(&p->pending, n) == n && atomic_load(&p->caller_sleeps))
        futex_wake(&p->pending, 1);
}

/* Own share first, then the neighbours'. */
static void work(pl_pool *p, int worker)
{
    uint32_t n_done = 0;
    int64_t tile;

    for (int i = 0, s = worker; i < p->n_workers; i++) {
        while (claim_tile(&p->slots[s], &tile)) {
            p->fn(p->user, tile, worker);
            assert(pl_fpenv_is_set());
            n_done++;
        }
        if (++s == p->n_workers)
            s = 0;
    }
    if (n_done)
        report_done(p, n_done);
}

/* Returns with a generation other than `seen`. */
static uint32_t wait_for_work(pl_pool *p, uint32_t seen)
{
    uint32_t g;

    if (p->spin && spin_until(&p->generation, seen, false))
        return atomic_load(&p->generation);
    atomic_fetch_add(&p->n_sleeping, 1);
    while ((g = atomic_load(&p->generation)) == seen)
        futex_wait(&p->generation, seen);
    atomic_fetch_sub(&p->n_sleeping, 1);
    return g;
}

void *pl__pool_worker_main(void *arg)
{
    struct pl__pool_worker *w = arg;
    pl_pool *p = w->pool;
    struct frame frame = {p, w->index, NULL};
    uint32_t seen = 0; /* the generation at creation */
    char name[16];

    snprintf(name, sizeof name, "pl-worker-%d", w->index);
    pthread_setname_np(pthread_self(), name);
    /* By this thread, so that its memory node holds it. */
    w->start = pl_mem_touch(w->stack, p->stack_bytes, NULL);
    report_done(p, 1); /* the creator waits for it */
    innermost = &frame;
    for (;;) {
        seen = wait_for_work(p, seen);
        if (atomic_load(&p->stop))
            break;
        pl_fpenv_begin();
        work(p, w->index);
    }
    innermost = NULL;
    return NULL;
}

/* Worker s owns tiles n s/W .. n (s+1)/W - 1, counted from `first`. */
static void publish(pl_pool *p, int64_t first, uint32_t n_tiles)
{
    uint32_t g = atomic_load_explicit(&p->generation, memory_order_relaxed) + 1;
    int64_t n = n_tiles, w = p->n_workers, begin = 0;

    atomic_store_explicit(&p->pending, n_tiles, memory_order_relaxed);
    for (int64_t s = 0; s < w; s++) {
        int64_t end = n * (s + 1) / w;
        p->slots[s].end = first + end;
        atomic_store_explicit(&p->slots[s].claim, (uint64_t)g << 32 | (uint64_t)(end - begin),
                              memory_order_release);
        begin = end;
    }
    atomic_store(&p->generation, g);
    if (atomic_load(&p->n_sleeping) > 0)
        futex_wake(&p->generation, n - 1 < p->max_wake ? (int)(n - 1) : p->max_wake);
}

void pl__pool_wait(pl_pool *p)
{
    uint32_t left;

    if (p->spin && spin_until(&p->pending, 0, true))
        return;
    atomic_store(&p->caller_sleeps, 1);
    while ((left = atomic_load(&p->pending)) != 0)
        futex_wait(&p->pending, left);
    atomic_store(&p->caller_sleeps, 0);
}

static void run_in_place(int64_t n_tiles, pl_pool_fn *fn, void *user, int worker)
{
    for (int64_t i = 0; i < n_tiles; i++)
        fn(user, i, worker);
}

static void run_parallel(pl_pool *p, int64_t n_tiles, pl_pool_fn *fn, void *user)
{
    p->fn = fn;
    p->user = user;
    for (int64_t first = 0; first < n_tiles; first += INT32_MAX) {
        int64_t left = n_tiles - first;
        publish(p, first, (uint32_t)(left < INT32_MAX ? left : INT32_MAX));
        work(p, 0);
        pl__pool_wait(p);
    }
}

void pl_pool_run(pl_pool *p, int64_t n_tiles, pl_pool_fn *fn, void *user)
{
    struct frame frame = {p, 0, innermost};
    pl_fpenv saved;

    for (const struct frame *f = innermost; f; f = f->outer) {
        if (f->pool == p) {
            run_in_place(n_tiles, fn, user, f->worker);
            return;
        }
    }
    pthread_mutex_lock(&p->turn);
    innermost = &frame;
    saved = pl_fpenv_begin();
    if (n_tiles <= 1 || p->n_workers == 1)
        run_in_place(n_tiles, fn, user, 0);
    else
        run_parallel(p, n_tiles, fn, user);
    pl_fpenv_end(saved);
    innermost = frame.outer;
    pthread_mutex_unlock(&p->turn);
}

int pl_pool_n_workers(const pl_pool *p)
{
    return p->n_workers;
}

void pl__pool_stop(pl_pool *p)
{
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->generation, 1);
    futex_wake(&p->generation, INT_MAX);
}
