/* What a level wants besides its table (pl_ops_at, ops.h), and the tests that have to pass before it is used. */
#ifndef PL_OPS_LEVEL_H
#define PL_OPS_LEVEL_H

#include "base/selftest.h"
#include "ops/ops.h"

/* How weights should lie in memory for it. Both layouts give the same bits at all levels but f64, which takes
 * rows alone. */
pl_weight_layout pl_ops_layout(pl_level level);

/* For pl_level_choose: every operator with kernels of its own, on a small problem, against level scalar. */
extern const pl_selftest pl_ops_selftests[];

#endif
