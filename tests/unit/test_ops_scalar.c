/* The scalar operators, one by one: against golden operator cases where they exist, otherwise against
 * sums in double written in the plainest way; and that a unit's bits do not depend on its company. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fpenv.h"
#include "ops/quant.h"
#include "ops/scalar/scalar.h"
#include "ops/topk.h"
#include "support/check.h"
#include "support/golden.h"

static const pl_ops *ops;
static pl_op_env env;
static uint64_t random_state = 1;

static uint32_t random_u32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

/* Uniform in [-1, 1). */
static float random_float(void)
{
    return (float)(int32_t)random_u32() * 0x1p-31f;
}

static uint16_t random_bf16(void)
{
    return pl_f32_to_bf16(random_float());
}

static void *take(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

    assert_non_null(p);
    memset(p, 0xA5, bytes);
    return p;
}

/* A bf16 output whose value is known in double: at most `halves` half units in the last place away
 * (2^-8 relative, right above a power of two). */
static void check_bf16(const char *what, int64_t i, uint16_t got, double want, double halves)
{
    double error = fabs((double)pl_bf16_to_f32(got) - want);

    if (!(error <= halves * 0x1p-8 * fabs(want) + 1e-30))
        fail_msg("%s[%lld]: got %.9g, want %.9g", what, (long long)i, (double)pl_bf16_to_f32(got),
                 want);
}

static void check_close(const char *what, const float *got, const float *want, size_t n, double rel)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= rel * fabs((double)want[i]) + 1e-12))
            fail_msg("%s[%zu]: got %.9g, want %.9g", what, i, (double)got[i], (double)want[i]);
}

static pl_weight_view view(pl_weight_format format, int64_t rows, int64_t cols, const void *data,
                           const void *scale)
{
    return (pl_weight_view){format, rows, cols, data, scale};
}

/* ---- linear layers */

/* A random matrix of any storage, with its values in double before the block scales. */
typedef struct matrix {
    pl_weight_view w;
    double *value; /* [rows][cols], scale included */
    void *data, *scale;
} matrix;

static matrix random_matrix(pl_weight_format format, int64_t rows, int64_t cols)
{
    matrix m = {.value = take(sizeof(double) * (size_t)(rows * cols)),
                .data = take((size_t)(rows * cols) * 2),
                .scale = take(sizeof(float) * (size_t)(rows * (cols / 32 + 1)))};
    int64_t tiles = cols / 128;

    for (int64_t i = 0; i < rows * ((cols + 31) / 32); i++) {
        if (format == PL_WEIGHT_FP8_F32)
            ((float *)m.scale)[i] = 0.01f * (1.1f + random_float());
        else
            ((uint8_t *)m.scale)[i] = (uint8_t)(118 + random_u32() % 5);
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++) {
            int64_t i = r * cols + k, block = r / 128 * tiles + k / 128;
            double v = 0;

            if (format == PL_WEIGHT_BF16) {
                ((uint16_t *)m.data)[i] = random_bf16();
                v = (double)pl_bf16_to_f32(((uint16_t *)m.data)[i]);
            } else if (format == PL_WEIGHT_FP4) {
                uint8_t *pair = (uint8_t *)m.data + i / 2, code = random_u32() & 15;
                *pair = k & 1 ? (uint8_t)(*pair | code << 4) : code;
                v = (double)pl_e2m1_to_f32(code) *
                    pl_e8m0_to_f64(((uint8_t *)m.scale)[r * (cols / 32) + k / 32]);
            } else {
                uint8_t code = pl_f32_to_e4m3(448 * random_float());
                ((uint8_t *)m.data)[i] = code;
                v = (double)pl_e4m3_to_f32(code) *
                    (format == PL_WEIGHT_FP8_F32 ? (double)((float *)m.scale)[block]
                                                 : pl_e8m0_to_f64(((uint8_t *)m.scale)[block]));
            }
            m.value[i] = v;
        }
    m.w = view(format, rows, cols, m.data, format == PL_WEIGHT_BF16 ? NULL : m.scale);
    return m;
}

static void free_matrix(matrix *m)
{
    free(m->value);
    free(m->data);
    free(m->scale);
}

typedef struct linear_case {
    pl_weight_format format;
    bool a16;
    int64_t rows, cols;
    int32_t n, n_shards;
} linear_case;

static pl_linear_fn *kernel(const linear_case *c)
{
    if (c->format == PL_WEIGHT_BF16)
        return ops->linear_bf16;
    if (c->format == PL_WEIGHT_FP4)
        return ops->linear_fp4;
    return c->a16 ? ops->linear_fp8_a16 : ops->linear_fp8;
}

/* Error of a chain of n steps against the double sum: n eps sum |x w|, and then the rest in passing. */
static void check_linear(const linear_case *c)
{
    matrix m = random_matrix(c->format, c->rows, c->cols);
    bool quantised = c->format != PL_WEIGHT_BF16 && !c->a16;
    int64_t nb = c->cols / 128, x_bytes = 2 * c->cols, q_stride = (nb * 130 + 15) / 16 * 16;
    uint16_t *x = take((size_t)(c->n * x_bytes));
    uint8_t *q = take((size_t)(c->n * q_stride));
    float *y = take(sizeof(float) * (size_t)(c->n * c->rows));
    float *alone = take(sizeof(float) * (size_t)c->rows);
    int64_t units = (c->rows + 15) / 16;
    pl_linear_job job = {.w = m.w,
                         .n_rows = c->rows,
                         .a16 = c->a16,
                         .n = c->n,
                         .n_shards = c->n_shards,
                         .out = PL_LINEAR_ACC,
                         .y = y,
                         .y_stride = c->rows * 4};

    for (int64_t i = 0; i < c->n * c->cols; i++)
        x[i] = random_bf16();
    if (quantised) {
        pl_quantise_args a = {c->cols, x, x_bytes, q, q_stride};
        ops->quantise(&env, &a, 0, c->n);
        job.x = q, job.x_stride = q_stride;
        for (int32_t t = 0; t < c->n; t++)
            pl_quant_e4m3_fake(x + t * c->cols, c->cols, 128, x + t * c->cols);
    } else {
        job.x = x, job.x_stride = x_bytes;
    }
    for (int64_t u = units; u-- > 0;) /* any order */
        kernel(c)(&env, &job, u, u + 1);
    for (int32_t t = 0; t < c->n; t++)
        for (int64_t r = 0; r < c->rows; r++) {
            double sum = 0, size = 0, error;
            for (int64_t k = 0; k < c->cols; k++) {
                double p = (double)pl_bf16_to_f32(x[t * c->cols + k]) * m.value[r * c->cols + k];
                sum += p;
                size += fabs(p);
            }
            error = fabs((double)y[t * c->rows + r] - sum);
            if (!(error <= 0x1p-24 * 140 * size))
                fail_msg("format %d row %lld token %d: got %.9g, want %.9g", c->format,
                         (long long)r, t, (double)y[t * c->rows + r], sum);
        }
    /* The last token alone, found through `rows`, in one call; then as bf16. */
    job.rows = (const int32_t[]){c->n - 1};
    job.n = 1;
    job.y = alone;
    kernel(c)(&env, &job, 0, units);
    check_same_f32("alone", alone, y + (c->n - 1) * c->rows, (size_t)c->rows);
    job.out = PL_LINEAR_ACT;
    kernel(c)(&env, &job, 0, units);
    for (int64_t r = 0; r < c->rows; r++)
        assert_int_equal(((uint16_t *)alone)[r], pl_f32_to_bf16(y[(c->n - 1) * c->rows + r]));
    free_matrix(&m);
    free(x);
    free(q);
    free(y);
    free(alone);
}

static void linear_layers_match_double(void **state)
{
    static const linear_case cases[] = {
        {PL_WEIGHT_FP8_E8M0, false, 256, 256, 5, 0}, {PL_WEIGHT_FP8_E8M0, false, 130, 384, 3, 2},
        {PL_WEIGHT_FP8_F32, false, 144, 512, 4, 3},  {PL_WEIGHT_FP8_E8M0, true, 32, 640, 2, 0},
        {PL_WEIGHT_FP8_F32, true, 16, 128, 3, 0},    {PL_WEIGHT_FP4, false, 48, 512, 7, 0},
        {PL_WEIGHT_FP4, false, 1, 128, 1, 0},        {PL_WEIGHT_BF16, false, 7, 64, 3, 0},
        {PL_WEIGHT_BF16, false, 33, 200, 2, 0},      {PL_WEIGHT_BF16, false, 16, 1024, 9, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_linear(&cases[i]);
}

/* One output, values chosen so that each rounding of the contract shows. */
static float one_output(const pl_weight_view *w, const uint16_t *x, int32_t n_shards)
{
    pl_linear_job job = {.w = *w,
                         .n_rows = 1,
                         .x = x,
                         .x_stride = 2 * w->cols,
                         .n = 1,
                         .n_shards = n_shards,
                         .out = PL_LINEAR_ACC};
    float y;

    job.y = &y;
    job.y_stride = 4;
    ops->linear_bf16(&env, &job, 0, 1);
    return y;
}

static void chains_have_the_stated_order(void **state)
{
    uint16_t one = pl_f32_to_bf16(1), tiny = pl_f32_to_bf16(0x1p-24f), x[512], wt[512];
    pl_weight_view w = view(PL_WEIGHT_BF16, 1, 512, wt, NULL);

    /* The odd element first: 2^-24 and 2^-24 add up before 1 swallows them, the other way they vanish. */
    memset(x, 0, sizeof x);
    for (int i = 0; i < 512; i++)
        wt[i] = one;
    w.cols = 128;
    x[0] = one, x[1] = tiny;
    assert_true(one_output(&w, x, 0) == 1.0f);
    x[0] = tiny, x[1] = tiny, x[2] = one;
    assert_true(one_output(&w, x, 0) == 1.0f + 0x1p-23f);
    x[0] = one, x[1] = tiny, x[2] = 0, x[3] = tiny; /* 1 + 2^-24 ties to 1, twice */
    assert_true(one_output(&w, x, 0) == 1.0f);

    /* Blocks: p_b are formed apart. Shards: so are their sums. */
    memset(x, 0, sizeof x);
    w.cols = 512;
    x[0] = one, x[128] = tiny, x[256] = tiny, x[384] = 0;
    assert_true(one_output(&w, x, 0) == 1.0f); /* (1 + t) + t */
    x[256] = tiny, x[384] = tiny, x[128] = 0;
    assert_true(one_output(&w, x, 0) == 1.0f);            /* ((1 + 0) + t) + t */
    assert_true(one_output(&w, x, 2) == 1.0f + 0x1p-23f); /* (1 + 0) + (t + t) */
    assert_true(one_output(&w, x, 4) == 1.0f);
    assert_true(one_output(&w, x, 7) == 1.0f); /* empty shards are skipped */
}

static void denormals_are_flushed_inside_a_chain(void **state)
{
    uint16_t small = pl_f32_to_bf16(0x1p-70f), x[128] = {0}, wt[128] = {0};
    pl_weight_view w = view(PL_WEIGHT_BF16, 1, 128, wt, NULL);

    /* Each product is 2^-140, and so is each sum: flushed to zero, 128 times. Behind 2^-63 * 2^-63 the
     * sums are in range and every one of the other products counts: fma flushes results, not products. */
    for (int i = 0; i < 128; i++)
        x[i] = wt[i] = small;
    assert_int_equal(pl_f32_bits(one_output(&w, x, 0)), 0);
    x[1] = wt[1] = pl_f32_to_bf16(0x1p-63f);
    assert_true(one_output(&w, x, 0) == 0x1p-126f * (1 + 127 * 0x1p-14f));
}

/* ---- streams */

static void hyper_connections_match_golden(void **state)
{
    golden *g = golden_open("ops.safetensors");
    golden_tensor fn = golden_get(g, "F32", "mhc.fn"), base = golden_get(g, "F32", "mhc.base");
    golden_tensor scale = golden_get(g, "F32", "mhc.scale"), x = golden_get(g, "BF16", "mhc.X");
    golden_tensor f = golden_get(g, "BF16", "mhc.f");
    const float *want_x = golden_get(g, "F32", "mhc.x").data,
                *out = golden_get(g, "F32", "mhc.out").data;
    const float *want_head = golden_get(g, "F32", "mhc.head").data;
    int64_t n = x.shape[0], dim = x.shape[2];
    float *m = take(sizeof(float) * (size_t)n * 25), *post = take((size_t)n * 16);
    float *comb = take((size_t)n * 64);
    uint16_t *y = take(2 * (size_t)(n * dim)), *streams = take(x.bytes);
    pl_hc_dots_args dots = {view(PL_WEIGHT_F32, 24, 4 * dim, fn.data, NULL), x.data, NULL, m};
    pl_hc_pre_args pre = {view(PL_WEIGHT_F32, 1, 24, base.data, NULL),
                          view(PL_WEIGHT_F32, 1, 3, scale.data, NULL),
                          1e-6f,
                          1e-6f,
                          20,
                          dim,
                          m,
                          x.data,
                          y,
                          post,
                          comb};
    pl_hc_post_args mix = {dim, f.data, post, comb, streams};
    pl_hc_head_args head = {view(PL_WEIGHT_F32, 1, 4, base.data, NULL),
                            view(PL_WEIGHT_F32, 1, 1, scale.data, NULL),
                            1e-6f,
                            1e-6f,
                            dim,
                            m,
                            x.data,
                            NULL,
                            y};

    ops->hc_dots(&env, &dots, 0, n * 25);
    ops->hc_pre(&env, &pre, 0, n);
    check_close("post", post, golden_get(g, "F32", "mhc.post").data, (size_t)n * 4, 3e-6);
    check_close("comb", comb, golden_get(g, "F32", "mhc.comb").data, (size_t)n * 16, 2e-5);
    for (int64_t i = 0; i < n * dim; i++)
        if (fabs((double)want_x[i]) > 1e-2) /* cancellation below */
            check_bf16("x", i, y[i], (double)want_x[i], 1.1);
    memcpy(streams, x.data, x.bytes);
    ops->hc_post(&env, &mix, 0, n);
    for (int64_t i = 0; i < n * 4 * dim; i++)
        if (fabs((double)out[i]) > 1e-2)
            check_bf16("out", i, streams[i], (double)out[i], 1.1);
    dots.fn.rows = 4;
    ops->hc_dots(&env, &dots, 0, n * 5);
    ops->hc_head(&env, &head, 0, n);
    for (int64_t i = 0; i < n * dim; i++)
        if (fabs((double)want_head[i]) > 1e-2)
            check_bf16("head", i, y[i], (double)want_head[i], 1.1);
    free(m);
    free(post);
    free(comb);
    free(y);
    free(streams);
    golden_close(g);
}

/* ---- rotation and norms */

static void q_norm_rope_matches_double(void **state)
{
    float cos32[32], sin32[32];
    uint16_t q[2][512];
    double x[512];
    pl_q_norm_rope_args a = {2, 1e-6f, {cos32, sin32}, q};

    for (int i = 0; i < 32; i++) {
        cos32[i] = (float)cos(0.3 * i);
        sin32[i] = (float)sin(0.3 * i);
    }
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 512; i++)
            q[h][i] = random_bf16();
    for (int h = 1; h >= 0; h--) {
        double ss = 0, r;

        for (int i = 0; i < 512; i++) {
            x[i] = (double)pl_bf16_to_f32(q[h][i]);
            ss += x[i] * x[i];
        }
        r = 1 / sqrt(ss / 512 + 1e-6);
        ops->q_norm_rope(&env, &a, h, h + 1);
        for (int i = 0; i < 448; i++)
            check_bf16("q", i, q[h][i], x[i] * r, 1.01);
        for (int i = 0; i < 32; i++) {
            double p = x[448 + 2 * i] * r, s = x[449 + 2 * i] * r, c = (double)cos32[i],
                   d = (double)sin32[i];
            if (fabs(p * c - s * d) > 1e-2)
                check_bf16("q even", i, q[h][448 + 2 * i], p * c - s * d, 1.01);
            if (fabs(p * d + s * c) > 1e-2)
                check_bf16("q odd", i, q[h][449 + 2 * i], p * d + s * c, 1.01);
        }
    }
}

/* ---- attention */

static pl_rows new_rows(const pl_ops *o, int64_t n, int32_t page_rows)
{
    pl_rows r = {
        .page_rows = page_rows, .data_bytes = o->kv_data_bytes, .scale_bytes = o->kv_scale_bytes};

    r.page_bytes = pl_rows_page_bytes(page_rows, r.data_bytes, r.scale_bytes);
    r.base = take((size_t)((n + page_rows - 1) / page_rows * r.page_bytes));
    return r;
}

static void store_random_rows(const pl_rows *rows, int64_t n)
{
    float one[32], zero[32] = {0};
    uint16_t kv[512];

    for (int i = 0; i < 32; i++)
        one[i] = 1;
    for (int64_t i = 0; i < n; i++) {
        pl_row_dest dest = {rows, i};
        pl_kv_store_args a = {kv, {one, zero}, &dest};

        for (int d = 0; d < 512; d++)
            kv[d] = pl_f32_to_bf16(2 * random_float());
        ops->kv_store(&env, &a, 0, 1);
    }
}

/* Softmax over the listed rows in double. */
static void attend_double(const uint16_t *q, float *const *keys, int n, double sink, double *out,
                          double *size)
{
    double s[1024], max = -INFINITY, den;

    for (int j = 0; j < n; j++) {
        s[j] = 0;
        for (int d = 0; d < 512; d++)
            s[j] += (double)pl_bf16_to_f32(q[d]) * (double)keys[j][d];
        s[j] *= (double)0x1.6a09e6p-5f;
        max = s[j] > max ? s[j] : max;
    }
    den = exp(sink - max);
    for (int j = 0; j < n; j++)
        den += s[j] = exp(s[j] - max);
    for (int d = 0; d < 512; d++) {
        out[d] = size[d] = 0;
        for (int j = 0; j < n; j++) {
            out[d] += s[j] / den * (double)keys[j][d];
            size[d] += fabs(s[j] / den * (double)keys[j][d]);
        }
    }
}

enum { H = 11, START = 300, N = 3, RING = 132, ENTRIES = 200 };

/* One sequence at positions START .. START + N - 1, everything unused poisoned by take(). */
typedef struct scene {
    uint16_t q[N][H][512], o[N][H][512];
    float sink[H];
    int32_t position[N], seq_of[N], sel[N][150], n_sel[N];
    pl_attention_seq seq;
    pl_attention_args args;
} scene;

static scene *new_scene(int32_t ratio)
{
    scene *s = take(sizeof *s);

    memset(&s->args, 0, sizeof s->args);
    s->seq = (pl_attention_seq){.first = 0, .n = N, .start = START, .ring_rows = RING};
    s->seq.ring = new_rows(ops, RING, RING);
    s->seq.entries = new_rows(ops, ENTRIES, 32);
    s->args.step = new_rows(ops, N, N);
    store_random_rows(&s->seq.ring, RING);
    store_random_rows(&s->seq.entries, ENTRIES);
    store_random_rows(&s->args.step, N);
    for (int t = 0; t < N; t++) {
        s->position[t] = START + t;
        s->seq_of[t] = 0;
        s->n_sel[t] = t == 0 ? 0 : 60 + 5 * t; /* none; within one block; across two */
        for (int i = 0; i < 150; i++)
            s->sel[t][i] = i < s->n_sel[t] ? i : -1;
        for (int h = 0; h < H; h++)
            for (int d = 0; d < 512; d++)
                s->q[t][h][d] = random_bf16();
    }
    for (int h = 0; h < H; h++)
        s->sink[h] = h == 0 ? -INFINITY : 3 * random_float();
    s->args.n_heads = H;
    s->args.ratio = ratio;
    s->args.q = s->q;
    s->args.o = s->o;
    s->args.sink = view(PL_WEIGHT_F32, 1, H, s->sink, NULL);
    s->args.seqs = &s->seq;
    s->args.seq_of = s->seq_of;
    s->args.position = s->position;
    if (ratio == 4)
        s->args.sel = s->sel[0], s->args.n_sel = s->n_sel, s->args.sel_stride = 150;
    return s;
}

static void free_scene(scene *s)
{
    free(s->seq.ring.base);
    free(s->seq.entries.base);
    free(s->args.step.base);
    free(s);
}

static void check_scene(const scene *s)
{
    for (int t = 0; t < N; t++) {
        float *keys[1024];
        int n = 0, n_entries = s->args.ratio == 4 ? s->n_sel[t]
                               : s->args.ratio    ? (START + t + 1) / 128
                                                  : 0;
        double out[512], size[512];

        for (int p = START + t - 127; p <= START + t; p++) {
            keys[n] = take(2048);
            if (p < START)
                ops->kv_get(&s->seq.ring, p % RING, keys[n++]);
            else
                ops->kv_get(&s->args.step, p - START, keys[n++]);
        }
        for (int i = 0; i < n_entries; i++) {
            keys[n] = take(2048);
            ops->kv_get(&s->seq.entries, i, keys[n++]);
        }
        for (int h = 0; h < H; h++) {
            attend_double(s->q[t][h], keys, n, (double)s->sink[h], out, size);
            for (int d = 0; d < 512; d++)
                if (!(fabs((double)pl_bf16_to_f32(s->o[t][h][d]) - out[d]) <= 0x1p-7 * size[d]))
                    fail_msg("token %d head %d dim %d: got %.9g, want %.9g", t, h, d,
                             (double)pl_bf16_to_f32(s->o[t][h][d]), out[d]);
        }
        while (n)
            free(keys[--n]);
    }
}

static void attention_matches_double(void **state)
{
    static const int32_t ratios[] = {0, 4, 128};

    for (int i = 0; i < 3; i++) {
        scene *s = new_scene(ratios[i]);
        uint16_t first[N][H][512];

        ops->attention(&env, &s->args, 0, N * H);
        check_scene(s);
        memcpy(first, s->o, sizeof first);
        memset(s->o, 0, sizeof s->o);
        for (int64_t u = N * H; u-- > 0;) /* one head at a time, backwards */
            ops->attention(&env, &s->args, u, u + 1);
        check_same_bytes("one by one", s->o, first, sizeof first);
        free_scene(s);
    }
}

static void early_positions_see_only_what_exists(void **state)
{
    scene *s = new_scene(0);
    float *key = take(2048);

    /* Position 0 alone: softmax over one key, o = v / (1 + e^(sink - s)); without a sink o = v. */
    s->seq.start = 0;
    s->position[0] = 0;
    ops->attention(&env, &s->args, 0, 1);
    ops->kv_get(&s->args.step, 0, key);
    for (int d = 0; d < 512; d++)
        assert_int_equal(s->o[0][0][d], pl_f32_to_bf16(key[d]));
    free(key);
    free_scene(s);
}

/* ---- compressor */

static void pools_match_golden(void **state)
{
    golden *g = golden_open("ops.safetensors");
    static const int32_t ratios[] = {4, 128};

    for (int i = 0; i < 2; i++) {
        int32_t r = ratios[i], dim = 64;
        golden_tensor kv = golden_get(g, "F32", "pool.%d.kv", r),
                      sc = golden_get(g, "F32", "pool.%d.score", r);
        golden_tensor want = golden_get(g, "F32", "pool.%d.out", r);
        int64_t n = kv.shape[0], cols = kv.shape[1], width = r == 4 ? 2 * dim : dim;
        float *rows = take(4 * (size_t)(n * width)), *gate = take(4 * (size_t)(n * width));
        float *ape = take(4 * (size_t)(r * width));
        uint16_t *pooled = take(2 * (size_t)(n / r * dim)), *cut = take(2 * (size_t)(n / r * dim));
        void *st = take(ops->compress_state_bytes(r, dim));
        pl_compress_job job = {st, rows, gate, (int32_t)n, 0, pooled};
        pl_compress_args a = {r, dim, view(PL_WEIGHT_F32, r, width, ape, NULL), &job};

        for (int64_t t = 0; t < n; t++)
            for (int64_t c = 0; c < width; c++) {
                /* A quarter of the score comes from ape, whose row repeats with t mod r. */
                rows[t * width + c] = ((const float *)kv.data)[t * cols + c % cols];
                gate[t * width + c] = ((const float *)sc.data)[t * cols + c % cols];
            }
        memset(ape, 0, 4 * (size_t)(r * width));
        ops->compress_reset(st, r, dim);
        ops->compress(&env, &a, 0, 1);
        for (int64_t e = 0; e < n / r; e++)
            for (int64_t c = 0; c < want.shape[1]; c++) {
                double v = (double)((const float *)want.data)[e * want.shape[1] + c];
                if (fabs(v) > 1e-2)
                    check_bf16("pooled", e * 100 + c, pooled[e * dim + c], v, 1.02);
            }
        /* Cut into single tokens: the same bits. */
        ops->compress_reset(st, r, dim);
        for (int32_t t = 0; t < n; t++) {
            pl_compress_job one = {st, rows + t * width, gate + t * width, 1, t, cut + t / r * dim};
            a.jobs = &one;
            ops->compress(&env, &a, 0, 1);
        }
        check_same_bytes("cut", cut, pooled, 2 * (size_t)(n / r * dim));
        free(rows);
        free(gate);
        free(ape);
        free(pooled);
        free(cut);
        free(st);
    }
    golden_close(g);
}

/* ---- indexer */

enum { IH = 5, KEYS = 333, TOPK = 20 };

static void index_choice_matches_double(void **state)
{
    pl_rows keys = {.page_rows = 32, .data_bytes = 64, .scale_bytes = 4, .page_bytes = 32 * 68};
    pl_rows query = keys;
    pl_attention_seq seq = {.n = 1};
    int32_t zero = 0, position = 4 * KEYS - 1, best[7 * TOPK], n_best[7], sel[TOPK], n_sel;
    float best_score[7 * TOPK], cos32[32], sin32[32] = {0}, scores[KEYS], q[128], k[128];
    uint16_t w[IH], y[128];
    double want[KEYS];
    pl_index_topk_args a = {.n_heads = IH,
                            .topk = TOPK,
                            .n_parts = 1,
                            .w = w,
                            .factor = 0.044194173f,
                            .seqs = &seq,
                            .seq_of = &zero,
                            .position = &position,
                            .best_score = best_score,
                            .best = best,
                            .n_best = n_best,
                            .scores = scores,
                            .scores_stride = sizeof scores};
    pl_index_merge_args merge = {TOPK, 1, best_score, best, n_best, sel, &n_sel};

    keys.base = take((KEYS + 31) / 32 * 32 * 68);
    query.base = take(32 * 68);
    for (int i = 0; i < 32; i++)
        cos32[i] = 1;
    for (int64_t i = 0; i < KEYS + IH; i++) {
        pl_row_dest dest = {i < KEYS ? &keys : &query, i < KEYS ? i : i - KEYS};
        pl_key_store_args store = {y, {cos32, sin32}, &dest};

        for (int d = 0; d < 128; d++)
            y[d] = random_bf16();
        ops->key_store(&env, &store, 0, 1);
    }
    pl_rows_copy(&keys, 300, &keys, 17); /* equal scores: the lower index wins */
    for (int h = 0; h < IH; h++)
        w[h] = random_bf16();
    for (int64_t i = 0; i < KEYS; i++) {
        want[i] = 0;
        for (int64_t h = 0; h < IH; h++) {
            double dot = 0;
            ops->key_get(&query, h, q);
            ops->key_get(&keys, i, k);
            for (int d = 0; d < 128; d++)
                dot += (double)q[d] * (double)k[d];
            if (dot > 0)
                want[i] += dot * (double)pl_bf16_round(pl_bf16_to_f32(w[h]) * a.factor);
        }
    }
    seq.keys = keys;
    a.query = query;
    for (int32_t parts = 1; parts <= 7; parts++) {
        a.n_parts = merge.n_parts = parts;
        ops->index_topk(&env, &a, 0, parts);
        ops->index_merge(&env, &merge, 0, 1);
        assert_int_equal(n_sel, TOPK);
        for (int i = 0; i < KEYS; i++)
            if (!(fabs((double)scores[i] - want[i]) <= 1e-6))
                fail_msg("score %d: got %.9g, want %.9g", i, (double)scores[i], want[i]);
        for (int i = 0, at = 0; i < KEYS; i++) {
            int better = 0;
            for (int j = 0; j < KEYS; j++)
                better += scores[j] > scores[i] || (scores[j] == scores[i] && j < i);
            if (better < TOPK)
                assert_int_equal(sel[at++], i);
        }
    }
    /* With no more visible than wanted all are taken, scored or not. */
    position = 4 * TOPK - 1;
    a.scores = NULL;
    ops->index_topk(&env, &a, 0, 7);
    ops->index_merge(&env, &merge, 0, 1);
    assert_int_equal(n_sel, TOPK);
    for (int i = 0; i < TOPK; i++)
        assert_int_equal(sel[i], i);
    free(keys.base);
    free(query.base);
}

static void topk_is_a_total_order(void **state)
{
    double score[4];
    int32_t entry[4];
    pl_topk t = {score, entry, 0, 4};
    static const double in[] = {-0.0, 1, NAN, 0.0, 1, -INFINITY, 0.0};

    for (int32_t i = 6; i >= 0; i--)
        pl_topk_push(&t, in[i], i);
    pl_topk_sort_by_score(&t);
    assert_int_equal(t.n, 4);
    assert_int_equal(entry[0], 1);
    assert_int_equal(entry[1], 4);
    assert_int_equal(entry[2], 0);
    assert_int_equal(entry[3], 3);
    t = (pl_topk){score, entry, 0, 4};
    for (int32_t i = 0; i < 4; i++)
        pl_topk_push(&t, i == 1 ? NAN : i == 2 ? -INFINITY : 5 - i, i);
    pl_topk_sort_by_score(&t); /* NaN counts as -inf: 0, 3, then 1 before 2 */
    assert_int_equal(entry[0], 0);
    assert_int_equal(entry[1], 3);
    assert_int_equal(entry[2], 1);
    assert_int_equal(entry[3], 2);
}

/* ---- experts */

static void gate_matches_golden(void **state)
{
    golden *g = golden_open("ops.safetensors");
    golden_tensor x = golden_get(g, "BF16", "gate.x"), w = golden_get(g, "BF16", "gate.weight");
    golden_tensor bias = golden_get(g, "F32", "gate.bias"), ids = golden_get(g, "I64", "gate.ids");
    int64_t n = x.shape[0], n_experts = w.shape[0];
    float *score = take(4 * (size_t)(n * n_experts)), *weight = take(4 * (size_t)n * 6);
    int32_t *got = take(4 * (size_t)n * 6);
    pl_linear_job job = {.w = view(PL_WEIGHT_BF16, n_experts, 64, w.data, NULL),
                         .n_rows = n_experts,
                         .x = x.data,
                         .x_stride = 128,
                         .n = (int32_t)n,
                         .out = PL_LINEAR_ACC,
                         .y = score,
                         .y_stride = n_experts * 4};
    pl_route_args route = {.n_experts = (int32_t)n_experts,
                           .top_k = 6,
                           .score = score,
                           .ids = got,
                           .bias = view(PL_WEIGHT_F32, 1, n_experts, bias.data, NULL)};
    pl_route_weights_args rw = {(int32_t)n_experts, 6, 1.5f, score, got, weight};

    ops->linear_bf16(&env, &job, 0, 1);
    ops->route(&env, &route, 0, n);
    ops->route_weights(&env, &rw, 0, n);
    for (int64_t i = 0; i < n * 6; i++)
        assert_int_equal(got[i], ((const int64_t *)ids.data)[i]);
    check_close("weights", weight, golden_get(g, "F32", "gate.weights").data, (size_t)n * 6, 2e-6);
    free(score);
    free(weight);
    free(got);
    golden_close(g);
}

static void swiglu_clamps_as_stated(void **state)
{
    /* g from above only, u on both sides, the weight last. */
    static const float g[] = {20, -20, 1, 1, 1, -3}, u[] = {1, 1, 20, -20, 0.5f, 2};
    uint16_t gb[12], ub[12], a[12];
    float weight = 0.75f;
    int32_t at[2] = {-1, 0};
    pl_swiglu_args args = {6, 10.0f, gb, ub, &weight, at, a};

    for (int i = 0; i < 12; i++) {
        gb[i] = pl_f32_to_bf16(g[i % 6]);
        ub[i] = pl_f32_to_bf16(u[i % 6]);
    }
    ops->swiglu(&env, &args, 1, 2);
    ops->swiglu(&env, &args, 0, 1);
    for (int i = 0; i < 12; i++) {
        double x = fmin((double)g[i % 6], 10), up = fmax(fmin((double)u[i % 6], 10), -10);
        check_bf16("a", i, a[i], x / (1 + exp(-x)) * up * (i < 6 ? 1 : 0.75), 1.01);
    }
}

static void experts_are_added_in_shards(void **state)
{
    /* Experts 0, 1 | 2, 3 in two shards: (1 + t) + (t + t) against ((1 + t) + t) + t. */
    static const float y[4] = {1, 0x1p-24f, 0x1p-24f, 0x1p-24f};
    uint16_t rows[4], shared = pl_f32_to_bf16(-1), f;
    int32_t at[4] = {0, 1, 2, 3};
    pl_moe_sum_args a = {1, 4, 4, 2, rows, at, at, &shared, &f};

    for (int i = 0; i < 4; i++)
        rows[i] = pl_f32_to_bf16(y[i]);
    ops->moe_sum(&env, &a, 0, 1);
    assert_true(pl_bf16_to_f32(f) == 0x1p-23f);
    a.n_shards = 1;
    ops->moe_sum(&env, &a, 0, 1);
    assert_true(pl_bf16_to_f32(f) == 0.0f);
    a.n_shards = 3; /* 0 | 1 | 2, 3 */
    ops->moe_sum(&env, &a, 0, 1);
    assert_true(pl_bf16_to_f32(f) == 0x1p-23f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_layers_match_double),
        cmocka_unit_test(chains_have_the_stated_order),
        cmocka_unit_test(denormals_are_flushed_inside_a_chain),
        cmocka_unit_test(hyper_connections_match_golden),
        cmocka_unit_test(q_norm_rope_matches_double),
        cmocka_unit_test(attention_matches_double),
        cmocka_unit_test(early_positions_see_only_what_exists),
        cmocka_unit_test(pools_match_golden),
        cmocka_unit_test(index_choice_matches_double),
        cmocka_unit_test(topk_is_a_total_order),
        cmocka_unit_test(gate_matches_golden),
        cmocka_unit_test(swiglu_clamps_as_stated),
        cmocka_unit_test(experts_are_added_in_shards),
    };
    pl_ops_shape shape = {.max_k = 2048, .topk = TOPK, .max_keys = 1024, .n_experts = 16};
    pl_fpenv saved = pl_fpenv_begin();
    int failed;

    ops = pl_ops_scalar();
    env.scratch = aligned_alloc(64, (ops->scratch_bytes(&shape) + 63) / 64 * 64);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(env.scratch);
    pl_fpenv_end(saved);
    return failed;
}
