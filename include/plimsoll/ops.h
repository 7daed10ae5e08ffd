/* Attention operators for programs of your own: the contracts are docs/OPERATORS.md's, the bits docs/NUMERICS.md's.
 *
 * A context chooses the kernels once (they are tested on this processor first) and has workers of its own, or uses
 * yours. Contexts are independent: several may live in a process, each used by one thread at a time. An operator
 * allocates nothing: results go to your arrays, its scratch is the workspace that you pass, whose size depends on the
 * context alone. Your floating-point environment, signals and limits are left as they were; results do not depend on
 * the number of workers, nor on how tokens are cut into calls.
 *
 * Arguments are checked before anything is written. A failure is INVALID, and the text names the argument, its
 * value and what would be right. */
#ifndef PL_PLIMSOLL_OPS_H
#define PL_PLIMSOLL_OPS_H

#include <stdint.h>

#include "plimsoll/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_ops_context pl_ops_context;

/* Runs fn(arg, i, worker) once for each i in 0 .. n - 1 and returns when all are done. Calls may be at once, but never
 * two with the same worker, 0 <= worker < n_workers of the context. */
typedef void pl_ops_parallel_for(void *user, int64_t n,
                                 void (*fn)(void *arg, int64_t i, int worker), void *arg);

typedef struct pl_ops_params {
    int n_workers;     /* the calling thread included; 0: one for each core */
    const char *level; /* "scalar", "avx2", ..; NULL: the best that this processor has */
    pl_ops_parallel_for *parallel_for; /* NULL: a pool of our own; else n_workers must be given */
    void *user;                        /* of parallel_for */
    int no_pin;                        /* leave the placement of our workers to the system */
} pl_ops_params;

/* `params` may be NULL. On failure *context is NULL. */
PL_API PL_MUST_CHECK pl_status pl_ops_context_create(const pl_ops_params *params,
                                                     pl_ops_context **context, pl_error *err);

/* Ends the workers; NULL is fine. No operator may be running. */
PL_API void pl_ops_context_destroy(pl_ops_context *context);

/* "avx2": what it computes with. */
PL_API const char *pl_ops_context_level(const pl_ops_context *context);

/* Bytes of workspace for any operator, any arguments: a constant for each worker. */
PL_API uint64_t pl_ops_workspace_bytes(const pl_ops_context *context);

typedef enum pl_dtype { PL_DTYPE_BF16 = 0, PL_DTYPE_FP16 = 1, PL_DTYPE_FP32 = 2 } pl_dtype;

/* Attention over packed sequences, FlashAttention-3's contract. All strides are in elements; dims are adjacent.
 *
 * Query token i of a sequence sees key j where i + d - window_left <= j <= i + d + window_right, d being its keys less its
 * queries; -1 is no bound; causal makes window_right 0. A token that sees no key gets 0 and an LSE of -infinity. */
typedef struct pl_attention_varlen_args {
    pl_dtype dtype; /* of q, k, v, out */
    int32_t n_seqs;
    int32_t n_heads, n_kv_heads; /* the second divides the first */
    int32_t head_dim, value_dim; /* multiples of 8, 8 .. 512 */

    const int32_t *cu_seqlens_q; /* [n_seqs + 1], from 0, ascending */
    const int32_t *cu_seqlens_k; /* the same; where pages are used, for the lengths alone */

    const void *q; /* [tokens][n_heads][head_dim] */
    int64_t q_token_stride, q_head_stride;
    const void *k; /* [keys][n_kv_heads][head_dim], or [n_pages][page_size][n_kv_heads][head_dim] */
    int64_t k_token_stride, k_head_stride, k_page_stride;
    const void *v; /* the same with value_dim */
    int64_t v_token_stride, v_head_stride, v_page_stride;

    const int32_t *page_table; /* [n_seqs][page_table_stride], or NULL */
    int64_t page_table_stride;
    int32_t page_size, n_pages;

    float softmax_scale; /* 0: head_dim^-0.5 */
    float softcap;       /* <= 0: none */
    int causal;
    int32_t window_left, window_right;
    const float
        *sink; /* [n_sinks][n_heads] logits that join the denominator alone; NULL with n_sinks 0 */
    int32_t n_sinks;

    void *out; /* [tokens][n_heads][value_dim] */
    int64_t out_token_stride, out_head_stride;
    float *lse; /* [n_heads][tokens], natural logarithm, without sinks; NULL: not wanted */
} pl_attention_varlen_args;

/* All zero but what has to be said otherwise: no windows, no cap. */
PL_API pl_attention_varlen_args pl_attention_varlen_default(void);

/* `workspace` is aligned to 64 bytes. out and lse may overlap neither the inputs nor each other. */
PL_API PL_MUST_CHECK pl_status pl_attention_varlen(pl_ops_context *context,
                                                   const pl_attention_varlen_args *args,
                                                   void *workspace, uint64_t workspace_bytes,
                                                   pl_error *err);

#ifdef __cplusplus
}
#endif

#endif
