/* The operators of DeepSeek-V4 around attention, for programs of your own: norms, rotations, hyper-connections, the
 * compressor, the indexer, the router, gated units, elementary functions. Contexts and what all entries promise:
 * plimsoll/ops.h; contracts and speeds: docs/OPERATORS.md; bits: docs/NUMERICS.md.
 *
 * Arrays are packed unless a stride is named, bf16 numbers are uint16_t bits, fp32 are floats, both aligned to their size. Outputs
 * overlap neither inputs nor each other, except where "may be" allows an output to be an input exactly. Unless an
 * entry takes a workspace it needs none. Everything is checked before anything is written. */
#ifndef PL_PLIMSOLL_MODEL_OPS_H
#define PL_PLIMSOLL_MODEL_OPS_H

#include "plimsoll/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- rows: NUMERICS 3 and 7 */

/* y = weight * (x / sqrt(mean of squares + eps)); on request also the e4m3 codes of y and their e8m0 scales, while the row
 * is in the cache. */
typedef struct pl_op_rms_norm_args {
    int32_t n, dim; /* rows of 1 .. 65536 numbers; with codes a multiple of 128 */
    float eps;
    const uint16_t *weight; /* [dim] bf16 */
    const uint16_t *x;      /* [n][dim] bf16 */
    uint16_t *y;            /* [n][dim] bf16; may be x */
    uint8_t *codes;         /* [n][dim]; NULL, and scales too: not wanted */
    uint8_t *scales;        /* [n][dim / 128]; 255: the block held a NaN or an infinity */
} pl_op_rms_norm_args;
PL_API PL_MUST_CHECK pl_status pl_op_rms_norm(pl_ops_context *context,
                                              const pl_op_rms_norm_args *args, pl_error *err);

/* The quantiser alone. */
typedef struct pl_op_quantise_args {
    int32_t n, dim;    /* a multiple of 128 */
    const uint16_t *x; /* [n][dim] bf16 */
    uint8_t *codes;    /* [n][dim] e4m3 */
    uint8_t *scales;   /* [n][dim / 128] e8m0 */
} pl_op_quantise_args;
PL_API PL_MUST_CHECK pl_status pl_op_quantise(pl_ops_context *context,
                                              const pl_op_quantise_args *args, pl_error *err);

/* The two tables of frequencies: plain where factor is 0, else stretched (YaRN). */
typedef struct pl_op_rope_table {
    double base; /* above 1 */
    double factor, original_max_position, beta_fast, beta_slow;
} pl_op_rope_table;
PL_API PL_MUST_CHECK pl_status pl_op_rope_frequencies(const pl_op_rope_table *table,
                                                      float frequencies[32], pl_error *err);

/* Rotates the last 64 numbers of each head by position * frequency, in place. */
typedef struct pl_op_rope_args {
    int32_t n, n_heads, head_dim; /* 64 .. 65536 */
    int inverse;
    const float *frequencies;          /* [32] */
    const int32_t *positions;          /* [n], 0 .. 2^24 - 1 */
    uint16_t *x;                       /* [n][n_heads][head_dim] bf16 */
    int64_t token_stride, head_stride; /* elements; 0: packed */
} pl_op_rope_args;
PL_API PL_MUST_CHECK pl_status pl_op_rope(pl_ops_context *context, const pl_op_rope_args *args,
                                          pl_error *err);

/* Query heads of 512: the norm without a weight, then rotation, fp32 between the two; in place. */
typedef struct pl_op_head_norm_rope_args {
    int32_t n, n_heads;
    float eps;
    const float *frequencies; /* [32] */
    const int32_t *positions; /* [n], 0 .. 2^24 - 1 */
    uint16_t *q;              /* [n][n_heads][512] bf16 */
} pl_op_head_norm_rope_args;
PL_API PL_MUST_CHECK pl_status pl_op_head_norm_rope(pl_ops_context *context,
                                                    const pl_op_head_norm_rope_args *args,
                                                    pl_error *err);

/* The 128-point Walsh-Hadamard transform in natural order, times 128^-0.5. */
typedef struct pl_op_hadamard_args {
    int32_t n;
    const uint16_t *x; /* [n][128] bf16 */
    uint16_t *y;       /* [n][128] bf16; may be x */
} pl_op_hadamard_args;
PL_API PL_MUST_CHECK pl_status pl_op_hadamard(pl_ops_context *context,
                                              const pl_op_hadamard_args *args, pl_error *err);

/* ---- elementary functions: NUMERICS 6 */

typedef enum pl_op_function {
    PL_OP_EXP = 0,
    PL_OP_LOG = 1,
    PL_OP_SIGMOID = 2,
    PL_OP_SOFTPLUS = 3,
    PL_OP_TANH = 4
} pl_op_function;

/* y[i] = function(x[i]), fp32, i < n; y may be x. Denormals count as zero. */
PL_API PL_MUST_CHECK pl_status pl_op_map(pl_ops_context *context, pl_op_function function,
                                         int64_t n, const float *x, float *y, pl_error *err);

/* ---- hyper-connections of four streams: NUMERICS 8 */

/* Mixes the streams into y and says how hc_post mixes back. */
typedef struct pl_op_hc_pre_args {
    int32_t n, dim; /* 1 .. 65536 */
    float rms_eps, hc_eps;
    int32_t sinkhorn_iters;         /* 1 .. 1000 */
    const float *fn, *base, *scale; /* [24][4 dim], [24], [3] */
    const uint16_t *x;              /* [n][4][dim] bf16 */
    float *dots;                    /* [n][25]: fn's products with x, and the mean of its squares */
    uint16_t *y;                    /* [n][dim] bf16 */
    float *post, *comb;             /* [n][4], [n][4][4]: source, then destination */
} pl_op_hc_pre_args;
PL_API PL_MUST_CHECK pl_status pl_op_hc_pre(pl_ops_context *context, const pl_op_hc_pre_args *args,
                                            pl_error *err);

/* x[t][k] = post[t][k] f[t] + sum over j of comb[t][j][k] x[t][j], in place. */
typedef struct pl_op_hc_post_args {
    int32_t n, dim;
    const uint16_t *f;        /* [n][dim] bf16 */
    const float *post, *comb; /* of pl_op_hc_pre */
    uint16_t *x;              /* [n][4][dim] bf16 */
} pl_op_hc_post_args;
PL_API PL_MUST_CHECK pl_status pl_op_hc_post(pl_ops_context *context,
                                             const pl_op_hc_post_args *args, pl_error *err);

/* The streams become one before the last norm. */
typedef struct pl_op_hc_head_args {
    int32_t n, dim;
    float rms_eps, hc_eps;
    const float *fn, *base, *scale; /* [4][4 dim], [4], [1] */
    const uint16_t *x;              /* [n][4][dim] bf16 */
    float *dots;                    /* [n][5] */
    uint16_t *y;                    /* [n][dim] bf16 */
} pl_op_hc_head_args;
PL_API PL_MUST_CHECK pl_status pl_op_hc_head(pl_ops_context *context,
                                             const pl_op_hc_head_args *args, pl_error *err);

/* ---- the compressor: NUMERICS 10 */

/* Bytes of one sequence's state; 0 where ratio is neither 4 nor 128 or dim no multiple of 64, 64 .. 65536. */
PL_API uint64_t pl_op_compress_state_bytes(int32_t ratio, int32_t dim);

/* The state before the first token. */
PL_API PL_MUST_CHECK pl_status pl_op_compress_reset(int32_t ratio, int32_t dim, void *state,
                                                    pl_error *err);

/* Consecutive tokens of a sequence; a row has `width` = 2 dim numbers (ratio 4) or dim (128). */
typedef struct pl_op_compress_seq {
    void *state;            /* aligned to 4, updated */
    const float *kv, *gate; /* [n][width] */
    int32_t n, start;       /* tokens, and the position of the first */
    uint16_t *
        pooled; /* [(start + n) / ratio - start / ratio][dim] bf16: the entries that are whole now */
} pl_op_compress_seq;

/* Gated pooling of the last 8 tokens every 4, or of 128 every 128 as a running sum. Entries do not depend on how tokens
 * are cut into calls. */
typedef struct pl_op_compress_args {
    int32_t ratio, dim;
    const float *ape; /* [ratio][width] */
    int32_t n_seqs;   /* up to 1024 */
    const pl_op_compress_seq *seqs;
} pl_op_compress_args;
PL_API PL_MUST_CHECK pl_status pl_op_compress(pl_ops_context *context,
                                              const pl_op_compress_args *args, pl_error *err);

/* ---- the indexer: NUMERICS 3, 7 and 11. A row is 128 numbers: 64 bytes of e2m1 codes, 4 bytes of e8m0 scales */

/* Pages of page_size rows: first the codes of all, then the scales. Slot s is row s % page_size of page s / page_size. */
typedef struct pl_op_index_cache {
    void *data;
    int32_t page_size;
    int64_t n_pages;
    int64_t page_bytes; /* from one page to the next; 0: 68 page_size */
} pl_op_index_cache;

/* Keys after their norm: rotation, Hadamard, codes; into slots. -1 is skipped, of a slot that comes twice the later row
 * stays. */
typedef struct pl_op_index_insert_args {
    int32_t n;
    const float *frequencies; /* [32] */
    const int32_t *positions; /* [n], 0 .. 2^24 - 1 */
    const int32_t *slots;     /* [n] */
    const uint16_t *y;        /* [n][128] bf16 */
    pl_op_index_cache cache;
} pl_op_index_insert_args;
PL_API PL_MUST_CHECK pl_status pl_op_index_insert(pl_ops_context *context,
                                                  const pl_op_index_insert_args *args,
                                                  pl_error *err);

/* Queries to the same form: for each token a page of n_heads rows. */
typedef struct pl_op_index_query_args {
    int32_t n, n_heads;       /* heads up to 1024 */
    const float *frequencies; /* [32] */
    const int32_t *positions; /* [n] */
    const uint16_t *q;        /* [n][n_heads][128] bf16 */
    uint8_t *out;             /* [n][68 n_heads] */
} pl_op_index_query_args;
PL_API PL_MUST_CHECK pl_status pl_op_index_query(pl_ops_context *context,
                                                 const pl_op_index_query_args *args, pl_error *err);

/* score[k] = sum over heads of bf16(factor w[h]) max(0, q[h] . key[k]) over the first n_visible rows of a token's cache; the
 * min(topk, n_visible) largest, ties to the lower row. NaN counts as -infinity. */
typedef struct pl_op_index_topk_args {
    int32_t n, n_heads, topk; /* topk 1 .. 4096 */
    float factor;
    const uint8_t *query; /* of pl_op_index_query */
    const uint16_t *w;    /* [n][n_heads] bf16 */
    int32_t n_seqs;
    const pl_op_index_cache *keys; /* [n_seqs] */
    const int32_t *seq_of;         /* [n]; NULL: 0 */
    const int32_t *n_visible;      /* [n] */
    int32_t *selected;             /* [n][topk] rows, ascending; -1 behind them */
    int32_t *n_selected;           /* [n] */
    float *scores;                 /* [n][scores_stride]; NULL: not wanted */
    int64_t scores_stride;         /* elements, as many as a token can see */
} pl_op_index_topk_args;
PL_API PL_MUST_CHECK pl_status pl_op_index_topk(pl_ops_context *context,
                                                const pl_op_index_topk_args *args, void *workspace,
                                                uint64_t workspace_bytes, pl_error *err);

/* ---- experts: NUMERICS 12 */

/* scores = sqrt(softplus(logits)); ids are the top_k first of score + bias, or the token's row of `table`; weights are the
 * chosen scores over their sum, times scale. */
typedef struct pl_op_route_args {
    int32_t n, n_experts, top_k; /* top_k 1 .. 64, n_experts up to 65536 */
    float scale;
    const float *logits;   /* [n][n_experts] */
    const float *bias;     /* [n_experts]; NULL where there is a table */
    const int64_t *table;  /* [n_vocab][top_k] expert ids; NULL where there is a bias */
    int32_t n_vocab;       /* rows of the table */
    const int32_t *tokens; /* [n]; of the table alone */
    float *scores;         /* [n][n_experts]; may be logits */
    int32_t *ids;          /* [n][top_k] best first */
    float *weights;        /* [n][top_k] */
} pl_op_route_args;
PL_API PL_MUST_CHECK pl_status pl_op_route(pl_ops_context *context, const pl_op_route_args *args,
                                           pl_error *err);

/* a = g sigmoid(g) u [weight of the row]: g at most `limit`, u within -limit .. limit. */
typedef struct pl_op_swiglu_args {
    int32_t n, dim;        /* 1 .. 2^20 */
    float limit;           /* 10 in DeepSeek-V4 */
    const uint16_t *g, *u; /* [n][dim] bf16 */
    const float *weight;   /* [n]; NULL: none */
    uint16_t *a;           /* [n][dim] bf16; may be g or u */
} pl_op_swiglu_args;
PL_API PL_MUST_CHECK pl_status pl_op_swiglu(pl_ops_context *context, const pl_op_swiglu_args *args,
                                            pl_error *err);

/* MAGI-2's unit: a = g sigmoid(1.702 g) (l + 1), g at most 7, l within -7 .. 7; one rounding, to bf16. */
typedef struct pl_op_swiglu7_args {
    int32_t n, dim; /* 1 .. 2^20 */
    pl_dtype dtype; /* of g and l: PL_DTYPE_BF16, PL_DTYPE_FP32 */
    const void *g;  /* [n][dim]; where l is NULL [n][dim][2]: g and l in turn */
    const void *l;  /* [n][dim] */
    uint16_t *a;    /* [n][dim] bf16 */
} pl_op_swiglu7_args;
PL_API PL_MUST_CHECK pl_status pl_op_swiglu7(pl_ops_context *context,
                                             const pl_op_swiglu7_args *args, pl_error *err);

/* ---- sampling: NUMERICS 13 */

/* Ten rounds of Philox4x32; out may be counter. */
PL_API void pl_op_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* out[i] = the Gumbel noise of token first + i: a function of these numbers alone. */
PL_API PL_MUST_CHECK pl_status pl_op_gumbel(pl_ops_context *context, uint64_t seed,
                                            uint32_t position, uint32_t choice, int32_t first,
                                            int32_t n, float *out, pl_error *err);

/* What a request asks of its logits before a choice, step by step: l + bias; of tokens in the prompt or the output
 * l / repetition where l > 0, else l * repetition; l - frequency * times in the output; l - presence where it is in there. */
typedef struct pl_op_penalise_args {
    int32_t vocab;              /* 1 .. 2^24 */
    const float *logits;        /* [vocab] */
    int32_t n_bias;             /* of a token that comes twice both are added */
    const int32_t *bias_tokens; /* [n_bias] */
    const float *bias;          /* [n_bias] */
    float repetition;           /* above 0; 1, as 0: none */
    float frequency, presence;  /* 0: none */
    int32_t n_prompt, n_output;
    const int32_t *prompt, *output; /* [n_prompt], [n_output] */
    float *out;                     /* [vocab]; may be logits */
} pl_op_penalise_args;
/* Workspace: as pl_op_sample. */
PL_API PL_MUST_CHECK pl_status pl_op_penalise(pl_ops_context *context,
                                              const pl_op_penalise_args *args, void *workspace,
                                              uint64_t workspace_bytes, pl_error *err);

/* out[r][i] = (logits[r][i] - M) - ln(sum of exp(l - M)), M being the largest of row r; out may be logits. */
PL_API PL_MUST_CHECK pl_status pl_op_log_softmax(pl_ops_context *context, int32_t n, int32_t vocab,
                                                 const float *logits, float *out, pl_error *err);

/* The token of the largest logit / temperature + noise among those that top_k, min_p and top_p leave; at temperature 0 that of the
 * largest logit. Ties to the lower id; NaN counts as -infinity. */
typedef struct pl_op_sample_args {
    int32_t vocab;           /* 1 .. 2^24 */
    const float *logits;     /* [vocab] */
    float temperature;       /* 0 or more */
    int32_t top_k;           /* 0: all */
    float top_p, min_p;      /* above 0 up to 1, 1: all; 0 .. 1, 0: all */
    const uint32_t *allowed; /* a bit for each id, lowest first; NULL: all */
    uint64_t seed;
    uint32_t position, choice; /* of the noise: the token's place, and which completion */
    int32_t *token;
    float *
        probabilities; /* [vocab] what the choice is drawn from, 0 of what was left out; NULL: not wanted */
} pl_op_sample_args;

/* 0 where vocab is out of range. */
PL_API uint64_t pl_op_sample_workspace_bytes(int32_t vocab);
PL_API PL_MUST_CHECK pl_status pl_op_sample(pl_ops_context *context, const pl_op_sample_args *args,
                                            void *workspace, uint64_t workspace_bytes,
                                            pl_error *err);

#ifdef __cplusplus
}
#endif

#endif
