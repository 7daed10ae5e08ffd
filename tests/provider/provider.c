/* Providers to test with, one library for each VARIANT. All compute with the project's own operators; they differ in what
 * they say and in the form of their results. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ffi/call.h"
#include "ffi/record.h"
#include "ops/varlen.h"
#include "plimsoll/ops.h"

enum {
    PADDED = 1, /* sparse, [T,64,512] alone, computed in memory of its own and copied */
    BASE2 = 2,  /* varlen: LSE [T,H] to base 2, no sink, 0 is a soft cap and -1 is none */
    LIAR = 3,  /* varlen: says natural logarithm and a sink, gives base 2 and leaves the sink out */
    DRIFT = 4, /* varlen: q and k have changed places */
    BARE = 5,  /* varlen: no function for the workspace's size */
    UNDECLARED = 6, /* varlen: does not say how its LSE lies; exact from 32 tokens on */
    FAILING = 7,    /* varlen: every launch fails after it wrote into out */
    UNKNOWN = 8,    /* varlen: a claim that nobody knows */
    WRITER = 9,     /* varlen: writes behind its output */
    CRASHING = 10,  /* varlen: ends the process */
    FORMS = 11      /* all that our own library offers */
};

#define ORDER   "\"q\",\"k\""
#define SWAPPED "\"k\",\"q\""

PL_FFI_EXPORT pl_ffi_function __tvm_ffi_provider_describe;
PL_FFI_EXPORT pl_ffi_function __tvm_ffi_test_attention;
PL_FFI_EXPORT pl_ffi_function __tvm_ffi_test_attention_workspace_size;
extern pl_ffi_function __tvm_ffi_attention_varlen, __tvm_ffi_attention_sparse_prefill,
    __tvm_ffi_attention_sparse_decode, __tvm_ffi_attention_varlen_workspace_size;

static int record(char *to, size_t n)
{
    if (VARIANT == FORMS)
        return pl__ffi_own_record(to, n, "forms", "", 0, PL_VARLEN_SCRATCH_BYTES);
    if (VARIANT == PADDED)
        return snprintf(
            to, n,
            "{\"interface\":1,\"name\":\"padded\",\"version\":\"0.2.4+test\",\"operators\":[{"
            "\"operator\":\"attention_sparse\",\"function\":\"test_attention\",\"parameters\":["
            "\"context\",\"q\",\"cache\",\"indices\",\"lengths\",\"extra_cache\",\"extra_indices\","
            "\"extra_lengths\",\"sink\",\"softmax_scale\",\"out\",\"max_logits\",\"lse\","
            "\"workspace\"],\"outputs\":[10,11,12],\"types\":[\"bf16\"],\"device\":1,\"capture\":"
            "false,\"heads\":64,\"dims\":[512,512,1],\"value_dims\":[512,512,1],\"index_multiple\":"
            "64,\"contiguous\":true,\"causal\":false,\"window\":false,\"softcap\":false,"
            "\"softcap_off\":0.0,\"sink\":\"native\",\"sink_in_lse\":false,\"lse_base\":\"e\","
            "\"lse_layout\":\"HT\",\"lse_empty\":\"+inf\",\"min_query\":0,\"probabilities\":"
            "\"rounded\",\"pad_heads\":64,\"copies\":true,\"workspace\":[0,%d],"
            "\"transient_per_token\":65536}]}",
            PL_VARLEN_SCRATCH_BYTES);
    return snprintf(
        to, n,
        "{\"interface\":1,\"name\":\"variant%d\",\"version\":\"1.0\",\"operators\":[{%s"
        "\"operator\":\"attention_varlen\",\"function\":\"test_attention\",\"parameters\":["
        "\"context\",%s,\"v\",\"cu_seqlens_q\",\"cu_seqlens_k\",\"page_table\",\"sink\","
        "\"softmax_scale\",\"causal\",\"window_left\",\"window_right\",\"softcap\",\"out\",\"lse\","
        "\"workspace\"],\"outputs\":[13,14],\"types\":[\"bf16\"],\"device\":1,\"capture\":false,"
        "\"heads\":0,\"dims\":[8,512,8],\"value_dims\":[8,512,8],\"index_multiple\":1,"
        "\"contiguous\":false,\"causal\":true,\"window\":true,\"softcap\":%s,\"softcap_off\":%s,"
        "\"sink\":\"%s\",\"sink_in_lse\":false,\"lse_base\":\"%s\",\"lse_layout\":\"%s\","
        "\"lse_empty\":\"%s\",\"min_query\":%d,\"probabilities\":\"rounded\",\"pad_heads\":0,"
        "\"copies\":false,\"workspace\":[0,%d],\"transient_per_token\":0}]}",
        VARIANT, VARIANT == UNKNOWN ? "\"colour\":1," : "", VARIANT == DRIFT ? SWAPPED : ORDER,
        VARIANT == BASE2 ? "false" : "true", VARIANT == BASE2 ? "-1.0" : "0.0",
        VARIANT == BASE2 ? "none" : "native", VARIANT == BASE2 ? "2" : "e",
        VARIANT == BASE2        ? "TH"
        : VARIANT == UNDECLARED ? "undeclared"
                                : "HT",
        VARIANT == BASE2 ? "+inf" : "-inf", VARIANT == UNDECLARED ? 32 : 0,
        PL_VARLEN_SCRATCH_BYTES);
}

int __tvm_ffi_provider_describe(void *self, const pl_ffi_any *args, int32_t n_args,
                                pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("provider_describe", args, n_args, 1, result);
    pl_ffi_tensor text = pl__ffi_array(&c, "text", PL_DL_UINT, 8, -1, false);

    if (c.failed)
        return pl__ffi_end(&c);
    *result =
        (pl_ffi_any){.type_index = PL_FFI_INT, .v.i = record(text.data, (size_t)text.shape[0])};
    return 0;
}

#if VARIANT != 5
int __tvm_ffi_test_attention_workspace_size(void *self, const pl_ffi_any *args, int32_t n_args,
                                            pl_ffi_any *result)
{
    return __tvm_ffi_attention_varlen_workspace_size(self, args, n_args, result);
}
#endif

#if VARIANT == 11
/* Named, so that the linker keeps them: they are what the record names. */
pl_ffi_function *const provider_functions[] = {__tvm_ffi_attention_varlen,
                                               __tvm_ffi_attention_sparse_prefill,
                                               __tvm_ffi_attention_sparse_decode};
#endif

static pl_dl_tensor *tensor(const pl_ffi_any *a)
{
    return a->type_index == PL_FFI_DLTENSOR ? a->v.ptr : NULL;
}

/* All heads and tokens into memory of its own, then into the caller's: two live buffers. */
static int padded(void *self, pl_ffi_any *args, int32_t n_args, pl_ffi_any *result)
{
    pl_dl_tensor *out = tensor(&args[10]), own = *out;
    size_t bytes = (size_t)out->shape[0] * 64 * 512 * 2;
    int rc;

    own.data = malloc(bytes);
    if (!own.data)
        return -1;
    args[10].v.ptr = &own;
    rc = __tvm_ffi_attention_sparse_prefill(self, args, n_args, result);
    memcpy(out->data, own.data, bytes);
    free(own.data);
    return rc;
}

/* [H,T] natural to what the variant gives. */
static int other_lse(void *self, pl_ffi_any *args, int32_t n_args, pl_ffi_any *result)
{
    pl_dl_tensor *lse = tensor(&args[14]), own;
    int64_t heads = tensor(&args[1])->shape[1], n = tensor(&args[1])->shape[0];
    int64_t shape[2] = {heads, n};
    float *x = NULL;
    int rc;

    if (VARIANT == BASE2) {
        if (args[12].v.f >= 0)
            return -1;
        args[12].v.f = 0;
    }
    if (VARIANT == LIAR)
        args[7] = (pl_ffi_any){.type_index = PL_FFI_NONE};
    if (lse) {
        x = malloc((size_t)(heads * n) * sizeof *x);
        own = *lse;
        own.data = x;
        own.shape = shape;
        own.strides = NULL;
        args[14].v.ptr = &own;
    }
    rc = __tvm_ffi_attention_varlen(self, args, n_args, result);
    for (int64_t i = 0; lse && i < heads * n; i++) {
        float y = (float)((double)x[i] * 1.4426950408889634);
        if (VARIANT == BASE2)
            ((float *)lse->data)[i % n * heads + i / n] = y == -INFINITY ? INFINITY : y;
        else
            ((float *)lse->data)[i] = y;
    }
    free(x);
    return rc;
}

int __tvm_ffi_test_attention(void *self, const pl_ffi_any *given, int32_t n_args,
                             pl_ffi_any *result)
{
    pl_ffi_any args[16];

    memcpy(args, given, (size_t)n_args * sizeof *args);
    if (VARIANT == PADDED)
        return padded(self, args, n_args, result);
    if (VARIANT == BASE2 || VARIANT == LIAR)
        return other_lse(self, args, n_args, result);
    if (VARIANT == FAILING) {
        pl_ffi_call c = pl__ffi_begin("test_attention", args, n_args, n_args, result);
        memset(tensor(&args[13])->data, 0x77, 2);
        pl__ffi_fail(&c, "RuntimeError", "no tiles are left\nfor %d arguments", n_args);
        return pl__ffi_end(&c);
    }
    if (VARIANT == CRASHING)
        abort();
    if (VARIANT == WRITER) {
        pl_dl_tensor *out = tensor(&args[13]);
        int rc = __tvm_ffi_attention_varlen(self, args, n_args, result);
        int64_t n = out->shape[0] * out->shape[1] * out->shape[2];
        if (rc == 0 && n)
            ((uint16_t *)out->data)[n] = 0x1234;
        return rc;
    }
    return __tvm_ffi_attention_varlen(self, args, n_args, result);
}
