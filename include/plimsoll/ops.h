/* Attention operators for programs of your own: the contracts are docs/OPERATORS.md's, the bits docs/NUMERICS.md's.
 *
 * A context chooses the kernels once (they are tested on this processor first) and has workers of its own, or uses
 * yours. Contexts are independent, and several threads may use one at once, each with a workspace of its own: on the
 * context's workers they take turns, and a parallel_for of yours is then called at once. An operator allocates nothing: results go
 * to your arrays, its scratch is the workspace that you pass, whose size depends on the context alone. Your
 * floating-point environment, signals and limits are left as they were; results do not depend on the number of workers,
 * nor on how tokens are cut into calls.
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

/* ---- caches of keys, and attention over keys that are listed by number */

/* How a row of head_dim numbers lies in a page of page_size rows.
 *
 *     BF16  512 or 576 bf16 numbers; a page_size of 1 makes page_bytes the stride of rows
 *     V4    512: first 576 bytes a row (448 e4m3, 64 bf16), then 8 a row (7 e8m0, one per 64 numbers; 0): 584
 *     V32   576: 656 bytes a row (512 e4m3, 4 fp32 scales, one per 128 numbers; 64 bf16) */
typedef enum pl_kv_format { PL_KV_BF16 = 0, PL_KV_V4 = 1, PL_KV_V32 = 2 } pl_kv_format;

typedef struct pl_kv_cache {
    pl_kv_format format;
    int32_t head_dim;   /* 512, or 576: V32, and BF16 that says so */
    void *data;         /* BF16: aligned to 2 */
    int32_t page_size;  /* rows of a page */
    int64_t n_pages;    /* slot s is row s % page_size of page s / page_size */
    int64_t page_bytes; /* from one page to the next; 0: without a gap */
} pl_kv_cache;

/* One list of keys for each token. Rows are reached by a list alone: what no list names is not read. */
typedef struct pl_sparse_keys {
    pl_kv_cache cache;
    const int32_t
        *indices; /* [n_tokens][index_stride] slots; one outside of the cache, as -1, is no key */
    int64_t index_stride;
    int32_t n_indices;      /* of each list */
    const int32_t *lengths; /* how many of a list count; NULL: all */
} pl_sparse_keys;

/* FlashMLA's sparse contract: one key head, whose first 512 numbers are the values. bf16 in and out; strides are in
 * elements. A token without keys gets 0, an LSE of +infinity and a largest logit of -infinity. */
typedef struct pl_attention_sparse_args {
    int32_t n_tokens;
    int32_t n_heads;    /* 1 .. 128, none is padded */
    int32_t head_dim;   /* 512 or 576, that of the caches */
    int32_t seq_tokens; /* decode: tokens of each sequence, which follow one another; 0: 1 */
    const uint16_t *q;  /* [n_tokens][n_heads][head_dim] */
    int64_t q_token_stride, q_head_stride;
    float softmax_scale; /* 0: head_dim^-0.5 */
    pl_sparse_keys set[2];
    int32_t n_sets;    /* 1, or 2: keys of both, one softmax */
    const float *sink; /* [n_heads] logits that join the denominator alone; NULL: none */
    uint16_t *out;     /* [n_tokens][n_heads][512] */
    int64_t out_token_stride, out_head_stride;
    float *lse; /* [n_heads][n_tokens], natural logarithm, without the sink; NULL: not wanted */
    float *max_logits; /* the same of the largest scaled score */
} pl_attention_sparse_args;

/* Both give the same bits. Lengths are one for each token in prefill, one for each sequence in decode, which also shares
 * the heads of few tokens among the workers. Workspace and overlaps: as pl_attention_varlen. */
PL_API PL_MUST_CHECK pl_status pl_attention_sparse_prefill(pl_ops_context *context,
                                                           const pl_attention_sparse_args *args,
                                                           void *workspace,
                                                           uint64_t workspace_bytes, pl_error *err);
PL_API PL_MUST_CHECK pl_status pl_attention_sparse_decode(pl_ops_context *context,
                                                          const pl_attention_sparse_args *args,
                                                          void *workspace, uint64_t workspace_bytes,
                                                          pl_error *err);

/* Row i of x, bf16 [n][head_dim] with x_stride elements from row to row, and slot slots[i]. Insert quantises: scales are
 * powers of two, values nearest even; -1 is skipped, of a slot that comes twice the later row stays. Gather gives
 * the numbers that attention computes with; -1 gives zeros. What was gathered and is inserted is gathered again unchanged
 * (NaN stays NaN; where a scale is no power of two, values are rounded anew). */
PL_API PL_MUST_CHECK pl_status pl_kv_insert(pl_ops_context *context, const pl_kv_cache *cache,
                                            int64_t n, const int32_t *slots, const uint16_t *x,
                                            int64_t x_stride, pl_error *err);
PL_API PL_MUST_CHECK pl_status pl_kv_gather(pl_ops_context *context, const pl_kv_cache *cache,
                                            int64_t n, const int32_t *slots, uint16_t *x,
                                            int64_t x_stride, pl_error *err);

/* Rows apart, each array packed: codes [n][448 or 512], scales [n][8] bytes or [n][4] floats, rope [n][64]. */
typedef struct pl_kv_parts {
    uint8_t *codes;
    void *scales;
    uint16_t *rope;
} pl_kv_parts;

/* Parts into slots and out of them, byte for byte: from one page size to another. V4 and V32. Pack only reads the parts;
 * -1 is skipped by pack and gives zeros in unpack. */
PL_API PL_MUST_CHECK pl_status pl_kv_pack(pl_ops_context *context, const pl_kv_cache *cache,
                                          int64_t n, const int32_t *slots, const pl_kv_parts *parts,
                                          pl_error *err);
PL_API PL_MUST_CHECK pl_status pl_kv_unpack(pl_ops_context *context, const pl_kv_cache *cache,
                                            int64_t n, const int32_t *slots,
                                            const pl_kv_parts *parts, pl_error *err);

#ifdef __cplusplus
}
#endif

#endif
