/* The row operators of plimsoll/model_ops.h for hosts that speak TVM-FFI: norms, the quantiser, rotations, the Hadamard
 * transform. They take no workspace. Types, shapes and strides are checked here, the rest by the library's entries. */
#include <inttypes.h>

#include "ffi/shapes.h"
#include "plimsoll/model_ops.h"

PL_FFI_EXPORT pl_ffi_function __tvm_ffi_rms_norm, __tvm_ffi_quantise, __tvm_ffi_rope_frequencies;
PL_FFI_EXPORT pl_ffi_function __tvm_ffi_rope, __tvm_ffi_head_norm_rope, __tvm_ffi_hadamard;

PL_FFI_NO_WORKSPACE(rms_norm)
PL_FFI_NO_WORKSPACE(quantise)
PL_FFI_NO_WORKSPACE(rope)
PL_FFI_NO_WORKSPACE(head_norm_rope)
PL_FFI_NO_WORKSPACE(hadamard)

enum { BLOCK = 128, FREQUENCIES = 32, HEAD_DIM = 512, HADAMARD_DIM = 128 };

/* bf16 [n][dim]; -1 is any. */
static uint16_t *matrix(pl_ffi_call *c, const char *name, int64_t *shape)
{
    return pl__ffi_packed(c, name, pl__ffi_bf16, 2, shape, false);
}

/* (context, x, weight, eps, y, codes or None, scales or None) -> None. x and y bf16 [n][dim], weight bf16 [dim], codes uint8 or e4m3
 * [n][dim], scales uint8 or e8m0 [n][dim / 128]. */
int __tvm_ffi_rms_norm(void *self, const pl_ffi_any *args, int32_t n_args, pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("rms_norm", args, n_args, 7, result);
    pl_ops_context *context = pl__ffi_opaque(&c, "context");
    int64_t shape[2] = {-1, -1}, blocks[2];
    pl_op_rms_norm_args a = {.x = matrix(&c, "x", shape)};
    pl_error err;

    a.n = (int32_t)shape[0];
    a.dim = (int32_t)shape[1];
    blocks[0] = shape[0];
    blocks[1] = shape[1] / BLOCK;
    a.weight = pl__ffi_packed(&c, "weight", pl__ffi_bf16, 1, &shape[1], false);
    a.eps = (float)pl__ffi_float(&c, "eps");
    a.y = matrix(&c, "y", shape);
    a.codes = pl__ffi_packed(&c, "codes", pl__ffi_bytes, 2, shape, true);
    a.scales = pl__ffi_packed(&c, "scales", pl__ffi_bytes, 2, blocks, true);
    if (!c.failed)
        pl__ffi_fail_status(&c, pl_op_rms_norm(context, &a, &err), &err);
    return pl__ffi_end(&c);
}

/* (context, x, codes, scales) -> None: as above. */
int __tvm_ffi_quantise(void *self, const pl_ffi_any *args, int32_t n_args, pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("quantise", args, n_args, 4, result);
    pl_ops_context *context = pl__ffi_opaque(&c, "context");
    int64_t shape[2] = {-1, -1}, blocks[2];
    pl_op_quantise_args a = {.x = matrix(&c, "x", shape)};
    pl_error err;

    a.n = (int32_t)shape[0];
    a.dim = (int32_t)shape[1];
    blocks[0] = shape[0];
    blocks[1] = shape[1] / BLOCK;
    a.codes = pl__ffi_packed(&c, "codes", pl__ffi_bytes, 2, shape, false);
    a.scales = pl__ffi_packed(&c, "scales", pl__ffi_bytes, 2, blocks, false);
    if (!c.failed)
        pl__ffi_fail_status(&c, pl_op_quantise(context, &a, &err), &err);
    return pl__ffi_end(&c);
}

/* (base, factor, original_max_position, beta_fast, beta_slow, frequencies) -> None: fp32 [32]. A factor of 0: no
 * stretching. */
int __tvm_ffi_rope_frequencies(void *self, const pl_ffi_any *args, int32_t n_args,
                               pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("rope_frequencies", args, n_args, 6, result);
    int64_t length = FREQUENCIES;
    pl_op_rope_table t;
    float *frequencies;
    pl_error err;

    t.base = pl__ffi_float(&c, "base");
    t.factor = pl__ffi_float(&c, "factor");
    t.original_max_position = pl__ffi_float(&c, "original_max_position");
    t.beta_fast = pl__ffi_float(&c, "beta_fast");
    t.beta_slow = pl__ffi_float(&c, "beta_slow");
    frequencies = pl__ffi_packed(&c, "frequencies", pl__ffi_fp32, 1, &length, false);
    if (!c.failed)
        pl__ffi_fail_status(&c, pl_op_rope_frequencies(&t, frequencies, &err), &err);
    return pl__ffi_end(&c);
}

/* A stride that is too short is refused here: to the library, 0 is packed. */
static void check_stride(pl_ffi_call *c, const pl_ffi_tensor *x, int i)
{
    if (!c->failed && x->shape[i] > 1 && x->strides[i] < x->shape[2])
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                     "x: heads or tokens overlap (got a stride of %" PRId64 ", want %" PRId64
                     " or more)",
                     x->strides[i], x->shape[2]);
}

/* (context, x, frequencies, positions, inverse) -> None: in place. x bf16 [n][heads][dim], any strides with adjacent dims;
 * frequencies fp32 [32], positions int32 [n]. */
int __tvm_ffi_rope(void *self, const pl_ffi_any *args, int32_t n_args, pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("rope", args, n_args, 5, result);
    pl_ops_context *context = pl__ffi_opaque(&c, "context");
    pl_ffi_tensor x = pl__ffi_rows(&c, "x", 3, false);
    int64_t length = FREQUENCIES;
    pl_op_rope_args a = {0};
    pl_error err;

    if (!c.failed)
        pl__ffi_check_type(&c, "x", &x, pl__ffi_bf16, "bf16");
    check_stride(&c, &x, 0);
    check_stride(&c, &x, 1);
    a.n = (int32_t)x.shape[0];
    a.n_heads = (int32_t)x.shape[1];
    a.head_dim = (int32_t)x.shape[2];
    a.x = x.data;
    a.token_stride = x.shape[0] > 1 ? x.strides[0] : 0;
    a.head_stride = x.shape[1] > 1 ? x.strides[1] : 0;
    a.frequencies = pl__ffi_packed(&c, "frequencies", pl__ffi_fp32, 1, &length, false);
    a.positions = pl__ffi_packed(&c, "positions", pl__ffi_int32, 1, x.shape, false);
    a.inverse = pl__ffi_int(&c, "inverse") != 0;
    if (!c.failed)
        pl__ffi_fail_status(&c, pl_op_rope(context, &a, &err), &err);
    return pl__ffi_end(&c);
}

/* (context, q, frequencies, positions, eps) -> None: in place. q bf16 [n][heads][512]. */
int __tvm_ffi_head_norm_rope(void *self, const pl_ffi_any *args, int32_t n_args, pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("head_norm_rope", args, n_args, 5, result);
    pl_ops_context *context = pl__ffi_opaque(&c, "context");
    int64_t shape[3] = {-1, -1, HEAD_DIM}, length = FREQUENCIES;
    pl_op_head_norm_rope_args a = {.q = pl__ffi_packed(&c, "q", pl__ffi_bf16, 3, shape, false)};
    pl_error err;

    a.n = (int32_t)shape[0];
    a.n_heads = (int32_t)shape[1];
    a.frequencies = pl__ffi_packed(&c, "frequencies", pl__ffi_fp32, 1, &length, false);
    a.positions = pl__ffi_packed(&c, "positions", pl__ffi_int32, 1, shape, false);
    a.eps = (float)pl__ffi_float(&c, "eps");
    if (!c.failed)
        pl__ffi_fail_status(&c, pl_op_head_norm_rope(context, &a, &err), &err);
    return pl__ffi_end(&c);
}

/* (context, x, y) -> None: bf16 [n][128]. */
int __tvm_ffi_hadamard(void *self, const pl_ffi_any *args, int32_t n_args, pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("hadamard", args, n_args, 3, result);
    pl_ops_context *context = pl__ffi_opaque(&c, "context");
    int64_t shape[2] = {-1, HADAMARD_DIM};
    pl_op_hadamard_args a = {.x = matrix(&c, "x", shape)};
    pl_error err;

    a.n = (int32_t)shape[0];
    a.y = matrix(&c, "y", shape);
    if (!c.failed)
        pl__ffi_fail_status(&c, pl_op_hadamard(context, &a, &err), &err);
    return pl__ffi_end(&c);
}
