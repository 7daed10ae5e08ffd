/* Level scalar: the functions of base/math.h over arrays (NUMERICS 6). */
#include "ops/scalar/scalar.h"

void pl__scalar_map(const pl_op_env *env, const pl_map_args *a, int64_t begin, int64_t end)
{
    static float (*const functions[PL_MAP_COUNT])(float) = {
        [PL_MAP_EXP] = pl_exp_f32,         [PL_MAP_LOG] = pl_log_f32,
        [PL_MAP_SIGMOID] = pl_sigmoid_f32, [PL_MAP_SOFTPLUS] = pl_softplus_f32,
        [PL_MAP_TANH] = pl_tanh_f32,
    };

    for (int64_t i = begin; i < end; i++)
        a->y[i] = functions[a->function](a->x[i]);
}
