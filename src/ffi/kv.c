/* Caches of keys for hosts that speak TVM-FFI: rows in and out, in numbers and in parts. The four take no workspace, and
 * say so to who asks. */
#include <inttypes.h>

#include "ffi/shapes.h"

PL_FFI_EXPORT pl_ffi_function __tvm_ffi_kv_insert, __tvm_ffi_kv_gather;
PL_FFI_EXPORT pl_ffi_function __tvm_ffi_kv_pack, __tvm_ffi_kv_unpack;

PL_FFI_NO_WORKSPACE(kv_insert)
PL_FFI_NO_WORKSPACE(kv_gather)
PL_FFI_NO_WORKSPACE(kv_pack)
PL_FFI_NO_WORKSPACE(kv_unpack)

typedef struct rows {
    pl_ops_context *context;
    pl_kv_cache cache;
    int64_t n;
    const int32_t *slots;
} rows;

/* (context, cache, slots ..: what all four begin with. */
static rows read_rows(pl_ffi_call *c)
{
    rows r = {.context = pl__ffi_opaque(c, "context")};
    pl_ffi_tensor slots;

    (void)pl__ffi_cache(c, "cache", false, &r.cache);
    slots = pl__ffi_array(c, "slots", PL_DL_INT, 32, -1, false);
    r.n = slots.shape[0];
    r.slots = slots.data;
    return r;
}

/* bf16 [n][dim]. */
static pl_ffi_tensor read_x(pl_ffi_call *c, const rows *r)
{
    pl_ffi_tensor x = pl__ffi_rows(c, "x", 2, false);

    if (c->failed)
        return x;
    pl__ffi_check_type(c, "x", &x, pl__ffi_bf16, "bf16");
    pl__ffi_same(c, "x and slots", x.shape[0], r->n);
    pl__ffi_same(c, "x, dims", x.shape[1], r->cache.head_dim);
    return x;
}

/* [n][length] of the type, without gaps. */
static void *read_part(pl_ffi_call *c, const char *name, const rows *r, pl_ffi_type type,
                       const char *want, int64_t length)
{
    pl_ffi_tensor t = pl__ffi_rows(c, name, 2, false);

    if (c->failed)
        return NULL;
    pl__ffi_check_type(c, name, &t, type, want);
    if (c->failed)
        return NULL;
    if (t.shape[0] != r->n || t.shape[1] != length)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                     "%s: wrong shape (got [%" PRId64 "][%" PRId64 "], want [%" PRId64 "][%" PRId64
                     "])",
                     name, t.shape[0], t.shape[1], r->n, length);
    else if (r->n > 1 && t.strides[0] != length)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                     "%s: rows have gaps (got a stride of %" PRId64 ", want %" PRId64 ")", name,
                     t.strides[0], length);
    return t.data;
}

static pl_kv_parts read_parts(pl_ffi_call *c, const rows *r)
{
    bool v4 = r->cache.format == PL_KV_V4;
    pl_kv_parts parts = {0};

    if (!c->failed && r->cache.format == PL_KV_BF16)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR, "cache: has no parts (got bf16, want rows of bytes)");
    parts.codes = read_part(c, "codes", r, pl__ffi_bytes, "uint8", v4 ? 448 : 512);
    parts.scales = v4 ? read_part(c, "scales", r, pl__ffi_bytes, "uint8", 8)
                      : read_part(c, "scales", r, pl__ffi_fp32, "fp32", 4);
    parts.rope = read_part(c, "rope", r, pl__ffi_bf16, "bf16", 64);
    return parts;
}

/* (context, cache, slots, x) -> None. The contract is pl_kv_insert's: x into the slots. */
int __tvm_ffi_kv_insert(void *self, const pl_ffi_any *args, int32_t n_args, pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("kv_insert", args, n_args, 4, result);
    rows r = read_rows(&c);
    pl_ffi_tensor x = read_x(&c, &r);
    pl_error err;

    if (!c.failed)
        pl__ffi_fail_status(
            &c, pl_kv_insert(r.context, &r.cache, r.n, r.slots, x.data, x.strides[0], &err), &err);
    return pl__ffi_end(&c);
}

/* (context, cache, slots, x) -> None: the slots into x. */
int __tvm_ffi_kv_gather(void *self, const pl_ffi_any *args, int32_t n_args, pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("kv_gather", args, n_args, 4, result);
    rows r = read_rows(&c);
    pl_ffi_tensor x = read_x(&c, &r);
    pl_error err;

    if (!c.failed)
        pl__ffi_fail_status(
            &c, pl_kv_gather(r.context, &r.cache, r.n, r.slots, x.data, x.strides[0], &err), &err);
    return pl__ffi_end(&c);
}

/* (context, cache, slots, codes, scales, rope) -> None: parts into the slots. codes uint8 [n][448 or 512], scales uint8 [n][8] or
 * fp32 [n][4], rope bf16 [n][64]. */
int __tvm_ffi_kv_pack(void *self, const pl_ffi_any *args, int32_t n_args, pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("kv_pack", args, n_args, 6, result);
    rows r = read_rows(&c);
    pl_kv_parts parts = read_parts(&c, &r);
    pl_error err;

    if (!c.failed)
        pl__ffi_fail_status(&c, pl_kv_pack(r.context, &r.cache, r.n, r.slots, &parts, &err), &err);
    return pl__ffi_end(&c);
}

/* The same the other way. */
int __tvm_ffi_kv_unpack(void *self, const pl_ffi_any *args, int32_t n_args, pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("kv_unpack", args, n_args, 6, result);
    rows r = read_rows(&c);
    pl_kv_parts parts = read_parts(&c, &r);
    pl_error err;

    if (!c.failed)
        pl__ffi_fail_status(&c, pl_kv_unpack(r.context, &r.cache, r.n, r.slots, &parts, &err),
                            &err);
    return pl__ffi_end(&c);
}
