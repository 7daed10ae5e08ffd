/* What all public operators around attention and of caches promise of memory and threads: only what arguments name is
 * read and written; a refusal writes nothing; no rows are right; the process stays as it was; contexts are used by
 * several threads at once. Numbers: the other tests of model_ops.h. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "model_op_calls.h"
#include "support/check.h"

static const pl_ops_params kinds[] = {{.n_workers = 1, .level = "scalar"},
                                      {.n_workers = 1, .no_pin = 1},
                                      {.n_workers = 3, .no_pin = 1}};

static pl_ops_context *open_context(int kind)
{
    pl_ops_context *context;
    pl_error err;

    check_ok(pl_ops_context_create(&kinds[kind], &context, &err), &err);
    return context;
}

static bool in_output(const call_memory *m, size_t at)
{
    for (int i = 0; i < m->n_arrays; i++)
        if (m->arrays[i].out && at >= m->arrays[i].at && at < m->arrays[i].at + m->arrays[i].bytes)
            return true;
    return false;
}

/* The outputs of the call are those of `want`, and nothing else has changed. */
static bool is_same(const call_memory *got, const call_memory *want)
{
    for (size_t i = 0; i < sizeof got->bytes; i++)
        if (got->bytes[i] != got->before[i] && !in_output(got, i))
            return false;
    for (int i = 0; i < got->n_arrays; i++)
        if (got->arrays[i].out && memcmp(got->bytes + got->arrays[i].at,
                                         want->bytes + want->arrays[i].at, want->arrays[i].bytes))
            return false;
    return true;
}

static bool call_right(const op_call *op, pl_ops_context *context, uint8_t poison, call_memory *m)
{
    pl_error err;

    call_open(m, poison);
    return op->run(m, context, CALL_RIGHT, &err) == PL_OK;
}

static call_memory *new_memory(void)
{
    call_memory *m = aligned_alloc(64, (sizeof *m + 63) / 64 * 64);

    assert_non_null(m);
    return m;
}

/* All results of level scalar; nothing is poisoned. */
static call_memory **expect(void)
{
    call_memory **want = calloc((size_t)n_op_calls, sizeof(call_memory *));
    pl_ops_context *context = open_context(0);

    assert_non_null(want);
    for (int i = 0; i < n_op_calls; i++) {
        want[i] = new_memory();
        assert_true(call_right(&op_calls[i], context, 0, want[i]));
    }
    pl_ops_context_destroy(context);
    return want;
}

static void forget(call_memory **want)
{
    for (int i = 0; i < n_op_calls; i++)
        free(want[i]);
    free(want);
}

static void only_what_is_named_is_read_and_written(void **state)
{
    call_memory **want = expect(), *m = new_memory();

    for (int kind = 0; kind < 3; kind++) {
        pl_ops_context *context = open_context(kind);
        for (int i = 0; i < n_op_calls; i++) {
            assert_true(call_right(&op_calls[i], context, 0xFF, m));
            if (!is_same(m, want[i]))
                fail_msg("%s, context %d: depends on poison, or writes where it must not",
                         op_calls[i].name, kind);
        }
        pl_ops_context_destroy(context);
    }
    free(m);
    forget(want);
}

static void refusals_write_nothing(void **state)
{
    pl_ops_context *context = open_context(1);
    call_memory *m = new_memory();

    for (int i = 0; i < n_op_calls; i++)
        for (call_fault f = CALL_EMPTY; f < CALL_FAULTS; f++) {
            const bool right = f == CALL_EMPTY && op_calls[i].counts;
            pl_error err = {0};
            pl_status status;

            call_open(m, 0xFF);
            status = op_calls[i].run(m, context, f, &err);
            if (status != (right ? PL_OK : PL_ERR_INVALID))
                fail_msg("%s, fault %d: status %d, '%s'", op_calls[i].name, (int)f, (int)status,
                         err.msg);
            if (memcmp(m->bytes, m->before, sizeof m->bytes) != 0)
                fail_msg("%s, fault %d: has written", op_calls[i].name, (int)f);
            if (!right && (!strchr(err.msg, ':') || !strstr(err.msg, "got ")))
                fail_msg("%s, fault %d: '%s' names no argument or value", op_calls[i].name, (int)f,
                         err.msg);
        }
    free(m);
    pl_ops_context_destroy(context);
}

/* ---- threads */

typedef struct caller {
    pl_ops_context *context;
    call_memory **want, *m;
    int first, wrong; /* the first operator of a round, how many results were not those expected */
} caller;

static void *call_all(void *arg)
{
    caller *c = arg;

    for (int round = 0; round < 2; round++)
        for (int k = 0; k < n_op_calls; k++) {
            int i = (c->first + k) % n_op_calls;
            c->wrong +=
                !call_right(&op_calls[i], c->context, 0xFF, c->m) || !is_same(c->m, c->want[i]);
        }
    return NULL;
}

/* One context for both threads, then one each. */
static void threads_call_at_once(void **state)
{
    call_memory **want = expect();

    for (int apart = 0; apart < 2; apart++) {
        pl_ops_context *contexts[2] = {open_context(2), apart ? open_context(2) : NULL};
        caller callers[2];
        pthread_t threads[2];

        for (int i = 0; i < 2; i++) {
            callers[i] = (caller){contexts[i * apart], want, new_memory(), i * n_op_calls / 2, 0};
            assert_int_equal(pthread_create(&threads[i], NULL, call_all, &callers[i]), 0);
        }
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(callers[i].wrong, 0);
            free(callers[i].m);
            pl_ops_context_destroy(contexts[i]);
        }
    }
    forget(want);
}

/* ---- the process */

typedef struct process {
    void (*handlers[32])(int); /* those above belong to the C library */
    int flags[32];
    sigset_t mask;
    struct rlimit limits[RLIM_NLIMITS];
    cpu_set_t cpus;
} process;

static void look(process *p)
{
    memset(p, 0, sizeof *p);
    for (int s = 1; s < 32; s++) {
        struct sigaction action;
        assert_int_equal(sigaction(s, NULL, &action), 0);
        p->handlers[s] = action.sa_handler;
        p->flags[s] = action.sa_flags;
    }
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &p->mask), 0);
    for (int i = 0; i < RLIM_NLIMITS; i++)
        assert_int_equal(getrlimit((__rlimit_resource_t)i, &p->limits[i]), 0);
    assert_int_equal(sched_getaffinity(0, sizeof p->cpus, &p->cpus), 0);
}

static void the_process_stays_as_it_was(void **state)
{
    process *before = malloc(sizeof *before), *during = malloc(sizeof *during);
    call_memory *m = new_memory();
    pl_ops_context *context;
    pl_error err;

    assert_true(before && during);
    look(before);
    check_ok(pl_ops_context_create(NULL, &context, &err), &err);
    for (int i = 0; i < n_op_calls; i++)
        assert_true(call_right(&op_calls[i], context, 0, m));
    look(during);
    assert_memory_equal(before, during, sizeof *before);
    pl_ops_context_destroy(context);
    look(during);
    assert_memory_equal(before, during, sizeof *before);
    free(before);
    free(during);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_named_is_read_and_written),
        cmocka_unit_test(refusals_write_nothing),
        cmocka_unit_test(threads_call_at_once),
        cmocka_unit_test(the_process_stays_as_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
