/* Level scalar: rows into caches that other engines have too, and out of them (NUMERICS 3). */
#include <string.h>

#include "ops/scalar/scalar.h"

void pl__scalar_cache_put(const pl_op_env *env, const pl_cache_move_args *a, int64_t begin,
                          int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        if (a->slots[i] >= 0)
            pl_cache_row_put(&a->rows, a->slots[i], a->x + i * a->x_stride);
}

void pl__scalar_cache_get(const pl_op_env *env, const pl_cache_move_args *a, int64_t begin,
                          int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        uint16_t *x = a->x + i * a->x_stride;

        if (a->slots[i] >= 0)
            pl_cache_row_get(&a->rows, a->slots[i], x);
        else
            memset(x, 0, (size_t)a->rows.dim * sizeof *x);
    }
}
