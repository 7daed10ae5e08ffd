/* Level scalar word for word: attention, compressor, indexer, experts (docs/NUMERICS.md 9 to 12). */
#include <stdlib.h>

#include "support/contract.h"

static const float no_cos[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static const float no_sin[32];

/* ---- section 9 ---- */

enum { START = 201, RING = 131, STEP = 3, ENTRIES = 150, TOPK = 100 };

static pl_rows random_rows(int32_t page_rows, int64_t n)
{
    pl_rows r = {NULL, 0, page_rows, ops->kv_data_bytes, ops->kv_scale_bytes};

    r.page_bytes = pl_rows_page_bytes(page_rows, r.data_bytes, r.scale_bytes);
    r.base = take((size_t)((n + page_rows - 1) / page_rows * r.page_bytes));
    for (int64_t i = 0; i < n; i++) {
        uint16_t kv[512];
        pl_row_dest dest = {&r, i};
        pl_kv_store_args a = {kv, {no_cos, no_sin}, &dest};
        for (int d = 0; d < 512; d++)
            kv[d] = spread_bf16();
        ops->kv_store(&env, &a, 0, 1);
    }
    return r;
}

/* Slots of blocks of 64; keys[j] is NULL where slot j is not visible. */
static void attend(const float *q, float *const *keys, int n_slots, float sink, float out[512])
{
    static const float nothing[512];
    float m = -INFINITY, l = 0, o[512] = {0}, base;

    for (int first = 0; first < n_slots; first += 64) {
        float s[64], P[64], pb[64], v[64], next = m, alpha, sum;
        bool any = false;
        for (int j = 0; j < 64; j++) {
            if (!keys[first + j])
                continue;
            any = true;
            s[j] = chain(0, q, keys[first + j], 512) * 0x1.6a09e6p-5f;
            next = s[j] > next ? s[j] : next;
        }
        if (!any)
            continue;
        base = next == -INFINITY ? 0 : next;
        alpha = pl_exp_f32(m - base);
        for (int j = 0; j < 64; j++) {
            P[j] = keys[first + j] ? pl_exp_f32(s[j] - base) : 0;
            pb[j] = pl_bf16_round(P[j]);
        }
        sum = P[0];
        for (int j = 1; j < 64; j++)
            sum = sum + P[j];
        l = l * alpha + sum;
        for (int d = 0; d < 512; d++) {
            for (int j = 0; j < 64; j++)
                v[j] = keys[first + j] ? keys[first + j][d] : nothing[d];
            o[d] = chain(o[d] * alpha, pb, v, 64);
        }
        m = next;
    }
    base = m == -INFINITY ? 0 : m;
    l = l + pl_exp_f32(sink - base);
    for (int d = 0; d < 512; d++)
        out[d] = o[d] / l;
}

static void check_attention(int32_t start, int32_t ratio)
{
    pl_attention_seq seq = {.n = STEP, .start = start, .ring_rows = RING};
    pl_rows step = random_rows(STEP, STEP);
    int32_t seq_of[STEP] = {0}, position[STEP], sel[STEP][TOPK], n_sel[STEP] = {TOPK, 3, 64};
    uint16_t q[STEP][2][512], o[STEP][2][512];
    float sink[2] = {0.5f, -2}, query[512], out[512], (*row)[512] = take(sizeof(float) * 512 * 512);
    pl_attention_args a = {.n_heads = 2,
                           .ratio = ratio,
                           .q = q,
                           .sink = view(PL_WEIGHT_F32, 1, 2, sink, NULL),
                           .seqs = &seq,
                           .seq_of = seq_of,
                           .position = position,
                           .step = step,
                           .sel = ratio == 4 ? sel[0] : NULL,
                           .n_sel = ratio == 4 ? n_sel : NULL,
                           .sel_stride = TOPK,
                           .o = o};

    seq.ring = random_rows(RING, RING);
    seq.entries = random_rows(32, ENTRIES);
    for (int t = 0; t < STEP; t++) {
        position[t] = start + t;
        for (int i = 0; i < TOPK; i++)
            sel[t][i] = i + i / 3;
        for (int d = 0; d < 2 * 512; d++)
            q[t][d / 512][d % 512] = spread_bf16();
    }
    ops->attention(&env, &a, 0, 2 * STEP);
    for (int t = 0; t < STEP; t++) {
        int n_entries = ratio == 4 ? n_sel[t] : ratio ? (position[t] + 1) / ratio : 0;
        float *keys[512] = {0};
        for (int j = 0; j < 128; j++) {
            int pos = position[t] - 127 + j;
            if (pos < 0)
                continue;
            keys[j] = row[j];
            ops->kv_get(pos < start ? &seq.ring : &step, pos < start ? pos % RING : pos - start,
                        row[j]);
        }
        for (int i = 0; i < n_entries; i++) {
            keys[128 + i] = row[128 + i];
            ops->kv_get(&seq.entries, ratio == 4 ? sel[t][i] : i, row[128 + i]);
        }
        for (int h = 0; h < 2; h++) {
            for (int d = 0; d < 512; d++)
                query[d] = pl_bf16_to_f32(q[t][h][d]);
            attend(query, keys, 128 + (n_entries + 63) / 64 * 64, sink[h], out);
            for (int d = 0; d < 512; d++)
                check_bf16_bits("o", d, o[t][h][d], out[d]);
        }
    }
    free(row);
    free(step.base);
    free(seq.ring.base);
    free(seq.entries.base);
}

static void attention(void **state)
{
    (void)state;
    check_attention(START, 0);
    check_attention(START, 4);
    check_attention(128 * 66, 128); /* 66 entries: a second block, nearly empty */
    check_attention(0, 0);          /* a first block without a visible slot */
    check_attention(61, 0);
}

/* ---- section 10 ---- */

static float pool4(float (*kv)[128], float (*score)[128], int entry, int c)
{
    float k[8], s[8], m = -INFINITY, den, pooled;

    for (int r = 0; r < 8; r++) {
        int t = 4 * (entry - 1) + r;
        k[r] = t < 0 ? 0 : kv[t][r < 4 ? c : 64 + c];
        s[r] = t < 0 ? -INFINITY : score[t][r < 4 ? c : 64 + c];
        m = s[r] > m ? s[r] : m;
    }
    for (int r = 0; r < 8; r++)
        s[r] = pl_exp_f32(s[r] - m);
    den = s[0];
    for (int r = 1; r < 8; r++)
        den = den + s[r];
    pooled = (s[0] / den) * k[0];
    for (int r = 1; r < 8; r++)
        pooled = pooled + (s[r] / den) * k[r];
    return pooled;
}

static float pool128(float (*kv)[128], float (*score)[128], int entry, int c)
{
    float m = -INFINITY, den = 0, num = 0;

    for (int t = 128 * entry; t < 128 * entry + 128; t++) {
        float next = score[t][c] > m ? score[t][c] : m;
        float a = pl_exp_f32(m - next), e = pl_exp_f32(score[t][c] - next);
        den = den * a + e;
        num = num * a + e * kv[t][c];
        m = next;
    }
    return num / den;
}

static void compressor(void **state)
{
    static float kv[256][128], gate[256][128], score[256][128], ape[128 * 128];

    (void)state;
    for (int pass = 0; pass < 2; pass++) {
        int ratio = pass ? 128 : 4, width = pass ? 64 : 128, n_entries = 256 / ratio;
        float *rows = take(sizeof kv), *gates = take(sizeof kv);
        uint16_t *pooled = take((size_t)n_entries * 128);
        void *st = take(ops->compress_state_bytes(ratio, 64));
        pl_compress_job job = {st, rows, gates, 256, 0, pooled};
        pl_compress_args a = {ratio, 64, view(PL_WEIGHT_F32, ratio, width, ape, NULL), &job};

        for (int i = 0; i < ratio * width; i++)
            ape[i] = random_float();
        for (int t = 0; t < 256; t++)
            for (int c = 0; c < width; c++) {
                rows[t * width + c] = kv[t][c] = spread();
                gates[t * width + c] = gate[t][c] = 4 * random_float();
                score[t][c] = gate[t][c] + ape[t % ratio * width + c];
            }
        ops->compress_reset(st, ratio, 64);
        ops->compress(&env, &a, 0, 1);
        for (int e = 0; e < n_entries; e++)
            for (int c = 0; c < 64; c++)
                check_bf16_bits("pooled", e * 64 + c, pooled[e * 64 + c],
                                pass ? pool128(kv, score, e, c) : pool4(kv, score, e, c));
        free(rows);
        free(gates);
        free(pooled);
        free(st);
    }
}

/* ---- section 11 ---- */

static float index_dot(const pl_rows *q, int64_t h, const pl_rows *k, int64_t i)
{
    float t[4];

    for (int g = 0; g < 4; g++) {
        double d = 0; /* exact */
        for (int b = 16 * g; b < 16 * g + 16; b++) {
            uint8_t x = pl_rows_data(q, h)[b], y = pl_rows_data(k, i)[b];
            d += (double)(pl_e2m1_to_f32(x & 15) * pl_e2m1_to_f32(y & 15));
            d += (double)(pl_e2m1_to_f32(x >> 4) * pl_e2m1_to_f32(y >> 4));
        }
        t[g] = (float)d *
               (pl_e8m0_to_f32(pl_rows_scales(q, h)[g]) * pl_e8m0_to_f32(pl_rows_scales(k, i)[g]));
    }
    return ((t[0] + t[1]) + t[2]) + t[3];
}

static void index_scores(void **state)
{
    enum { HEADS = 7, KEYS = 96 };
    pl_rows keys = {NULL, 32 * 68, 32, 64, 4}, query = keys;
    pl_attention_seq seq = {.n = 1};
    int32_t zero = 0, position = 4 * KEYS - 1, best[8], n_best;
    float best_score[8], scores[KEYS], factor = 0x1.6a09e6p-7f;
    uint16_t w[HEADS], y[128];
    pl_index_topk_args a = {.n_heads = HEADS,
                            .topk = 8,
                            .n_parts = 1,
                            .w = w,
                            .factor = factor,
                            .seqs = &seq,
                            .seq_of = &zero,
                            .position = &position,
                            .best_score = best_score,
                            .best = best,
                            .n_best = &n_best,
                            .scores = scores,
                            .scores_stride = sizeof scores};

    (void)state;
    keys.base = take(KEYS / 32 * 32 * 68);
    query.base = take(32 * 68);
    for (int i = 0; i < KEYS + HEADS; i++) {
        pl_row_dest dest = {i < KEYS ? &keys : &query, i < KEYS ? i : i - KEYS};
        pl_key_store_args store = {y, {no_cos, no_sin}, &dest};
        for (int d = 0; d < 128; d++)
            y[d] = spread_bf16();
        ops->key_store(&env, &store, 0, 1);
    }
    for (int h = 0; h < HEADS; h++)
        w[h] = spread_bf16();
    seq.keys = keys;
    a.query = query;
    ops->index_topk(&env, &a, 0, 1);
    for (int i = 0; i < KEYS; i++) {
        float sum = 0;
        for (int h = 0; h < HEADS; h++) {
            float dot = index_dot(&query, h, &keys, i), relu = 0 > dot ? 0 : dot;
            float term = relu * pl_bf16_round(pl_bf16_to_f32(w[h]) * factor);
            sum = h ? sum + term : term;
        }
        check_bits("score", i, scores[i], sum + 0.0f);
    }
    free(keys.base);
    free(query.base);
}

/* ---- section 12 ---- */

static void experts(void **state)
{
    enum { E = 13, TOP = 5, N = 200 };
    float gate[E], score[E], bias[E] = {0}, weight[TOP] = {0}, sum;
    int32_t ids[TOP], at[1] = {3};
    uint16_t g[N], u[N], out[N];
    pl_route_args route = {.n_experts = E,
                           .top_k = TOP,
                           .bias = view(PL_WEIGHT_F32, 1, E, bias, NULL),
                           .score = score,
                           .ids = ids};
    pl_route_weights_args weights = {E, TOP, 1.5f, score, ids, weight};
    pl_swiglu_args swiglu = {N, 7, g, u, weight, at, out};

    (void)state;
    for (int e = 0; e < E; e++) {
        gate[e] = score[e] = 3 * spread();
        bias[e] = random_float() / 8;
    }
    ops->route(&env, &route, 0, 1);
    ops->route_weights(&env, &weights, 0, 1);
    for (int e = 0; e < E; e++)
        check_bits("s", e, score[e], pl_sqrt_f32(pl_softplus_f32(gate[e])));
    sum = score[ids[0]];
    for (int i = 1; i < TOP; i++) {
        sum = sum + score[ids[i]];
        assert_true(score[ids[i - 1]] + bias[ids[i - 1]] >= score[ids[i]] + bias[ids[i]]);
    }
    for (int i = 0; i < TOP; i++)
        check_bits("w", i, weight[i], (score[ids[i]] / sum) * 1.5f);
    for (int i = 0; i < N; i++)
        g[i] = spread_bf16(), u[i] = spread_bf16();
    ops->swiglu(&env, &swiglu, 0, 1);
    for (int i = 0; i < N; i++) {
        float x = pl_bf16_to_f32(g[i]), y = pl_bf16_to_f32(u[i]);
        x = x > 7 ? 7 : x;
        y = y > 7 ? 7 : y;
        y = y < -7 ? -7 : y;
        check_bf16_bits("a", i, out[i], ((x * pl_sigmoid_f32(x)) * y) * weight[3]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention),
        cmocka_unit_test(compressor),
        cmocka_unit_test(index_scores),
        cmocka_unit_test(experts),
    };
    return RUN_OPERATOR_TESTS(pl_ops_scalar(), tests);
}
