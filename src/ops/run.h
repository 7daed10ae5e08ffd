/* Running operators over the worker pool: how many units there are, how they are grouped into tiles, and
 * which worker's scratch a tile gets. Bits do not depend on any of it.
 *
 * One function per operator, named like its entry in pl_ops; `n` counts tokens or rows. What is too little to share
 * runs on the calling thread. */
#ifndef PL_OPS_RUN_H
#define PL_OPS_RUN_H

#include "base/arena.h"
#include "base/pool.h"
#include "ops/chain.h"
#include "ops/ops.h"
#include "ops/profile.h"

typedef struct pl_exec {
    const pl_ops *ops;
    pl_pool *pool;       /* borrowed */
    pl_op_env *env;      /* one per worker */
    pl_profile *profile; /* borrowed, for as many workers; NULL: nothing is measured */
} pl_exec;

/* Carves the workers' scratch (a dry run of the arena counts it); sets `ops` and `env`. */
void pl_exec_layout(pl_exec *x, pl_arena *arena, const pl_ops *ops, int n_workers,
                    const pl_ops_shape *shape);

/* Everything that the chain's rows go through, and empties it for the next operators of as many rows. One region; more
 * where rows are few (chain.h). */
void pl_chain_run(const pl_exec *x, pl_chain *c);

/* All jobs in one parallel region, each by the kernel that its weight and input ask for. Jobs without
 * tokens are fine. */
void pl_run_linear(const pl_exec *x, pl_linear_job *jobs, int32_t n_jobs);

/* Work that is no chain: fn over units that need nothing of each other. It runs operators by pl_call_NAME. */
typedef void pl_piece_fn(const pl_exec *x, int worker, const void *user, int64_t begin,
                         int64_t end);
typedef struct pl_piece {
    pl_piece_fn *fn;
    const void *user;
    int64_t units, steps; /* steps of a unit, as in chain.h */
} pl_piece;

enum { PL_TOGETHER_CHAINS = 6, PL_TOGETHER_PIECES = 2 };

/* What runs side by side in one region, since none of it needs anything of another. The operators of a chain either
 * count all in the same, or it is split by rows however few they are; no linear layers within. */
typedef struct pl_together {
    pl_chain *const *chains; /* emptied by the run */
    int32_t n_chains;
    const pl_piece *pieces;
    int32_t n_pieces;
    pl_linear_job *jobs;
    int32_t n_jobs;
} pl_together;

void pl_run_together(const pl_exec *x, const pl_together *t);

/* Whether so many units keep all workers busy. */
bool pl_pieces_are_many(const pl_exec *x, int64_t units);

/* Whether so many rows are enough for all workers to share, so that a chain is one region. */
bool pl_rows_are_many(const pl_exec *x, int64_t n_rows);

void pl_call_linear(const pl_exec *x, int worker, const pl_linear_job *job, int64_t begin,
                    int64_t end);

/* pl_run_NAME(x, a, n): one operator over n rows. pl_call_NAME: some of its units, from within a tile. */
#define PL_RUN_OPERATOR(name, unit, per, steps)                                                 \
    void pl_run_##name(const pl_exec *x, const pl_##name##_args *a, int64_t n);                 \
    void pl_call_##name(const pl_exec *x, int worker, const pl_##name##_args *a, int64_t begin, \
                        int64_t end);
PL_OPERATOR_MAP(PL_RUN_OPERATOR)
#undef PL_RUN_OPERATOR

#endif
