/* Calls that the conformance check makes: arrays with fences, numbers from a counter. */
#ifndef PL_PROVIDER_CHECK_CALL_H
#define PL_PROVIDER_CHECK_CALL_H

#include <stdbool.h>

#include "provider/provider.h"

typedef struct pl_check_shape {
    pl_provider_op op;
    pl_tensor_type type;
    int32_t n_heads, n_kv_heads, dim, value_dim;
    int32_t n_seqs, n_q[3],
        n_k[3]; /* sparse: tokens are those of n_q, rows those of n_k and more */
    int32_t index_multiple;
    int format;         /* sparse: PL_KV_.. */
    int32_t page_size;  /* 0: packed; else of keys and values, or of the cache */
    int32_t page_gap;   /* elements behind each page */
    int second_set;     /* sparse: another cache of the same form */
    int32_t seq_tokens; /* decode; divides the tokens */
    int causal;
    int32_t window_left, window_right;
    float softcap;
    int sink;
} pl_check_shape;

typedef struct pl_check_call {
    pl_provider_call call;
    uint8_t *memory;
    size_t bytes, used;
    size_t out_bytes, lse_bytes;
} pl_check_call;

/* Everything filled, outputs with a pattern, keys that no list names with NaN. Freed by the other, after a success. */
pl_status pl__check_call_make(const pl_providers *set, int index, const pl_check_shape *shape,
                              pl_check_call *c, pl_error *err) PL_MUST_CHECK;
void pl__check_call_free(pl_check_call *c);

/* Whether the bytes behind each output are as they were. */
bool pl__check_fences_stand(const pl_check_call *c);

#endif
