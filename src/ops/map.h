/* Elementary functions over arrays: those of base/math.h, element by element. Source: docs/NUMERICS.md 6. */
#ifndef PL_OPS_MAP_H
#define PL_OPS_MAP_H

#include "ops/op.h"

typedef enum pl_map_function {
    PL_MAP_EXP,
    PL_MAP_LOG,
    PL_MAP_SIGMOID,
    PL_MAP_SOFTPLUS,
    PL_MAP_TANH,
    PL_MAP_COUNT
} pl_map_function;

/* y may be x. Level f64 has none. Unit: an element. */
typedef struct pl_map_args {
    pl_map_function function;
    const float *x;
    float *y;
} pl_map_args;
typedef void pl_map_fn(const pl_op_env *env, const pl_map_args *a, int64_t begin, int64_t end);

#endif
