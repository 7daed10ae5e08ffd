/* What every operator contract shares: element types, modes, units of work.
 *
 * An operator is a struct of arguments and a function over a range of units:
 *
 *     void rms_norm(const pl_op_env *env, const pl_rms_norm_args *a, int64_t begin, int64_t end);
 *
 * Units (a row, a token and head, a tile of output rows) are independent: any split over workers, in
 * any order, gives the same bits, and no unit's result depends on which others exist. The contract
 * names the unit. Operators allocate nothing and cannot fail: shapes are checked once, when a model
 * is opened. They read and write exactly the extents their contract names.
 *
 * Activations are of two kinds, opaque to whoever chains operators (pl_ops gives their bytes):
 *
 *     act   what the specification calls bf16: uint16_t bits; double at level f64
 *     acc   what it calls fp32: float; double at level f64
 *
 * Level f64 keeps bf16 and fp32 values in double and rounds them where the mode says so; in mode
 * `exact` nothing is rounded. All other levels give the bits of docs/NUMERICS.md.
 *
 * Strides are in bytes, dims in elements. Pointers are 64-byte aligned only where a contract says so.
 * Outputs must not overlap inputs unless a contract allows it. */
#ifndef PL_OPS_OP_H
#define PL_OPS_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/shape.h"
#include "ops/weight_view.h"

/* Numerics of level f64. The product runs what `rec` describes. */
typedef enum pl_mode {
    PL_MODE_REF,   /* every rounding of specification Appendix B */
    PL_MODE_REC,   /* as ref, with fp32 in the q head norm and the index scores */
    PL_MODE_EXACT, /* no rounding, no activation quantisation */
} pl_mode;

/* What a function gets besides its arguments; one per worker. */
typedef struct pl_op_env {
    pl_mode mode;  /* level f64 only */
    void *scratch; /* pl_ops.scratch_bytes of them, 64-byte aligned, contents ignored */
} pl_op_env;

/* A table of angles for the rows of a buffer: specification section 0.8. */
typedef struct pl_angles {
    const void *cos, *sin; /* acc [n][PL_ROPE_PAIRS] */
} pl_angles;

#endif
