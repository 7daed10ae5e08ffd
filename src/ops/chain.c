/* Operators by name: run alone, or appended to a chain. What each counts in is in chain.h, how both are run in run.c. */
#include "ops/chain.h"

#include <assert.h>

#include "ops/run.h"
#include "ops/run_internal.h"

void pl_chain_begin(pl_chain *c, int64_t n_rows)
{
    c->n_rows = n_rows;
    c->n_links = 0;
}

static pl_link *append(pl_chain *c)
{
    assert(c->n_links < PL_CHAIN_LINKS);
    return &c->link[c->n_links++];
}

/* pl_chain_NAME, pl_call_NAME and pl_run_NAME; `count` and `cost` are expressions of a. */
#define PL_DEFINE_OPERATOR(name, kind, count, cost)                                             \
    static void name##_link(pl_link *l, const pl_##name##_args *a)                              \
    {                                                                                           \
        l->op = PL_PROFILE_##name;                                                              \
        l->unit = PL_UNIT_##kind;                                                               \
        l->per = (count);                                                                       \
        l->steps = (cost);                                                                      \
        l->args.name = *a;                                                                      \
    }                                                                                           \
    void pl_chain_##name(pl_chain *c, const pl_##name##_args *a)                                \
    {                                                                                           \
        if (c->n_rows > 0)                                                                      \
            name##_link(append(c), a);                                                          \
    }                                                                                           \
    void pl_call_##name(const pl_exec *x, int worker, const pl_##name##_args *a, int64_t begin, \
                        int64_t end)                                                            \
    {                                                                                           \
        double from = x->profile ? pl__profile_now() : 0;                                       \
                                                                                                \
        x->ops->name(&x->env[worker], a, begin, end);                                           \
        if (x->profile)                                                                         \
            x->profile->worker[worker].op_ns[PL_PROFILE_##name] += pl__profile_now() - from;    \
    }                                                                                           \
    void pl_run_##name(const pl_exec *x, const pl_##name##_args *a, int64_t n)                  \
    {                                                                                           \
        pl_link l;                                                                              \
                                                                                                \
        if (n <= 0)                                                                             \
            return;                                                                             \
        name##_link(&l, a);                                                                     \
        pl__run_links(x, &l, 1, n);                                                             \
    }
PL_OPERATOR_MAP(PL_DEFINE_OPERATOR)

void pl_chain_linear(pl_chain *c, const pl_linear_job *job)
{
    pl_link *l = append(c);

    assert(job->n == c->n_rows && !job->rows);
    l->op = pl__linear_op(job);
    l->unit = PL_UNIT_MATRIX;
    l->per = 1;
    l->steps = job->n_rows * job->w.cols;
    l->args.linear = *job;
}
