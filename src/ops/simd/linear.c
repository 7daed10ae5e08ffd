/* The driver of the vector levels' linear layers: tiles, tokens, shards, scratch; see simd/linear.h.
 *
 * Weights that lie in rows (odd shapes) are packed block by block in front of the kernel, zeros where rows or
 * columns are missing. FP8 tiles with a NaN code go to the scalar operator, since expansion by shifts has no NaN:
 * matrices in tile layout have none. Nothing here depends on the instruction set. */
#include "ops/simd/linear.h"

#include <string.h>
#include <xmmintrin.h>

#include "base/numfmt.h"
#include "ops/scalar/scalar.h"
#include "ops/simd/fp4_group.h"
#include "ops/tile.h"

enum { LANES = PL_TILE_ROWS, BLOCK = PL_QUANT_BLOCK, GROUP = 32, MXCSR_DAZ = 0x40 };
enum { GROUPS = BLOCK / GROUP, MAX_BLOCK_BYTES = 2 * BLOCK * LANES };

/* ---- scratch of a worker */

/* Of the form for few tokens; inputs of K columns. */
typedef struct few_scratch {
    float acc[PL_SIMD_IN_FLIGHT * PL_SIMD_FEW * LANES];
    float total[PL_SIMD_IN_FLIGHT * PL_SIMD_FEW * LANES];
    uint8_t packed[PL_SIMD_IN_FLIGHT][MAX_BLOCK_BYTES];
    uint8_t packed_scales[PL_SIMD_IN_FLIGHT][GROUPS * LANES];
    /* [blocks][tokens][128], then xs [blocks][tokens], ws [tiles][blocks], digits [blocks][4] bytes; of one
     * token that has exact groups, they lie where a second one's x would */
    _Alignas(64) float x[];
} few_scratch;

_Static_assert(GROUPS * sizeof(pl_fp4_group) == BLOCK * sizeof(float), "takes as much as x");

typedef struct panel_scratch {
    float acc[PL_SIMD_CHUNK * PL_SIMD_PANEL * LANES]; /* [token][tile][16] */
    float total[PL_SIMD_CHUNK * PL_SIMD_PANEL * LANES];
    float w[PL_SIMD_PANEL_TILES][BLOCK * LANES];
    float gs[PL_SIMD_PANEL_TILES][GROUPS * LANES];
    float x[PL_SIMD_CHUNK * BLOCK];
    float xs[PL_SIMD_CHUNK];
    uint8_t packed[MAX_BLOCK_BYTES];
    uint8_t packed_scales[GROUPS * LANES];
} panel_scratch;

_Static_assert(sizeof(panel_scratch) <= PL_SIMD_SCRATCH_BYTES, "as linear.h says");

static uint64_t align64(uint64_t bytes)
{
    return (bytes + 63) & ~(uint64_t)63;
}

static uint64_t own_scratch_bytes(int64_t k)
{
    uint64_t nb = ((uint64_t)k + BLOCK - 1) / BLOCK;
    uint64_t few = sizeof(few_scratch) +
                   sizeof(float) * nb * (PL_SIMD_FEW * (BLOCK + 1) + PL_SIMD_IN_FLIGHT + 1);

    return align64(few > sizeof(panel_scratch) ? few : sizeof(panel_scratch));
}

uint64_t pl__simd_linear_scratch_bytes(int64_t max_k)
{
    uint64_t own = own_scratch_bytes(max_k), scalar = pl__scalar_linear_scratch_bytes(max_k);

    return own > scalar ? own : scalar;
}

/* ---- a job's geometry */

typedef struct shape {
    const pl_simd_kind *kind;
    const pl_linear_job *job;
    int64_t n_blocks, row_bytes, block_bytes;
    bool quantised; /* inputs */
} shape;

static shape shape_of(const pl_simd_kind *kind, const pl_linear_job *job)
{
    pl_weight_format f = job->w.format;

    return (shape){
        .kind = kind,
        .job = job,
        .n_blocks = (job->w.cols + BLOCK - 1) / BLOCK,
        .row_bytes = pl_tile_row_bytes(f, job->w.cols),
        .block_bytes = LANES * pl_tile_row_bytes(f, BLOCK),
        .quantised = f != PL_WEIGHT_BF16 && !job->a16,
    };
}

/* Output rows of a unit, 1 .. 16. */
static int64_t unit_rows(const shape *s, int64_t unit)
{
    int64_t left = s->job->n_rows - unit * LANES;

    return left < LANES ? left : LANES;
}

/* Block b of the unit's weights as a tile: where it lies, or packed into `packed`. */
static const uint8_t *tile_block(const shape *s, int64_t unit, int64_t b, uint8_t *packed)
{
    const pl_weight_view *w = &s->job->w;
    int64_t row = s->job->first_row + unit * LANES, left = w->cols - b * BLOCK;
    const uint8_t *rows = (const uint8_t *)w->data + row * s->row_bytes;

    if (w->layout == PL_WEIGHT_TILES)
        return rows + b * s->block_bytes;
    pl_tile_pack(w->format, rows + b * (s->block_bytes / LANES), s->row_bytes, unit_rows(s, unit),
                 left < BLOCK ? left : BLOCK, BLOCK, packed);
    return packed;
}

/* The same for FP4's group scales, else NULL. */
static const uint8_t *tile_scales(const shape *s, int64_t unit, int64_t b, uint8_t *packed)
{
    const pl_weight_view *w = &s->job->w;
    int64_t groups = w->cols / GROUP, row = s->job->first_row + unit * LANES;
    const uint8_t *rows = (const uint8_t *)w->scale + row * groups;

    if (w->format != PL_WEIGHT_FP4)
        return NULL;
    if (w->layout == PL_WEIGHT_TILES)
        return rows + b * GROUPS * LANES;
    pl_tile_pack_scales(rows + b * GROUPS, groups, unit_rows(s, unit), GROUPS, packed);
    return packed;
}

/* The scale that block b of the unit has as a whole; 1 for formats without. */
static float block_scale(const shape *s, int64_t unit, int64_t b)
{
    const pl_weight_view *w = &s->job->w;
    int64_t at = (s->job->first_row + unit * LANES) / 128 * (w->cols / BLOCK) + b;

    if (w->format == PL_WEIGHT_FP8_F32) /* DAZ may be off */
        return pl_f32_flush(((const float *)w->scale)[at]);
    if (w->format == PL_WEIGHT_FP8_E8M0)
        return pl_e8m0_to_f32(((const uint8_t *)w->scale)[at]);
    return 1;
}

/* ---- inputs */

static const uint8_t *input_row(const shape *s, int64_t token)
{
    int64_t row = s->job->rows ? s->job->rows[token] : token;

    return (const uint8_t *)s->job->x + row * s->job->x_stride;
}

static void prepare_block(const shape *s, int64_t token, int64_t b, float *x, float *xs)
{
    const uint8_t *row = input_row(s, token);
    int64_t left = s->job->w.cols - b * BLOCK;

    if (s->quantised) {
        s->kind->prepare(row + b * BLOCK, x);
        *xs = pl_e8m0_to_f32(row[s->n_blocks * BLOCK + b]);
        return;
    }
    *xs = 1;
    if (left >= BLOCK) {
        s->kind->prepare(row + b * 2 * BLOCK, x);
    } else {
        uint16_t filled[BLOCK] = {0};
        memcpy(filled, row + b * 2 * BLOCK, (size_t)left * sizeof filled[0]);
        s->kind->prepare(filled, x);
    }
}

static void store(const shape *s, int64_t unit, int64_t token, const float *sum)
{
    uint8_t *y = (uint8_t *)s->job->y + token * s->job->y_stride;
    int64_t n = unit_rows(s, unit);

    if (s->job->out == PL_LINEAR_ACC) {
        memcpy((float *)y + unit * LANES, sum, (size_t)n * sizeof *sum);
        return;
    }
    for (int64_t r = 0; r < n; r++)
        ((uint16_t *)y)[unit * LANES + r] = pl_f32_to_bf16(sum[r]);
}

/* ---- shards: `add` adds blocks b0 .. b1 - 1 to sums that it finds at +0 */

typedef void add_blocks_fn(const shape *s, void *user, int64_t b0, int64_t b1);

/* Leaves the result in `total`, n sums. */
static void sum_shards(const shape *s, float *acc, float *total, int64_t n, add_blocks_fn *add,
                       void *user)
{
    int64_t nb = s->n_blocks, n_shards = s->job->n_shards ? s->job->n_shards : 1;

    memset(total, 0, (size_t)n * sizeof *total);
    for (int64_t shard = 0; shard < n_shards; shard++) {
        int64_t b0 = shard * nb / n_shards, b1 = (shard + 1) * nb / n_shards;
        if (b0 == b1 || (s->job->one_shard && shard != s->job->one_shard - 1))
            continue;
        memset(acc, 0, (size_t)n * sizeof *acc);
        add(s, user, b0, b1);
        if (s->job->n_shards == 0 || s->job->one_shard)
            memcpy(total, acc, (size_t)n * sizeof *total);
        else
            for (int64_t i = 0; i < n; i++)
                total[i] += acc[i];
    }
}

/* ---- few tokens */

typedef struct few_run {
    few_scratch *scratch;
    float *x, *xs, *ws;
    uint8_t *digits;
    pl_fp4_group *group;            /* one token only */
    pl_simd_few_fn *const *kernels; /* by tiles - 1 */
    int64_t unit;
    int n_tiles;
} few_run;

/* Prepares the groups of block b that the token permits for integers; returns whether there are any. */
static bool prepare_exact(const shape *s, const few_run *r, int64_t b)
{
    const uint8_t *row = input_row(s, 0);
    unsigned permitted = row[s->n_blocks * (BLOCK + 1) + b];
    uint8_t *digits = r->digits + b * GROUPS;

    for (int g = 0; g < GROUPS; g++) {
        int64_t at = b * BLOCK + g * GROUP;
        bool exact = permitted >> g & 1;
        digits[g] =
            exact ? (uint8_t)s->kind->prepare_exact(row + at, r->group + b * GROUPS + g) : 0;
    }
    return permitted & 15;
}

static void prepare_few(const shape *s, few_run *r)
{
    int64_t n = s->job->n, nb = s->n_blocks;
    bool exact = n == 1 && s->kind->exact_token[0], any = false;

    r->x = r->scratch->x;
    r->group = exact ? (pl_fp4_group *)(void *)(r->x + nb * BLOCK) : NULL;
    r->xs = r->x + nb * (exact ? 2 * BLOCK : n * s->kind->x_words);
    r->ws = r->xs + nb * n;
    r->digits = (uint8_t *)(r->ws + PL_SIMD_IN_FLIGHT * nb);
    r->kernels = s->kind->few_tokens[n - 1];
    for (int64_t b = 0; b < nb; b++) {
        for (int64_t t = 0; t < n; t++)
            prepare_block(s, t, b, r->x + (b * n + t) * s->kind->x_words, r->xs + b * n + t);
        if (exact)
            any |= prepare_exact(s, r, b);
    }
    if (any)
        r->kernels = s->kind->exact_token;
}

/* The most tiles that a kernel takes, of `left`. */
static int tiles_at_once(const few_run *r, int64_t left)
{
    int n = left < PL_SIMD_IN_FLIGHT ? (int)left : PL_SIMD_IN_FLIGHT;

    while (n > 1 && !r->kernels[n - 1])
        n--;
    return n;
}

static void add_few(const shape *s, void *user, int64_t b0, int64_t b1)
{
    const few_run *r = user;
    few_scratch *f = r->scratch;
    int64_t n = s->job->n;
    /* Tiles lie one block behind the other; packed ones come singly. */
    int64_t at_once = s->job->w.layout == PL_WEIGHT_TILES ? b1 - b0 : 1;

    for (int64_t b = b0; b < b1; b += at_once) {
        pl_simd_few a = {.x = r->x + b * n * s->kind->x_words,
                         .xs = r->xs + b * n,
                         .acc = f->acc,
                         .n_blocks = at_once,
                         .digits = r->digits + b * GROUPS,
                         .group = r->group ? r->group + b * GROUPS : NULL};
        for (int t = 0; t < r->n_tiles; t++) {
            a.w[t] = tile_block(s, r->unit + t, b, f->packed[t]);
            a.gs[t] = tile_scales(s, r->unit + t, b, f->packed_scales[t]);
            a.ws[t] = r->ws + t * s->n_blocks + b;
        }
        r->kernels[r->n_tiles - 1](&a);
    }
}

static void run_few(const shape *s, void *scratch, int64_t begin, int64_t end)
{
    few_run r = {.scratch = scratch};
    int64_t n = s->job->n, nb = s->n_blocks;

    prepare_few(s, &r);
    for (r.unit = begin; r.unit < end; r.unit += r.n_tiles) {
        r.n_tiles = tiles_at_once(&r, end - r.unit);
        for (int t = 0; t < r.n_tiles; t++)
            for (int64_t b = 0; b < nb; b++)
                r.ws[t * nb + b] = block_scale(s, r.unit + t, b);
        sum_shards(s, r.scratch->acc, r.scratch->total, r.n_tiles * n * LANES, add_few, &r);
        for (int t = 0; t < r.n_tiles; t++)
            for (int64_t i = 0; i < n; i++)
                store(s, r.unit + t, i, r.scratch->total + (t * n + i) * LANES);
    }
}

/* ---- panels */

typedef struct panel_run {
    panel_scratch *scratch;
    int64_t unit, n_tiles;   /* of the panel */
    int64_t token, n_tokens; /* of the chunk */
} panel_run;

/* n tiles from `tile` on of the panel. */
static void multiply_tiles(const shape *s, const panel_run *r, int64_t tile, int n, int64_t b)
{
    panel_scratch *p = r->scratch;
    pl_simd_panel a = {.acc_stride = r->n_tiles * LANES};

    for (int i = 0; i < n; i++) {
        int64_t unit = r->unit + tile + i;
        s->kind->expand(tile_block(s, unit, b, p->packed),
                        tile_scales(s, unit, b, p->packed_scales), p->w[i], p->gs[i]);
        a.w[i] = p->w[i];
        a.gs[i] = p->gs[i];
        a.ws[i] = block_scale(s, unit, b);
    }
    for (int64_t t = 0; t < r->n_tokens; t += s->kind->group) {
        int64_t left = r->n_tokens - t;
        a.x = p->x + t * s->kind->x_words;
        a.xs = p->xs + t;
        a.acc = p->acc + (t * r->n_tiles + tile) * LANES;
        s->kind->panel[(left < s->kind->group ? left : s->kind->group) - 1][n - 1](&a);
    }
}

static void add_panel(const shape *s, void *user, int64_t b0, int64_t b1)
{
    const panel_run *r = user;
    panel_scratch *p = r->scratch;

    for (int64_t b = b0; b < b1; b++) {
        for (int64_t t = 0; t < r->n_tokens; t++)
            prepare_block(s, r->token + t, b, p->x + t * s->kind->x_words, p->xs + t);
        for (int64_t tile = 0; tile < r->n_tiles; tile += s->kind->panel_tiles) {
            int64_t left = r->n_tiles - tile, most = s->kind->panel_tiles;
            multiply_tiles(s, r, tile, (int)(left < most ? left : most), b);
        }
    }
}

/* Tokens of a chunk: as even as whole groups allow. */
static int64_t chunk_tokens(int64_t n, int64_t group)
{
    int64_t chunks = (n + PL_SIMD_CHUNK - 1) / PL_SIMD_CHUNK, size = (n + chunks - 1) / chunks;

    return (size + group - 1) / group * group;
}

static void run_panels(const shape *s, void *scratch, int64_t begin, int64_t end)
{
    panel_run r = {.scratch = scratch};
    int64_t n = s->job->n, chunk = chunk_tokens(n, s->kind->group);

    for (r.unit = begin; r.unit < end; r.unit += r.n_tiles) {
        r.n_tiles = end - r.unit < PL_SIMD_PANEL ? end - r.unit : PL_SIMD_PANEL;
        for (r.token = 0; r.token < n; r.token += chunk) {
            r.n_tokens = n - r.token < chunk ? n - r.token : chunk;
            sum_shards(s, r.scratch->acc, r.scratch->total, r.n_tokens * r.n_tiles * LANES,
                       add_panel, &r);
            for (int64_t t = 0; t < r.n_tokens; t++)
                for (int64_t i = 0; i < r.n_tiles; i++)
                    store(s, r.unit + i, r.token + t,
                          r.scratch->total + (t * r.n_tiles + i) * LANES);
        }
    }
}

/* ---- the operator */

/* Not inlined: its arithmetic has to stay between the changes of MXCSR. */
__attribute__((noinline)) static void run_units(const shape *s, void *scratch, int64_t begin,
                                                int64_t end)
{
    if (s->job->n <= s->kind->few)
        run_few(s, scratch, begin, end);
    else
        run_panels(s, scratch, begin, end);
}

static void run_clean(const shape *s, const pl_op_env *env, int64_t begin, int64_t end)
{
    unsigned saved = _mm_getcsr();

    if (begin == end)
        return;
    if (s->kind->keeps_denormals)
        _mm_setcsr(saved & ~(unsigned)MXCSR_DAZ);
    run_units(s, env->scratch, begin, end);
    _mm_setcsr(saved);
}

static bool has_nan(const shape *s, int64_t unit)
{
    const pl_weight_view *w = &s->job->w;
    int64_t row = s->job->first_row + unit * LANES;

    if (w->layout == PL_WEIGHT_TILES ||
        (w->format != PL_WEIGHT_FP8_E8M0 && w->format != PL_WEIGHT_FP8_F32))
        return false;
    return pl_tile_has_nan((const uint8_t *)w->data + row * s->row_bytes,
                           (size_t)(unit_rows(s, unit) * s->row_bytes));
}

void pl__simd_linear(const pl_simd_kind *kind, const pl_op_env *env, const pl_linear_job *job,
                     int64_t begin, int64_t end)
{
    shape s = shape_of(kind, job);
    int64_t clean = begin; /* first unit not yet run */

    if (job->n == 0)
        return;
    for (int64_t unit = begin; unit < end; unit++) {
        if (!has_nan(&s, unit))
            continue;
        run_clean(&s, env, clean, unit);
        kind->scalar(env, job, unit, unit + 1);
        clean = unit + 1;
    }
    run_clean(&s, env, clean, end);
}
