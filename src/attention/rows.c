/* The checked entries of row operators: norms with the quantiser behind them, rotations, the Hadamard transform. A
 * token's angles are formed where they are used, on the stack: nothing is kept between calls. */
#include <inttypes.h>
#include <string.h>

#include "attention/arrays.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "ops/rope_table.h"
#include "plimsoll/model_ops.h"

enum {
    MAX_DIM = 1 << 16,
    MAX_HEADS = 4096,
    LAST_POSITION = (1 << 24) - 1,
    CHUNK = 32 * PL_QUANT_BLOCK, /* numbers quantised in one go */
    BLOCKS = CHUNK / PL_QUANT_BLOCK,
};

/* ---- norm and quantiser */

typedef struct norm_run {
    const pl_ops *ops;
    int64_t dim;
    pl_rms_norm_args norm; /* x NULL: quantise alone */
    const uint16_t *x;     /* of the quantiser */
    uint8_t *codes, *scales;
} norm_run;

/* The kernel writes codes, scales and marks of a row one after the other. */
static void quantise_row(const norm_run *r, int64_t row)
{
    _Alignas(64) uint8_t q[CHUNK + 2 * BLOCKS];
    pl_op_env env = {.mode = PL_MODE_REC};

    for (int64_t i = 0; i < r->dim; i += CHUNK) {
        int64_t n = r->dim - i < CHUNK ? r->dim - i : CHUNK;
        pl_quantise_args a = {.dim = n, .x = r->x + row * r->dim + i, .q = q};

        r->ops->quantise(&env, &a, 0, 1);
        memcpy(r->codes + row * r->dim + i, q, (size_t)n);
        memcpy(r->scales + (row * r->dim + i) / PL_QUANT_BLOCK, q + n, (size_t)n / PL_QUANT_BLOCK);
    }
}

static void norm_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const norm_run *r = args;
    pl_op_env env = {.mode = PL_MODE_REC};

    for (int64_t row = begin; row < end; row++) {
        if (r->norm.x)
            r->ops->rms_norm(&env, &r->norm, row, row + 1);
        if (r->codes)
            quantise_row(r, row);
    }
}

static pl_status check_blocks(int32_t dim, pl_error *err)
{
    PL_CHECK(dim % PL_QUANT_BLOCK == 0, err, "dim: no whole blocks (got %d, want a multiple of %d)",
             dim, PL_QUANT_BLOCK);
    return PL_OK;
}

pl_status pl_op_rms_norm(pl_ops_context *context, const pl_op_rms_norm_args *args, pl_error *err)
{
    const pl_op_rms_norm_args *a = args;
    norm_run r;

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(pl__check_range("n", a->n, 0, INT32_MAX, err));
    PL_TRY(pl__check_range("dim", a->dim, 1, MAX_DIM, err));
    PL_TRY(pl__check_number("eps", a->eps, 0, err));
    PL_CHECK((a->codes != NULL) == (a->scales != NULL), err,
             "codes: without scales, or the reverse (got %p and %p, want both or none)",
             (void *)a->codes, (void *)a->scales);
    if (a->codes)
        PL_TRY(check_blocks(a->dim, err));
    {
        const pl_array arrays[] = {
            {"weight", a->weight, a->n > 0, a->dim, 2, PL_ARRAY_IN, NULL},
            {"x", a->x, a->n, a->dim, 2, PL_ARRAY_IN, NULL},
            {"y", a->y, a->n, a->dim, 2, PL_ARRAY_OUT, a->x},
            {"codes", a->codes, a->n, a->dim, 1, PL_ARRAY_OUT_OPTIONAL, NULL},
            {"scales", a->scales, a->n, a->dim / PL_QUANT_BLOCK, 1, PL_ARRAY_OUT_OPTIONAL, NULL},
        };
        PL_TRY(pl__check_arrays(arrays, 5, err));
    }
    r = (norm_run){context->ops, a->dim,   {.eps = a->eps, .dim = a->dim, .x = a->x, .y = a->y},
                   a->y,         a->codes, a->scales};
    r.norm.w =
        (pl_weight_view){.format = PL_WEIGHT_BF16, .rows = 1, .cols = a->dim, .data = a->weight};
    pl__context_rows(context, a->n, 8 * (int64_t)a->dim, norm_rows, &r);
    return PL_OK;
}

pl_status pl_op_quantise(pl_ops_context *context, const pl_op_quantise_args *args, pl_error *err)
{
    const pl_op_quantise_args *a = args;
    norm_run r;

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(pl__check_range("n", a->n, 0, INT32_MAX, err));
    PL_TRY(pl__check_range("dim", a->dim, PL_QUANT_BLOCK, MAX_DIM, err));
    PL_TRY(check_blocks(a->dim, err));
    {
        const pl_array arrays[] = {
            {"x", a->x, a->n, a->dim, 2, PL_ARRAY_IN, NULL},
            {"codes", a->codes, a->n, a->dim, 1, PL_ARRAY_OUT, NULL},
            {"scales", a->scales, a->n, a->dim / PL_QUANT_BLOCK, 1, PL_ARRAY_OUT, NULL},
        };
        PL_TRY(pl__check_arrays(arrays, 3, err));
    }
    r = (norm_run){
        .ops = context->ops, .dim = a->dim, .x = a->x, .codes = a->codes, .scales = a->scales};
    pl__context_rows(context, a->n, 4 * (int64_t)a->dim, norm_rows, &r);
    return PL_OK;
}

/* ---- rotations */

/* In the environment of base/fpenv.h. */
static __attribute__((noinline)) void form_frequencies(const pl_op_rope_table *t, float *freq)
{
    pl_rope_yarn yarn = {t->factor, t->original_max_position, t->beta_fast, t->beta_slow};

    pl_rope_table_freq(t->base, t->factor > 0 ? &yarn : NULL, freq);
}

pl_status pl_op_rope_frequencies(const pl_op_rope_table *table, float frequencies[32],
                                 pl_error *err)
{
    static const double most = 1e30;
    pl_fpenv saved;

    PL_CHECK(table != NULL && frequencies != NULL, err,
             "table: missing, or no place for the frequencies (got %p and %p, want two pointers)",
             (const void *)table, (void *)frequencies);
    PL_CHECK(table->base > 1 && table->base < most, err,
             "base: out of range (got %g, want more than 1)", table->base);
    PL_CHECK(table->factor >= 0 && table->factor < most, err,
             "factor: out of range (got %g, want 0 or more)", table->factor);
    PL_CHECK(table->factor == 0 ||
                 (table->original_max_position >= 1 && table->original_max_position < most),
             err, "original_max_position: out of range (got %g, want 1 or more)",
             table->original_max_position);
    PL_CHECK(table->factor == 0 || (table->beta_slow > 0 && table->beta_slow < most), err,
             "beta_slow: out of range (got %g, want more than 0)", table->beta_slow);
    PL_CHECK(table->factor == 0 || (table->beta_fast > 0 && table->beta_fast < most), err,
             "beta_fast: out of range (got %g, want more than 0)", table->beta_fast);
    saved = pl_fpenv_begin();
    form_frequencies(table, frequencies);
    pl_fpenv_end(saved);
    return PL_OK;
}

typedef struct rope_run {
    const pl_ops *ops;
    pl_rope_args rope;
    pl_q_norm_rope_args head; /* q NULL: rope */
    const float *freq;
    const int32_t *position;
} rope_run;

static void rope_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const rope_run *r = args;
    pl_op_env env = {.mode = PL_MODE_REC};
    float cosines[PL_ROPE_PAIRS], sines[PL_ROPE_PAIRS];

    for (int64_t t = begin; t < end; t++) {
        pl_rope_angles_args angles = {r->freq, r->position + t, cosines, sines};
        pl_rope_args rope = r->rope;
        pl_q_norm_rope_args head = r->head;

        r->ops->rope_angles(&env, &angles, 0, 1);
        rope.angles = head.angles = (pl_angles){cosines, sines};
        rope.x = (uint16_t *)rope.x + t * rope.token_stride;
        if (!head.q) {
            r->ops->rope(&env, &rope, 0, 1);
            continue;
        }
        head.q = (uint16_t *)head.q + t * head.n_heads * PL_HEAD_DIM;
        r->ops->q_norm_rope(&env, &head, 0, head.n_heads);
    }
}

/* What both rotations read: n positions, the frequencies, and that x lies apart from them. */
static pl_status check_rope(int32_t n, const float *freq, const int32_t *positions, pl_array x,
                            pl_error *err)
{
    const pl_array arrays[] = {
        {"frequencies", freq, n > 0, PL_ROPE_PAIRS, 4, PL_ARRAY_IN, NULL},
        {"positions", positions, n, 1, 4, PL_ARRAY_IN, NULL},
        x,
    };

    PL_TRY(pl__check_arrays(arrays, 3, err));
    return pl__check_ids("positions", positions, n, 0, LAST_POSITION, err);
}

/* The extent of x as one row, whatever the strides. */
static pl_status check_strides(const pl_op_rope_args *a, int64_t token, int64_t head,
                               int64_t *reach, pl_error *err)
{
    *reach = a->head_dim;
    PL_CHECK(a->n_heads == 1 || head >= a->head_dim, err,
             "head_stride: heads overlap (got %" PRId64 ", want %d or more)", head, a->head_dim);
    PL_CHECK(a->n < 2 || token >= (a->n_heads - 1) * head + a->head_dim ||
                 (token >= a->head_dim && head >= (a->n - 1) * token + a->head_dim),
             err, "token_stride: tokens overlap (got %" PRId64 ", want %" PRId64 " or more)", token,
             (a->n_heads - 1) * head + a->head_dim);
    return PL_OK;
}

pl_status pl_op_rope(pl_ops_context *context, const pl_op_rope_args *args, pl_error *err)
{
    const pl_op_rope_args *a = args;
    int64_t token, head, reach;
    rope_run r = {0};

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(pl__check_range("n", a->n, 0, INT32_MAX, err));
    PL_TRY(pl__check_range("n_heads", a->n_heads, 1, MAX_HEADS, err));
    PL_TRY(pl__check_range("head_dim", a->head_dim, PL_ROPE_DIM, MAX_DIM, err));
    PL_TRY(pl__check_range("head_stride", a->head_stride, 0, INT64_C(1) << 47, err));
    PL_TRY(pl__check_range("token_stride", a->token_stride, 0, INT64_C(1) << 47, err));
    head = a->head_stride ? a->head_stride : a->head_dim;
    token = a->token_stride ? a->token_stride : head * a->n_heads;
    PL_TRY(check_strides(a, token, head, &reach, err));
    PL_CHECK(pl__reach(a->n_heads, head, &reach) && pl__reach(a->n, token, &reach) &&
                 reach < INT64_C(1) << 59,
             err, "token_stride: reaches past the end of memory (got %" PRId64 ", want less)",
             token);
    PL_TRY(check_rope(a->n, a->frequencies, a->positions,
                      (pl_array){"x", a->x, a->n > 0, reach, 2, PL_ARRAY_OUT, NULL}, err));
    r.ops = context->ops;
    r.rope = (pl_rope_args){a->n_heads, a->head_dim, a->inverse != 0, {0}, a->x, token, head};
    r.freq = a->frequencies;
    r.position = a->positions;
    pl__context_rows(context, a->n, 2048 + 64 * (int64_t)a->n_heads, rope_rows, &r);
    return PL_OK;
}

pl_status pl_op_head_norm_rope(pl_ops_context *context, const pl_op_head_norm_rope_args *args,
                               pl_error *err)
{
    const pl_op_head_norm_rope_args *a = args;
    rope_run r = {0};

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(pl__check_range("n", a->n, 0, INT32_MAX, err));
    PL_TRY(pl__check_range("n_heads", a->n_heads, 1, MAX_HEADS, err));
    PL_TRY(pl__check_number("eps", a->eps, 0, err));
    PL_TRY(check_rope(
        a->n, a->frequencies, a->positions,
        (pl_array){"q", a->q, a->n, (int64_t)a->n_heads * PL_HEAD_DIM, 2, PL_ARRAY_OUT, NULL},
        err));
    r.ops = context->ops;
    r.head = (pl_q_norm_rope_args){a->n_heads, a->eps, {0}, a->q};
    r.freq = a->frequencies;
    r.position = a->positions;
    if (a->n > 0)
        pl__context_rows(context, a->n, 4 * PL_HEAD_DIM * (int64_t)a->n_heads, rope_rows, &r);
    return PL_OK;
}

/* ---- Hadamard */

typedef struct hadamard_run {
    const pl_ops *ops;
    pl_hadamard_args args;
} hadamard_run;

static void hadamard_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const hadamard_run *r = args;
    pl_op_env env = {.mode = PL_MODE_REC};

    r->ops->hadamard(&env, &r->args, begin, end);
}

pl_status pl_op_hadamard(pl_ops_context *context, const pl_op_hadamard_args *args, pl_error *err)
{
    const pl_op_hadamard_args *a = args;
    hadamard_run r;

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(pl__check_range("n", a->n, 0, INT32_MAX, err));
    {
        const pl_array arrays[] = {
            {"x", a->x, a->n, PL_INDEX_DIM, 2, PL_ARRAY_IN, NULL},
            {"y", a->y, a->n, PL_INDEX_DIM, 2, PL_ARRAY_OUT, a->x},
        };
        PL_TRY(pl__check_arrays(arrays, 2, err));
    }
    r = (hadamard_run){context->ops, {a->x, a->y}};
    pl__context_rows(context, a->n, 8 * PL_INDEX_DIM, hadamard_rows, &r);
    return PL_OK;
}
