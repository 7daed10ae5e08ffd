/* What a table of providers holds, and the steps of a call. Public types: plimsoll/provider.h. */
#ifndef PL_PROVIDER_PROVIDER_H
#define PL_PROVIDER_PROVIDER_H

#include <stdbool.h>

#include "ffi/any.h"
#include "plimsoll/provider.h"

enum { PL_PROVIDER_INTERFACE = 1, PL_PROVIDER_RECORD_BYTES = 64 * 1024 };

typedef struct pl_provider_entry {
    pl_provider_record record;
    void *library; /* of dlopen; NULL: the built-in one, or none */
    pl_ffi_function *destroy;
    pl_ffi_function *launch[PL_PROVIDER_N_OPS], *workspace_size[PL_PROVIDER_N_OPS];
    pl_ffi_any context; /* of the library */
    int n_workers;
    uint64_t calls[2][PL_PROVIDER_N_REASONS]; /* launched, dry */
} pl_provider_entry;

struct pl_providers {
    pl_ops_context *builtin;
    int n;
    pl_provider_entry entry[PL_PROVIDER_MAX];
};

/* How rows of a sparse cache lie: PL_KV_BF16, ..; -1 for what is no row of keys of q's width. */
int pl__provider_cache_format(const pl_tensor *k, int64_t dim);

static inline int32_t pl__provider_seq_tokens(const pl_provider_call *call)
{
    return call->seq_tokens > 0 ? call->seq_tokens : 1;
}

/* Reads a record of `n` bytes of JSON into r: name, version, fingerprint, claims. CORRUPT with r->reason for what is not
 * understood, a parameter or output out of place being ABI. */
pl_status pl__provider_record_read(pl_provider_record *r, const char *json, size_t n,
                                   pl_error *err) PL_MUST_CHECK;

/* Differences from a pin, version before names and order: r->reason and false. */
bool pl__provider_pin_holds(pl_provider_record *r, const pl_provider_pin *pin, pl_error *err);

/* Fills the entry from a library; its record tells what went wrong. */
void pl__provider_load(pl_provider_entry *e, const char *path, const pl_provider_pin *pin,
                       int n_workers);
void pl__provider_unload(pl_provider_entry *e);

/* Writes the record of the built-in provider. */
pl_status pl__provider_builtin(pl_providers *set, pl_error *err) PL_MUST_CHECK;

/* How a call that passed the gate is carried out. */
typedef struct pl_provider_launch {
    const pl_provider_claims *claims;
    int64_t n_tokens, n_heads, n_keys;
    pl_tensor sink; /* that the kernel gets; none where out is corrected after it */
    pl_tensor lse;  /* that the kernel writes; none where nobody needs it */
    pl_tensor max_logits;
    float softcap; /* in the provider's terms */
    bool correct;  /* the sink is applied to out afterwards */
    bool scratch;  /* lse lies in the workspace, behind the kernel's part */
    uint64_t kernel_bytes, workspace_bytes;
} pl_provider_launch;

/* False where sizes are beyond reckoning. */
bool pl__provider_prepare(const pl_provider_entry *e, const pl_provider_call *call,
                          pl_provider_launch *l);

/* The kernel, then LSE and sink. */
pl_status pl__provider_launch(pl_providers *set, pl_provider_entry *e, const pl_provider_call *call,
                              const pl_provider_launch *l, pl_error *err) PL_MUST_CHECK;

/* The library's function with the call's arguments. */
pl_status pl__provider_launch_ffi(const pl_provider_entry *e, const pl_provider_call *call,
                                  const pl_provider_launch *l, pl_error *err) PL_MUST_CHECK;
pl_status pl__provider_launch_builtin(pl_ops_context *context, const pl_provider_call *call,
                                      const pl_provider_launch *l, pl_error *err) PL_MUST_CHECK;

/* "KIND: TEXT" of the error that a library's function returned just now, on this thread; never NULL. */
const char *pl__provider_failure(void *library, char *to, size_t n);

/* Elements of the kernel's LSE at [head][token] of `lse`, in place and then into the call's. */
void pl__provider_finish_lse(const pl_provider_call *call, const pl_provider_launch *l);

/* pl_sink_correct on an LSE of any strides. */
void pl__provider_correct(pl_tensor *out, const float *lse, int64_t head_stride,
                          int64_t token_stride, const float *sink, int32_t n_sinks);

#endif
