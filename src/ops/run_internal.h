/* What chain.c and run.c share. */
#ifndef PL_OPS_RUN_INTERNAL_H
#define PL_OPS_RUN_INTERNAL_H

#include "ops/run.h"

/* Neighbours of one unit, none of them a linear layer, over n rows: one region. */
void pl__run_links(const pl_exec *x, const pl_link *links, int32_t n_links, int64_t n);

/* The operator that a job's weight and input ask for, as a clock names it. */
pl_profile_op pl__linear_op(const pl_linear_job *job);

#endif
