/* What the arguments of operators have in common: rows of numbers, lengths that must agree, caches of keys. Every check raises
 * with the argument's name, and what is read after an error is zero. */
#ifndef PL_FFI_SHAPES_H
#define PL_FFI_SHAPES_H

#include "ffi/call.h"
#include "plimsoll/ops.h"

typedef struct pl_ffi_type {
    uint8_t code, bits; /* DLPack's */
} pl_ffi_type;

extern const pl_ffi_type pl__ffi_bf16, pl__ffi_fp32, pl__ffi_int32, pl__ffi_bytes;

/* TypeError where it is not one of `type`. */
void pl__ffi_check_type(pl_ffi_call *c, const char *name, const pl_ffi_tensor *t, pl_ffi_type type,
                        const char *want);

/* [..][dims] with adjacent dims, of any type. n_dims as pl__ffi_tensor's; lengths are those of int32. */
pl_ffi_tensor pl__ffi_rows(pl_ffi_call *c, const char *name, int n_dims, bool may_be_none);

/* ValueError where the lengths differ. */
void pl__ffi_same(pl_ffi_call *c, const char *what, int64_t got, int64_t want);

int32_t pl__ffi_int32_of(pl_ffi_call *c, const char *name);

/* fp32 [first][second] without gaps, or None: NULL. */
float *pl__ffi_stats(pl_ffi_call *c, const char *name, int64_t first, int64_t second);

/* A tensor without gaps, of `type`; a length of -1 in shape[n_dims] is any, and becomes what it is. None: NULL. Where the type is
 * pl__ffi_bytes, e4m3 and e8m0 are bytes too. */
void *pl__ffi_packed(pl_ffi_call *c, const char *name, pl_ffi_type type, int n_dims, int64_t *shape,
                     bool may_be_none);

/* (context) -> 0: the query of an operator that takes no workspace. */
int pl__ffi_no_workspace(const char *name, const pl_ffi_any *args, int32_t n_args,
                         pl_ffi_any *result);

#define PL_FFI_NO_WORKSPACE(name)                                                             \
    PL_FFI_EXPORT pl_ffi_function __tvm_ffi_##name##_workspace_size;                          \
    int __tvm_ffi_##name##_workspace_size(void *self, const pl_ffi_any *args, int32_t n_args, \
                                          pl_ffi_any *result)                                 \
    {                                                                                         \
        return pl__ffi_no_workspace(#name "_workspace_size", args, n_args, result);           \
    }

/* A cache, whose type and last dimension tell its format:
 *
 *     bf16                             512 or 576 numbers a row: [rows][dim], [rows][1][dim], [pages][page][1][dim]
 *     uint8, int8 or e4m3, 584 / 656   bytes a row, V4 / V32: [pages][page][1][bytes]
 *
 * Bytes of a row are adjacent. Rows of bf16 may have any distance, if it is one distance in the whole cache or rows are
 * adjacent within their page; those of 8 bits are adjacent within their page, and pages any distance apart. None gives
 * false. */
bool pl__ffi_cache(pl_ffi_call *c, const char *name, bool may_be_none, pl_kv_cache *cache);

#endif
