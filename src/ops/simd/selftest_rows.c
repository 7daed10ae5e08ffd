/* The other operators of a vector level on one small problem each, through the operator table: random operands with
 * a few denormals and zeros among them, the bits of level scalar as the answer (NaNs are one class). */
#include <string.h>

#include "base/error.h"
#include "base/numfmt.h"
#include "ops/simd/selftest.h"

enum {
    DIM = 384,
    TOKENS = 2,
    HEADS = 5,
    KEYS = 40,
    START = 150,
    TOP = 16,
    N_ACT = 2 * TOKENS * PL_HC_MULT * DIM,
    N_OUT = TOKENS * HEADS * PL_HEAD_DIM,
    ROW = PL_NOPE_DIM + 2 * PL_ROPE_DIM + 8,
};

typedef struct problem {
    _Alignas(64) uint8_t scratch[PL_VARLEN_SCRATCH_BYTES];
    uint8_t rows[PL_WINDOW + TOKENS + KEYS][ROW], index_rows[TOKENS * HEADS + KEYS][68];
    uint16_t act[N_ACT > N_OUT ? N_ACT : N_OUT];
    float acc[PL_HC_OUT * PL_HC_MULT * DIM];
    uint32_t got[N_OUT], want[N_OUT];
} problem;

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void fill(problem *p)
{
    uint32_t r = 7;

    for (size_t i = 0; i < sizeof p->act / sizeof *p->act; i++)
        p->act[i] = (uint16_t)((next(&r) & 0x807F) | (122 + next(&r) % 8) << 7);
    for (int i = 0; i < 4; i++)
        p->act[97 * i + 5] = (uint16_t)(i % 2 ? 0x8000 : 0x0001);
    for (size_t i = 0; i < sizeof p->acc / sizeof *p->acc; i++)
        p->acc[i] = pl_f32_from_bits((next(&r) << 8 & 0x807FFF00) | (120 + next(&r) % 8) << 23);
    for (int i = 0; i < PL_WINDOW + TOKENS + KEYS; i++) {
        uint8_t *row = p->rows[i];
        for (int d = 0; d < ROW; d++)
            row[d] = (uint8_t)(next(&r) % 0x78 | (next(&r) & 0x80));
        for (int d = 0; d < PL_ROPE_DIM; d++) /* upper bytes: 2^-3 to 2 */
            row[PL_NOPE_DIM + 2 * d + 1] = (uint8_t)(0x3E + (next(&r) & 0x81));
        for (int b = 0; b < 8; b++)
            row[ROW - 8 + b] = (uint8_t)(i % 50 == 49 ? 0 : 116 + i % 7);
    }
    for (int i = 0; i < TOKENS * HEADS + KEYS; i++)
        for (int d = 0; d < 68; d++)
            p->index_rows[i][d] = (uint8_t)(d < 64 ? (int)(next(&r) & 255) : 120 + i % 9);
}

static bool same(const problem *p, size_t n, bool act, size_t *where)
{
    for (*where = 0; *where < n; ++*where) {
        uint32_t a = p->got[*where], b = p->want[*where];

        if (act) { /* two numbers a word */
            float x[2] = {pl_f32_from_bits(a << 16), pl_f32_from_bits(b << 16)};
            float y[2] = {pl_f32_from_bits(a & 0xFFFF0000), pl_f32_from_bits(b & 0xFFFF0000)};
            if (((a ^ b) & 0xFFFF && !(x[0] != x[0] && x[1] != x[1])) ||
                ((a ^ b) >> 16 && !(y[0] != y[0] && y[1] != y[1])))
                return false;
        } else if (a != b) {
            float x = pl_f32_from_bits(a), y = pl_f32_from_bits(b);
            if (!(x != x && y != y))
                return false;
        }
    }
    return true;
}

/* Each of these runs one operator of `ops` with `out` as its output and returns the words of it. */
static size_t run_attention(const pl_ops *ops, problem *p, const pl_op_env *env, uint32_t *out)
{
    pl_rows all = {p->rows[0], ROW, 1, ROW - 8, 8};
    pl_rows step = all, entries = all, keys = {p->index_rows[0], 68, 1, 64, 4};
    const int32_t seq_of[TOKENS] = {0}, position[TOKENS] = {START, START + 1};
    pl_attention_seq seq = {.n = TOKENS, .start = START, .ring = all, .ring_rows = PL_WINDOW};
    pl_attention_args a = {.n_heads = HEADS,
                           .ratio = 4,
                           .q = p->act,
                           .seqs = &seq,
                           .seq_of = seq_of,
                           .position = position,
                           .o = out};

    step.base = p->rows[PL_WINDOW];
    entries.base = p->rows[PL_WINDOW + TOKENS];
    seq.entries = entries;
    seq.keys = keys;
    a.step = step;
    a.sink = (pl_weight_view){.format = PL_WEIGHT_F32, .rows = 1, .cols = HEADS, .data = p->acc};
    ops->attention(env, &a, 0, (int64_t)TOKENS * HEADS);
    return N_OUT / 2;
}

static size_t run_varlen(const pl_ops *ops, problem *p, const pl_op_env *env, uint32_t *out)
{
    static const int32_t cu_q[] = {0, 9, 10}, cu_k[] = {0, 90, 93};
    pl_varlen_tensor q = {p->act, 4 * 24, 24, 0}, kv = {p->act, 24, 24, 0};
    pl_varlen_args a = {.type = PL_VARLEN_BF16,
                        .n_seqs = 2,
                        .n_heads = 4,
                        .n_kv_heads = 1,
                        .dim = 24,
                        .value_dim = 24,
                        .cu_q = cu_q,
                        .cu_k = cu_k,
                        .q = q,
                        .k = kv,
                        .v = kv,
                        .left = 70,
                        .right = 0,
                        .scale = 0.2f,
                        .cap = 20,
                        .sink = p->acc,
                        .n_sinks = 1,
                        .out = out,
                        .out_token_stride = (int64_t)4 * 24,
                        .out_head_stride = 24,
                        .lse_stride = 10};

    a.lse = (float *)(out + 10 * 4 * 24 / 2);
    ops->attention_varlen(env, &a, 0, pl_varlen_units(&a));
    return 10 * 4 * 24 / 2 + 10 * 4;
}

/* Keys in planar pages, then plain ones. */
static size_t run_sparse(const pl_ops *ops, problem *p, const pl_op_env *env, uint32_t *out)
{
    int32_t list[TOKENS][80];
    pl_cache_rows pages = {PL_CACHE_V4, PL_HEAD_DIM, p->rows[0], ROW, 1, PL_WINDOW + TOKENS + KEYS};
    pl_cache_rows plain = {PL_CACHE_BF16, PL_HEAD_DIM, (uint8_t *)p->act, 2 * PL_HEAD_DIM, 1, 6};
    pl_sparse_args a = {.n_heads = HEADS,
                        .dim = PL_HEAD_DIM,
                        .q = p->act,
                        .q_token_stride = (int64_t)HEADS * PL_HEAD_DIM,
                        .q_head_stride = PL_HEAD_DIM,
                        .scale = 0x1.6a09e6p-5f,
                        .set = {{pages, list[0], 80, 80, NULL}, {plain, list[0], 80, 9, NULL}},
                        .n_sets = 2,
                        .length_tokens = 1,
                        .sink = p->acc,
                        .out = (uint16_t *)out,
                        .out_token_stride = (int64_t)HEADS * PL_HEAD_DIM,
                        .out_head_stride = PL_HEAD_DIM,
                        .stat_stride = TOKENS};

    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < 80; i++)
            list[t][i] = i % 9 == 4 ? -1 : (i * 5 + t) % (PL_WINDOW + TOKENS + KEYS);
    a.lse = (float *)(out + N_OUT / 2);
    a.max_logits = a.lse + TOKENS * HEADS;
    ops->attention_sparse(env, &a, 0, (int64_t)TOKENS * HEADS);
    return N_OUT / 2 + 2 * TOKENS * HEADS;
}

/* Queries, then the same rows as keys in turned order; returns their words. */
static size_t run_index_rows(const pl_ops *ops, problem *p, const pl_op_env *env, uint32_t *out)
{
    enum { ROWS = TOKENS * HEADS, WORDS = 17 };
    const pl_angles angles = {p->acc, p->acc + TOKENS * HEADS * PL_ROPE_PAIRS};
    pl_rows queries = {(uint8_t *)out, 68 * ROWS, ROWS, 64, 4}, keys = queries;
    pl_index_query_args query = {HEADS, p->act, angles, queries};
    pl_row_dest dest[ROWS];
    pl_key_store_args key = {p->act, angles, dest};

    keys.base = (uint8_t *)(out + WORDS * ROWS);
    for (int i = 0; i < ROWS; i++)
        dest[i] = (pl_row_dest){&keys, ROWS - 1 - i};
    ops->index_query(env, &query, 0, ROWS);
    ops->key_store(env, &key, 0, ROWS);
    return 2 * (size_t)WORDS * ROWS;
}

static size_t run_index_topk(const pl_ops *ops, problem *p, const pl_op_env *env, uint32_t *out)
{
    const int32_t seq_of[TOKENS] = {0}, position[TOKENS] = {START, START + 1};
    pl_rows keys = {p->index_rows[0], 68, 1, 64, 4}, queries = keys;
    pl_attention_seq seq = {.keys = keys};
    pl_index_topk_args a = {.n_heads = HEADS,
                            .topk = TOP,
                            .n_parts = 1,
                            .w = p->act,
                            .factor = 0x1.6a09e6p-7f,
                            .seqs = &seq,
                            .seq_of = seq_of,
                            .position = position};

    queries.base = p->index_rows[KEYS];
    a.query = queries;
    a.n_best = (int32_t *)out;
    a.best = (int32_t *)out + TOKENS;
    a.best_score = out + TOKENS + TOKENS * TOP;
    ops->index_topk(env, &a, 0, TOKENS);
    out += TOKENS + 2 * TOKENS * TOP;
    return TOKENS + 2 * TOKENS * TOP + run_index_rows(ops, p, env, out);
}

static size_t run_streams(const pl_ops *ops, problem *p, const pl_op_env *env, uint32_t *out)
{
    pl_weight_view fn = {
        .format = PL_WEIGHT_F32, .rows = PL_HC_OUT, .cols = PL_HC_MULT * DIM, .data = p->acc};
    pl_weight_view base = fn, scale = fn;
    uint32_t *m = out, *post = m + TOKENS * (PL_HC_OUT + 1), *comb = post + TOKENS * PL_HC_MULT;
    uint32_t *y = comb + TOKENS * PL_HC_MULT * PL_HC_MULT, *x = y + TOKENS * DIM / 2;
    pl_hc_dots_args dots = {.fn = fn, .x = p->act, .m = m};
    pl_hc_pre_args pre = {base, scale, 1e-6f, 1e-6f, 3, DIM, m, p->act, y, post, comb};
    pl_hc_post_args after = {DIM, p->act, post, comb, x};

    ops->hc_dots(env, &dots, 0, (int64_t)TOKENS * (PL_HC_OUT + 1));
    ops->hc_pre(env, &pre, 0, TOKENS);
    memcpy(x, p->act, sizeof(uint16_t) * TOKENS * PL_HC_MULT * DIM);
    ops->hc_post(env, &after, 0, TOKENS);
    return (size_t)(x - out) + TOKENS * PL_HC_MULT * DIM / 2;
}

static size_t run_norm(const pl_ops *ops, problem *p, const pl_op_env *env, uint32_t *out)
{
    pl_weight_view w = {.format = PL_WEIGHT_BF16, .rows = 1, .cols = DIM, .data = p->act + DIM};
    pl_angles angles = {p->acc, p->acc + TOKENS * PL_ROPE_PAIRS};
    pl_q_norm_rope_args q = {HEADS, 1e-6f, angles, out};
    pl_unrope_args o = {HEADS, angles, out};
    pl_rope_args r = {1,   72, false, angles,
                      out, 80, 0}; /* among dims that the others did not rotate */
    pl_hadamard_args h = {out, out};
    pl_rms_norm_args norm = {w, 1e-6f, DIM, p->act, NULL};
    pl_quantise_args q8 = {DIM, p->act, (int64_t)2 * DIM, NULL, DIM + 16};

    memcpy(out, p->act, sizeof(uint16_t) * N_OUT);
    ops->q_norm_rope(env, &q, 0, (int64_t)TOKENS * HEADS);
    ops->unrope(env, &o, 0, HEADS);
    ops->rope(env, &r, 0, TOKENS);
    ops->hadamard(env, &h, 0, 1);
    norm.y = out + N_OUT / 2;
    ops->rms_norm(env, &norm, 0, TOKENS);
    q8.q = out + N_OUT / 2 + TOKENS * DIM / 2;
    memset(q8.q, 0, TOKENS * (DIM + 16));
    ops->quantise(env, &q8, 0, TOKENS);
    return N_OUT / 2 + TOKENS * DIM / 2 + TOKENS * (DIM + 16) / 4;
}

/* Experts that are no whole number of vectors. */
static size_t run_route(const pl_ops *ops, problem *p, const pl_op_env *env, uint32_t *out)
{
    enum { EXPERTS = 77, CHOSEN = 6 };
    pl_weight_view bias = {.format = PL_WEIGHT_F32, .rows = 1, .cols = EXPERTS, .data = p->acc};
    pl_route_args a = {.n_experts = EXPERTS,
                       .top_k = CHOSEN,
                       .bias = bias,
                       .score = out,
                       .ids = (int32_t *)out + TOKENS * EXPERTS};

    memcpy(out, p->acc + EXPERTS, sizeof *out * TOKENS * EXPERTS);
    ops->route(env, &a, 0, TOKENS);
    return (size_t)TOKENS * (EXPERTS + CHOSEN);
}

static size_t run_experts(const pl_ops *ops, problem *p, const pl_op_env *env, uint32_t *out)
{
    static const int32_t at[TOKENS] = {3, -1}, rows[TOKENS * 3] = {0, 2, 1, 3, 1, 0},
                         ids[TOKENS * 3] = {0, 4, 7, 1, 1, 5};
    pl_swiglu_args glu = {DIM, 10, p->act, p->act + TOKENS * DIM, p->acc, at, out};
    pl_moe_sum_args sum = {
        DIM, 3, 8, 3, p->act, rows, ids, p->act + 2 * DIM, out + TOKENS * DIM / 2};

    uint32_t *next_out = out + (size_t)TOKENS * DIM;

    ops->swiglu(env, &glu, 0, TOKENS);
    ops->moe_sum(env, &sum, 0, TOKENS);
    for (int i = 0; i < 4; i++, next_out += TOKENS * DIM / 2) {
        bool in_floats = i % 2 != 0;
        pl_swiglu7_args seven = {DIM,
                                 in_floats,
                                 i / 2 != 0,
                                 in_floats ? (void *)p->acc : p->act,
                                 in_floats ? (void *)(p->acc + DIM) : p->act + DIM,
                                 next_out};
        ops->swiglu7(env, &seven, 0, TOKENS);
    }
    return (size_t)3 * TOKENS * DIM + run_route(ops, p, env, next_out);
}

static size_t run_map(const pl_ops *ops, problem *p, const pl_op_env *env, uint32_t *out)
{
    enum { N = 203 };

    for (int f = 0; f < PL_MAP_COUNT; f++) {
        pl_map_args a = {(pl_map_function)f, p->acc, (float *)out + (size_t)f * N};
        ops->map(env, &a, 0, N);
    }
    return (size_t)PL_MAP_COUNT * N;
}

/* Both ratios over one tile of channels; the states are part of the result. */
static size_t run_compress(const pl_ops *ops, problem *p, const pl_op_env *env, uint32_t *out)
{
    enum { N4 = 9, N128 = 130, C = PL_COMPRESS_TILE };
    pl_weight_view ape = {.format = PL_WEIGHT_F32, .data = p->acc + 77};
    uint32_t *state4 = out, *state128 = out + 24 * C, *pooled = state128 + 3 * C;
    pl_compress_job four = {state4, p->acc, p->acc + 1000, N4, 0, pooled};
    pl_compress_job many = {state128, p->acc, p->acc + 2000, N128, 0, pooled + C};
    pl_compress_args a = {4, C, ape, &four}, b = {128, C, ape, &many};

    ops->compress_reset(state4, 4, C);
    ops->compress_reset(state128, 128, C);
    ops->compress(env, &a, 0, 1);
    ops->compress(env, &b, 0, 1);
    return 27 * C + C + C / 2;
}

/* Rows of both quantised layouts, one skipped, and back; a row of the model's own. */
static size_t run_caches(const pl_ops *ops, problem *p, const pl_op_env *env, uint32_t *out)
{
    enum { ROWS = 3, V4 = 584, V32 = PL_V32_ROW_BYTES };
    static const int32_t slots[ROWS] = {2, -1, 0};
    uint8_t *pages = (uint8_t *)out;
    pl_rows own = {pages + (size_t)ROWS * (V4 + V32), V4, 1, V4 - 8, 8};
    uint16_t *back = (uint16_t *)(void *)(own.base + V4);
    pl_cache_rows v4 = {PL_CACHE_V4, PL_HEAD_DIM, pages, (int64_t)ROWS * V4, ROWS, ROWS};
    pl_cache_rows v32 = {
        PL_CACHE_V32, PL_CACHE_MAX_DIM, pages + (size_t)ROWS * V4, (int64_t)ROWS * V32, ROWS, ROWS};
    pl_cache_move_args a = {v4, slots, p->act, PL_CACHE_MAX_DIM};
    pl_cache_move_args b = {v32, slots, p->act + 7, PL_CACHE_MAX_DIM};
    pl_row_dest dest = {&own, 0};
    pl_kv_store_args store = {p->act, {p->acc, p->acc + PL_ROPE_PAIRS}, &dest};

    memset(pages, 0, (size_t)ROWS * (V4 + V32));
    ops->cache_put(env, &a, 0, ROWS);
    ops->cache_put(env, &b, 0, ROWS);
    ops->kv_store(env, &store, 0, 1);
    a.x = back;
    b.x = back + (size_t)ROWS * PL_CACHE_MAX_DIM;
    memset(back, 0, sizeof *back * 2 * ROWS * PL_CACHE_MAX_DIM);
    ops->cache_get(env, &a, 0, ROWS);
    ops->cache_get(env, &b, 0, ROWS);
    return ((size_t)ROWS * (V4 + V32) + V4) / 4 + (size_t)ROWS * PL_CACHE_MAX_DIM;
}

pl_status pl__simd_rows_selftest(const pl_ops *ops, pl_simd_rows_test which, pl_error *err)
{
    static const struct {
        const char *name;
        size_t (*run)(const pl_ops *ops, problem *p, const pl_op_env *env, uint32_t *out);
        bool act; /* outputs of 16 bits */
    } tests[] = {
        [PL_SIMD_ATTENTION] = {"attention", run_attention, true},
        [PL_SIMD_VARLEN] = {"attention_varlen", run_varlen, true},
        [PL_SIMD_SPARSE] = {"attention_sparse", run_sparse, true},
        [PL_SIMD_INDEXER] = {"indexer", run_index_topk, false},
        [PL_SIMD_STREAMS] = {"hyper_connections", run_streams, true},
        [PL_SIMD_NORM] = {"norm_rope", run_norm, true},
        [PL_SIMD_EXPERTS] = {"experts", run_experts, true},
        [PL_SIMD_MAP] = {"elementary", run_map, false},
        [PL_SIMD_COMPRESS] = {"compressor", run_compress, false},
        [PL_SIMD_CACHE] = {"caches", run_caches, false},
    };
    problem p;
    pl_op_env env = {.scratch = p.scratch};
    size_t n, where;

    fill(&p);
    n = tests[which].run(pl_ops_scalar(), &p, &env, p.want);
    tests[which].run(ops, &p, &env, p.got);
    if (same(&p, n, tests[which].act, &where))
        return PL_OK;
    return pl_error_set(err, PL_ERR_INTERNAL, "%s: word %zu is wrong (got 0x%08x, want 0x%08x)",
                        tests[which].name, where, p.got[where], p.want[where]);
}
