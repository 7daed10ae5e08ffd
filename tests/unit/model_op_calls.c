#include "model_op_calls.h"

#include <string.h>

#include "base/numfmt.h"
#include "support/check.h"

enum { N = CALL_ROWS, DIM = 256, HEADS = 3 };

void call_open(call_memory *m, uint8_t poison)
{
    memset(m->bytes, poison, sizeof m->bytes);
    m->n_arrays = 0;
    m->used = CALL_GAP;
    m->random = 11;
    m->poison = poison;
}

uint32_t call_next(call_memory *m)
{
    m->random = m->random * 1664525u + 1013904223u;
    return m->random >> 8;
}

void *call_take(call_memory *m, size_t bytes, bool out)
{
    void *p = m->bytes + m->used;

    assert_true(m->n_arrays < CALL_MAX_ARRAYS && m->used + bytes + 2 * CALL_GAP < CALL_MEMORY);
    m->arrays[m->n_arrays++] = (call_array){m->used, bytes, out};
    m->used += (bytes + 2 * CALL_GAP - 1) / CALL_GAP * CALL_GAP;
    return p;
}

void *call_take_out(call_memory *m, size_t bytes)
{
    return memset(call_take(m, bytes, true), 0xA5, bytes);
}

uint16_t *call_take_bf16(call_memory *m, size_t n, bool out)
{
    uint16_t *x = call_take(m, n * sizeof *x, out);

    for (size_t i = 0; i < n; i++)
        x[i] = (uint16_t)((call_next(m) & 0x807F) | (122 + call_next(m) % 6) << 7);
    return x;
}

float *call_take_f32(call_memory *m, size_t n)
{
    float *x = call_take(m, n * sizeof *x, false);

    for (size_t i = 0; i < n; i++)
        x[i] = pl_f32_from_bits((call_next(m) << 8 & 0x807FFF00) | (122 + call_next(m) % 6) << 23);
    return x;
}

/* Different numbers below `below`, for n of them. */
int32_t *call_take_ids(call_memory *m, size_t n, uint32_t below)
{
    int32_t *x = call_take(m, n * sizeof *x, false);

    for (size_t i = 0; i < n; i++)
        x[i] = (int32_t)((7 * i + 2) % below);
    return x;
}

const float *call_take_frequencies(call_memory *m)
{
    const pl_op_rope_table table = {.base = 10000};
    float *x = call_take(m, 32 * sizeof *x, false);
    pl_error err;

    check_ok(pl_op_rope_frequencies(&table, x, &err), &err);
    return x;
}

/* The moment before the operator runs. */
pl_ops_context *call_ready(call_memory *m, pl_ops_context *context, call_fault fault)
{
    memcpy(m->before, m->bytes, sizeof m->before);
    return fault == CALL_NO_CONTEXT ? NULL : context;
}

/* One byte in, as far as alignment lets it: across the end of what is there, and never an input exactly. */
void *call_across(const void *p)
{
    return (uint8_t *)(uintptr_t)p + 8;
}

CALL(rms_norm)
{
    pl_op_rms_norm_args a = {N, DIM, 1e-6f, call_take_bf16(m, DIM, false), NULL, NULL, NULL, NULL};

    a.x = call_take_bf16(m, (size_t)N * DIM, false);
    a.y = call_take_out(m, (size_t)N * DIM * 2);
    a.codes = call_take_out(m, (size_t)N * DIM);
    a.scales = call_take_out(m, N * DIM / 128);
    SPOIL(a, f, n, y, x);
    return pl_op_rms_norm(call_ready(m, context, f), &a, err);
}

CALL(quantise)
{
    pl_op_quantise_args a = {N, DIM, call_take_bf16(m, (size_t)N * DIM, false), NULL, NULL};

    a.codes = call_take_out(m, (size_t)N * DIM);
    a.scales = call_take_out(m, N * DIM / 128);
    SPOIL(a, f, n, codes, x);
    return pl_op_quantise(call_ready(m, context, f), &a, err);
}

/* Poison between heads and between tokens, where it stays. */
CALL(rope)
{
    enum { WIDE = 72, HEAD = 80, TOKEN = HEADS * HEAD + 16 };
    const size_t n = (N - 1) * TOKEN + (HEADS - 1) * HEAD + WIDE;
    pl_op_rope_args a = {.n = N, .n_heads = HEADS, .head_dim = WIDE, .inverse = 1};
    pl_status status;

    a.frequencies = call_take_frequencies(m);
    a.positions = call_take_ids(m, N, 1000);
    a.x = call_take_bf16(m, n, true);
    a.token_stride = TOKEN;
    a.head_stride = HEAD;
    for (size_t i = 0; i < n; i++)
        if (i % TOKEN >= HEADS * HEAD || i % TOKEN % HEAD >= WIDE)
            memset(a.x + i, m->poison, sizeof *a.x);
    SPOIL(a, f, n, x, positions);
    status = pl_op_rope(call_ready(m, context, f), &a, err);
    for (size_t i = 0; f == CALL_RIGHT && i < n; i++)
        if (i % TOKEN >= HEADS * HEAD || i % TOKEN % HEAD >= WIDE) {
            assert_int_equal(a.x[i], m->poison * 0x0101);
            a.x[i] = 0;
        }
    return status;
}

CALL(head_norm_rope)
{
    pl_op_head_norm_rope_args a = {.n = N, .n_heads = HEADS, .eps = 1e-6f};

    a.frequencies = call_take_frequencies(m);
    a.positions = call_take_ids(m, N, 1000);
    a.q = call_take_bf16(m, (size_t)N * HEADS * 512, true);
    SPOIL(a, f, n, q, positions);
    return pl_op_head_norm_rope(call_ready(m, context, f), &a, err);
}

CALL(hadamard)
{
    pl_op_hadamard_args a = {N, call_take_bf16(m, (size_t)N * 128, false), NULL};

    a.y = call_take_out(m, (size_t)N * 128 * 2);
    SPOIL(a, f, n, y, x);
    return pl_op_hadamard(call_ready(m, context, f), &a, err);
}

CALL(map)
{
    struct {
        int64_t n;
        const float *x;
        float *y;
    } a = {77, call_take_f32(m, 77), NULL};

    a.y = call_take_out(m, 77 * sizeof(float));
    SPOIL(a, f, n, y, x);
    return pl_op_map(call_ready(m, context, f), PL_OP_SOFTPLUS, a.n, a.x, a.y, err);
}

CALL(hc_pre)
{
    pl_op_hc_pre_args a = {.n = N, .dim = 40, .rms_eps = 1e-6f, .hc_eps = 1e-6f};

    a.sinkhorn_iters = 3;
    a.fn = call_take_f32(m, (size_t)24 * 4 * 40);
    a.base = call_take_f32(m, 24);
    a.scale = call_take_f32(m, 3);
    a.x = call_take_bf16(m, (size_t)N * 4 * 40, false);
    a.dots = call_take_out(m, (size_t)N * 25 * 4);
    a.y = call_take_out(m, (size_t)N * 40 * 2);
    a.post = call_take_out(m, (size_t)N * 4 * 4);
    a.comb = call_take_out(m, (size_t)N * 16 * 4);
    SPOIL(a, f, n, comb, x);
    return pl_op_hc_pre(call_ready(m, context, f), &a, err);
}

CALL(hc_post)
{
    pl_op_hc_post_args a = {.n = N, .dim = 40};

    a.f = call_take_bf16(m, (size_t)N * 40, false);
    a.post = call_take_f32(m, (size_t)N * 4);
    a.comb = call_take_f32(m, (size_t)N * 16);
    a.x = call_take_bf16(m, (size_t)N * 4 * 40, true);
    SPOIL(a, f, n, x, comb);
    return pl_op_hc_post(call_ready(m, context, f), &a, err);
}

CALL(hc_head)
{
    pl_op_hc_head_args a = {.n = N, .dim = 40, .rms_eps = 1e-6f, .hc_eps = 1e-6f};

    a.fn = call_take_f32(m, (size_t)4 * 4 * 40);
    a.base = call_take_f32(m, 4);
    a.scale = call_take_f32(m, 1);
    a.x = call_take_bf16(m, (size_t)N * 4 * 40, false);
    a.dots = call_take_out(m, (size_t)N * 5 * 4);
    a.y = call_take_out(m, (size_t)N * 40 * 2);
    SPOIL(a, f, n, y, x);
    return pl_op_hc_head(call_ready(m, context, f), &a, err);
}

/* ---- experts */

/* Rows of the table that no token names are poison. */
CALL(route)
{
    enum { EXPERTS = 21, TOP = 3, ROWS = 9 };
    pl_op_route_args a = {.n = N, .n_experts = EXPERTS, .top_k = TOP, .scale = 2, .n_vocab = ROWS};
    int64_t *table = call_take(m, (size_t)ROWS * TOP * sizeof *table, false);
    int32_t *tokens = call_take_ids(m, N, ROWS);

    memset(table, m->poison, (size_t)ROWS * TOP * sizeof *table);
    for (int t = 0; t < N; t++)
        for (int i = 0; i < TOP; i++)
            table[(ptrdiff_t)tokens[t] * TOP + i] = (t * 5 + i) % EXPERTS;
    a.table = table;
    a.tokens = tokens;
    a.logits = call_take_f32(m, (size_t)N * EXPERTS);
    a.scores = call_take_out(m, (size_t)N * EXPERTS * 4);
    a.ids = call_take_out(m, (size_t)N * TOP * 4);
    a.weights = call_take_out(m, (size_t)N * TOP * 4);
    SPOIL(a, f, n, scores, logits);
    return pl_op_route(call_ready(m, context, f), &a, err);
}

CALL(route_learned)
{
    enum { EXPERTS = 21, TOP = 3 };
    pl_op_route_args a = {.n = N, .n_experts = EXPERTS, .top_k = TOP, .scale = 2};

    a.bias = call_take_f32(m, EXPERTS);
    a.logits = call_take_f32(m, (size_t)N * EXPERTS);
    a.scores = call_take_out(m, (size_t)N * EXPERTS * 4);
    a.ids = call_take_out(m, (size_t)N * TOP * 4);
    a.weights = call_take_out(m, (size_t)N * TOP * 4);
    SPOIL(a, f, n, weights, logits);
    return pl_op_route(call_ready(m, context, f), &a, err);
}

CALL(swiglu)
{
    pl_op_swiglu_args a = {N, 45, 10, call_take_bf16(m, (size_t)N * 45, false), NULL, NULL, NULL};

    a.u = call_take_bf16(m, (size_t)N * 45, false);
    a.weight = call_take_f32(m, N);
    a.a = call_take_out(m, (size_t)N * 45 * 2);
    SPOIL(a, f, n, a, u);
    return pl_op_swiglu(call_ready(m, context, f), &a, err);
}

CALL(swiglu7)
{
    pl_op_swiglu7_args a = {N,    45,  PL_DTYPE_BF16, call_take_bf16(m, (size_t)N * 90, false),
                            NULL, NULL};

    a.a = call_take_out(m, (size_t)N * 45 * 2);
    SPOIL(a, f, n, a, g);
    return pl_op_swiglu7(call_ready(m, context, f), &a, err);
}

#define ENTRY(op, counts)      \
    {                          \
#op, call_##op, counts \
    }

const op_call op_calls[] = {
    ENTRY(rms_norm, true),   ENTRY(quantise, true),       ENTRY(rope, true),
    ENTRY(hadamard, true),   ENTRY(head_norm_rope, true), ENTRY(map, true),
    ENTRY(hc_pre, true),     ENTRY(hc_post, true),        ENTRY(hc_head, true),
    ENTRY(compress, true),   ENTRY(index_insert, true),   ENTRY(index_query, true),
    ENTRY(index_topk, true), ENTRY(route, true),          ENTRY(route_learned, true),
    ENTRY(swiglu, true),     ENTRY(swiglu7, true),        ENTRY(gumbel, true),
    ENTRY(penalise, false),  ENTRY(log_softmax, true),    ENTRY(sample, false),
    ENTRY(kv_insert, true),  ENTRY(kv_gather, true),      ENTRY(kv_gather_v32, true),
    ENTRY(kv_pack, true),    ENTRY(kv_unpack, true),
};
const int n_op_calls = sizeof op_calls / sizeof op_calls[0];
