/* The levels that checkkern runs, lowest first. */
#ifndef PL_TESTS_KERNELS_LEVELS_H
#define PL_TESTS_KERNELS_LEVELS_H

#include "base/cpu.h"
#include "ops/ops.h"

typedef struct kern_level {
    const char *name;
    pl_level needs; /* what the processor has to have */
    const pl_ops *(*ops)(void);
    const pl_ops *(*simde)(void); /* the same kernels without that processor; or NULL */
} kern_level;

/* Ends with a NULL name. */
extern const kern_level kern_levels[];

/* In builds with those levels. */
const pl_ops *kern_simde_avx512(void);
const pl_ops *kern_simde_avx512bf16(void);

#endif
