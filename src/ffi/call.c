/* Reading what a TVM-FFI function is called with. Nothing is kept: tensors are borrowed for the call.
 *
 * The runtime is not linked. Where a host has loaded it for everybody (Python does), errors arrive there as exceptions;
 * elsewhere the text stays with the thread. It is looked for at each error, since it may be loaded after this library: a
 * host that finds no error behind a -1 crashes. */
#include "ffi/call.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

PL_FFI_EXPORT const char *plimsoll_ffi_last_error(void);

static _Thread_local char last_error[512];

/* "ValueError: FUNCTION: WHAT" of the last failure on this thread; "" before the first. Valid until the next. */
const char *plimsoll_ffi_last_error(void)
{
    return last_error;
}

static void raise_in_runtime(const char *kind, const char *message)
{
    typedef void set_raised(const char *kind, const char *message);
    set_raised *set;

    /* POSIX lets an address from dlsym be that of a function, C has no cast that says so. */
    *(void **)&set = dlsym(RTLD_DEFAULT, "TVMFFIErrorSetRaisedFromCStr");
    if (set)
        set(kind, message);
}

void pl__ffi_fail(pl_ffi_call *c, const char *kind, const char *format, ...)
{
    char text[384];
    va_list list;
    int n;

    if (c->failed)
        return;
    c->failed = true;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    n = snprintf(last_error, sizeof last_error, "%s: ", kind);
    (void)snprintf(last_error + n, sizeof last_error - (size_t)n, "%s: %s", c->function, text);
    raise_in_runtime(kind, last_error + n);
}

void pl__ffi_fail_status(pl_ffi_call *c, pl_status status, const pl_error *err)
{
    if (status != PL_OK)
        pl__ffi_fail(c,
                     status == PL_ERR_INVALID ? PL_FFI_VALUE_ERROR
                     : status == PL_ERR_NOMEM ? "MemoryError"
                                              : "RuntimeError",
                     "%s", err->msg);
}

int pl__ffi_end(const pl_ffi_call *c)
{
    return c->failed ? -1 : 0;
}

pl_ffi_call pl__ffi_begin(const char *function, const pl_ffi_any *args, int32_t n_args,
                          int32_t want, pl_ffi_any *result)
{
    pl_ffi_call c = {.function = function, .args = args, .n_args = n_args};

    *result = (pl_ffi_any){.type_index = PL_FFI_NONE};
    if (n_args != want)
        pl__ffi_fail(&c, PL_FFI_TYPE_ERROR, "number of arguments is wrong (got %d, want %d)",
                     n_args, want);
    return c;
}

/* None for each that is not there, so that readers need no case of their own. */
static const pl_ffi_any *next(pl_ffi_call *c)
{
    static const pl_ffi_any none;

    return c->failed || c->at >= c->n_args ? &none : &c->args[c->at++];
}

static void wrong_type(pl_ffi_call *c, const char *name, int32_t got, const char *want)
{
    pl__ffi_fail(c, PL_FFI_TYPE_ERROR, "%s: wrong type (got type index %d, want %s)", name, got,
                 want);
}

int64_t pl__ffi_int(pl_ffi_call *c, const char *name)
{
    const pl_ffi_any *a = next(c);

    if (a->type_index == PL_FFI_INT || a->type_index == PL_FFI_BOOL)
        return a->v.i;
    wrong_type(c, name, a->type_index, "an int");
    return 0;
}

double pl__ffi_float(pl_ffi_call *c, const char *name)
{
    const pl_ffi_any *a = next(c);

    if (a->type_index == PL_FFI_FLOAT)
        return a->v.f;
    if (a->type_index == PL_FFI_INT)
        return (double)a->v.i;
    wrong_type(c, name, a->type_index, "a float");
    return 0;
}

void *pl__ffi_opaque(pl_ffi_call *c, const char *name)
{
    const pl_ffi_any *a = next(c);

    if (a->type_index == PL_FFI_OPAQUE && a->v.ptr)
        return a->v.ptr;
    wrong_type(c, name, a->type_index, "an opaque pointer that is not NULL");
    return NULL;
}

static void check_tensor(pl_ffi_call *c, const char *name, const pl_dl_tensor *d, int n_dims)
{
    if (d->device_type != PL_DL_CPU)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR, "%s: not on the CPU (got device type %d, want %d)",
                     name, d->device_type, PL_DL_CPU);
    else if (n_dims ? d->n_dims != n_dims : d->n_dims < 1 || d->n_dims > PL_FFI_MAX_DIMS)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR, "%s: number of dimensions is wrong (got %d, want %d)",
                     name, d->n_dims, n_dims ? n_dims : PL_FFI_MAX_DIMS);
    else if (d->type_lanes != 1)
        pl__ffi_fail(c, PL_FFI_TYPE_ERROR, "%s: elements are vectors (got %d lanes, want 1)", name,
                     d->type_lanes);
    for (int i = 0; i < d->n_dims && !c->failed; i++)
        if (d->shape[i] < 0)
            pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                         "%s: negative length (got %" PRId64 ", want 0 or more)", name,
                         d->shape[i]);
}

pl_ffi_tensor pl__ffi_tensor(pl_ffi_call *c, const char *name, int n_dims, bool may_be_none)
{
    const pl_ffi_any *a = next(c);
    const pl_dl_tensor *d = NULL;
    pl_ffi_tensor t = {0};
    int64_t stride = 1;

    if (a->type_index == PL_FFI_DLTENSOR)
        d = a->v.ptr;
    else if (a->type_index == PL_FFI_TENSOR && a->v.ptr)
        d = (const void *)((const char *)a->v.ptr + PL_FFI_OBJECT_HEADER_BYTES);
    if (!d) {
        if (a->type_index != PL_FFI_NONE || !may_be_none)
            wrong_type(c, name, a->type_index, may_be_none ? "a tensor or None" : "a tensor");
        return t;
    }
    check_tensor(c, name, d, n_dims);
    if (c->failed)
        return t;
    t.n_dims = d->n_dims;
    t.type_code = d->type_code;
    t.type_bits = d->type_bits;
    for (int i = d->n_dims - 1; i >= 0; i--) {
        t.shape[i] = d->shape[i];
        t.strides[i] = d->strides ? d->strides[i] : stride;
        if (__builtin_mul_overflow(stride, d->shape[i], &stride)) {
            pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                         "%s: too large (got a length of %" PRId64 ", want fewer elements)", name,
                         d->shape[i]);
            return t;
        }
    }
    t.data = (char *)d->data + d->byte_offset;
    return t;
}

pl_ffi_tensor pl__ffi_array(pl_ffi_call *c, const char *name, uint8_t type_code, uint8_t type_bits,
                            int64_t length, bool may_be_none)
{
    pl_ffi_tensor t = pl__ffi_tensor(c, name, 1, may_be_none);

    if (c->failed || !t.n_dims)
        return t;
    if (t.type_code != type_code || t.type_bits != type_bits)
        pl__ffi_fail(c, PL_FFI_TYPE_ERROR,
                     "%s: wrong element type (got code %d with %d bits, want %d with %d)", name,
                     t.type_code, t.type_bits, type_code, type_bits);
    else if (length >= 0 && t.shape[0] != length)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR, "%s: wrong length (got %" PRId64 ", want %" PRId64 ")",
                     name, t.shape[0], length);
    else if (t.shape[0] > 1 && t.strides[0] != 1)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR, "%s: has gaps (got a stride of %" PRId64 ", want 1)",
                     name, t.strides[0]);
    return t;
}
