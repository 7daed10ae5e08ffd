/* Attention over packed sequences: the contract of FlashAttention-3's varlen call (docs/NUMERICS.md 9).
 *
 * Query token i of a sequence with n_q queries and n_k keys sees key j where, with d = n_k - n_q,
 *     i + d - left <= j <= i + d + right      (a bound of -1 is none; causal is right = 0)
 * Head h reads key head h / (n_heads / n_kv_heads). Values of all types are computed on as floats; P is rounded to
 * the type before it meets the values, not at all for PL_VARLEN_F32. */
#ifndef PL_OPS_VARLEN_H
#define PL_OPS_VARLEN_H

#include "ops/op.h"

enum { PL_VARLEN_ROWS = 256, PL_VARLEN_MAX_DIM = 512, PL_VARLEN_BLOCK = 64 };

typedef enum pl_varlen_type { PL_VARLEN_BF16, PL_VARLEN_F16, PL_VARLEN_F32 } pl_varlen_type;

/* [tokens][heads][dim], dims adjacent; strides in elements. */
typedef struct pl_varlen_tensor {
    const void *data;
    int64_t token_stride, head_stride;
    int64_t page_stride; /* paged keys and values: from one page to the next */
} pl_varlen_tensor;

typedef struct pl_varlen_args {
    pl_varlen_type type;
    int32_t n_seqs, n_heads, n_kv_heads;
    int32_t dim, value_dim;     /* multiples of 8, at most 512 */
    const int32_t *cu_q, *cu_k; /* [n_seqs + 1]: where sequences begin */
    pl_varlen_tensor q, k, v;
    const int32_t *pages; /* [n_seqs][pages_stride]: pages of keys; NULL: packed by cu_k */
    int64_t pages_stride;
    int32_t page_rows;
    int32_t left, right; /* -1: none */
    float scale, cap;    /* cap <= 0: none */
    const float *sink;   /* [n_sinks][n_heads] */
    int32_t n_sinks;
    void *out; /* [tokens][n_heads][value_dim] */
    int64_t out_token_stride, out_head_stride;
    float *lse; /* [n_heads][lse_stride]; NULL: not wanted */
    int64_t lse_stride;
} pl_varlen_args;

/* Rows of a sequence and key head are its (token, head of the group) pairs, token by token; a unit is a tile of
 * pl_varlen_rows of them. Units: for each sequence and key head, sequences outermost. Level f64 has none. */
typedef void pl_varlen_fn(const pl_op_env *env, const pl_varlen_args *a, int64_t begin,
                          int64_t end);

/* One unit: rows first .. first + n - 1 of a key head of a sequence. */
typedef struct pl_varlen_tile {
    int32_t seq, kv_head, n;
    int64_t first;
} pl_varlen_tile;

/* Rows of a tile, at most PL_VARLEN_ROWS: they share keys and values that were widened once, in a worker's scratch. */
int32_t pl_varlen_rows(const pl_varlen_args *a);

int64_t pl_varlen_units(const pl_varlen_args *a);
pl_varlen_tile pl_varlen_tile_of(const pl_varlen_args *a, int64_t unit);

/* Keys begin .. end - 1 that query token i of a sequence sees. */
void pl_varlen_visible(const pl_varlen_args *a, int32_t seq, int64_t i, int64_t *begin,
                       int64_t *end);

/* Key or value row j of a sequence. */
const void *pl_varlen_row(const pl_varlen_args *a, const pl_varlen_tensor *t, int32_t seq,
                          int64_t j, int32_t kv_head);

/* IEEE half precision: exact; nearest even, overflow to infinity, NaN stays NaN. */
float pl_f16_to_f32(uint16_t h);
uint16_t pl_f32_to_f16(float x);

/* Scratch of one worker, all levels. */
enum { PL_VARLEN_SCRATCH_BYTES = 576 * 1024 };

#endif
