/* A call as a question: shapes without numbers, for dry runs. */
#ifndef PL_CLI_PROVIDER_CALL_H
#define PL_CLI_PROVIDER_CALL_H

#include <stdbool.h>

#include "plimsoll/provider.h"

typedef struct pl_provider_ask {
    pl_provider_op op;
    pl_tensor_type type;
    int64_t tokens, keys, heads, kv_heads, dim, value_dim, n_indices;
    bool sink, native_sink, causal, capture_unknown;
    double softcap;
    int64_t page_size; /* 0: keys one behind the other */
    int format;        /* sparse: PL_KV_..; V4 and V32 lie in pages */
    bool second_set;   /* sparse: a cache and lists like the first */
    int64_t seq_tokens;
} pl_provider_ask;

typedef struct pl_provider_asked {
    pl_provider_call call;
    int32_t ends[2][2];
    void *reserved;
    uint64_t bytes;
} pl_provider_asked;

/* Arrays lie in addresses that are reserved and cannot be read or written. Borrows `to` itself: do not move it. NOMEM; freed
 * by the other. */
pl_status pl_provider_ask_make(const pl_providers *set, const pl_provider_ask *ask,
                               pl_provider_asked *to, pl_error *err) PL_MUST_CHECK;
void pl_provider_ask_free(pl_provider_asked *asked);

/* Calls that production makes, and what they are. */
typedef struct pl_provider_production {
    const char *name;
    pl_provider_ask ask;
} pl_provider_production;

enum { PL_PROVIDER_N_PRODUCTION = 11 };

extern const pl_provider_production pl_provider_production_calls[PL_PROVIDER_N_PRODUCTION];

#endif
