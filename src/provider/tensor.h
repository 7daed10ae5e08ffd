/* Questions about a borrowed array that every check asks. */
#ifndef PL_PROVIDER_TENSOR_H
#define PL_PROVIDER_TENSOR_H

#include <stdbool.h>

#include "plimsoll/provider.h"

/* Bytes of an element; 0 for PL_TENSOR_NONE. */
int64_t pl__tensor_size(pl_tensor_type type);

/* There, of these many dimensions, its lengths 0 .. 2^31 - 1, an address where it has elements, aligned to them. */
bool pl__tensor_is(const pl_tensor *t, int32_t n_dims);

/* No gaps. */
bool pl__tensor_packed(const pl_tensor *t);

/* The last dimension is adjacent and rows do not overlap: the strides of a writable array. */
bool pl__tensor_apart(const pl_tensor *t);

/* Bytes *begin .. *end - 1, from the first to the last element; empty for none. False for negative strides and for what
 * an address cannot reach. */
bool pl__tensor_extent(const pl_tensor *t, uintptr_t *begin, uintptr_t *end);

#endif
