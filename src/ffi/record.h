/* What our own attention operators say of themselves as a provider, to whoever binds this library and in the table of
 * providers alike (docs/PROVIDERS.md). */
#ifndef PL_FFI_RECORD_H
#define PL_FFI_RECORD_H

#include <stdint.h>
#include <stdio.h>

#include "ffi/names.h"
#include "plimsoll/version.h"

#define PL_FFI_VARLEN_CLAIMS                                                              \
    "\"types\":[\"bf16\",\"fp16\",\"fp32\"],\"dims\":[8,512,8],\"value_dims\":[8,512,8]," \
    "\"causal\":true,\"window\":true,\"softcap\":true,\"lse_empty\":\"-inf\""
#define PL_FFI_SPARSE_CLAIMS                                                      \
    "\"types\":[\"bf16\"],\"dims\":[512,576,64],\"value_dims\":[512,512,512],"    \
    "\"causal\":false,\"window\":false,\"softcap\":false,\"lse_empty\":\"+inf\"," \
    "\"heads_max\":128,\"caches\":[\"bf16\",\"v4\",\"v32\"],\"second_set\":true"
#define PL_FFI_COMMON_CLAIMS                                                                \
    "\"device\":1,\"capture\":false,\"heads\":0,\"index_multiple\":1,\"contiguous\":false," \
    "\"softcap_off\":0.0,\"sink\":\"native\",\"sink_in_lse\":false,\"lse_base\":\"e\","     \
    "\"lse_layout\":\"HT\",\"min_query\":0,\"probabilities\":\"rounded\",\"pad_heads\":0,"  \
    "\"copies\":false,\"transient_per_token\":0,\"pages\":true"

/* JSON into to[n], functions named with `prefix`; its length, which is n or more where it does not fit. */
static inline int pl__ffi_own_record(char *to, size_t n, const char *name, const char *prefix,
                                     uint64_t fixed, uint64_t per_worker)
{
    static const char *const rows[3][5] = {
        {"attention_varlen", "attention_varlen", PL_FFI_VARLEN_PARAMETERS, PL_FFI_VARLEN_OUTPUTS,
         PL_FFI_VARLEN_CLAIMS},
        {"attention_sparse", "attention_sparse_prefill", PL_FFI_SPARSE_PARAMETERS,
         PL_FFI_SPARSE_OUTPUTS, PL_FFI_SPARSE_CLAIMS},
        {"attention_sparse_decode", "attention_sparse_decode", PL_FFI_DECODE_PARAMETERS,
         PL_FFI_DECODE_OUTPUTS, PL_FFI_SPARSE_CLAIMS},
    };
    int at = snprintf(to, n, "{\"interface\":1,\"name\":\"%s\",\"version\":\"%s\",\"operators\":[",
                      name, PL_VERSION);

    for (int i = 0; i < 3 && (size_t)at < n; i++)
        at +=
            snprintf(to + at, n - (size_t)at,
                     "{\"operator\":\"%s\",\"function\":\"%s%s\",\"parameters\":%s,"
                     "\"outputs\":%s,%s," PL_FFI_COMMON_CLAIMS ",\"workspace\":[%llu,%llu]}%s",
                     rows[i][0], prefix, rows[i][1], rows[i][2], rows[i][3], rows[i][4],
                     (unsigned long long)fixed, (unsigned long long)per_worker, i < 2 ? "," : "]}");
    return at;
}

#endif
