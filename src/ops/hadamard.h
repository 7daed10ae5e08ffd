/* The 128-point Walsh-Hadamard transform of the indexer, natural order, times 128^-0.5.
 *
 * Elementwise arithmetic of docs/NUMERICS.md 1: like every operator it runs in the environment of
 * base/fpenv.h. Source: specification section 0.9. */
#ifndef PL_OPS_HADAMARD_H
#define PL_OPS_HADAMARD_H

#include <stdbool.h>
#include <stdint.h>

/* In place; the caller rounds to bf16. */
void pl_hadamard128(float x[128]);

/* Level f64: with `exact` in double, else every operation rounded to fp32. */
void pl_hadamard128_f64(double x[128], bool exact);

#endif
