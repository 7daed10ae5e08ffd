/* Borrowed arrays: shapes, gaps, extents. Knows nothing of attention. */
#include "provider/tensor.h"

#include <stddef.h>

/* Strides of an array without gaps. */
static pl_tensor pack(pl_tensor t)
{
    int64_t stride = 1;

    for (int i = t.n_dims - 1; i >= 0; i--) {
        t.strides[i] = stride;
        if (__builtin_mul_overflow(stride, t.shape[i], &stride))
            stride = -1; /* no such array: every check refuses it */
    }
    return t;
}

pl_tensor pl_tensor_of(void *data, pl_tensor_type type, int32_t n_dims, int64_t d0, int64_t d1,
                       int64_t d2)
{
    return pack((pl_tensor){data, type, PL_DEVICE_CPU, n_dims < 3 ? n_dims : 3, {d0, d1, d2}, {0}});
}

pl_tensor pl_tensor_pages(void *data, pl_tensor_type type, int64_t n_pages, int64_t page_size,
                          int64_t n_heads, int64_t dim)
{
    return pack((pl_tensor){data, type, PL_DEVICE_CPU, 4, {n_pages, page_size, n_heads, dim}, {0}});
}

int64_t pl__tensor_size(pl_tensor_type type)
{
    switch (type) {
    case PL_TENSOR_BF16:
    case PL_TENSOR_FP16:
        return 2;
    case PL_TENSOR_FP32:
    case PL_TENSOR_INT32:
        return 4;
    case PL_TENSOR_UINT8:
        return 1;
    case PL_TENSOR_NONE:
        break;
    }
    return 0;
}

bool pl__tensor_is(const pl_tensor *t, int32_t n_dims)
{
    int64_t size = pl__tensor_size(t->type);
    bool empty = false;

    if (size == 0 || t->n_dims != n_dims)
        return false;
    for (int32_t i = 0; i < n_dims; i++) {
        if (t->shape[i] < 0 || t->shape[i] > INT32_MAX)
            return false;
        empty = empty || t->shape[i] == 0;
    }
    return empty || (t->data != NULL && (uintptr_t)t->data % (uintptr_t)size == 0);
}

bool pl__tensor_packed(const pl_tensor *t)
{
    int64_t stride = 1;

    for (int32_t i = t->n_dims - 1; i >= 0; i--) {
        if (t->shape[i] != 1 && t->strides[i] != stride)
            return false;
        if (__builtin_mul_overflow(stride, t->shape[i], &stride))
            return false;
    }
    return true;
}

bool pl__tensor_apart(const pl_tensor *t)
{
    uintptr_t begin, end;
    int64_t inner, outer;

    if (!pl__tensor_extent(t, &begin, &end))
        return false;
    if (pl__tensor_packed(t) || begin == end)
        return true;
    if (t->n_dims != 3 || (t->shape[2] != 1 && t->strides[2] != 1))
        return false;
    inner = t->strides[1];
    outer = t->strides[0];
    if (t->shape[1] == 1)
        return t->shape[0] == 1 || outer >= t->shape[2];
    if (t->shape[0] == 1)
        return inner >= t->shape[2];
    /* The products are below the extent, which was reckoned. */
    return (inner >= t->shape[2] && outer >= (t->shape[1] - 1) * inner + t->shape[2]) ||
           (outer >= t->shape[2] && inner >= (t->shape[0] - 1) * outer + t->shape[2]);
}

bool pl__tensor_extent(const pl_tensor *t, uintptr_t *begin, uintptr_t *end)
{
    int64_t last = 0, step, bytes;

    *begin = *end = 0;
    if (t->type == PL_TENSOR_NONE)
        return true;
    if (t->n_dims < 0 || t->n_dims > PL_TENSOR_MAX_DIMS)
        return false;
    for (int32_t i = 0; i < t->n_dims; i++)
        if (t->shape[i] < 1)
            return t->shape[i] == 0;
    for (int32_t i = 0; i < t->n_dims; i++)
        if ((t->shape[i] > 1 && t->strides[i] < 0) ||
            __builtin_mul_overflow(t->shape[i] - 1, t->shape[i] > 1 ? t->strides[i] : 0, &step) ||
            __builtin_add_overflow(last, step, &last))
            return false;
    if (__builtin_add_overflow(last, 1, &last) ||
        __builtin_mul_overflow(last, pl__tensor_size(t->type), &bytes) ||
        (uint64_t)bytes > UINTPTR_MAX - (uintptr_t)t->data)
        return false;
    *begin = (uintptr_t)t->data;
    *end = *begin + (uintptr_t)bytes;
    return true;
}
