/* The checked entries of sparse attention. Prefill and decode are one operator with one set of bits; they differ in
 * what a length belongs to, and in how the heads of a token are shared out. */
#include <inttypes.h>

#include "attention/kv.h"
#include "base/error.h"
#include "base/fpenv.h"
#include "base/math.h"

enum { MAX_HEADS = 128, DECODE_HEADS = 8 };

_Static_assert((int)PL_SPARSE_SCRATCH_BYTES <= (int)PL_VARLEN_SCRATCH_BYTES, "workspace");

static pl_status check_shape(const pl_attention_sparse_args *a, pl_error *err)
{
    PL_CHECK(a->n_tokens >= 0, err, "n_tokens: negative (got %d, want 0 or more)", a->n_tokens);
    PL_CHECK(a->n_heads >= 1 && a->n_heads <= MAX_HEADS, err,
             "n_heads: out of range (got %d, want 1 .. %d)", a->n_heads, MAX_HEADS);
    PL_CHECK(a->head_dim == 512 || a->head_dim == 576, err,
             "head_dim: not supported (got %d, want 512 or 576)", a->head_dim);
    PL_CHECK(isfinite(a->softmax_scale) && a->softmax_scale >= 0, err,
             "softmax_scale: not a scale (got %g, want 0 or more)", (double)a->softmax_scale);
    PL_CHECK(a->n_sets == 1 || a->n_sets == 2, err, "n_sets: out of range (got %d, want 1 or 2)",
             a->n_sets);
    return PL_OK;
}

/* [n_tokens][n_heads][dim] bf16. */
static pl_status check_rows(const char *name, const void *data, const pl_attention_sparse_args *a,
                            int64_t token_stride, int64_t head_stride, int32_t dim, pl_extent *e,
                            pl_error *err)
{
    int64_t n = dim, bytes = 0;

    *e = (pl_extent){name, 0, 0};
    if (a->n_tokens == 0)
        return PL_OK;
    PL_CHECK(data != NULL && (uintptr_t)data % 2 == 0, err,
             "%s: missing or not aligned (got %p, want a multiple of 2)", name, data);
    PL_CHECK(a->n_heads == 1 || head_stride >= dim, err,
             "%s_head_stride: heads overlap (got %" PRId64 ", want %d or more)", name, head_stride,
             dim);
    PL_CHECK(pl__reach(a->n_heads, head_stride, &n), err,
             "%s_head_stride: too large (got %" PRId64 ", want less)", name, head_stride);
    PL_CHECK(a->n_tokens == 1 || token_stride >= dim, err,
             "%s_token_stride: tokens overlap (got %" PRId64 ", want %d or more)", name,
             token_stride, dim);
    PL_CHECK(pl__reach(a->n_tokens, token_stride, &n) && !__builtin_mul_overflow(n, 2, &bytes) &&
                 (uint64_t)bytes <= UINTPTR_MAX - (uintptr_t)data,
             err, "%s_token_stride: too large (got %" PRId64 ", want less)", name, token_stride);
    *e = pl__extent_of(name, data, bytes, 1);
    return PL_OK;
}

/* The cache, the lists and the lengths of set i. */
static pl_status check_set(const pl_attention_sparse_args *a, int i, int64_t n_lengths,
                           pl_sparse_set *set, pl_extent e[3], pl_error *err)
{
    static const char *const names[2][4] = {
        {"set[0].cache", "set[0].indices", "set[0].lengths", "set[0].index_stride"},
        {"set[1].cache", "set[1].indices", "set[1].lengths", "set[1].index_stride"}};
    const pl_sparse_keys *s = &a->set[i];
    int64_t n = s->n_indices, bytes = 0;

    PL_TRY(pl__kv_rows(names[i][0], &s->cache, &set->rows, &e[0], err));
    PL_CHECK(s->cache.head_dim == a->head_dim, err,
             "%s.head_dim: not that of the queries (got %d, want %d)", names[i][0],
             s->cache.head_dim, a->head_dim);
    PL_CHECK(s->n_indices >= 0, err, "set[%d].n_indices: negative (got %d, want 0 or more)", i,
             s->n_indices);
    PL_CHECK(a->n_tokens == 0 || n == 0 ||
                 (s->indices && (uintptr_t)s->indices % sizeof *s->indices == 0),
             err, "%s: missing or not aligned (got %p, want a multiple of 4)", names[i][1],
             (const void *)s->indices);
    PL_CHECK(a->n_tokens < 2 || s->index_stride >= n, err,
             "%s: too short (got %" PRId64 ", want %" PRId64 " or more)", names[i][3],
             s->index_stride, n);
    PL_CHECK(pl__reach(a->n_tokens, s->index_stride, &n) && !__builtin_mul_overflow(n, 4, &bytes) &&
                 (uint64_t)bytes <= UINTPTR_MAX - (uintptr_t)s->indices,
             err, "%s: too large (got %" PRId64 ", want less)", names[i][3], s->index_stride);
    PL_CHECK((uintptr_t)s->lengths % sizeof *s->lengths == 0, err,
             "%s: not aligned (got %p, want a multiple of 4)", names[i][2],
             (const void *)s->lengths);
    for (int64_t b = 0; s->lengths && b < n_lengths; b++)
        PL_CHECK(s->lengths[b] >= 0 && s->lengths[b] <= s->n_indices, err,
                 "%s[%" PRId64 "]: out of range (got %d, want 0 .. %d)", names[i][2], b,
                 s->lengths[b], s->n_indices);
    e[1] = pl__extent_of(names[i][1], s->n_indices ? s->indices : NULL, a->n_tokens ? bytes : 0, 1);
    e[2] = pl__extent_of(names[i][2], s->lengths, n_lengths, sizeof *s->lengths);
    set->index = s->indices;
    set->index_stride = s->index_stride;
    set->n_index = s->n_indices;
    set->length = s->lengths;
    return PL_OK;
}

/* Outputs apart from inputs and from each other; rows of the output apart from rows. */
static pl_status check_outputs(const pl_attention_sparse_args *a, const pl_extent *in, int n_in,
                               const pl_extent *space, pl_error *err)
{
    int64_t stats = (int64_t)a->n_heads * a->n_tokens;
    pl_extent out[4];

    PL_TRY(check_rows("out", a->out, a, a->out_token_stride, a->out_head_stride,
                      PL_SPARSE_VALUE_DIM, &out[0], err));
    PL_CHECK(
        a->n_tokens < 2 ||
            a->out_token_stride >= (a->n_heads - 1) * a->out_head_stride + PL_SPARSE_VALUE_DIM ||
            a->out_head_stride >= (a->n_tokens - 1) * a->out_token_stride + PL_SPARSE_VALUE_DIM,
        err,
        "out_token_stride: rows of the output overlap (got %" PRId64 ", want %" PRId64 " or more)",
        a->out_token_stride, (a->n_heads - 1) * a->out_head_stride + PL_SPARSE_VALUE_DIM);
    PL_CHECK((uintptr_t)a->lse % sizeof(float) == 0, err,
             "lse: not aligned (got %p, want a multiple of 4)", (void *)a->lse);
    PL_CHECK((uintptr_t)a->max_logits % sizeof(float) == 0, err,
             "max_logits: not aligned (got %p, want a multiple of 4)", (void *)a->max_logits);
    out[1] = pl__extent_of("lse", a->lse, stats, sizeof(float));
    out[2] = pl__extent_of("max_logits", a->max_logits, stats, sizeof(float));
    out[3] = *space;
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < n_in; k++)
            PL_TRY(pl__check_apart(&out[i], &in[k], err));
        for (int k = 0; k < i; k++)
            PL_TRY(pl__check_apart(&out[k], &out[i], err));
    }
    return PL_OK;
}

typedef struct run {
    const pl_ops *ops;
    pl_sparse_args args;
    uint8_t *workspace;
    int32_t heads, groups; /* heads of a unit, units of a token */
} run;

static void run_unit(void *user, int64_t unit, int worker)
{
    const run *r = user;
    pl_op_env env = {.scratch = r->workspace + (int64_t)worker * PL_VARLEN_SCRATCH_BYTES};
    int64_t token = unit / r->groups * r->args.n_heads, h = unit % r->groups * r->heads;
    int64_t end = h + r->heads < r->args.n_heads ? h + r->heads : r->args.n_heads;

    r->ops->attention_sparse(&env, &r->args, token + h, token + end);
}

/* Its own function, so that the division stays between the two changes of the environment. */
static __attribute__((noinline)) float default_scale(int32_t dim)
{
    return (float)(1.0 / pl_sqrt_f64((double)dim));
}

static float scale_of(const pl_attention_sparse_args *a)
{
    pl_fpenv saved = pl_fpenv_begin();
    float scale = a->softmax_scale > 0 ? a->softmax_scale : default_scale(a->head_dim);

    pl_fpenv_end(saved);
    return scale;
}

static pl_status attend(pl_ops_context *context, const pl_attention_sparse_args *a,
                        int32_t length_tokens, bool few, void *workspace, uint64_t workspace_bytes,
                        pl_error *err)
{
    pl_extent space, in[8];
    run r = {.heads = PL_SPARSE_GROUP};
    int n = 0;

    PL_TRY(pl__check_workspace(context, workspace, workspace_bytes, &space, err));
    PL_TRY(
        check_rows("q", a->q, a, a->q_token_stride, a->q_head_stride, a->head_dim, &in[n++], err));
    for (int i = 0; i < a->n_sets; i++, n += 3)
        PL_TRY(check_set(a, i, a->n_tokens / length_tokens, &r.args.set[i], &in[n], err));
    PL_CHECK((uintptr_t)a->sink % sizeof(float) == 0, err,
             "sink: not aligned (got %p, want a multiple of 4)", (const void *)a->sink);
    in[n++] = pl__extent_of("sink", a->sink, a->n_heads, sizeof(float));
    PL_TRY(check_outputs(a, in, n, &space, err));
    r.ops = context->ops;
    r.workspace = workspace;
    if (few && a->n_tokens * ((a->n_heads + r.heads - 1) / r.heads) < 2 * context->n_workers)
        r.heads = DECODE_HEADS;
    r.groups = (a->n_heads + r.heads - 1) / r.heads;
    r.args.n_heads = a->n_heads;
    r.args.dim = a->head_dim;
    r.args.q = a->q;
    r.args.q_token_stride = a->q_token_stride;
    r.args.q_head_stride = a->q_head_stride;
    r.args.scale = scale_of(a);
    r.args.n_sets = a->n_sets;
    r.args.length_tokens = length_tokens;
    r.args.sink = a->sink;
    r.args.out = a->out;
    r.args.out_token_stride = a->out_token_stride;
    r.args.out_head_stride = a->out_head_stride;
    r.args.lse = a->lse;
    r.args.max_logits = a->max_logits;
    r.args.stat_stride = a->n_tokens;
    pl__context_run(context, (int64_t)a->n_tokens * r.groups, run_unit, &r);
    return PL_OK;
}

pl_status pl_attention_sparse_prefill(pl_ops_context *context, const pl_attention_sparse_args *args,
                                      void *workspace, uint64_t workspace_bytes, pl_error *err)
{
    PL_CHECK(args != NULL, err, "args: missing (got NULL, want a pointer)");
    PL_TRY(check_shape(args, err));
    PL_CHECK(args->seq_tokens == 0 || args->seq_tokens == 1, err,
             "seq_tokens: of decode (got %d, want 0 or 1)", args->seq_tokens);
    return attend(context, args, 1, false, workspace, workspace_bytes, err);
}

pl_status pl_attention_sparse_decode(pl_ops_context *context, const pl_attention_sparse_args *args,
                                     void *workspace, uint64_t workspace_bytes, pl_error *err)
{
    PL_CHECK(args != NULL, err, "args: missing (got NULL, want a pointer)");
    PL_TRY(check_shape(args, err));
    PL_CHECK(args->seq_tokens >= 0 &&
                 args->n_tokens % (args->seq_tokens ? args->seq_tokens : 1) == 0,
             err, "seq_tokens: does not divide n_tokens (got %d, want a divisor of %d)",
             args->seq_tokens, args->n_tokens);
    return attend(context, args, args->seq_tokens ? args->seq_tokens : 1, true, workspace,
                  workspace_bytes, err);
}
