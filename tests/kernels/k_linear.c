/* Linear layers (ops/linear.h), every storage of W.
 *
 *     m tokens, n output rows of the job, k columns, first row of the band, shards
 *     layout  rows, tiles          out  act, acc
 *     fill    random               weights and inputs of every exponent a model has
 *             extreme              largest codes, so that sums grow
 *             tiny                 subnormal codes, denormal bf16, scales near 2^-126; every other input large
 *             zero                 zeros of both signs among few values
 *             edge                 inputs of 2^-50 and 2^66, where kernels change their way, among subnormal codes;
 *                                  FP4: scales up to 2^73, one less or two more, where a block changes its way,
 *                                  beside inputs of 2^-50
 *             limit                groups of 32 at the limit of what integers may sum, one beyond, and on both sides
 *             special              infinities and NaNs among the inputs and, where they may be, the weights
 *     gather  1: inputs by index   split  units per call, 0: all in one
 *
 * Against the double: |error| <= (128 + 2 nb + shards + 2) 2^-24 sum |w x| plus what flushing can lose, and half a
 * unit of bf16 where that is the output. A value whose sum of magnitudes comes near the largest float is not
 * judged, since a partial sum may overflow; NaN and infinities must be where the double has them. */
#include "kernels/harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fpenv.h"
#include "base/numfmt.h"
#include "ops/tile.h"

enum { E8M0, F32, A16_E8M0, A16_F32, FP4, BF16 };
enum { BLOCK = PL_QUANT_BLOCK, LANES = PL_TILE_ROWS };

typedef struct fill {
    const char *name;
    bool extreme, tiny, zero, edge, limit, special;
    int exponent; /* edge: of the row */
} fill;

static const fill fills[] = {
    {"random"},
    {"extreme", .extreme = true},
    {"tiny", .tiny = true},
    {"zero", .zero = true},
    {"edge", .edge = true},
    {"limit", .limit = true},
    {"special", .special = true},
};
enum { N_FILLS = sizeof fills / sizeof fills[0] };

/* Everything a run needs. `rows` are the weights as in a file, which the oracle reads. */
typedef struct setup {
    pl_weight_view rows;
    pl_linear_job job;
    const uint16_t *x; /* bf16 inputs, [n_x][k] */
    int64_t n_x, y_bytes;
    int64_t split;
} setup;

static bool is_a16(int kind)
{
    return kind == A16_E8M0 || kind == A16_F32;
}

static pl_weight_format format_of(int kind)
{
    static const pl_weight_format formats[] = {
        [E8M0] = PL_WEIGHT_FP8_E8M0,   [F32] = PL_WEIGHT_FP8_F32, [A16_E8M0] = PL_WEIGHT_FP8_E8M0,
        [A16_F32] = PL_WEIGHT_FP8_F32, [FP4] = PL_WEIGHT_FP4,     [BF16] = PL_WEIGHT_BF16,
    };
    return formats[kind];
}

/* ---- the list */

/* Every m with every fill, the rest by the seed. */
static bool linear_problem(const kern_op *op, int i, uint64_t seed, char *text)
{
    static const int ms[] = {1, 2, 3, 4, 5, 6, 7, 12, 13, 23, 97, 0};
    static const int ns[] = {16, 1, 15, 17, 32, 48, 80, 272};
    static const int ks[] = {128, 256, 384, 640, 1152};
    static const int bf16_ks[] = {1, 2, 31, 127, 128, 130, 256, 300, 512, 640};
    enum { N_M = sizeof ms / sizeof ms[0], N_N = sizeof ns / sizeof ns[0] };
    kern_random r = {seed * 1000003 + (uint64_t)i * 97 + (uint64_t)op->kind};
    int m = ms[i % N_M], n, k, first, shards, gather, split;
    const fill *f = &fills[i / N_M % N_FILLS];
    bool tiles, act, wide;

    if (i >= 2 * N_M * N_FILLS)
        return false;
    n = ns[kern_below(&r, m > 20 ? 6 : N_N)];
    k = op->kind == BF16 ? bf16_ks[kern_below(&r, 10)] : ks[kern_below(&r, m > 20 ? 3 : 5)];
    /* For as many tiles at once as kernels take. Of limits one sum in twenty or so shows, by rounding in one way and
     * not in the other. */
    wide = m == 1 && (f->limit || i < N_M);
    if (wide)
        n = 272;
    tiles = k % BLOCK == 0 && kern_below(&r, 3) > 0;
    /* One draw a statement: the order of arguments is the compiler's. */
    first = 16 * (int)kern_below(&r, 10);
    shards = 3 * (int)kern_below(&r, 3);
    act = kern_below(&r, 2) != 0;
    gather = (int)kern_below(&r, 2);
    split = (int)kern_below(&r, 3);
    if (wide) {
        split = 0;
        tiles = k % BLOCK == 0;
    }
    snprintf(text, KERN_PROBLEM_BYTES,
             "%s m=%d n=%d k=%d first=%d shards=%d fill=%s layout=%s out=%s gather=%d split=%d "
             "seed=%llu",
             op->name, m, n, k, first, shards, f->name, tiles ? "tiles" : "rows",
             act ? "act" : "acc", gather, split, (unsigned long long)(kern_u64(&r) >> 40));
    return true;
}

/* ---- contents */

static uint8_t random_e4m3(kern_random *r, const fill *f, bool may_be_nan)
{
    uint8_t c = (uint8_t)kern_u64(r);

    if (f->extreme)
        c = (uint8_t)(0x78 + c % 7) | (kern_u64(r) & 1 ? 0x80 : 0);
    if (f->tiny || f->edge)
        c &= 0x87;
    if (f->zero)
        c &= kern_below(r, 4) ? 0x80 : 0xB9;
    if ((c & 0x7F) == 0x7F)
        c = may_be_nan && f->special ? c : (uint8_t)(c ^ 1);
    return c;
}

static uint16_t random_bf16(kern_random *r, const fill *f)
{
    uint16_t mantissa = (uint16_t)(kern_u64(r) & 0x807F);
    int64_t exponent = 127 - 8 + kern_below(r, 16);

    if (f->extreme)
        exponent = 127 + 20 + kern_below(r, 4);
    if (f->tiny) /* denormal, just normal, and ones that make products around 2^-126 */
        exponent = kern_below(r, 3) ? kern_below(r, 3) : 60 + kern_below(r, 12);
    if (f->edge) /* a row is beyond the edge or not */
        exponent = f->exponent;
    if (f->zero && kern_below(r, 4))
        return mantissa & 0x8000;
    if (f->special && kern_below(r, 100) == 0)
        return (uint16_t)(0x7F80 | (mantissa & 0x8001));
    return (uint16_t)(mantissa | exponent << 7);
}

static uint8_t random_e8m0(kern_random *r, const fill *f)
{
    if (f->tiny)
        return (uint8_t)kern_below(r, 24);
    return (uint8_t)(f->special && kern_below(r, 30) == 0 ? 254 : 127 - 9 + kern_below(r, 16));
}

/* FP4's scales of a matrix go up to this one: kernels move a power of two of 54 into scales that leave room. */
static uint8_t edge_scale(kern_random *r)
{
    return (uint8_t)(254 - 54 - 1 + kern_below(r, 4));
}

static float random_f32_scale(kern_random *r, const fill *f)
{
    uint32_t exponent = (uint32_t)(f->tiny ? kern_below(r, 16) : 112 + kern_below(r, 16));

    return pl_f32_from_bits(exponent << 23 | ((uint32_t)kern_u64(r) & 0x7FFFFF) | 1);
}

static void make_scales(pl_weight_view *w, kern_random *r, const fill *f)
{
    int64_t n = w->format == PL_WEIGHT_FP4 ? w->rows * (w->cols / 32)
                                           : (w->rows + 127) / 128 * (w->cols / BLOCK);
    bool edge = f->edge && w->format == PL_WEIGHT_FP4;
    uint8_t *bytes, most = edge ? edge_scale(r) : 0;

    if (w->format == PL_WEIGHT_BF16)
        return;
    if (w->format == PL_WEIGHT_FP8_F32) {
        float *s = kern_alloc((size_t)n * sizeof *s, sizeof *s);
        for (int64_t i = 0; i < n; i++)
            s[i] = random_f32_scale(r, f);
        w->scale = s;
        return;
    }
    bytes = kern_alloc((size_t)n, 1);
    for (int64_t i = 0; i < n; i++)
        bytes[i] = edge ? (uint8_t)(most - kern_below(r, 8)) : random_e8m0(r, f);
    w->scale = bytes;
}

static void make_rows(pl_weight_view *w, kern_random *r, const fill *f, bool tiles)
{
    int64_t n = w->rows * pl_tile_row_bytes(w->format, w->cols);

    if (w->format == PL_WEIGHT_BF16) {
        uint16_t *data = kern_alloc((size_t)n, sizeof *data);
        for (int64_t i = 0; i < n / 2; i++)
            data[i] = random_bf16(r, f->edge ? &fills[0] : f);
        w->data = data;
    } else {
        uint8_t *data = kern_alloc((size_t)n, 1);
        for (int64_t i = 0; i < n; i++)
            data[i] = w->format == PL_WEIGHT_FP4 ? (uint8_t)kern_u64(r) : random_e4m3(r, f, !tiles);
        if (w->format == PL_WEIGHT_FP4 && f->zero)
            for (int64_t i = 0; i < n; i++)
                data[i] &= kern_below(r, 3) ? 0x88 : 0x99;
        if (w->format == PL_WEIGHT_FP4 && f->limit) /* 6 and 1.5 */
            for (int64_t i = 0; i < n; i++)
                data[i] = (data[i] & 0x44) | 0x33;
        w->data = data;
    }
    make_scales(w, r, f);
}

static pl_weight_view tiled(const pl_weight_view *rows)
{
    int64_t row_bytes = pl_tile_row_bytes(rows->format, rows->cols), groups = rows->cols / 32;
    uint8_t *data = kern_alloc((size_t)(rows->rows * row_bytes), 64);
    uint8_t *scale =
        rows->format == PL_WEIGHT_FP4 ? kern_alloc((size_t)(rows->rows * groups), 16) : NULL;
    pl_weight_view w = *rows;

    for (int64_t r = 0; r < rows->rows; r += LANES) {
        pl_tile_pack(rows->format, (const uint8_t *)rows->data + r * row_bytes, row_bytes, LANES,
                     rows->cols, rows->cols, data + r * row_bytes);
        if (scale)
            pl_tile_pack_scales((const uint8_t *)rows->scale + r * groups, groups, LANES, groups,
                                scale + r * groups);
    }
    w.data = data;
    w.scale = scale ? scale : w.scale;
    w.layout = PL_WEIGHT_TILES;
    return w;
}

/* 32 inputs that become codes as they are, since every block holds a 448 and has scale 1. In units of 2^-9 the sum
 * of magnitudes of kind 0 is 1398101, the most that permits integers (docs/NUMERICS.md 3), of kind 1 one more; kind 2
 * is far below, kind 3 far above. */
static void make_limit_group(uint16_t *x, int kind, kern_random *r)
{
    static const float most[] = {448, 448, 448,  448,        448,       448,
                                 32,  10,  .625, 20 / 512.f, 1 / 512.f, 1 / 512.f};
    int n = kind == 0 ? 11 : 12;

    for (int i = 0; i < 32; i++) {
        float v = kind == 2 ? (float)kern_below(r, 16) : i < n ? most[i] : 0;
        int64_t other = kern_below(r, i + 1);
        if (kind == 3)
            v = i == 31 ? 9 / 512.f : (float)(12 + kern_below(r, 4)) * (i < 26 ? 16 : 1 / 512.f);
        v = kind == 2 && kern_below(r, 2) ? -v
                                          : v; /* the others add up, so that wrong sums round */
        x[i] = x[other];                       /* in random order */
        x[other] = pl_f32_to_bf16(v);
    }
}

/* Inputs in bf16, and quantised where the operator takes them so. Special inputs lose their blocks. False where the
 * quantiser permits integers in other groups than it should. */
static bool make_inputs(setup *s, int kind, kern_random *r, const fill *f)
{
    int64_t k = s->rows.cols, pad = 2 * kern_below(r, 9), stride = 2 * k + pad;
    /* Kinds 0 and 2 permit integers; token t begins with kind t. */
    static const uint8_t exact_bits[] = {0x5, 0xA, 0x5, 0xA};
    bool quantised = kind == E8M0 || kind == F32 || kind == FP4;
    uint8_t *x = kern_alloc((size_t)((s->n_x - 1) * stride + 2 * k), 2);
    pl_quantise_args q = {.dim = k, .x = x, .x_stride = stride};

    for (int64_t t = 0; t < s->n_x; t++) {
        static const int edges[] = {127 - 50, 127 + 66, 127 - 51, 127 + 68};
        fill row = *f;
        row.exponent = edges[kern_below(r, kern_below(r, 4) ? 2 : 4)];
        if (kind == FP4) /* beside its large scales */
            row.exponent = edges[0];
        if (f->tiny && t % 2) /* large inputs make tiny scales count */
            row = (fill){.extreme = true};
        for (int64_t i = 0; i < k; i++)
            ((uint16_t *)(x + t * stride))[i] = random_bf16(r, &row);
        for (int64_t i = 0; f->limit && i + 32 <= k; i += 32)
            make_limit_group((uint16_t *)(x + t * stride) + i, (int)(t + i / 32) % 4, r);
    }
    s->job.x = x;
    s->job.x_stride = stride;
    if (!quantised)
        return true;
    q.q_stride = (k / BLOCK * (BLOCK + 2) + 15) / 16 * 16 + 16 * kern_below(r, 2);
    q.q = kern_alloc((size_t)((s->n_x - 1) * q.q_stride + k / BLOCK * (BLOCK + 2)), 16);
    pl_ops_scalar()->quantise(NULL, &q, 0, s->n_x);
    for (int64_t t = 0; f->limit && t < s->n_x; t++)
        if (((uint8_t *)q.q + t * q.q_stride)[k / BLOCK * (BLOCK + 1)] != exact_bits[t % 4])
            return false;
    s->job.x = q.q;
    s->job.x_stride = q.q_stride;
    return true;
}

static bool set_up(const kern_op *op, const char *problem, setup *s, char *why)
{
    char word[16];
    const fill *f = NULL;
    bool tiles = strcmp(kern_word(problem, "layout", "tiles", word), "tiles") == 0;
    kern_random r = {(uint64_t)kern_int(problem, "seed", 1)};
    pl_linear_job *job = &s->job;
    int32_t *rows;

    memset(s, 0, sizeof *s);
    if (!kern_check_keys(problem, " m n k first shards fill layout out gather split seed ", why))
        return false;
    kern_word(problem, "fill", "random", word);
    for (size_t i = 0; i < N_FILLS; i++)
        f = strcmp(fills[i].name, word) == 0 ? &fills[i] : f;
    job->n = (int32_t)kern_int(problem, "m", 1);
    job->n_rows = kern_int(problem, "n", 16);
    job->first_row = kern_int(problem, "first", 0);
    job->n_shards = (int32_t)kern_int(problem, "shards", 0);
    job->a16 = is_a16(op->kind);
    job->out =
        strcmp(kern_word(problem, "out", "acc", word), "acc") == 0 ? PL_LINEAR_ACC : PL_LINEAR_ACT;
    s->split = kern_int(problem, "split", 0);
    s->rows = (pl_weight_view){.format = format_of(op->kind),
                               .rows = job->first_row + job->n_rows,
                               .cols = kern_int(problem, "k", BLOCK)};
    if (tiles)
        s->rows.rows = (s->rows.rows + LANES - 1) / LANES * LANES;
    if (!f || job->n < 0 || job->n_rows < 1 || job->first_row < 0 || job->first_row % LANES ||
        s->rows.cols < 1 || ((op->kind != BF16 || tiles) && s->rows.cols % BLOCK) ||
        s->rows.cols > 1 << 20 || s->rows.rows > 1 << 20 || job->n > 1 << 16) {
        snprintf(why, KERN_WHY_BYTES, "no such problem: values are outside of the contract");
        return false;
    }
    s->n_x = job->n + 3;
    make_rows(&s->rows, &r, f, tiles);
    job->w = tiles ? tiled(&s->rows) : s->rows;
    if (!make_inputs(s, op->kind, &r, f)) {
        snprintf(why, KERN_WHY_BYTES, "the quantiser misjudges groups at the limit of integers");
        return false;
    }
    if (kern_int(problem, "gather", 0)) {
        rows = kern_alloc((size_t)job->n * sizeof *rows, sizeof *rows);
        for (int32_t t = 0; t < job->n; t++)
            rows[t] = (int32_t)kern_below(&r, s->n_x);
        job->rows = rows;
    }
    job->y_stride = job->n_rows * (job->out == PL_LINEAR_ACC ? 4 : 2) + 4 * kern_below(&r, 5);
    return true;
}

/* ---- running */

static void *run(setup *s, const pl_ops *ops)
{
    const pl_linear_job *job = &s->job;
    pl_linear_fn *fn = job->w.format == PL_WEIGHT_BF16  ? ops->linear_bf16
                       : job->w.format == PL_WEIGHT_FP4 ? ops->linear_fp4
                       : job->a16                       ? ops->linear_fp8_a16
                                                        : ops->linear_fp8;
    pl_ops_shape shape = {.max_k = job->w.cols};
    pl_op_env env = {.scratch = kern_alloc(ops->scratch_bytes(&shape), 64)};
    int64_t units = (job->n_rows + LANES - 1) / LANES, step = s->split ? s->split : units;
    int64_t width = job->n_rows * (job->out == PL_LINEAR_ACC ? 4 : 2);

    s->y_bytes = job->n ? (job->n - 1) * job->y_stride + width : 0;
    s->job.y = kern_alloc((size_t)s->y_bytes, 4);
    for (int64_t u = 0; u < units; u += step)
        fn(&env, job, u, u + step < units ? u + step : units);
    return s->job.y;
}

static float output(const setup *s, const void *y, int64_t t, int64_t o)
{
    const uint8_t *row = (const uint8_t *)y + t * s->job.y_stride;

    return s->job.out == PL_LINEAR_ACC ? ((const float *)row)[o]
                                       : pl_bf16_to_f32(((const uint16_t *)row)[o]);
}

/* Nothing between the rows of the output may be written. */
static bool canaries_live(const setup *s, const uint8_t *y, char *why)
{
    int64_t width = s->job.n_rows * (s->job.out == PL_LINEAR_ACC ? 4 : 2);

    for (int64_t t = 0; t + 1 < s->job.n; t++)
        for (int64_t i = width; i < s->job.y_stride; i++)
            if (y[t * s->job.y_stride + i] != 0xA5) {
                snprintf(why, KERN_WHY_BYTES, "writes behind row %lld of the output", (long long)t);
                return false;
            }
    return true;
}

static bool same_as_scalar(const setup *s, const void *got, const void *want, char *why)
{
    for (int64_t t = 0; t < s->job.n; t++)
        for (int64_t o = 0; o < s->job.n_rows; o++) {
            float a = output(s, got, t, o), b = output(s, want, t, o);
            if (pl_f32_bits(a) != pl_f32_bits(b) && !(isnan(a) && isnan(b))) {
                snprintf(why, KERN_WHY_BYTES,
                         "token %lld, row %lld: got 0x%08x (%.9g), scalar has 0x%08x (%.9g)",
                         (long long)t, (long long)o, pl_f32_bits(a), (double)a, pl_f32_bits(b),
                         (double)b);
                return false;
            }
        }
    return true;
}

/* ---- the oracle */

static double weight(const pl_weight_view *w, int64_t row, int64_t k)
{
    int64_t at = row * w->cols + k;
    const uint8_t *bytes = w->data, *scale = w->scale;
    int64_t block = row / 128 * (w->cols / BLOCK) + k / BLOCK;

    switch (w->format) {
    case PL_WEIGHT_BF16:
        return pl_bf16_to_f32(((const uint16_t *)w->data)[at]);
    case PL_WEIGHT_FP4:
        return (double)pl_e2m1_to_f32(bytes[at / 2] >> 4 * (at & 1) & 15) *
               pl_e8m0_to_f32(scale[at / 32]);
    case PL_WEIGHT_FP8_F32:
        return (double)pl_e4m3_to_f32(bytes[at]) * ((const float *)w->scale)[block];
    default:
        return (double)pl_e4m3_to_f32(bytes[at]) * pl_e8m0_to_f32(scale[block]);
    }
}

static double input(const setup *s, int64_t t, int64_t k)
{
    const pl_linear_job *job = &s->job;
    const uint8_t *row = (const uint8_t *)job->x + (job->rows ? job->rows[t] : t) * job->x_stride;

    if (job->w.format == PL_WEIGHT_BF16 || job->a16)
        return pl_bf16_to_f32(((const uint16_t *)row)[k]);
    return (double)pl_e4m3_to_f32(row[k]) * pl_e8m0_to_f32(row[job->w.cols + k / BLOCK]);
}

/* `finite` is the part of the magnitude that is: where it may overflow in fp32, an infinity in the sum may meet
 * another one. */
static bool near_enough(const setup *s, double got, double sum, double magnitude, double finite,
                        bool *judged)
{
    int64_t nb = (s->rows.cols + BLOCK - 1) / BLOCK;
    double bound =
        (double)(BLOCK + 2 * nb + s->job.n_shards + 2) * 0x1p-24 * magnitude + (double)nb * 0x1p-98;

    *judged = true;
    if (isnan(sum))
        return isnan(got);
    if (finite >= 0x1p126) {
        *judged = false;
        return true;
    }
    if (isinf(sum))
        return got == sum;
    if (s->job.out == PL_LINEAR_ACT)
        bound += 0x1p-8 * (fabs(sum) + bound);
    return fabs(got - sum) <= bound;
}

static bool right(const setup *s, const void *y, char *why, int64_t *n_judged)
{
    for (int64_t t = 0; t < s->job.n; t++)
        for (int64_t o = 0; o < s->job.n_rows; o++) {
            double sum = 0, magnitude = 0, finite = 0, got = output(s, y, t, o);
            bool judged;
            for (int64_t k = 0; k < s->rows.cols; k++) {
                double p = weight(&s->rows, s->job.first_row + o, k) * input(s, t, k);
                sum += p;
                magnitude += fabs(p);
                finite += isfinite(p) ? fabs(p) : 0;
            }
            if (!near_enough(s, got, sum, magnitude, finite, &judged)) {
                snprintf(why, KERN_WHY_BYTES,
                         "token %lld, row %lld: got %.9g, want %.9g (sum of magnitudes %.3g)",
                         (long long)t, (long long)o, got, sum, magnitude);
                return false;
            }
            *n_judged += judged;
        }
    return true;
}

static bool linear_check(const kern_op *op, const char *problem, const pl_ops *ops, char *why,
                         int64_t *judged)
{
    setup s;
    void *got, *want;

    if (!set_up(op, problem, &s, why))
        return false;
    kern_protect(s.job.x);
    kern_protect(s.job.w.data);
    got = run(&s, ops);
    if (!canaries_live(&s, got, why))
        return false;
    if (ops == pl_ops_scalar())
        return right(&s, got, why, judged);
    if (!pl_fpenv_is_set()) {
        snprintf(why, KERN_WHY_BYTES, "leaves another floating-point environment");
        return false;
    }
    want = run(&s, pl_ops_scalar());
    *judged += s.job.n * s.job.n_rows;
    return same_as_scalar(&s, got, want, why);
}

const kern_op kern_linear_ops[] = {
    {"linear_fp8:e8m0", linear_problem, linear_check, E8M0},
    {"linear_fp8:f32", linear_problem, linear_check, F32},
    {"linear_fp8_a16:e8m0", linear_problem, linear_check, A16_E8M0},
    {"linear_fp8_a16:f32", linear_problem, linear_check, A16_F32},
    {"linear_fp4", linear_problem, linear_check, FP4},
    {"linear_bf16", linear_problem, linear_check, BF16},
    {0},
};
