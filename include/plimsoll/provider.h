/* Providers of attention: one contract, whoever computes it (docs/PROVIDERS.md).
 *
 * A table holds the built-in operators and libraries that export TVM-FFI functions and say in a record what they
 * promise. A call is matched against a provider's record before anything runs: where it matches, the provider writes
 * straight into the caller's arrays; where it does not, the first condition that failed is the reason, it is
 * counted, and the built-in operators compute instead, or nothing does. What is not known is a mismatch.
 *
 * LSE arrives as [heads][tokens], natural logarithm, without sinks, -infinity in rows without keys, unless the call says
 * otherwise. A table is used by one thread at a time. */
#ifndef PL_PLIMSOLL_PROVIDER_H
#define PL_PLIMSOLL_PROVIDER_H

#include <stdint.h>

#include "plimsoll/ops.h"
#include "plimsoll/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Name, text in JSON and on screens, what it says. Stable: append only. The first sixteen after DIRECT are the conditions
 * of docs/PROVIDERS.md, in the order in which they are checked. */
#define PL_PROVIDER_REASON_MAP(X)                                                 \
    X(DIRECT, "direct", "the contract holds")                                     \
    X(NOT_REQUESTED, "not_requested", "the call does not ask for it")             \
    X(NOT_LOADED, "not_loaded", "the library could not be loaded")                \
    X(VERSION, "version", "the version is not the validated one")                 \
    X(SYMBOLS, "symbols", "a function is missing")                                \
    X(MISSING, "missing_argument", "an output or a length is missing")            \
    X(DEVICE, "device", "the query lies on another device")                       \
    X(CAPTURE, "capture", "the call may be recorded into a graph")                \
    X(VALUE_DIM, "value_dim", "the width of values")                              \
    X(QUERY, "query", "shape, type or layout of q")                               \
    X(OUT, "out", "shape, type or layout of out")                                 \
    X(KEYS, "keys", "shape, type or layout of keys and values")                   \
    X(INDICES, "indices", "the lists of keys, or the ends of queries")            \
    X(LENGTHS, "lengths", "the lengths of lists, or the ends of keys")            \
    X(SINK, "sink", "shape, type or layout of the sink")                          \
    X(ALIAS, "alias", "outputs overlap inputs or each other")                     \
    X(ABI, "abi", "parameters and outputs are not the known ones")                \
    X(OPERATOR, "operator", "the provider has no such operator")                  \
    X(OPTION, "option", "causal, a window or a scale that it does not offer")     \
    X(SOFTCAP, "softcap", "a soft cap that it does not offer")                    \
    X(SINK_NATIVE, "sink_native", "a sink inside of the kernel")                  \
    X(LSE, "lse", "shape, type or layout of lse or max_logits")                   \
    X(LSE_LAYOUT, "lse_layout", "[H,T] and [T,H] cannot be told apart")           \
    X(MIN_QUERY, "min_query", "sequences are shorter than those it is exact for") \
    X(WORKSPACE, "workspace", "the workspace is missing or too small")            \
    X(LAUNCH_FAILED, "launch_failed", "the provider returned an error")           \
    X(PAGES, "pages", "the table of pages, or pages that it does not offer")      \
    X(CACHE, "cache", "a form of cached rows that it does not offer")             \
    X(SECOND_SET, "second_set", "a second set of keys, not offered or in parts")  \
    X(EXTRA_KEYS, "extra_keys", "shape, type or layout of the second set's keys") \
    X(EXTRA_INDICES, "extra_indices", "the lists of the second set")              \
    X(EXTRA_LENGTHS, "extra_lengths", "the lengths of the second set's lists")    \
    X(SEQ_TOKENS, "seq_tokens", "tokens of a sequence, in decode")

typedef enum pl_provider_reason {
#define PL_PROVIDER_REASON_ENUM(name, text, what) PL_PROVIDER_##name,
    PL_PROVIDER_REASON_MAP(PL_PROVIDER_REASON_ENUM)
#undef PL_PROVIDER_REASON_ENUM
        PL_PROVIDER_N_REASONS
} pl_provider_reason;

/* "direct", "not_requested", ..; and one English phrase. Never NULL. */
PL_API const char *pl_provider_reason_name(pl_provider_reason reason);
PL_API const char *pl_provider_reason_text(pl_provider_reason reason);

typedef enum pl_provider_op {
    PL_PROVIDER_VARLEN = 0, /* pl_attention_varlen */
    PL_PROVIDER_SPARSE = 1, /* pl_attention_sparse_prefill */
    PL_PROVIDER_DECODE = 2, /* pl_attention_sparse_decode */
    PL_PROVIDER_N_OPS = 3
} pl_provider_op;

/* "attention_varlen", "attention_sparse", "attention_sparse_decode". */
PL_API const char *pl_provider_op_name(pl_provider_op op);

typedef enum pl_tensor_type {
    PL_TENSOR_NONE = 0, /* no tensor */
    PL_TENSOR_BF16,
    PL_TENSOR_FP16,
    PL_TENSOR_FP32,
    PL_TENSOR_INT32,
    PL_TENSOR_UINT8
} pl_tensor_type;

enum { PL_DEVICE_CPU = 1, PL_TENSOR_MAX_DIMS = 4 };

/* A borrowed array; strides are in elements. */
typedef struct pl_tensor {
    void *data;
    pl_tensor_type type;
    int32_t device; /* DLPack's device type; PL_DEVICE_CPU */
    int32_t n_dims;
    int64_t shape[PL_TENSOR_MAX_DIMS], strides[PL_TENSOR_MAX_DIMS];
} pl_tensor;

/* One on the CPU without gaps, of up to three dimensions. */
PL_API pl_tensor pl_tensor_of(void *data, pl_tensor_type type, int32_t n_dims, int64_t d0,
                              int64_t d1, int64_t d2);

/* The same with four: [pages][rows of a page][heads][dim]. */
PL_API pl_tensor pl_tensor_pages(void *data, pl_tensor_type type, int64_t n_pages,
                                 int64_t page_size, int64_t n_heads, int64_t dim);

/* Whether the call may be recorded into a device's graph. What nobody said counts as yes. */
typedef enum pl_capture {
    PL_CAPTURE_UNKNOWN = 0,
    PL_CAPTURE_NONE = 1,
    PL_CAPTURE_ACTIVE = 2
} pl_capture;

typedef enum pl_lse_layout {
    PL_LSE_HT = 0,        /* [heads][tokens] */
    PL_LSE_TH = 1,        /* [tokens][heads] */
    PL_LSE_UNDECLARED = 2 /* of a provider that does not say: taken from the shape, if it can be */
} pl_lse_layout;

enum {
    PL_PROVIDER_REQUEST = 1,   /* the provider may be used; without it, the public path is taken */
    PL_PROVIDER_NO_PUBLIC = 2, /* a mismatch is an error, nobody else computes */
    PL_PROVIDER_DRY_RUN = 4,   /* every check, no launch: no byte is written */
    PL_PROVIDER_NATIVE_SINK =
        8, /* the sink joins inside of the kernel; else out is corrected after it */
};

typedef struct pl_provider_call {
    pl_provider_op op;
    uint32_t flags;
    pl_capture capture;
    int32_t value_dim; /* what the caller takes for the width of values */
    pl_tensor q;       /* varlen [tokens][heads][dim]; sparse the same in bf16 */
    /* varlen [keys][kv heads][dim], or [pages][page][kv heads][dim] with `pages`; sparse a cache:
     *     bf16    [rows][1][dim] without gaps, or [pages][page][1][dim]
     *     uint8   [pages][page][1][584] or [656]: V4 or V32 of plimsoll/ops.h
     * rows of a page without gaps, pages any distance apart */
    pl_tensor k;
    pl_tensor v; /* varlen as k, value dim wide; sparse none: the first numbers of k */
    pl_tensor
        indices; /* varlen: cu_seqlens_q [n + 1]; sparse [tokens][1][k] rows, outside: no key */
    pl_tensor
        lengths;     /* varlen: cu_seqlens_k [n + 1]; sparse [tokens], decode [tokens / seq_tokens]:
                        * how many of a list count */
    pl_tensor pages; /* varlen: none, or int32 [n][numbers of pages of a sequence, in order] */
    pl_tensor extra_k, extra_indices,
        extra_lengths;   /* sparse: none, or a second set; one softmax */
    int32_t seq_tokens;  /* decode: tokens of each sequence; 0: 1 */
    pl_tensor sink;      /* none, [heads], or varlen [rows][heads]: fp32 */
    float softmax_scale; /* 0: dim^-0.5 */
    float softcap;       /* 0 and below: off */
    int causal;
    int32_t window_left, window_right; /* -1: no bound */
    pl_tensor out;                     /* as q, [value dim] wide */
    pl_tensor lse;                     /* none, or fp32 in lse_layout */
    pl_tensor max_logits;              /* sparse: none, or fp32 [heads][tokens] */
    pl_lse_layout lse_layout;
    int lse_empty_positive; /* rows without keys get +infinity, as FlashMLA's */
    pl_tensor workspace;    /* uint8, aligned to 64 */
} pl_provider_call;

/* What is expected of a library, from an earlier look at it. */
typedef struct pl_provider_pin {
    char name[32], version[32];
    char fingerprint[17]; /* 16 hexadecimal digits */
} pl_provider_pin;

/* One operator of a provider: what it claims. */
typedef struct pl_provider_claims {
    int present;
    char function[64];
    uint32_t types; /* 1 << PL_TENSOR_.. of q, k, v, out */
    int32_t device;
    int capture;   /* may be recorded */
    int32_t heads; /* exactly; 0: any number up to heads_max */
    int32_t heads_max;
    int32_t dim_min, dim_max, dim_step;
    int32_t value_min, value_max, value_step;
    int32_t index_multiple; /* sparse: of the length of lists */
    int pages;              /* keys in pages */
    uint32_t caches;        /* sparse: 1 << PL_KV_.. */
    int second_set;         /* sparse: keys of two caches */
    int contiguous;         /* q, k, v, out must have no gaps */
    int causal, window;
    int softcap;       /* positive caps are computed */
    float softcap_off; /* what it takes for none */
    int sink_native;   /* it takes a sink, in fp32 */
    int sink_in_lse;   /* its LSE counts the sink */
    int lse_base2;     /* its LSE is a logarithm to base 2 */
    pl_lse_layout lse_layout;
    int lse_empty_positive; /* +infinity in rows without keys */
    int32_t min_query;      /* shortest longest query that it is exact for; 0: any */
    int32_t probabilities;  /* 0: kept in fp32; 1: rounded to the type of v; 2: cut to it */
    int32_t pad_heads;      /* it works on so many; 0: on those there are */
    int copies;             /* it computes elsewhere and copies */
    uint64_t workspace_fixed, workspace_per_worker; /* bytes, the caller's */
    uint64_t transient_per_token; /* bytes that it takes itself, beside the workspace */
} pl_provider_claims;

typedef struct pl_provider_record {
    char name[32], version[32];
    char path[256];                   /* "" for the built-in one */
    char fingerprint[17];             /* of names, order of arguments, outputs, version */
    pl_provider_reason reason;        /* DIRECT: loaded; else why no call can reach it */
    char problem[PL_ERROR_MSG_BYTES]; /* one line about it */
    pl_provider_claims op[PL_PROVIDER_N_OPS];
} pl_provider_record;

typedef struct pl_providers pl_providers;

enum { PL_PROVIDER_MAX = 8, PL_PROVIDER_BUILTIN = 0 };

/* A table with the built-in provider at index 0, which computes with `context` (borrowed). On failure *set is NULL. */
PL_API PL_MUST_CHECK pl_status pl_providers_create(pl_ops_context *context, pl_providers **set,
                                                   pl_error *err);

/* Ends the libraries' contexts and unloads them; NULL is fine. */
PL_API void pl_providers_destroy(pl_providers *set);

/* Loads a library. What is wrong with it (no such file, functions missing, claims that are not understood, another version
 * or ABI than `pin`'s, where that is not NULL) is no failure of this call: the entry stays, its record tells the
 * reason, and no call reaches the library. LIMIT where the table is full. */
PL_API PL_MUST_CHECK pl_status pl_providers_add(pl_providers *set, const char *path,
                                                const pl_provider_pin *pin, int n_workers,
                                                int *index, pl_error *err);

PL_API int pl_providers_count(const pl_providers *set);

/* Borrowed until the table is destroyed; NULL past the end. */
PL_API const pl_provider_record *pl_providers_record(const pl_providers *set, int index);

/* Bytes of workspace for the call, by this provider or on the public path; 0 where the call is beyond reckoning. */
PL_API uint64_t pl_providers_workspace_bytes(const pl_providers *set, int index,
                                             const pl_provider_call *call);

/* The first condition that does not hold, or DIRECT; `detail` (may be NULL) gets one line. Writes nothing else and counts
 * nothing. */
PL_API pl_provider_reason pl_provider_gate(const pl_providers *set, int index,
                                           const pl_provider_call *call, pl_error *detail);

typedef struct pl_provider_outcome {
    int provider;              /* that computed, or would have; -1: nobody */
    pl_provider_reason reason; /* of the provider that was asked */
    int direct;                /* it wrote into the caller's arrays itself */
} pl_provider_outcome;

/* The call by provider `index`. A mismatch takes the public path, or is UNSUPPORTED with NO_PUBLIC, before a byte is
 * written. A provider's own error is INTERNAL and returned, never tried again elsewhere: outputs may then be half written.
 * A dry run returns as the call would up to the launch. */
PL_API PL_MUST_CHECK pl_status pl_provider_run(pl_providers *set, int index,
                                               const pl_provider_call *call,
                                               pl_provider_outcome *outcome, pl_error *err);

typedef struct pl_provider_choice {
    int provider; /* to be asked; -1 where an explicit one is not in the table */
    int n;        /* candidates looked at */
    struct {
        int provider;
        pl_provider_reason reason;
        char detail[PL_ERROR_MSG_BYTES];
    } candidate[PL_PROVIDER_MAX];
} pl_provider_choice;

/* Who computes a call. `backend` by name is never overridden, whether its contract holds or not; NULL or "auto": the
 * first library whose contract holds, else the built-in one. Counts nothing. */
PL_API void pl_provider_choose(const pl_providers *set, const char *backend,
                               const pl_provider_call *call, pl_provider_choice *choice);

/* Calls so far by what became of them; dry runs apart. */
PL_API uint64_t pl_providers_calls(const pl_providers *set, int index, pl_provider_reason reason,
                                   int dry_run);

/* ---- parts of it, for whoever binds a provider by hand */

/* LSE of a provider to [heads][tokens], natural logarithm, -infinity for rows without keys where `empty_positive`. NaN stays.
 * INVALID where shape is neither, or both and `layout` does not say which. src and dst are apart. */
PL_API PL_MUST_CHECK pl_status pl_lse_normalise(const float *src, const int64_t shape[2],
                                                pl_lse_layout layout, int base2, int empty_positive,
                                                int64_t n_heads, int64_t n_tokens, float *dst,
                                                pl_error *err);

/* out[t][h][..] becomes rn(fp32(out) * sigmoid(L - Z)): weights and product in fp32, one rounding. lse [heads][tokens]
 * natural and without sinks; sink [n_sinks][heads], Z its log of summed exponentials. Weight 0 where L is -infinity or Z
 * +infinity; NaN in either gives NaN. */
PL_API PL_MUST_CHECK pl_status pl_sink_correct(pl_tensor *out, const float *lse, const float *sink,
                                               int32_t n_sinks, pl_error *err);

/* ---- conformance */

typedef struct pl_provider_finding {
    char claim[48];
    int holds; /* 0 or 1; -1: not claimed, not looked at */
    int cases;
    double max_abs_out,
        max_abs_lse; /* from the reference in double; NaN where the claim has none */
    char detail[PL_ERROR_MSG_BYTES];
} pl_provider_finding;

enum { PL_PROVIDER_MAX_FINDINGS = 48 };

/* Runs the provider's operators against a reference in double precision and says which claims hold. Needs memory of its own.
 * NOMEM; everything that the provider does wrong is a finding. */
PL_API PL_MUST_CHECK pl_status pl_provider_check(pl_providers *set, int index,
                                                 const pl_provider_pin *pin,
                                                 pl_provider_finding *findings, int *n,
                                                 pl_error *err);

#ifdef __cplusplus
}
#endif

#endif
