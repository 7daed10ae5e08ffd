/* What this library says of itself to whoever binds it as a provider of attention: the record of docs/PROVIDERS.md, into
 * the caller's bytes, so that no runtime is needed for a string. */
#include <stdio.h>
#include <string.h>

#include "ffi/call.h"
#include "ops/varlen.h"
#include "plimsoll/version.h"

PL_FFI_EXPORT pl_ffi_function __tvm_ffi_provider_describe;

#define COMMON                                                                              \
    "\"device\":1,\"capture\":false,\"heads\":0,\"index_multiple\":1,\"contiguous\":false," \
    "\"softcap_off\":0.0,\"sink\":\"native\",\"sink_in_lse\":false,\"lse_base\":\"e\","     \
    "\"lse_layout\":\"HT\",\"min_query\":0,\"probabilities\":\"rounded\",\"pad_heads\":0,"  \
    "\"copies\":false,\"transient_per_token\":0,"

static int write_record(char *to, size_t n)
{
    return snprintf(
        to, n,
        "{\"interface\":1,\"name\":\"plimsoll\",\"version\":\"%s\",\"operators\":["
        "{\"operator\":\"attention_varlen\",\"function\":\"attention_varlen\",\"parameters\":["
        "\"context\",\"q\",\"k\",\"v\",\"cu_seqlens_q\",\"cu_seqlens_k\",\"page_table\",\"sink\","
        "\"softmax_scale\",\"causal\",\"window_left\",\"window_right\",\"softcap\",\"out\",\"lse\","
        "\"workspace\"],\"outputs\":[13,14],\"types\":[\"bf16\",\"fp16\",\"fp32\"],\"dims\":"
        "[8,512,8],\"value_dims\":[8,512,8],\"causal\":true,\"window\":true,\"softcap\":true,"
        "\"lse_empty\":\"-inf\"," COMMON "\"workspace\":[0,%d]},"
        "{\"operator\":\"attention_sparse\",\"function\":\"attention_sparse_prefill\","
        "\"parameters\":[\"context\",\"q\",\"cache\",\"indices\",\"lengths\",\"extra_cache\","
        "\"extra_indices\",\"extra_lengths\",\"sink\",\"softmax_scale\",\"out\",\"max_logits\","
        "\"lse\",\"workspace\"],\"outputs\":[10,11,12],\"types\":[\"bf16\"],\"dims\":[512,576,64],"
        "\"value_dims\":[512,512,512],\"causal\":false,\"window\":false,\"softcap\":false,"
        "\"lse_empty\":\"+inf\"," COMMON "\"workspace\":[0,%d]}]}",
        PL_VERSION, PL_VARLEN_SCRATCH_BYTES, PL_VARLEN_SCRATCH_BYTES);
}

/* (text uint8 [n]) -> bytes of the record, an int. Nothing is written where n is less. */
int __tvm_ffi_provider_describe(void *self, const pl_ffi_any *args, int32_t n_args,
                                pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("provider_describe", args, n_args, 1, result);
    pl_ffi_tensor text = pl__ffi_array(&c, "text", PL_DL_UINT, 8, -1, false);
    char record[4096];
    int n = write_record(record, sizeof record);

    if (c.failed)
        return pl__ffi_end(&c);
    if (n <= text.shape[0])
        memcpy(text.data, record, (size_t)n);
    *result = (pl_ffi_any){.type_index = PL_FFI_INT, .v.i = n};
    return 0;
}
