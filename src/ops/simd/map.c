/* Elementary functions over arrays for vector levels (NUMERICS 6): base/math.c one operation after the other, special
 * arguments selected at the end. */
#include "ops/simd/elementary.h"

INLINE vf apply(pl_map_function function, vf x)
{
    switch (function) {
    case PL_MAP_EXP:
        return vf_exp(x);
    case PL_MAP_LOG:
        return vf_log(x);
    case PL_MAP_SIGMOID:
        return vf_sigmoid(x);
    case PL_MAP_SOFTPLUS:
        return vf_softplus(x);
    default:
        return vf_tanh(x);
    }
}

INLINE void map_all(pl_map_function function, const float *x, float *y, int64_t n)
{
    float last[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        vf_store(y + i, apply(function, vf_load(x + i)));
    if (i == n)
        return;
    for (int64_t k = i; k < n; k++)
        last[k - i] = x[k];
    vf_store(last, apply(function, vf_load(last)));
    for (int64_t k = i; k < n; k++)
        y[k] = last[k - i];
}

void PL__AT(map)(const pl_op_env *env, const pl_map_args *a, int64_t begin, int64_t end)
{
    const float *x = a->x + begin;
    float *y = a->y + begin;
    const int64_t n = end - begin;

    switch (a->function) {
    case PL_MAP_EXP:
        map_all(PL_MAP_EXP, x, y, n);
        break;
    case PL_MAP_LOG:
        map_all(PL_MAP_LOG, x, y, n);
        break;
    case PL_MAP_SIGMOID:
        map_all(PL_MAP_SIGMOID, x, y, n);
        break;
    case PL_MAP_SOFTPLUS:
        map_all(PL_MAP_SOFTPLUS, x, y, n);
        break;
    default:
        map_all(PL_MAP_TANH, x, y, n);
    }
}
