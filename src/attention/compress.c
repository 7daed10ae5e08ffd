/* The checked entry of the compressor: sequences' states are the caller's, and none of them may be another's. */
#include <inttypes.h>

#include "attention/arrays.h"
#include "base/error.h"
#include "plimsoll/model_ops.h"

enum { MAX_DIM = 1 << 16, MAX_SEQS = 1024, MAX_TOKENS = 1 << 30, PER_SEQ = 4 };

uint64_t pl_op_compress_state_bytes(int32_t ratio, int32_t dim)
{
    if ((ratio != 4 && ratio != 128) || dim < 1 || dim > MAX_DIM || dim % PL_COMPRESS_TILE)
        return 0;
    return pl_ops_scalar()->compress_state_bytes(ratio, dim);
}

static pl_status check_shape(int32_t ratio, int32_t dim, pl_error *err)
{
    PL_CHECK(ratio == 4 || ratio == 128, err, "ratio: not supported (got %d, want 4 or 128)",
             ratio);
    PL_CHECK(pl_op_compress_state_bytes(ratio, dim) > 0, err,
             "dim: not supported (got %d, want a multiple of %d, %d .. %d)", dim, PL_COMPRESS_TILE,
             PL_COMPRESS_TILE, MAX_DIM);
    return PL_OK;
}

pl_status pl_op_compress_reset(int32_t ratio, int32_t dim, void *state, pl_error *err)
{
    PL_TRY(check_shape(ratio, dim, err));
    PL_CHECK(state != NULL && (uintptr_t)state % sizeof(float) == 0, err,
             "state: missing or not aligned (got %p, want a multiple of 4)", state);
    pl_ops_scalar()->compress_reset(state, ratio, dim); /* stores, no arithmetic */
    return PL_OK;
}

/* A sequence's arrays as check_arrays wants them. */
static void list_arrays(const pl_op_compress_args *a, const pl_op_compress_seq *s,
                        pl_array out[PER_SEQ])
{
    int64_t width = a->ratio == 4 ? 2 * (int64_t)a->dim : a->dim;
    int64_t entries = ((int64_t)s->start + s->n) / a->ratio - s->start / a->ratio;
    int64_t state = (int64_t)(pl_op_compress_state_bytes(a->ratio, a->dim) / sizeof(float));

    out[0] = (pl_array){"seqs.state", s->state, s->n > 0, state, 4, PL_ARRAY_OUT, NULL};
    out[1] = (pl_array){"seqs.pooled", s->pooled, entries, a->dim, 2, PL_ARRAY_OUT, NULL};
    out[2] = (pl_array){"seqs.kv", s->kv, s->n, width, 4, PL_ARRAY_IN, NULL};
    out[3] = (pl_array){"seqs.gate", s->gate, s->n, width, 4, PL_ARRAY_IN, NULL};
}

static pl_status check_seqs(const pl_op_compress_args *a, pl_error *err)
{
    int64_t width = a->ratio == 4 ? 2 * (int64_t)a->dim : a->dim;
    pl_array arrays[2 * PER_SEQ + 2];

    for (int32_t i = 0; i < a->n_seqs; i++) {
        const pl_op_compress_seq *s = &a->seqs[i];

        PL_CHECK(s->n >= 0 && s->n <= MAX_TOKENS, err,
                 "seqs[%d].n: out of range (got %d, want 0 .. %d)", i, s->n, MAX_TOKENS);
        PL_CHECK(s->start >= 0 && s->start <= MAX_TOKENS, err,
                 "seqs[%d].start: out of range (got %d, want 0 .. %d)", i, s->start, MAX_TOKENS);
    }
    for (int32_t i = 0; i < a->n_seqs; i++) {
        list_arrays(a, &a->seqs[i], arrays);
        arrays[PER_SEQ] = (pl_array){"ape", a->ape, a->ratio, width, 4, PL_ARRAY_IN, NULL};
        arrays[PER_SEQ + 1] =
            (pl_array){"seqs", a->seqs, a->n_seqs, sizeof *a->seqs / 8, 8, PL_ARRAY_IN, NULL};
        PL_TRY(pl__check_arrays(arrays, PER_SEQ + 2, err));
        for (int32_t k = 0; k < i; k++) {
            list_arrays(a, &a->seqs[k], arrays + PER_SEQ);
            PL_TRY(pl__check_arrays(arrays, 2 * PER_SEQ, err));
        }
    }
    return PL_OK;
}

typedef struct run {
    const pl_ops *ops;
    const pl_op_compress_args *args;
    int64_t tiles; /* of a sequence */
} run;

static void compress_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const run *r = args;
    const pl_op_compress_args *a = r->args;
    int64_t width = a->ratio == 4 ? 2 * (int64_t)a->dim : a->dim;
    pl_op_env env = {.mode = PL_MODE_REC};

    for (int64_t u = begin; u < end; u++) {
        const pl_op_compress_seq *s = &a->seqs[u / r->tiles];
        pl_compress_job job = {s->state, s->kv, s->gate, s->n, s->start, s->pooled};
        pl_compress_args one = {
            a->ratio,
            a->dim,
            {.format = PL_WEIGHT_F32, .rows = a->ratio, .cols = width, .data = a->ape},
            &job};

        r->ops->compress(&env, &one, u % r->tiles, u % r->tiles + 1);
    }
}

pl_status pl_op_compress(pl_ops_context *context, const pl_op_compress_args *args, pl_error *err)
{
    const pl_op_compress_args *a = args;
    run r;

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(check_shape(a->ratio, a->dim, err));
    PL_TRY(pl__check_range("n_seqs", a->n_seqs, 0, MAX_SEQS, err));
    PL_CHECK(a->n_seqs == 0 || (a->seqs && (uintptr_t)a->seqs % _Alignof(pl_op_compress_seq) == 0),
             err, "seqs: missing or not aligned (got %p, want a pointer)", (const void *)a->seqs);
    PL_TRY(check_seqs(a, err));
    r = (run){context->ops, a, a->dim / PL_COMPRESS_TILE};
    pl__context_rows(context, a->n_seqs * r.tiles, 1 << 15, compress_rows, &r);
    return PL_OK;
}
