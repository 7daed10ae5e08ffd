/* What a context of the public operators holds, and how an operator runs on it. */
#ifndef PL_ATTENTION_CONTEXT_H
#define PL_ATTENTION_CONTEXT_H

#include "base/pool.h"
#include "ops/ops.h"
#include "plimsoll/ops.h"

struct pl_ops_context {
    const pl_ops *ops;
    pl_pool *pool; /* NULL with a parallel_for of the caller's */
    pl_ops_parallel_for *parallel_for;
    void *user;
    int n_workers;
};

/* Units fn(user, unit, worker) in the environment of base/fpenv.h, whoever's threads they run on. */
void pl__context_run(pl_ops_context *c, int64_t units, pl_pool_fn *fn, void *user);

#endif
