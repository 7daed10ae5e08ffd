/* What all levels of attention_sparse share. The kernels are the levels'. */
#include "ops/sparse.h"

int32_t pl_sparse_length(const pl_sparse_args *a, const pl_sparse_set *set, int64_t t)
{
    int32_t n = set->length ? set->length[t / a->length_tokens] : set->n_index;

    return n < 0 ? 0 : n < set->n_index ? n : set->n_index;
}
