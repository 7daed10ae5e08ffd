/* Rotary frequencies and the sines and cosines of a position.
 *
 * Source: specification section 0.8; docs/NUMERICS.md 7. */
#ifndef PL_OPS_ROPE_TABLE_H
#define PL_OPS_ROPE_TABLE_H

#include <stdint.h>

#include "ops/shape.h"

/* Stretching of the compressed table (config.json: rope_scaling). */
typedef struct pl_rope_yarn {
    double factor;
    double original_max_position;
    double beta_fast, beta_slow;
} pl_rope_yarn;

/* freq[i] of base^(-2i/64), blended by `yarn` where it is not NULL; formed in double, rounded once.
 * base > 1. */
void pl_rope_table_freq(double base, const pl_rope_yarn *yarn, float freq[PL_ROPE_PAIRS]);

/* cos and sin of the fp32 angle position * freq[i], evaluated in double; rounded once to fp32, or (f64)
 * left in double. 0 <= position < 2^24 and angles up to 2^20 keep the accuracy of pl_sincos_f64. */
void pl_rope_table_row(const float freq[PL_ROPE_PAIRS], int32_t position, float cos[PL_ROPE_PAIRS],
                       float sin[PL_ROPE_PAIRS]);
void pl_rope_table_row_f64(const float freq[PL_ROPE_PAIRS], int32_t position,
                           double cos[PL_ROPE_PAIRS], double sin[PL_ROPE_PAIRS]);

#endif
