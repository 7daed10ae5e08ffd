/* The levels that checkkern runs, lowest first. */
#ifndef PL_TESTS_KERNELS_LEVELS_H
#define PL_TESTS_KERNELS_LEVELS_H

#include "base/cpu.h"
#include "ops/ops.h"

typedef struct kern_level {
    const char *name;
    pl_level needs; /* what the processor has to have */
    const pl_ops *(*ops)(void);
} kern_level;

/* Ends with a NULL name. */
extern const kern_level kern_levels[];

#endif
