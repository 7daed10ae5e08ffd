/* What this library says of itself to whoever binds it as a provider of attention: the record of docs/PROVIDERS.md, into
 * the caller's bytes, so that no runtime is needed for a string. */
#include <string.h>

#include "ffi/call.h"
#include "ffi/record.h"
#include "ops/varlen.h"

PL_FFI_EXPORT pl_ffi_function __tvm_ffi_provider_describe;

/* (text uint8 [n]) -> bytes of the record, an int. Nothing is written where n is less. */
int __tvm_ffi_provider_describe(void *self, const pl_ffi_any *args, int32_t n_args,
                                pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("provider_describe", args, n_args, 1, result);
    pl_ffi_tensor text = pl__ffi_array(&c, "text", PL_DL_UINT, 8, -1, false);
    char record[8192];
    int n = pl__ffi_own_record(record, sizeof record, "plimsoll", "", 0, PL_VARLEN_SCRATCH_BYTES);

    if (c.failed)
        return pl__ffi_end(&c);
    if (n <= text.shape[0])
        memcpy(text.data, record, (size_t)n);
    *result = (pl_ffi_any){.type_index = PL_FFI_INT, .v.i = n};
    return 0;
}
