/* From a level's name to its table. */
#include "ops/ops.h"

const pl_ops *pl_ops_at(pl_level level, pl_mode mode)
{
    switch (level) {
    case PL_LEVEL_F64:
        return pl_ops_f64(mode);
    case PL_LEVEL_SCALAR:
        return pl_ops_scalar();
    default:
        return NULL;
    }
}
