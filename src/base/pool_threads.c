/* Creating and destroying the pool: memory, stacks, pinning.
 *
 * Stacks are one mapping of our own, so that the plan's number is the whole truth: the C library's would be
 * cached after a thread ends and be touched little by little. Below each lies a guard page. Everything is
 * allocated here, nothing later. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/pool_internal.h"

/* TSAN keeps its per-thread tables on the stack. They are no part of the plan, as red zones are none. */
#if defined(__SANITIZE_THREAD__)
#define WITH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_TSAN 1
#endif
#endif
#ifdef WITH_TSAN
enum { SANITIZER_BYTES = 2 << 20 };
#else
enum { SANITIZER_BYTES = 0 };
#endif

size_t pl_pool_heap_bytes(int n_workers)
{
    size_t n = (size_t)n_workers, line = PL__POOL_LINE_BYTES;

    return sizeof(pl_pool) + n * sizeof(struct pl__pool_slot) +
           (n * sizeof(struct pl__pool_worker) + line - 1) / line * line;
}

size_t pl_pool_stacks_bytes(int n_workers, size_t stack_bytes)
{
    return (size_t)(n_workers - 1) * (stack_bytes ? stack_bytes : PL_POOL_STACK_BYTES);
}

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static pl_status map_stacks(pl_pool *p, pl_error *err)
{
    size_t step = p->stack_bytes + page_bytes();

    PL_TRY(pl_mem_map((uint64_t)(p->n_workers - 1) * step, 0, &p->stacks, err));
    for (int i = 1; i < p->n_workers; i++) {
        uint8_t *guard = p->stacks.base + (size_t)(i - 1) * step;
        if (mprotect(guard, page_bytes(), PROT_NONE) != 0)
            return pl_error_set(err, PL_ERR_NOMEM, "pool: cannot protect a stack (got %s)",
                                strerror(errno));
        p->workers[i].stack = guard + page_bytes();
    }
    return PL_OK;
}

static cpu_set_t one_cpu(const pl_topology_cpu *cpu)
{
    cpu_set_t mask;

    CPU_ZERO(&mask);
    if (cpu->os_id < CPU_SETSIZE)
        CPU_SET(cpu->os_id, &mask);
    return mask;
}

/* Pinning is a matter of speed only, so a refusal is logged and not an error. */
static void log_refused_pin(int worker, const pl_topology_cpu *cpu)
{
    pl_log(PL_LOG_WARN, "pin", "worker=%d cpu=%d result=refused", worker, cpu->os_id);
}

static int create_thread(struct pl__pool_worker *w, size_t stack_bytes, const cpu_set_t *mask)
{
    pthread_attr_t attr;
    int e = pthread_attr_init(&attr);

    if (e)
        return e;
    e = pthread_attr_setstack(&attr, w->stack, stack_bytes);
    if (!e && mask)
        e = pthread_attr_setaffinity_np(&attr, sizeof *mask, mask);
    if (!e)
        e = pthread_create(&w->thread, &attr, pl__pool_worker_main, w);
    pthread_attr_destroy(&attr);
    return e;
}

/* `cpu` NULL: not pinned. */
static pl_status start_thread(pl_pool *p, int index, const pl_topology_cpu *cpu, pl_error *err)
{
    struct pl__pool_worker *w = &p->workers[index];
    cpu_set_t mask;
    int e = EINVAL;

    if (cpu) {
        mask = one_cpu(cpu);
        e = create_thread(w, p->stack_bytes, &mask);
        if (e == EINVAL)
            log_refused_pin(index, cpu);
    }
    if (e == EINVAL)
        e = create_thread(w, p->stack_bytes, NULL);
    if (e)
        return pl_error_set(err, PL_ERR_NOMEM, "pool: cannot start thread %d of %d (got %s)", index,
                            p->n_workers - 1, strerror(e));
    p->n_started++;
    return PL_OK;
}

/* A signal is for the program's own threads; the four left report a fault of the very thread. */
static void block_signals(sigset_t *before)
{
    sigset_t all;

    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

static pl_status start_threads(pl_pool *p, const pl_topology *t, bool pinned, pl_error *err)
{
    pl_status s = PL_OK;
    sigset_t before;

    atomic_store(&p->pending, (uint32_t)(p->n_workers - 1));
    block_signals(&before);
    for (int i = 1; i < p->n_workers && s == PL_OK; i++)
        s = start_thread(p, i, pinned ? &t->cpus[i] : NULL, err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (s != PL_OK)
        return s;
    pl__pool_wait(p);
    for (int i = 1; i < p->n_workers; i++)
        if (p->workers[i].start != PL_OK)
            return pl_error_set(err, PL_ERR_NOMEM,
                                "pool: no memory for the stacks (want %zu bytes)",
                                (size_t)(p->n_workers - 1) * p->stack_bytes);
    return PL_OK;
}

static void pin_caller(pl_pool *p, const pl_topology_cpu *cpu)
{
    cpu_set_t mask = one_cpu(cpu);

    if (pthread_getaffinity_np(pthread_self(), sizeof p->caller_mask, &p->caller_mask) == 0 &&
        pthread_setaffinity_np(pthread_self(), sizeof mask, &mask) == 0)
        p->restore_caller = true;
    else
        log_refused_pin(0, cpu);
}

static pl_pool *allocate(int n_workers, size_t stack_bytes, bool tiles_meet, const pl_topology *t)
{
    pl_pool *p = aligned_alloc(PL__POOL_LINE_BYTES, pl_pool_heap_bytes(n_workers));
    int n_cores = pl_topology_default_threads(t);

    if (!p)
        return NULL;
    memset(p, 0, pl_pool_heap_bytes(n_workers));
    p->n_workers = n_workers;
    p->stack_bytes = stack_bytes + SANITIZER_BYTES;
    p->slots = (struct pl__pool_slot *)(p + 1);
    p->workers = (struct pl__pool_worker *)(p->slots + n_workers);
    for (int i = 0; i < n_workers; i++)
        p->workers[i] = (struct pl__pool_worker){.pool = p, .index = i};
    p->spin = n_workers <= n_cores && !tiles_meet;
    p->max_wake = p->spin || tiles_meet ? n_workers - 1 : n_cores > 2 ? n_cores - 1 : 1;
    pthread_mutex_init(&p->turn, NULL);
    return p;
}

static pl_status create(const pl_pool_params *params, const pl_topology *t, pl_pool **pool,
                        pl_error *err)
{
    int n = params->n_workers ? params->n_workers : pl_topology_default_threads(t);
    size_t stack = params->stack_bytes ? params->stack_bytes : PL_POOL_STACK_BYTES;
    bool pinned = !params->no_pin && n <= t->n_cpus;
    pl_pool *p = allocate(n, stack, params->tiles_meet, t);
    pl_status s;

    if (!p)
        return pl_error_set(err, PL_ERR_NOMEM, "pool: out of memory (want %zu bytes)",
                            pl_pool_heap_bytes(n));
    s = map_stacks(p, err);
    if (s == PL_OK)
        s = start_threads(p, t, pinned, err);
    if (s != PL_OK) {
        pl_pool_destroy(p);
        return s;
    }
    if (params->pin_caller && pinned)
        pin_caller(p, &t->cpus[0]);
    *pool = p;
    return PL_OK;
}

pl_status pl_pool_create(const pl_pool_params *params, pl_pool **pool, pl_error *err)
{
    long min_stack = sysconf(_SC_THREAD_STACK_MIN);
    size_t stack = params->stack_bytes ? params->stack_bytes : PL_POOL_STACK_BYTES;
    pl_topology own;
    pl_status s;

    *pool = NULL;
    PL_CHECK(params->n_workers >= 0 && params->n_workers <= PL_POOL_MAX_WORKERS, err,
             "pool: n_workers out of range (got %d, want 0..%d)", params->n_workers,
             PL_POOL_MAX_WORKERS);
    PL_CHECK(stack % page_bytes() == 0 && stack >= (size_t)min_stack && stack <= 1u << 30, err,
             "pool: stack_bytes is not possible (got %zu, want whole pages, at least %ld)", stack,
             min_stack);
    if (params->topology)
        return create(params, params->topology, pool, err);
    PL_TRY(pl_topology_init(&own, err));
    s = create(params, &own, pool, err);
    pl_topology_fini(&own);
    return s;
}

void pl_pool_destroy(pl_pool *p)
{
    if (!p)
        return;
    pl__pool_stop(p);
    for (int i = 1; i <= p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    if (p->restore_caller)
        pthread_setaffinity_np(pthread_self(), sizeof p->caller_mask, &p->caller_mask);
    pl_mem_unmap(&p->stacks);
    pthread_mutex_destroy(&p->turn);
    free(p);
}
