/* The operators of `plimsoll bench ops`, in the order of its table. */
#include "cli/bench.h"

/* X(variable): one line an operator; bench.h says what an entry holds. */
#define OPERATORS(X)               \
    X(pl_bench_linear_fp8)         \
    X(pl_bench_linear_fp8_a16)     \
    X(pl_bench_linear_fp4)         \
    X(pl_bench_linear_fp4_grouped) \
    X(pl_bench_linear_bf16)        \
    X(pl_bench_attention_varlen)   \
    X(pl_bench_attention_sparse)   \
    X(pl_bench_attention)          \
    X(pl_bench_indexer)            \
    X(pl_bench_index_query)        \
    X(pl_bench_compress)           \
    X(pl_bench_rms_norm)           \
    X(pl_bench_quantise)           \
    X(pl_bench_q_norm_rope)        \
    X(pl_bench_unrope)             \
    X(pl_bench_hc_dots)            \
    X(pl_bench_hc_pre)             \
    X(pl_bench_hc_post)            \
    X(pl_bench_route)              \
    X(pl_bench_swiglu)             \
    X(pl_bench_swiglu7)            \
    X(pl_bench_moe_sum)            \
    X(pl_bench_rope)               \
    X(pl_bench_hadamard)           \
    X(pl_bench_map)                \
    X(pl_bench_kv_insert)          \
    X(pl_bench_kv_gather)

#define DECLARE(op) extern const pl_bench_op op;
#define ENTRY(op)   &op,
OPERATORS(DECLARE)

const pl_bench_op *const pl_bench_ops[] = {OPERATORS(ENTRY) NULL};
