/* The floating-point environment that results are defined in: round to nearest even, denormal results
 * flushed (FTZ), denormal operands read as zero (DAZ), exceptions masked (docs/NUMERICS.md).
 *
 * The pool sets it around every tile. Code that computes results outside a tile brackets itself:
 *
 *     pl_fpenv saved = pl_fpenv_begin();
 *     compute(...);
 *     pl_fpenv_end(saved);
 *
 * The arithmetic must sit in a function of its own that the compiler cannot inline between the two
 * calls: it knows no dependence between an addition and the control register, and may move one over the
 * other. */
#ifndef PL_BASE_FPENV_H
#define PL_BASE_FPENV_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pl_fpenv {
    uint32_t control; /* MXCSR on x86-64 */
} pl_fpenv;

/* Sets the environment for the calling thread and returns the one it had. */
pl_fpenv pl_fpenv_begin(void);

/* Restores `saved` exactly: rounding mode, masks, and the sticky exception flags too. */
void pl_fpenv_end(pl_fpenv saved);

/* True where the calling thread runs in the environment above; sticky flags do not count. */
bool pl_fpenv_is_set(void);

#endif
