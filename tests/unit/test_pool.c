/* The pool: each tile exactly once whatever the numbers, in the right floating-point environment, with no
 * thread, pin or byte left behind. */
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "base/fpenv.h"
#include "base/meminfo.h"
#include "base/pool.h"
#include "support/check.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WITH_SANITIZER true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WITH_SANITIZER true
#endif
#endif
#ifndef WITH_SANITIZER
#define WITH_SANITIZER false
#endif

enum { MAX_TILES = 300, N_RUNS = 10000 };

struct job {
    _Atomic uint8_t hits[MAX_TILES];
    _Atomic int in_use[64]; /* by worker: two tiles at once under one number would collide */
    _Atomic int bad_worker, bad_fpenv;
    int n_workers;
    int64_t plain[MAX_TILES]; /* not atomic: the caller must see it after the run */
};

static void count_tile(void *user, int64_t tile, int worker)
{
    struct job *j = user;

    if (worker < 0 || worker >= j->n_workers || atomic_exchange(&j->in_use[worker], 1) != 0)
        atomic_fetch_add(&j->bad_worker, 1);
    if (!pl_fpenv_is_set())
        atomic_fetch_add(&j->bad_fpenv, 1);
    atomic_fetch_add(&j->hits[tile], 1);
    j->plain[tile] = tile * 3 + 1;
    atomic_store(&j->in_use[worker], 0);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static pl_pool *make_pool(int n_workers)
{
    pl_pool_params params = {.n_workers = n_workers};
    pl_pool *pool;
    pl_error err;

    check_ok(pl_pool_create(&params, &pool, &err), &err);
    assert_int_equal(pl_pool_n_workers(pool), n_workers);
    return pool;
}

static void check_job(struct job *j, int64_t n)
{
    assert_int_equal(j->bad_worker, 0);
    assert_int_equal(j->bad_fpenv, 0);
    for (int64_t i = 0; i < MAX_TILES; i++) {
        if (j->hits[i] != (i < n))
            fail_msg("%ld tiles: tile %ld ran %d times", (long)n, (long)i, j->hits[i]);
        if (i < n && j->plain[i] != i * 3 + 1)
            fail_msg("tile %ld: its write is not visible", (long)i);
    }
}

static void every_tile_runs_exactly_once(void **state)
{
    static const int workers[] = {1, 2, 3, 7, 64};
    uint32_t random = 1;

    for (size_t w = 0; w < sizeof workers / sizeof workers[0]; w++) {
        pl_pool *pool = make_pool(workers[w]);
        struct job *j = malloc(sizeof *j);

        for (int run = 0; run < N_RUNS; run++) {
            int64_t n = next_random(&random) % (run % 8 ? 20 : MAX_TILES + 1);
            memset(j, 0, sizeof *j);
            j->n_workers = workers[w];
            pl_pool_run(pool, n, count_tile, j);
            check_job(j, n);
        }
        free(j);
        pl_pool_destroy(pool);
    }
}

/* Sleeps now and then, so that workers park and the caller waits parked. */
static void slow_tile(void *user, int64_t tile, int worker)
{
    if (tile % 5 == 0)
        usleep(300);
    count_tile(user, tile, worker);
}

static void parked_workers_come_back(void **state)
{
    static const int workers[] = {2, 5, 64};

    for (size_t w = 0; w < sizeof workers / sizeof workers[0]; w++) {
        pl_pool *pool = make_pool(workers[w]);
        struct job *j = malloc(sizeof *j);

        for (int run = 0; run < 100; run++) {
            memset(j, 0, sizeof *j);
            j->n_workers = workers[w];
            if (run % 3 == 0)
                usleep(500);
            pl_pool_run(pool, 11, slow_tile, j);
            check_job(j, 11);
        }
        free(j);
        pl_pool_destroy(pool);
    }
}

static void share_of_work(void *user, int64_t tile, int worker)
{
    _Atomic int *by_worker = user;

    usleep(2000);
    atomic_fetch_add(&by_worker[worker], 1);
}

static void the_created_thread_takes_part(void **state)
{
    pl_pool *pool = make_pool(2);
    _Atomic int by_worker[2] = {0, 0};

    pl_pool_run(pool, 40, share_of_work, by_worker);
    assert_int_equal(by_worker[0] + by_worker[1], 40);
    assert_true(by_worker[0] >= 5 && by_worker[1] >= 5);
    pl_pool_destroy(pool);
}

static void caller_keeps_its_environment(void **state)
{
    /* Rounding up, underflow unmasked, an old sticky flag: all must come back. */
    const unsigned mine = (0x1F80u & ~0x0800u) | 0x4000u | 0x0020u;
    unsigned before = _mm_getcsr(), after;
    pl_pool *pool = make_pool(3);
    struct job *j = calloc(1, sizeof *j);

    for (int64_t n = 1; n <= 50; n += 49) {
        memset(j, 0, sizeof *j);
        j->n_workers = 3;
        _mm_setcsr(mine);
        pl_pool_run(pool, n, count_tile, j);
        after = _mm_getcsr();
        _mm_setcsr(before);
        assert_int_equal(after, mine);
        check_job(j, n);
    }
    free(j);
    pl_pool_destroy(pool);
}

struct nest {
    pl_pool *pool;
    _Atomic int sum, wrong;
    int outer_worker[64];
};

static void inner_tile(void *user, int64_t tile, int worker)
{
    struct nest *n = user;

    n->sum += (int)tile + 1;
    n->wrong += n->outer_worker[worker] != worker;
}

static void outer_tile(void *user, int64_t tile, int worker)
{
    struct nest *n = user;

    n->outer_worker[worker] = worker;
    pl_pool_run(n->pool, 10, inner_tile, n);
    n->outer_worker[worker] = -1;
}

static void nested_run_happens_in_place(void **state)
{
    for (int workers = 1; workers <= 4; workers += 3) {
        struct nest n = {.pool = make_pool(workers)};

        memset(n.outer_worker, -1, sizeof n.outer_worker);
        pl_pool_run(n.pool, 100, outer_tile, &n);
        assert_int_equal(n.sum, 100 * 55);
        assert_int_equal(n.wrong, 0);
        pl_pool_destroy(n.pool);
    }
}

struct calls {
    pl_pool *pool;
    struct job job;
    int n_bad; /* checked by the test's own thread: cmocka cannot fail in another */
};

static void *run_from_thread(void *user)
{
    struct calls *c = user;

    for (int run = 0; run < 300; run++) {
        memset(&c->job, 0, sizeof c->job);
        c->job.n_workers = 3;
        pl_pool_run(c->pool, 40, count_tile, &c->job);
        for (int i = 0; i < 40; i++)
            c->n_bad += c->job.hits[i] != 1;
        c->n_bad += c->job.bad_worker + c->job.bad_fpenv;
    }
    return NULL;
}

static void callers_take_turns(void **state)
{
    struct calls *c = calloc(2, sizeof *c);
    pl_pool *pool = make_pool(3);
    pthread_t other;

    c[0].pool = c[1].pool = pool;
    assert_int_equal(pthread_create(&other, NULL, run_from_thread, &c[0]), 0);
    run_from_thread(&c[1]);
    pthread_join(other, NULL);
    assert_int_equal(c[0].n_bad, 0);
    assert_int_equal(c[1].n_bad, 0);
    free(c);
    pl_pool_destroy(pool);
}

static int count_threads(void)
{
    DIR *d = opendir("/proc/self/task");
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void nothing_is_left_behind(void **state)
{
    pl_topology t;
    pl_error err;
    int threads = count_threads();
    size_t heap = 0;

    check_ok(pl_topology_init(&t, &err), &err);
    for (int i = 0; i < 1000; i++) {
        pl_pool_params params = {.n_workers = 1 + i % 5, .topology = &t};
        _Atomic int by_worker[5] = {0};
        pl_pool *pool;

        check_ok(pl_pool_create(&params, &pool, &err), &err);
        if (i % 10 == 0)
            pl_pool_run(pool, 3, share_of_work, by_worker);
        pl_pool_destroy(pool);
        if (i == 100)
            heap = mallinfo2().uordblks;
    }
    assert_int_equal(count_threads(), threads);
    if (mallinfo2().uordblks > heap + 4096)
        fail_msg("heap grew from %zu to %zu bytes", heap, mallinfo2().uordblks);
    pl_topology_fini(&t);
}

/* The plan's closed forms. Runs first: stacks of earlier threads would be reused. */
static void memory_is_what_the_plan_says(void **state)
{
    enum { N = 9, SLACK = 64 * 1024 };
    pl_topology t;
    pl_pool_params params = {.n_workers = N, .topology = &t};
    uint64_t before, after, all, heap;
    pl_pool *pool;
    pl_error err;

    assert_int_equal(pl_pool_stacks_bytes(N, 0), 8 * 256 * 1024);
    assert_int_equal(pl_pool_stacks_bytes(1, 0), 0);
    assert_int_equal(pl_pool_stacks_bytes(3, 65536), 131072);
    check_ok(pl_topology_init(&t, &err), &err);
    heap = mallinfo2().uordblks;
    check_ok(pl_mem_read_exact(&all, &before, &err), &err);
    check_ok(pl_pool_create(&params, &pool, &err), &err);
    check_ok(pl_mem_read_exact(&all, &after, &err), &err);
    heap = mallinfo2().uordblks - heap;
    pl_pool_destroy(pool);
    pl_topology_fini(&t);
    if (WITH_SANITIZER)
        skip(); /* it has a heap and per-thread tables of its own */
    if (after - before < pl_pool_stacks_bytes(N, 0) ||
        after - before > pl_pool_stacks_bytes(N, 0) + SLACK)
        fail_msg("anonymous memory grew by %lld bytes", (long long)(after - before));
    /* The C library keeps some 300 bytes for each thread. */
    if (heap < pl_pool_heap_bytes(N) || heap > pl_pool_heap_bytes(N) + 400 * N)
        fail_msg("heap grew by %llu bytes, want %zu", (unsigned long long)heap,
                 pl_pool_heap_bytes(N));
}

struct masks {
    cpu_set_t of[64];
    _Atomic int seen[64], signals_open;
};

static void record_mask(void *user, int64_t tile, int worker)
{
    struct masks *m = user;
    sigset_t blocked;

    usleep(3000); /* so that others get tiles as well */
    if (worker == 0)
        return;
    sched_getaffinity(0, sizeof m->of[worker], &m->of[worker]);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    m->signals_open += !sigismember(&blocked, SIGTERM) || !sigismember(&blocked, SIGINT);
    m->seen[worker] = 1;
}

static void threads_are_pinned_when_there_are_enough_processors(void **state)
{
    cpu_set_t mine;
    int n;

    sched_getaffinity(0, sizeof mine, &mine);
    n = CPU_COUNT(&mine) < 32 ? CPU_COUNT(&mine) : 32;
    for (int extra = 0; extra <= 1; extra++) {
        bool pinned = n + extra <= CPU_COUNT(&mine);
        struct masks m = {0};
        pl_pool *pool = make_pool(n + extra);
        int n_seen = 0;

        pl_pool_run(pool, 20 * (n + extra), record_mask, &m);
        pl_pool_destroy(pool);
        assert_int_equal(m.signals_open, 0);
        for (int w = 1; w < n + extra; w++) {
            if (!m.seen[w])
                continue;
            n_seen++;
            if (!pinned)
                assert_true(CPU_EQUAL(&m.of[w], &mine));
            else
                assert_int_equal(CPU_COUNT(&m.of[w]), 1);
            for (int v = 1; pinned && v < w; v++)
                assert_true(!m.seen[v] || !CPU_EQUAL(&m.of[v], &m.of[w]));
        }
        assert_true(n_seen > 0 || n + extra == 1);
    }
}

/* Looks at the caller's frame, so that no compiler makes a loop of it. */
__attribute__((noinline)) static int recurse(int depth, const volatile char *above)
{
    volatile char frame[2048];

    frame[0] = (char)(depth + above[0]);
    return depth == 0 ? frame[0] : recurse(depth - 1, frame) + frame[0];
}

static void overflow_stack(void *user, int64_t tile, int worker)
{
    const volatile char top = 0;

    if (worker > 0)
        recurse(10000, &top);
    usleep(1000);
}

static void a_stack_overflow_hits_the_guard_page(void **state)
{
    int status;
    pid_t child;

    if (WITH_SANITIZER)
        skip();
    child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        pl_pool_run(make_pool(3), 1000, overflow_stack, NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
}

static void pinned_caller_gets_its_mask_back(void **state)
{
    pl_pool_params params = {.n_workers = 1, .pin_caller = true};
    cpu_set_t before, during, after;
    pl_pool *pool;
    pl_error err;

    sched_getaffinity(0, sizeof before, &before);
    check_ok(pl_pool_create(&params, &pool, &err), &err);
    sched_getaffinity(0, sizeof during, &during);
    pl_pool_destroy(pool);
    sched_getaffinity(0, sizeof after, &after);
    assert_int_equal(CPU_COUNT(&during), 1);
    assert_true(CPU_EQUAL(&before, &after));
}

static void bad_parameters_are_refused(void **state)
{
    pl_pool *pool = (pl_pool *)1;
    pl_error err;

    check_error(pl_pool_create(&(pl_pool_params){.n_workers = -1}, &pool, &err), PL_ERR_INVALID,
                &err, "n_workers", "got -1", NULL);
    assert_null(pool);
    check_error(pl_pool_create(&(pl_pool_params){.n_workers = 5000}, &pool, &err), PL_ERR_INVALID,
                &err, "want 0..4096", NULL);
    check_error(pl_pool_create(&(pl_pool_params){.n_workers = 2, .stack_bytes = 100}, &pool, &err),
                PL_ERR_INVALID, &err, "stack_bytes", "got 100", NULL);
    check_error(
        pl_pool_create(&(pl_pool_params){.n_workers = 2, .stack_bytes = 300001}, &pool, &err),
        PL_ERR_INVALID, &err, "whole pages", NULL);
    assert_null(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_what_the_plan_says),
        cmocka_unit_test(every_tile_runs_exactly_once),
        cmocka_unit_test(parked_workers_come_back),
        cmocka_unit_test(the_created_thread_takes_part),
        cmocka_unit_test(caller_keeps_its_environment),
        cmocka_unit_test(nested_run_happens_in_place),
        cmocka_unit_test(callers_take_turns),
        cmocka_unit_test(nothing_is_left_behind),
        cmocka_unit_test(threads_are_pinned_when_there_are_enough_processors),
        cmocka_unit_test(a_stack_overflow_hits_the_guard_page),
        cmocka_unit_test(pinned_caller_gets_its_mask_back),
        cmocka_unit_test(bad_parameters_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
