/* The checked entry of attention_varlen. Every argument is looked at before a unit runs, since kernels look at none:
 * what passes here keeps them inside of the caller's arrays. */
#include <inttypes.h>

#include "attention/check.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/math.h"

static pl_status check_shape(const pl_attention_varlen_args *a, pl_error *err)
{
    PL_CHECK((unsigned)a->dtype <= PL_DTYPE_FP32, err, "dtype: unknown (got %d, want 0 .. 2)",
             (int)a->dtype);
    PL_CHECK(a->n_seqs >= 0, err, "n_seqs: negative (got %d, want 0 or more)", a->n_seqs);
    PL_CHECK(a->n_heads >= 1 && a->n_heads <= 1 << 16, err,
             "n_heads: out of range (got %d, want 1 .. 65536)", a->n_heads);
    PL_CHECK(a->n_kv_heads >= 1 && a->n_heads % a->n_kv_heads == 0, err,
             "n_kv_heads: does not divide n_heads (got %d, want a divisor of %d)", a->n_kv_heads,
             a->n_heads);
    PL_CHECK(a->head_dim >= 8 && a->head_dim <= PL_VARLEN_MAX_DIM && a->head_dim % 8 == 0, err,
             "head_dim: not supported (got %d, want a multiple of 8 up to 512)", a->head_dim);
    PL_CHECK(a->value_dim >= 8 && a->value_dim <= PL_VARLEN_MAX_DIM && a->value_dim % 8 == 0, err,
             "value_dim: not supported (got %d, want a multiple of 8 up to 512)", a->value_dim);
    PL_CHECK(a->window_left >= -1, err, "window_left: out of range (got %d, want -1 or more)",
             a->window_left);
    PL_CHECK(a->window_right >= -1, err, "window_right: out of range (got %d, want -1 or more)",
             a->window_right);
    PL_CHECK(isfinite(a->softmax_scale) && a->softmax_scale >= 0, err,
             "softmax_scale: not a scale (got %g, want 0 or more)", (double)a->softmax_scale);
    PL_CHECK(isfinite(a->softcap), err, "softcap: not a number (got %g, want a finite one)",
             (double)a->softcap);
    PL_CHECK(a->n_sinks >= 0 && (a->n_sinks == 0 || a->sink), err,
             "sink: n_sinks rows are not there (got %d rows at %p, want 0 rows or a pointer)",
             a->n_sinks, (const void *)a->sink);
    return PL_OK;
}

static pl_status check_lengths(const char *name, const int32_t *cu, int32_t n_seqs, pl_error *err)
{
    PL_CHECK(cu != NULL, err, "%s: missing (got NULL, want n_seqs + 1 numbers)", name);
    PL_CHECK(cu[0] == 0, err, "%s[0]: not the beginning (got %d, want 0)", name, cu[0]);
    for (int32_t b = 0; b < n_seqs; b++)
        PL_CHECK(cu[b + 1] >= cu[b], err, "%s[%d]: falls (got %d, want %d or more)", name, b + 1,
                 cu[b + 1], cu[b]);
    return PL_OK;
}

/* A tensor of [pages][rows][heads][dim], pages 1 where there are none. */
static pl_status check_tensor(const char *name, const pl_attention_varlen_args *a, const void *data,
                              int64_t pages, int64_t page_stride, int64_t rows,
                              int64_t token_stride, int32_t heads, int64_t head_stride, int32_t dim,
                              pl_extent *e, pl_error *err)
{
    int64_t size = a->dtype == PL_DTYPE_FP32 ? 4 : 2, n = dim, bytes;

    *e = (pl_extent){name, 0, 0};
    if (rows == 0 || pages == 0)
        return PL_OK;
    PL_CHECK(data != NULL && (uintptr_t)data % (uintptr_t)size == 0, err,
             "%s: missing or not aligned (got %p, want a multiple of %d)", name, data, (int)size);
    PL_CHECK(heads == 1 || head_stride >= dim, err,
             "%s_head_stride: heads overlap (got %" PRId64 ", want %d or more)", name, head_stride,
             dim);
    PL_CHECK(pl__reach(heads, head_stride, &n), err,
             "%s_head_stride: too large (got %" PRId64 ", want less)", name, head_stride);
    /* Heads may lie outside of tokens ([heads][tokens][dim]) or inside; both are strides like any other. */
    PL_CHECK(rows == 1 || token_stride >= dim, err,
             "%s_token_stride: tokens overlap (got %" PRId64 ", want %d or more)", name,
             token_stride, dim);
    PL_CHECK(pl__reach(rows, token_stride, &n), err,
             "%s_token_stride: too large (got %" PRId64 ", want less)", name, token_stride);
    PL_CHECK(pages == 1 || page_stride >= dim, err,
             "%s_page_stride: pages overlap (got %" PRId64 ", want %d or more)", name, page_stride,
             dim);
    PL_CHECK(pl__reach(pages, page_stride, &n) && !__builtin_mul_overflow(n, size, &bytes) &&
                 (uint64_t)bytes <= UINTPTR_MAX - (uintptr_t)data,
             err, "%s: reaches past the end of memory (got %" PRId64 " elements, want fewer)", name,
             n);
    e->begin = (uintptr_t)data;
    e->end = e->begin + (uintptr_t)bytes;
    return PL_OK;
}

static pl_status check_pages(const pl_attention_varlen_args *a, pl_error *err)
{
    if (!a->page_table)
        return PL_OK;
    PL_CHECK(a->page_size >= 1, err, "page_size: no page (got %d, want 1 or more)", a->page_size);
    PL_CHECK(a->page_table_stride >= 0 && a->page_table_stride <= INT32_MAX, err,
             "page_table_stride: out of range (got %" PRId64 ", want 0 .. %d)",
             a->page_table_stride, INT32_MAX);
    PL_CHECK(a->n_pages >= 0, err, "n_pages: negative (got %d, want 0 or more)", a->n_pages);
    for (int32_t b = 0; b < a->n_seqs; b++) {
        int64_t keys = a->cu_seqlens_k[b + 1] - a->cu_seqlens_k[b];
        int64_t pages = (keys + a->page_size - 1) / a->page_size;

        PL_CHECK(pages <= a->page_table_stride, err,
                 "page_table_stride: too short for sequence %d (got %" PRId64 ", want %" PRId64
                 " or more)",
                 b, a->page_table_stride, pages);
        for (int64_t i = 0; i < pages; i++) {
            int32_t page = a->page_table[b * a->page_table_stride + i];
            PL_CHECK(page >= 0 && page < a->n_pages, err,
                     "page_table[%d][%" PRId64 "]: no such page (got %d, want 0 .. %d)", b, i, page,
                     a->n_pages - 1);
        }
    }
    return PL_OK;
}

static pl_status check_memory(const pl_attention_varlen_args *a, const pl_extent *workspace,
                              pl_error *err)
{
    int64_t n_q = a->cu_seqlens_q[a->n_seqs], n_k = a->cu_seqlens_k[a->n_seqs];
    int64_t pages = a->page_table ? a->n_pages : 1, rows = a->page_table ? a->page_size : n_k;
    pl_extent e[8], lse = pl__extent_of("lse", a->lse, n_q * a->n_heads, 4), out;

    PL_TRY(check_tensor("q", a, a->q, 1, 0, n_q, a->q_token_stride, a->n_heads, a->q_head_stride,
                        a->head_dim, &e[0], err));
    PL_TRY(check_tensor("k", a, a->k, pages, a->k_page_stride, rows, a->k_token_stride,
                        a->n_kv_heads, a->k_head_stride, a->head_dim, &e[1], err));
    PL_TRY(check_tensor("v", a, a->v, pages, a->v_page_stride, rows, a->v_token_stride,
                        a->n_kv_heads, a->v_head_stride, a->value_dim, &e[2], err));
    PL_TRY(check_tensor("out", a, a->out, 1, 0, n_q, a->out_token_stride, a->n_heads,
                        a->out_head_stride, a->value_dim, &out, err));
    PL_CHECK(
        n_q < 2 || a->out_token_stride >= (a->n_heads - 1) * a->out_head_stride + a->value_dim ||
            a->out_head_stride >= (n_q - 1) * a->out_token_stride + a->value_dim,
        err,
        "out_token_stride: rows of the output overlap (got %" PRId64 ", want %" PRId64 " or more)",
        a->out_token_stride, (a->n_heads - 1) * a->out_head_stride + a->value_dim);
    PL_CHECK((uintptr_t)a->lse % sizeof(float) == 0, err,
             "lse: not aligned (got %p, want a multiple of 4)", (void *)a->lse);
    e[3] = pl__extent_of("sink", a->sink, (int64_t)a->n_sinks * a->n_heads, 4);
    e[4] = pl__extent_of("cu_seqlens_q", a->cu_seqlens_q, (int64_t)a->n_seqs + 1, 4);
    e[5] = pl__extent_of("cu_seqlens_k", a->cu_seqlens_k, (int64_t)a->n_seqs + 1, 4);
    e[6] = pl__extent_of("page_table", a->page_table,
                         a->page_table ? a->n_seqs * a->page_table_stride : 0, 4);
    e[7] = *workspace;
    for (int i = 0; i < 8; i++) {
        PL_TRY(pl__check_apart(&out, &e[i], err));
        PL_TRY(pl__check_apart(&lse, &e[i], err));
        if (i < 7)
            PL_TRY(pl__check_apart(workspace, &e[i], err));
    }
    return pl__check_apart(&out, &lse, err);
}

pl_attention_varlen_args pl_attention_varlen_default(void)
{
    return (pl_attention_varlen_args){.window_left = -1, .window_right = -1};
}

typedef struct run {
    const pl_ops *ops;
    pl_varlen_args args;
    uint8_t *workspace;
} run;

static void run_unit(void *user, int64_t unit, int worker)
{
    const run *r = user;
    pl_op_env env = {.scratch = r->workspace + (int64_t)worker * PL_VARLEN_SCRATCH_BYTES};

    r->ops->attention_varlen(&env, &r->args, unit, unit + 1);
}

/* Its own function, so that the division stays between the two changes of the environment. */
static __attribute__((noinline)) float default_scale(int32_t dim)
{
    return (float)(1.0 / pl_sqrt_f64((double)dim));
}

static float scale_of(const pl_attention_varlen_args *a)
{
    pl_fpenv saved = pl_fpenv_begin();
    float scale = a->softmax_scale > 0 ? a->softmax_scale : default_scale(a->head_dim);

    pl_fpenv_end(saved);
    return scale;
}

static pl_varlen_args kernel_args(const pl_attention_varlen_args *a)
{
    return (pl_varlen_args){
        .type = (pl_varlen_type)a->dtype,
        .n_seqs = a->n_seqs,
        .n_heads = a->n_heads,
        .n_kv_heads = a->n_kv_heads,
        .dim = a->head_dim,
        .value_dim = a->value_dim,
        .cu_q = a->cu_seqlens_q,
        .cu_k = a->cu_seqlens_k,
        .q = {a->q, a->q_token_stride, a->q_head_stride, 0},
        .k = {a->k, a->k_token_stride, a->k_head_stride, a->k_page_stride},
        .v = {a->v, a->v_token_stride, a->v_head_stride, a->v_page_stride},
        .pages = a->page_table,
        .pages_stride = a->page_table_stride,
        .page_rows = a->page_size,
        .left = a->window_left,
        .right = a->causal ? 0 : a->window_right,
        .scale = scale_of(a),
        .cap = a->softcap,
        .sink = a->sink,
        .n_sinks = a->n_sinks,
        .out = a->out,
        .out_token_stride = a->out_token_stride,
        .out_head_stride = a->out_head_stride,
        .lse = a->lse,
        .lse_stride = a->cu_seqlens_q[a->n_seqs],
    };
}

pl_status pl_attention_varlen(pl_ops_context *context, const pl_attention_varlen_args *args,
                              void *workspace, uint64_t workspace_bytes, pl_error *err)
{
    pl_extent space;
    run r;

    PL_TRY(pl__check_workspace(context, workspace, workspace_bytes, &space, err));
    PL_CHECK(args != NULL, err, "args: missing (got NULL, want a pointer)");
    PL_TRY(check_shape(args, err));
    PL_TRY(check_lengths("cu_seqlens_q", args->cu_seqlens_q, args->n_seqs, err));
    PL_TRY(check_lengths("cu_seqlens_k", args->cu_seqlens_k, args->n_seqs, err));
    PL_TRY(check_pages(args, err));
    PL_TRY(check_memory(args, &space, err));
    r = (run){context->ops, kernel_args(args), workspace};
    pl__context_run(context, pl_varlen_units(&r.args), run_unit, &r);
    return PL_OK;
}
