/* The public operators of streams, compressor, indexer and experts (plimsoll/model_ops.h): double as the judge, every
 * kind of context, any cut into calls, refusals that write nothing. Bits of the kernels: checkkern. */
#include "plimsoll/model_ops.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/numfmt.h"
#include "support/contexts.h"

static double wide(uint16_t x)
{
    return (double)pl_bf16_to_f32(x);
}

static void check_near(const char *what, double got, double want, double within)
{
    if (!(fabs(got - want) <= within))
        fail_msg("%s: got %.9g, want %.9g within %.3g", what, got, want, within);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* ---- hyper-connections */

enum { T = 5, D = 192, S = 4, OUT = 24 };

typedef struct streams {
    float fn[OUT][S * D], base[OUT], scale[3];
    uint16_t x[T][S][D], f[T][D];
    struct {
        float dots[T][OUT + 1], post[T][S], comb[T][S][S];
        uint16_t y[T][D], x[T][S][D], head[T][D];
    } out;
} streams;

static pl_status call_streams(pl_ops_context *context, void *user, pl_error *err)
{
    streams *s = user;
    pl_op_hc_pre_args pre = {.n = T,
                             .dim = D,
                             .rms_eps = 1e-6f,
                             .hc_eps = 1e-6f,
                             .sinkhorn_iters = 20,
                             .fn = s->fn[0],
                             .base = s->base,
                             .scale = s->scale,
                             .x = s->x[0][0],
                             .dots = s->out.dots[0],
                             .y = s->out.y[0],
                             .post = s->out.post[0],
                             .comb = s->out.comb[0][0]};
    pl_op_hc_post_args post = {T, D, s->f[0], s->out.post[0], s->out.comb[0][0], s->out.x[0][0]};
    float dots[T][S + 1];
    pl_op_hc_head_args head = {T,       D,        1e-6f,      1e-6f,   s->fn[0],
                               s->base, s->scale, s->x[0][0], dots[0], s->out.head[0]};
    pl_status status = pl_op_hc_pre(context, &pre, err);

    if (status == PL_OK) {
        memcpy(s->out.x, s->x, sizeof s->x);
        status = pl_op_hc_post(context, &post, err);
    }
    return status == PL_OK ? pl_op_hc_head(context, &head, err) : status;
}

static void judge_streams(const streams *s, int t)
{
    const uint16_t *x = s->x[t][0];
    double m[OUT], ss = 0, C[S][S], rr;

    for (int i = 0; i < S * D; i++)
        ss += wide(x[i]) * wide(x[i]);
    rr = 1 / sqrt(ss / (S * D) + 1e-6);
    for (int o = 0; o < OUT; o++) {
        double dot = 0;
        for (int i = 0; i < S * D; i++)
            dot += (double)s->fn[o][i] * wide(x[i]);
        check_near("dots", (double)s->out.dots[t][o], dot, 1e-4 + 1e-5 * fabs(dot));
        m[o] = dot * rr * (double)s->scale[o < S ? 0 : o < 2 * S ? 1 : 2] + (double)s->base[o];
    }
    for (int j = 0; j < S; j++) {
        double sum = 0;
        for (int k = 0; k < S; k++)
            sum += C[j][k] = exp(m[2 * S + j * S + k]);
        for (int k = 0; k < S; k++)
            C[j][k] = C[j][k] / sum + 1e-6;
    }
    for (int round = 0; round < 20; round++)
        for (int columns = round == 0; columns < 2; columns++)
            for (int a = 0; a < S; a++) {
                double sum = 1e-6;
                for (int b = 0; b < S; b++)
                    sum += columns ? C[b][a] : C[a][b];
                for (int b = 0; b < S; b++)
                    *(columns ? &C[b][a] : &C[a][b]) /= sum;
            }
    for (int d = 0; d < D; d++) {
        double y = 0, head = 0, size = 0;
        for (int i = 0; i < S; i++) {
            double h = (double)s->out.dots[t][i] * rr * (double)s->scale[0] + (double)s->base[i];
            y += (sigmoid(m[i]) + 1e-6) * wide(s->x[t][i][d]);
            head += (sigmoid(h) + 1e-6) * wide(s->x[t][i][d]);
            size += fabs(wide(s->x[t][i][d]));
        }
        check_near("y", wide(s->out.y[t][d]), y, fabs(y) * 0x1p-8 + size * 1e-4);
        check_near("head", wide(s->out.head[t][d]), head, fabs(head) * 0x1p-8 + size * 1e-4);
    }
    for (int k = 0; k < S; k++) {
        double post = 2 * sigmoid(m[S + k]);
        check_near("post", (double)s->out.post[t][k], post, 1e-4);
        for (int d = 0; d < D; d++) {
            double v = post * wide(s->f[t][d]), size = fabs(v);
            for (int j = 0; j < S; j++) {
                v += C[j][k] * wide(s->x[t][j][d]);
                size += C[j][k] * fabs(wide(s->x[t][j][d]));
            }
            check_near("x", wide(s->out.x[t][k][d]), v, fabs(v) * 0x1p-8 + size * 1e-3);
        }
        for (int j = 0; j < S; j++)
            check_near("comb", (double)s->out.comb[t][j][k], C[j][k], 1e-3);
    }
}

static void streams_are_mixed_as_in_double(void **state)
{
    streams *s = calloc(1, sizeof *s);
    uint32_t r = 1;

    assert_non_null(s);
    contexts_f32(&r, s->fn[0], (size_t)OUT * S * D);
    contexts_f32(&r, s->base, OUT);
    contexts_f32(&r, s->scale, 3);
    contexts_bf16(&r, s->x[0][0], (size_t)T * S * D);
    contexts_bf16(&r, s->f[0], (size_t)T * D);
    for (int i = 0; i < 3; i++)
        s->scale[i] *= 0.125f;
    contexts_run(call_streams, s, &s->out, sizeof s->out);
    for (int t = 0; t < T; t++)
        judge_streams(s, t);
    free(s);
}

/* ---- compressor */

enum { LONG = 300, WIDTH = 256, CDIM = 128, CUT = 141 };

typedef struct pooling {
    int32_t ratio;
    float ape[128 * WIDTH], kv[2][LONG * WIDTH], gate[2][LONG * WIDTH];
    struct {
        float state[2][24 * CDIM];
        uint16_t pooled[2][LONG / 4][CDIM];
    } out;
} pooling;

/* Two sequences, the first of them in two calls. */
static pl_status call_compress(pl_ops_context *context, void *user, pl_error *err)
{
    pooling *p = user;
    int32_t width = p->ratio == 4 ? 2 * CDIM : CDIM, done = CUT / p->ratio;
    pl_op_compress_seq seqs[2] = {
        {p->out.state[0], p->kv[0], p->gate[0], CUT, 0, p->out.pooled[0][0]},
        {p->out.state[1], p->kv[1], p->gate[1], LONG, 0, p->out.pooled[1][0]}};
    pl_op_compress_args a = {p->ratio, CDIM, p->ape, 2, seqs};
    pl_status status = PL_OK;

    for (int i = 0; i < 2 && status == PL_OK; i++)
        status = pl_op_compress_reset(p->ratio, CDIM, p->out.state[i], err);
    if (status == PL_OK)
        status = pl_op_compress(context, &a, err);
    seqs[0] = (pl_op_compress_seq){p->out.state[0],
                                   p->kv[0] + (ptrdiff_t)CUT * width,
                                   p->gate[0] + (ptrdiff_t)CUT * width,
                                   LONG - CUT,
                                   CUT,
                                   p->out.pooled[0][done]};
    a.n_seqs = 1;
    return status == PL_OK ? pl_op_compress(context, &a, err) : status;
}

/* Entry e of channel c: softmax over the rows of its window, of the last window too for ratio 4. */
static double pooled_in_double(const pooling *p, int s, int e, int c)
{
    int width = p->ratio == 4 ? 2 * CDIM : CDIM, rows = p->ratio == 4 ? 8 : 128;
    double num = 0, den = 0;

    for (int r = 0; r < rows; r++) {
        int t = p->ratio == 4 ? 4 * (e - 1) + r : 128 * e + r;
        int at = p->ratio == 4 && r >= 4 ? CDIM + c : c;
        double w;
        if (t < 0)
            continue;
        w = exp((double)p->gate[s][t * width + at] + (double)p->ape[t % p->ratio * width + at]);
        num += w * (double)p->kv[s][t * width + at];
        den += w;
    }
    return num / den;
}

static void entries_are_pooled_as_in_double(void **state)
{
    pooling *p = calloc(1, sizeof *p);
    uint32_t r = 2;

    assert_non_null(p);
    contexts_f32(&r, p->ape, sizeof p->ape / 4);
    contexts_f32(&r, p->kv[0], sizeof p->kv / 4);
    contexts_f32(&r, p->gate[0], sizeof p->gate / 4);
    assert_int_equal(pl_op_compress_state_bytes(4, CDIM), sizeof p->out.state[0]);
    assert_int_equal(pl_op_compress_state_bytes(128, CDIM), 3 * CDIM * sizeof(float));
    assert_int_equal(pl_op_compress_state_bytes(8, CDIM), 0);
    assert_int_equal(pl_op_compress_state_bytes(4, 100), 0);
    for (int i = 0; i < 2; i++) {
        p->ratio = i ? 128 : 4;
        contexts_run(call_compress, p, &p->out, sizeof p->out);
        for (int s = 0; s < 2; s++)
            for (int e = 0; e < LONG / p->ratio; e++)
                for (int c = 0; c < CDIM; c++) {
                    double want = pooled_in_double(p, s, e, c);
                    check_near("pooled", wide(p->out.pooled[s][e][c]), want,
                               fabs(want) * 0x1p-8 + 1e-4);
                }
    }
    free(p);
}

/* ---- indexer */

enum { KEYS = 300, HEADS = 5, TOP = 40, QUERIES = 4, PAGE = 16, PAGES = (KEYS + PAGE - 1) / PAGE };

typedef struct index_problem {
    float freq[32];
    int32_t key_at[KEYS], query_at[QUERIES], slots[KEYS], visible[QUERIES], n_queries;
    uint16_t y[KEYS][128], q[QUERIES][HEADS][128], w[QUERIES][HEADS];
    struct {
        uint8_t pages[PAGES][PAGE * 68 + 4], query[QUERIES][HEADS * 68];
        int32_t selected[QUERIES][TOP], n_selected[QUERIES];
        float scores[QUERIES][KEYS];
    } out;
} index_problem;

static pl_op_index_cache cache_of(index_problem *p)
{
    return (pl_op_index_cache){p->out.pages, PAGE, PAGES, sizeof p->out.pages[0]};
}

static pl_status call_index(pl_ops_context *context, void *user, pl_error *err)
{
    index_problem *p = user;
    const pl_op_index_cache cache = cache_of(p);
    const pl_op_index_insert_args insert = {KEYS, p->freq, p->key_at, p->slots, p->y[0], cache};
    const pl_op_index_query_args query = {QUERIES,     HEADS,      p->freq,
                                          p->query_at, p->q[0][0], p->out.query[0]};
    pl_op_index_topk_args topk = {.n = p->n_queries,
                                  .n_heads = HEADS,
                                  .topk = TOP,
                                  .factor = 0.125f,
                                  .query = p->out.query[0],
                                  .w = p->w[0],
                                  .n_seqs = 1,
                                  .keys = &cache,
                                  .n_visible = p->visible,
                                  .selected = p->out.selected[0],
                                  .n_selected = p->out.n_selected,
                                  .scores = p->out.scores[0],
                                  .scores_stride = KEYS};
    uint64_t bytes = pl_ops_workspace_bytes(context);
    void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
    pl_status status = pl_op_index_insert(context, &insert, err);

    assert_non_null(workspace);
    if (status == PL_OK)
        status = pl_op_index_query(context, &query, err);
    if (status == PL_OK)
        status = pl_op_index_topk(context, &topk, workspace, bytes, err);
    free(workspace);
    return status;
}

static double code_value(const uint8_t *codes, const uint8_t *scales, int d)
{
    static const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    int code = codes[d / 2] >> 4 * (d & 1) & 15;

    return (code & 8 ? -1 : 1) * values[code & 7] * ldexp(1, scales[d / 32] - 127);
}

static double score_in_double(const index_problem *p, int t, int key, double *size)
{
    const uint8_t *page = p->out.pages[key / PAGE], *query = p->out.query[t];
    double sum = 0;

    *size = 0;
    for (int h = 0; h < HEADS; h++) {
        double dot = 0;
        for (int d = 0; d < 128; d++)
            dot += code_value(page + key % PAGE * 64, page + PAGE * 64 + key % PAGE * 4, d) *
                   code_value(query + (ptrdiff_t)h * 64, query + HEADS * 64 + (ptrdiff_t)h * 4, d);
        dot = dot > 0 ? dot : 0;
        sum += dot * 0.125 * wide(p->w[t][h]);
        *size += fabs(dot * 0.125 * wide(p->w[t][h]));
    }
    return sum;
}

static void judge_index(const index_problem *p, int t)
{
    int want = p->visible[t] < TOP ? p->visible[t] : TOP, before = 0;

    assert_int_equal(p->out.n_selected[t], want);
    for (int k = 0; k < p->visible[t]; k++) {
        double size, score = score_in_double(p, t, k, &size);
        int better = 0;
        bool chosen = before < want && p->out.selected[t][before] == k;

        check_near("score", (double)p->out.scores[t][k], score, 1e-6 * size);
        for (int j = 0; j < p->visible[t]; j++)
            better += p->out.scores[t][j] > p->out.scores[t][k] ||
                      (p->out.scores[t][j] == p->out.scores[t][k] && j < k);
        assert_int_equal(chosen, better < TOP);
        before += chosen;
    }
    for (int i = want; i < TOP; i++)
        assert_int_equal(p->out.selected[t][i], -1);
}

static void rows_are_chosen_by_their_scores(void **state)
{
    static const int32_t visible[QUERIES] = {KEYS, 0, TOP - 7, 199};
    const pl_op_rope_table table = {.base = 10000};
    index_problem *p = calloc(1, sizeof *p);
    uint32_t r = 3;
    pl_error err;

    assert_non_null(p);
    check_ok(pl_op_rope_frequencies(&table, p->freq, &err), &err);
    contexts_bf16(&r, p->y[0], (size_t)KEYS * 128);
    contexts_bf16(&r, p->q[0][0], (size_t)QUERIES * HEADS * 128);
    contexts_bf16(&r, p->w[0], (size_t)QUERIES * HEADS);
    for (int i = 0; i < KEYS; i++) {
        p->slots[i] = i;
        p->key_at[i] = 4 * i;
    }
    memcpy(p->y[77], p->y[31], sizeof p->y[0]); /* a tie */
    p->key_at[77] = p->key_at[31];
    memcpy(p->visible, visible, sizeof visible);
    for (int t = 0; t < QUERIES; t++)
        p->query_at[t] = 4 * visible[t] + 1;
    for (p->n_queries = QUERIES; p->n_queries >= 1; p->n_queries /= 4) {
        contexts_run(call_index, p, &p->out, sizeof p->out);
        for (int t = 0; t < p->n_queries; t++)
            judge_index(p, t);
    }
    free(p);
}

/* ---- experts */

enum { EXPERTS = 70, CHOSEN = 6, VOCAB = 11 };

typedef struct routing {
    float logits[T][EXPERTS], bias[EXPERTS];
    int64_t table[VOCAB][CHOSEN];
    int32_t tokens[T];
    bool hash;
    struct {
        float scores[T][EXPERTS], weights[T][CHOSEN];
        int32_t ids[T][CHOSEN];
    } out;
} routing;

static pl_status call_route(pl_ops_context *context, void *user, pl_error *err)
{
    routing *p = user;
    pl_op_route_args a = {.n = T,
                          .n_experts = EXPERTS,
                          .top_k = CHOSEN,
                          .scale = 2.5f,
                          .logits = p->logits[0],
                          .scores = p->out.scores[0],
                          .ids = p->out.ids[0],
                          .weights = p->out.weights[0]};

    if (p->hash) {
        a.table = p->table[0];
        a.n_vocab = VOCAB;
        a.tokens = p->tokens;
    } else {
        a.bias = p->bias;
    }
    return pl_op_route(context, &a, err);
}

static void routes_are_the_largest(void **state)
{
    routing *p = calloc(1, sizeof *p);
    uint32_t r = 4;

    assert_non_null(p);
    contexts_f32(&r, p->logits[0], (size_t)T * EXPERTS);
    contexts_f32(&r, p->bias, EXPERTS);
    for (int i = 0; i < VOCAB * CHOSEN; i++)
        p->table[i / CHOSEN][i % CHOSEN] = i * 13 % EXPERTS;
    for (int t = 0; t < T; t++)
        p->tokens[t] = (t * 7 + 3) % VOCAB;
    for (int hash = 0; hash < 2; hash++) {
        p->hash = hash;
        contexts_run(call_route, p, &p->out, sizeof p->out);
        for (int t = 0; t < T; t++) {
            double sum = 0;
            for (int e = 0; e < EXPERTS; e++)
                check_near("score", (double)p->out.scores[t][e],
                           sqrt(log1p(exp((double)p->logits[t][e]))), 1e-6);
            for (int i = 0; i < CHOSEN; i++) {
                int id = p->out.ids[t][i], better = 0;
                float mine = p->out.scores[t][id] + p->bias[id];
                sum += (double)p->out.scores[t][id];
                for (int e = 0; e < EXPERTS; e++) {
                    float other = p->out.scores[t][e] + p->bias[e];
                    better += other > mine || (other == mine && e < id);
                }
                if (hash)
                    assert_int_equal(id, p->table[p->tokens[t]][i]);
                else
                    assert_int_equal(better, i);
            }
            for (int i = 0; i < CHOSEN; i++)
                check_near("weight", (double)p->out.weights[t][i],
                           2.5 * (double)p->out.scores[t][p->out.ids[t][i]] / sum, 1e-6);
        }
    }
    free(p);
}

typedef struct units {
    uint16_t g[2 * T * D], u[T * D], l[T * D];
    float wide_g[2 * T * D], wide_l[T * D], weight[T];
    uint16_t out[6][T * D];
} units;

static pl_status call_units(pl_ops_context *context, void *user, pl_error *err)
{
    units *p = user;
    pl_op_swiglu_args a = {T, D, 10, p->g, p->u, NULL, p->out[0]};
    pl_op_swiglu7_args b = {T, D, PL_DTYPE_BF16, p->g, p->l, p->out[2]};
    pl_status status = pl_op_swiglu(context, &a, err);

    a.weight = p->weight;
    memcpy(p->out[1], p->u, sizeof p->u); /* in place */
    a.a = p->out[1];
    a.u = p->out[1];
    status = status == PL_OK ? pl_op_swiglu(context, &a, err) : status;
    for (int i = 0; i < 4 && status == PL_OK; i++) {
        b.dtype = i % 2 ? PL_DTYPE_FP32 : PL_DTYPE_BF16;
        b.g = i % 2 ? (const void *)p->wide_g : p->g;
        b.l = i / 2 ? NULL : i % 2 ? (const void *)p->wide_l : p->l;
        b.a = p->out[2 + i];
        status = pl_op_swiglu7(context, &b, err);
    }
    return status;
}

static double seven(double g, double l)
{
    g = g > 7 ? 7 : g;
    l = l > 7 ? 7 : l < -7 ? -7 : l;
    return g * sigmoid(1.702 * g) * (l + 1);
}

static void units_are_those_in_double(void **state)
{
    units *p = calloc(1, sizeof *p);
    uint32_t r = 5;

    assert_non_null(p);
    contexts_bf16(&r, p->g, 2 * T * D);
    contexts_bf16(&r, p->u, T * D);
    contexts_bf16(&r, p->l, T * D);
    contexts_f32(&r, p->wide_g, 2 * T * D);
    contexts_f32(&r, p->wide_l, T * D);
    contexts_f32(&r, p->weight, T);
    for (int i = 0; i < T * D; i++) { /* past both bounds */
        p->wide_g[i] *= 11;
        p->wide_l[i] *= 11;
        p->g[i] = pl_f32_to_bf16(12 * pl_bf16_to_f32(p->g[i]));
        p->l[i] = pl_f32_to_bf16(12 * pl_bf16_to_f32(p->l[i]));
    }
    contexts_run(call_units, p, p->out, sizeof p->out);
    for (int i = 0; i < T * D; i++) {
        double g = wide(p->g[i]), u = wide(p->u[i]), want, eps = 0x1p-8 + 1e-5;
        g = g > 10 ? 10 : g;
        want = g * sigmoid(g) * u;
        check_near("swiglu", wide(p->out[0][i]), want, fabs(want) * eps);
        want *= (double)p->weight[i / D];
        check_near("weighted", wide(p->out[1][i]), want, fabs(want) * eps);
        for (int k = 0; k < 4; k++) {
            double a = k % 2 ? (double)p->wide_g[k / 2 ? 2 * i : i] : wide(p->g[k / 2 ? 2 * i : i]);
            double b = k / 2   ? k % 2 ? (double)p->wide_g[2 * i + 1] : wide(p->g[2 * i + 1])
                         : k % 2 ? (double)p->wide_l[i]
                               : wide(p->l[i]);
            want = seven(a, b);
            check_near("swiglu7", wide(p->out[2 + k][i]), want, fabs(want) * eps + 1e-5);
        }
    }
    free(p);
}

typedef struct mapping {
    float x[301];
    float out[5][301];
} mapping;

static pl_status call_map(pl_ops_context *context, void *user, pl_error *err)
{
    mapping *p = user;
    pl_status status = PL_OK;

    for (int f = 0; f < 5 && status == PL_OK; f++)
        status = pl_op_map(context, (pl_op_function)f, 301, p->x, p->out[f], err);
    return status;
}

static void functions_are_those_in_double(void **state)
{
    mapping p;
    uint32_t r = 6;

    contexts_f32(&r, p.x, 301);
    for (int i = 0; i < 301; i++)
        p.x[i] *= 8;
    contexts_run(call_map, &p, p.out, sizeof p.out);
    for (int i = 0; i < 301; i++) {
        double x = (double)p.x[i];
        const double want[] = {exp(x), log(x), sigmoid(x), x > 20 ? x : log1p(exp(x)), tanh(x)};
        for (int f = 0; f < 5; f++) {
            if (isnan(want[f]))
                assert_true(isnan(p.out[f][i]));
            else
                check_near("function", (double)p.out[f][i], want[f], fabs(want[f]) * 0x1p-22);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_mixed_as_in_double),
        cmocka_unit_test(entries_are_pooled_as_in_double),
        cmocka_unit_test(rows_are_chosen_by_their_scores),
        cmocka_unit_test(routes_are_the_largest),
        cmocka_unit_test(units_are_those_in_double),
        cmocka_unit_test(functions_are_those_in_double),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
