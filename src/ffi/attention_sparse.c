/* Sparse attention for hosts that speak TVM-FFI: FlashMLA's two calls over tokens in one row, outputs and workspace the
 * caller's. Types and shapes are checked here, what tensors hold by the library's own entries. */
#include <inttypes.h>

#include "ffi/shapes.h"

PL_FFI_EXPORT pl_ffi_function __tvm_ffi_attention_sparse_prefill;
PL_FFI_EXPORT pl_ffi_function __tvm_ffi_attention_sparse_prefill_workspace_size;
PL_FFI_EXPORT pl_ffi_function __tvm_ffi_attention_sparse_decode;
PL_FFI_EXPORT pl_ffi_function __tvm_ffi_attention_sparse_decode_workspace_size;

static int workspace_size(const char *name, const pl_ffi_any *args, int32_t n_args,
                          pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin(name, args, n_args, 1, result);
    const pl_ops_context *context = pl__ffi_opaque(&c, "context");

    if (!c.failed)
        *result =
            (pl_ffi_any){.type_index = PL_FFI_INT, .v.i = (int64_t)pl_ops_workspace_bytes(context)};
    return pl__ffi_end(&c);
}

/* (context) -> bytes, an int. */
int __tvm_ffi_attention_sparse_prefill_workspace_size(void *self, const pl_ffi_any *args,
                                                      int32_t n_args, pl_ffi_any *result)
{
    return workspace_size("attention_sparse_prefill_workspace_size", args, n_args, result);
}

int __tvm_ffi_attention_sparse_decode_workspace_size(void *self, const pl_ffi_any *args,
                                                     int32_t n_args, pl_ffi_any *result)
{
    return workspace_size("attention_sparse_decode_workspace_size", args, n_args, result);
}

/* q and out: bf16 [tokens][heads][dims]. */
static pl_ffi_tensor heads_of(pl_ffi_call *c, const char *name)
{
    pl_ffi_tensor t = pl__ffi_rows(c, name, 3, false);

    if (!c->failed)
        pl__ffi_check_type(c, name, &t, pl__ffi_bf16, "bf16");
    return t;
}

/* int32 [tokens][n] or [tokens][1][n]; None where the cache is. */
static void read_indices(pl_ffi_call *c, const char *name, bool present, int32_t n_tokens,
                         pl_sparse_keys *keys)
{
    pl_ffi_tensor t = pl__ffi_rows(c, name, 0, !present);
    int last = t.n_dims - 1;

    if (c->failed || last < 0)
        return;
    pl__ffi_check_type(c, name, &t, pl__ffi_int32, "int32");
    if (!c->failed && !present)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR, "%s: of no cache (got a tensor, want None)", name);
    if (!c->failed && (last < 1 || last > 2 || (last == 2 && t.shape[1] != 1)))
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                     "%s: wrong shape (got %d dimensions, the last but one %" PRId64
                     " long, want [tokens][n] or [tokens][1][n])",
                     name, last + 1, last ? t.shape[last - 1] : 0);
    if (c->failed)
        return;
    pl__ffi_same(c, name, t.shape[0], n_tokens);
    keys->indices = t.data;
    keys->n_indices = (int32_t)t.shape[last];
    keys->index_stride = n_tokens > 1 ? t.strides[0] : keys->n_indices;
}

/* A cache, its lists and their lengths; false without a cache. */
static bool read_keys(pl_ffi_call *c, const char *const names[3], bool may_be_none,
                      const pl_attention_sparse_args *a, int64_t n_lengths, pl_sparse_keys *keys)
{
    bool present = pl__ffi_cache(c, names[0], may_be_none, &keys->cache);
    pl_ffi_tensor lengths;

    read_indices(c, names[1], present, a->n_tokens, keys);
    lengths = pl__ffi_array(c, names[2], PL_DL_INT, 32, n_lengths, true);
    if (!c->failed && lengths.n_dims && !present)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR, "%s: of no cache (got a tensor, want None)", names[2]);
    keys->lengths = lengths.data;
    return present;
}

static void read_outputs(pl_ffi_call *c, pl_attention_sparse_args *a)
{
    pl_ffi_tensor out = heads_of(c, "out");

    if (!c->failed) {
        pl__ffi_same(c, "out and q, tokens", out.shape[0], a->n_tokens);
        pl__ffi_same(c, "out and q, heads", out.shape[1], a->n_heads);
        pl__ffi_same(c, "out, dims", out.shape[2], 512);
    }
    a->out = out.data;
    a->out_token_stride = out.strides[0];
    a->out_head_stride = out.strides[1];
    a->max_logits = pl__ffi_stats(c, "max_logits", a->n_heads, a->n_tokens);
    a->lse = pl__ffi_stats(c, "lse", a->n_heads, a->n_tokens);
}

/* Tokens of a sequence; a wrong number is 1 and an error. */
static int32_t read_seq_tokens(pl_ffi_call *c, int32_t n_tokens)
{
    int32_t n = pl__ffi_int32_of(c, "seq_tokens");

    if (!c->failed && (n < 1 || n_tokens % n))
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                     "seq_tokens: does not divide the tokens (got %d, want a divisor of %d)", n,
                     n_tokens);
    return c->failed ? 1 : n;
}

typedef pl_status attend(pl_ops_context *, const pl_attention_sparse_args *, void *, uint64_t,
                         pl_error *);

static int run(pl_ffi_call c, bool decode, attend *fn)
{
    static const char *const names[2][3] = {{"cache", "indices", "lengths"},
                                            {"extra_cache", "extra_indices", "extra_lengths"}};
    pl_attention_sparse_args a = {.n_sets = 1};
    pl_ops_context *context = pl__ffi_opaque(&c, "context");
    pl_ffi_tensor q = heads_of(&c, "q"), sink, workspace;
    int64_t n_lengths;
    pl_error err;

    a.n_tokens = (int32_t)q.shape[0];
    a.n_heads = (int32_t)q.shape[1];
    a.head_dim = (int32_t)q.shape[2];
    a.q = q.data;
    a.q_token_stride = q.strides[0];
    a.q_head_stride = q.strides[1];
    a.seq_tokens = decode ? read_seq_tokens(&c, a.n_tokens) : 1;
    n_lengths = a.n_tokens / a.seq_tokens;
    (void)read_keys(&c, names[0], false, &a, n_lengths, &a.set[0]);
    if (read_keys(&c, names[1], true, &a, n_lengths, &a.set[1]))
        a.n_sets = 2;
    sink = pl__ffi_array(&c, "sink", PL_DL_FLOAT, 32, a.n_heads, true);
    a.sink = sink.data;
    a.softmax_scale = (float)pl__ffi_float(&c, "softmax_scale");
    read_outputs(&c, &a);
    workspace = pl__ffi_array(&c, "workspace", PL_DL_UINT, 8, -1, false);
    if (!c.failed)
        pl__ffi_fail_status(&c, fn(context, &a, workspace.data, (uint64_t)workspace.shape[0], &err),
                            &err);
    return pl__ffi_end(&c);
}

/* (context, q, cache, indices, lengths or None, extra_cache or None, extra_indices or None, extra_lengths or None, sink or
 * None, softmax_scale, out, max_logits or None, lse or None, workspace) -> None. A length for each token. The contract is
 * pl_attention_sparse_prefill's. */
int __tvm_ffi_attention_sparse_prefill(void *self, const pl_ffi_any *args, int32_t n_args,
                                       pl_ffi_any *result)
{
    return run(pl__ffi_begin("attention_sparse_prefill", args, n_args, 14, result), false,
               pl_attention_sparse_prefill);
}

/* The same with seq_tokens after q: the tokens of each sequence, which share a length. */
int __tvm_ffi_attention_sparse_decode(void *self, const pl_ffi_any *args, int32_t n_args,
                                      pl_ffi_any *result)
{
    return run(pl__ffi_begin("attention_sparse_decode", args, n_args, 15, result), true,
               pl_attention_sparse_decode);
}
