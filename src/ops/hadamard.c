/* Seven rounds of butterflies, strides 1 to 64, then one scaling. */
#include "ops/hadamard.h"

#include "base/numfmt.h"

void pl_hadamard128(float x[128])
{
    for (int stride = 1; stride < 128; stride *= 2)
        for (int at = 0; at < 128; at += 2 * stride)
            for (int j = at; j < at + stride; j++) {
                float a = x[j], b = x[j + stride];
                x[j] = a + b;
                x[j + stride] = a - b;
            }
    for (int j = 0; j < 128; j++)
        x[j] *= 0x1.6a09e6p-4f;
}

static double rounded(double x, bool exact)
{
    return exact ? x : pl_f64_round_f32(x);
}

void pl_hadamard128_f64(double x[128], bool exact)
{
    const double scale = exact ? 0x1.6a09e667f3bcdp-4 : 0x1.6a09e6p-4;

    for (int stride = 1; stride < 128; stride *= 2)
        for (int at = 0; at < 128; at += 2 * stride)
            for (int j = at; j < at + stride; j++) {
                double a = x[j], b = x[j + stride];
                x[j] = rounded(a + b, exact);
                x[j + stride] = rounded(a - b, exact);
            }
    for (int j = 0; j < 128; j++)
        x[j] = rounded(x[j] * scale, exact);
}
