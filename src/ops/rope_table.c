/* Rotary tables without pow: base^(i/32) is a product of repeated square roots of the base, which IEEE
 * 754 rounds correctly everywhere. Rotating vectors is the operators' work. */
#include "ops/rope_table.h"

#include <math.h>
#include <stddef.h>

#include "base/math.h"

#define TWO_PI 0x1.921fb54442d18p+2

/* base^(i / 32) for i < 32. */
static double root_power(double base, int i)
{
    double root = base, p = 1;

    for (int bit = 16; bit > 0; bit /= 2) {
        root = pl_sqrt_f64(root);
        if (i & bit)
            p *= root;
    }
    return p;
}

/* The pair that turns `rotations` times within the original context. */
static double correction(const pl_rope_yarn *yarn, double base, double rotations)
{
    return PL_ROPE_DIM * pl_log_f64(yarn->original_max_position / (rotations * TWO_PI)) /
           (2.0 * pl_log_f64(base));
}

void pl_rope_table_freq(double base, const pl_rope_yarn *yarn, float freq[PL_ROPE_PAIRS])
{
    double low = 0, high = 0;

    if (yarn) {
        low = floor(correction(yarn, base, yarn->beta_fast));
        low = low > 0 ? low : 0;
        high = ceil(correction(yarn, base, yarn->beta_slow));
        high = high < PL_ROPE_DIM - 1 ? high : PL_ROPE_DIM - 1;
        if (high == low)
            high = low + 0.001;
    }
    for (int i = 0; i < PL_ROPE_PAIRS; i++) {
        double f = 1.0 / root_power(base, i);
        if (yarn) {
            double ramp = ((double)i - low) / (high - low), keep;
            ramp = ramp > 0 ? ramp : 0;
            keep = 1.0 - (ramp < 1 ? ramp : 1);
            f = f / yarn->factor * (1.0 - keep) + f * keep;
        }
        freq[i] = (float)f;
    }
}

void pl_rope_table_row_f64(const float freq[PL_ROPE_PAIRS], int32_t position,
                           double cos[PL_ROPE_PAIRS], double sin[PL_ROPE_PAIRS])
{
    for (int i = 0; i < PL_ROPE_PAIRS; i++)
        pl_sincos_f64((double)((float)position * freq[i]), &sin[i], &cos[i]);
}

void pl_rope_table_row(const float freq[PL_ROPE_PAIRS], int32_t position, float cos[PL_ROPE_PAIRS],
                       float sin[PL_ROPE_PAIRS])
{
    for (int i = 0; i < PL_ROPE_PAIRS; i++) {
        double s, c;
        pl_sincos_f64((double)((float)position * freq[i]), &s, &c);
        cos[i] = (float)c;
        sin[i] = (float)s;
    }
}
