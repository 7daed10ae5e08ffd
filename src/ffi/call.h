/* A call from TVM-FFI: its arguments one after the other, each checked and named, and the error that a check raises. */
#ifndef PL_FFI_CALL_H
#define PL_FFI_CALL_H

#include <stdbool.h>

#include "ffi/any.h"
#include "plimsoll/status.h"

enum { PL_FFI_MAX_DIMS = 4 };

/* Python's names for the kinds of error. */
#define PL_FFI_TYPE_ERROR  "TypeError"
#define PL_FFI_VALUE_ERROR "ValueError"

typedef struct pl_ffi_call {
    const char *function;
    const pl_ffi_any *args;
    int32_t n_args;
    int32_t at;  /* the next argument */
    bool failed; /* an error was raised: what is read from now on is zero */
} pl_ffi_call;

/* A tensor on the CPU; data is NULL where None was given. Strides are in elements. */
typedef struct pl_ffi_tensor {
    void *data;
    int n_dims;
    uint8_t type_code, type_bits;
    int64_t shape[PL_FFI_MAX_DIMS], strides[PL_FFI_MAX_DIMS];
} pl_ffi_tensor;

/* Raises a TypeError unless there are n_args. *result becomes None. */
pl_ffi_call pl__ffi_begin(const char *function, const pl_ffi_any *args, int32_t n_args,
                          int32_t want, pl_ffi_any *result);

/* Raises through the runtime where there is one, and keeps the text for plimsoll_ffi_last_error. The first error counts. */
void pl__ffi_fail(pl_ffi_call *c, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a status of the library. */
void pl__ffi_fail_status(pl_ffi_call *c, pl_status status, const pl_error *err);

/* 0 or -1, for the caller. */
int pl__ffi_end(const pl_ffi_call *c);

int64_t pl__ffi_int(pl_ffi_call *c, const char *name);  /* bool counts */
double pl__ffi_float(pl_ffi_call *c, const char *name); /* int counts */
void *pl__ffi_opaque(pl_ffi_call *c, const char *name);

/* n_dims 0: any number up to PL_FFI_MAX_DIMS. */
pl_ffi_tensor pl__ffi_tensor(pl_ffi_call *c, const char *name, int n_dims, bool may_be_none);

/* One of the type, without gaps; a length of -1 is any. */
pl_ffi_tensor pl__ffi_array(pl_ffi_call *c, const char *name, uint8_t type_code, uint8_t type_bits,
                            int64_t length, bool may_be_none);

#endif
