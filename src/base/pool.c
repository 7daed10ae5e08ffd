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
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "base/log.h"

/* Long enough for the serial stretch between two operators of a step, short beside a step. */
enum { SPIN_NS = 50000 };

/* A line of its own, and the one that the prefetcher brings along. */
enum { LINE_BYTES = 128 };

struct slot {
    _Alignas(LINE_BYTES) _Atomic uint64_t claim; /* generation << 32 | tiles left */
    int64_t end;                                 /* tiles left are end - left .. end - 1 */
};

struct worker {
    pl_pool *pool;
    int index;
    pthread_t thread;
};

struct pl_pool {
    int n_workers;
    int n_started; /* threads that exist; n_workers - 1 after creation */
    int max_wake;
    bool spin;
    bool restore_caller;
    cpu_set_t caller_mask;
    pthread_mutex_t turn; /* held during a run */
    pl_pool_fn *fn;       /* the job: written before publication, read under a claim */
    void *user;
    struct worker *workers; /* n_workers; entry 0 is the caller and has no thread */
    struct slot *slots;     /* n_workers */

    _Alignas(LINE_BYTES) _Atomic uint32_t generation;
    _Atomic uint32_t n_sleeping;
    _Atomic bool stop;

    _Alignas(LINE_BYTES) _Atomic uint32_t pending; /* tiles not yet done */
    _Atomic uint32_t caller_sleeps;
};

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
static bool claim_tile(struct slot *slot, int64_t *tile)
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

/* Makes every page of the calling thread's stack resident, as the plan has it. Each byte is written back
 * as it was read, so pages in use are unharmed. */
__attribute__((no_sanitize_address)) static void touch_stack(void)
{
    size_t bytes, page = (size_t)sysconf(_SC_PAGESIZE);
    pthread_attr_t attr;
    void *low;

    if (pthread_getattr_np(pthread_self(), &attr) != 0)
        return;
    if (pthread_attr_getstack(&attr, &low, &bytes) == 0)
        for (volatile char *c = low, *end = c + bytes; c < end; c += page)
            *c = *c;
    pthread_attr_destroy(&attr);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    pl_pool *p = w->pool;
    struct frame frame = {p, w->index, NULL};
    uint32_t seen = 0; /* the generation at creation */
    char name[16];

    snprintf(name, sizeof name, "pl-worker-%d", w->index);
    pthread_setname_np(pthread_self(), name);
    touch_stack();
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

static void wait_for_tiles(pl_pool *p)
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
        wait_for_tiles(p);
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

size_t pl_pool_heap_bytes(int n_workers)
{
    size_t n = (size_t)n_workers;

    return sizeof(pl_pool) + n * sizeof(struct slot) +
           (n * sizeof(struct worker) + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

size_t pl_pool_stacks_bytes(int n_workers, size_t stack_bytes)
{
    return (size_t)(n_workers - 1) * (stack_bytes ? stack_bytes : PL_POOL_STACK_BYTES);
}

/* Pinning is a matter of speed only, so a refusal is logged and not an error. */
static void pin(pthread_t thread, int worker, const pl_topology *t)
{
    cpu_set_t mask;
    int cpu = t->cpus[worker].os_id;

    CPU_ZERO(&mask);
    if (cpu < CPU_SETSIZE)
        CPU_SET(cpu, &mask);
    if (pthread_setaffinity_np(thread, sizeof mask, &mask) != 0)
        pl_log(PL_LOG_WARN, "pin", "worker=%d cpu=%d result=refused", worker, cpu);
}

static pl_status start_thread(pl_pool *p, int index, const pthread_attr_t *attr, pl_error *err)
{
    struct worker *w = &p->workers[index];
    sigset_t all, before;
    int e;

    /* A signal is for the program's own threads; the four below report a fault of this very thread. */
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    e = pthread_create(&w->thread, attr, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e)
        return pl_error_set(err, PL_ERR_NOMEM, "pool: cannot start a thread (got %s, want %d)",
                            strerror(e), p->n_workers - 1);
    p->n_started++;
    return PL_OK;
}

static pl_status start_threads(pl_pool *p, const pl_pool_params *params, const pl_topology *t,
                               pl_error *err)
{
    size_t stack = params->stack_bytes ? params->stack_bytes : PL_POOL_STACK_BYTES;
    bool pinned = !params->no_pin && p->n_workers <= t->n_cpus;
    pthread_attr_t attr;
    pl_status s = PL_OK;
    int e;

    if (pthread_attr_init(&attr) != 0)
        return pl_error_set(err, PL_ERR_NOMEM, "pool: out of memory");
    e = pthread_attr_setstacksize(&attr, stack);
    if (e || stack % (size_t)sysconf(_SC_PAGESIZE))
        s = pl_error_set(
            err, PL_ERR_INVALID,
            "pool: stack_bytes is not possible (got %zu, want whole pages, at least %ld)", stack,
            sysconf(_SC_THREAD_STACK_MIN));
    for (int i = 1; i < p->n_workers && s == PL_OK; i++) {
        s = start_thread(p, i, &attr, err);
        if (s == PL_OK && pinned)
            pin(p->workers[i].thread, i, t);
    }
    pthread_attr_destroy(&attr);
    if (s == PL_OK && params->pin_caller && pinned &&
        pthread_getaffinity_np(pthread_self(), sizeof p->caller_mask, &p->caller_mask) == 0) {
        p->restore_caller = true;
        pin(pthread_self(), 0, t);
    }
    return s;
}

static pl_pool *allocate(int n_workers, const pl_topology *t)
{
    pl_pool *p = aligned_alloc(LINE_BYTES, pl_pool_heap_bytes(n_workers));
    int n_cores = pl_topology_default_threads(t);

    if (!p)
        return NULL;
    memset(p, 0, pl_pool_heap_bytes(n_workers));
    p->n_workers = n_workers;
    p->slots = (struct slot *)(p + 1);
    p->workers = (struct worker *)(p->slots + n_workers);
    for (int i = 0; i < n_workers; i++)
        p->workers[i] = (struct worker){.pool = p, .index = i};
    p->spin = n_workers <= n_cores;
    p->max_wake = p->spin ? n_workers - 1 : n_cores > 2 ? n_cores - 1 : 1;
    pthread_mutex_init(&p->turn, NULL);
    return p;
}

pl_status pl_pool_create(const pl_pool_params *params, pl_pool **pool, pl_error *err)
{
    pl_topology own = {0};
    const pl_topology *t = params->topology;
    int n = params->n_workers;
    pl_pool *p = NULL;
    pl_status s;

    *pool = NULL;
    PL_CHECK(n >= 0 && n <= PL_POOL_MAX_WORKERS, err,
             "pool: n_workers out of range (got %d, want 0..%d)", n, PL_POOL_MAX_WORKERS);
    if (!t) {
        PL_TRY(pl_topology_init(&own, err));
        t = &own;
    }
    if (n == 0)
        n = pl_topology_default_threads(t);
    p = allocate(n, t);
    s = p ? start_threads(p, params, t, err)
          : pl_error_set(err, PL_ERR_NOMEM, "pool: out of memory");
    pl_topology_fini(&own);
    if (s != PL_OK)
        pl_pool_destroy(p);
    else
        *pool = p;
    return s;
}

void pl_pool_destroy(pl_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->generation, 1);
    futex_wake(&p->generation, INT_MAX);
    for (int i = 1; i <= p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    if (p->restore_caller)
        pthread_setaffinity_np(pthread_self(), sizeof p->caller_mask, &p->caller_mask);
    pthread_mutex_destroy(&p->turn);
    free(p);
}
