/* attention_varlen and its context for hosts that speak TVM-FFI: outputs and workspace the caller's. The
 * checks here are those of types and shapes; the library's own entry makes the others. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ffi/shapes.h"

PL_FFI_EXPORT pl_ffi_function __tvm_ffi_ops_context_create;
PL_FFI_EXPORT pl_ffi_function __tvm_ffi_ops_context_destroy;
PL_FFI_EXPORT pl_ffi_function __tvm_ffi_attention_varlen;
PL_FFI_EXPORT pl_ffi_function __tvm_ffi_attention_varlen_workspace_size;

/* (n_workers) -> context, an opaque pointer. 0 workers: one for each core. */
int __tvm_ffi_ops_context_create(void *self, const pl_ffi_any *args, int32_t n_args,
                                 pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("ops_context_create", args, n_args, 1, result);
    int64_t n_workers = pl__ffi_int(&c, "n_workers");
    pl_ops_params params = {.n_workers = (int)n_workers, .no_pin = 1};
    pl_ops_context *context = NULL;
    pl_error err;

    if (!c.failed && n_workers != params.n_workers)
        pl__ffi_fail(&c, PL_FFI_VALUE_ERROR,
                     "n_workers: out of range (got %" PRId64 ", want an int)", n_workers);
    if (!c.failed)
        pl__ffi_fail_status(&c, pl_ops_context_create(&params, &context, &err), &err);
    if (!c.failed)
        *result = (pl_ffi_any){.type_index = PL_FFI_OPAQUE, .v.ptr = context};
    return pl__ffi_end(&c);
}

/* (context) -> None. */
int __tvm_ffi_ops_context_destroy(void *self, const pl_ffi_any *args, int32_t n_args,
                                  pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("ops_context_destroy", args, n_args, 1, result);
    pl_ops_context *context = pl__ffi_opaque(&c, "context");

    pl_ops_context_destroy(context);
    return pl__ffi_end(&c);
}

/* (context) -> bytes, an int. */
int __tvm_ffi_attention_varlen_workspace_size(void *self, const pl_ffi_any *args, int32_t n_args,
                                              pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("attention_varlen_workspace_size", args, n_args, 1, result);
    const pl_ops_context *context = pl__ffi_opaque(&c, "context");

    if (!c.failed)
        *result =
            (pl_ffi_any){.type_index = PL_FFI_INT, .v.i = (int64_t)pl_ops_workspace_bytes(context)};
    return pl__ffi_end(&c);
}

static pl_dtype dtype_of(pl_ffi_call *c, const char *name, const pl_ffi_tensor *t)
{
    if (t->type_code == PL_DL_BFLOAT && t->type_bits == 16)
        return PL_DTYPE_BF16;
    if (t->type_code == PL_DL_FLOAT && t->type_bits == 16)
        return PL_DTYPE_FP16;
    if (t->type_code != PL_DL_FLOAT || t->type_bits != 32)
        pl__ffi_fail(c, PL_FFI_TYPE_ERROR,
                     "%s: wrong element type (got code %d with %d bits, want bf16, fp16 or fp32)",
                     name, t->type_code, t->type_bits);
    return PL_DTYPE_FP32;
}

/* A tensor of q's type with adjacent dims. */
static pl_ffi_tensor rows(pl_ffi_call *c, const char *name, int n_dims, const pl_ffi_tensor *q)
{
    pl_ffi_tensor t = pl__ffi_rows(c, name, n_dims, false);

    if (!c->failed && q && (t.type_code != q->type_code || t.type_bits != q->type_bits))
        pl__ffi_fail(c, PL_FFI_TYPE_ERROR,
                     "%s: not q's element type (got code %d with %d bits, want %d with %d)", name,
                     t.type_code, t.type_bits, q->type_code, q->type_bits);
    return t;
}

/* k and v: [keys][heads][dim], or [pages][rows][heads][dim] with a page table. */
static void read_keys(pl_ffi_call *c, pl_attention_varlen_args *a, const pl_ffi_tensor *k,
                      const pl_ffi_tensor *v, const pl_ffi_tensor *table, int64_t *n_keys)
{
    int first = k->n_dims - 3;

    *n_keys = first ? -1 : k->shape[0];
    a->n_kv_heads = (int32_t)k->shape[first + 1];
    a->k = k->data;
    a->v = v->data;
    a->k_token_stride = k->strides[first];
    a->k_head_stride = k->strides[first + 1];
    a->v_token_stride = v->strides[first];
    a->v_head_stride = v->strides[first + 1];
    a->value_dim = (int32_t)v->shape[first + 2];
    pl__ffi_same(c, "k and q, dims", k->shape[first + 2], a->head_dim);
    for (int i = 0; i < first + 2; i++)
        pl__ffi_same(c, "v and k", v->shape[i], k->shape[i]);
    if (!first)
        return;
    a->page_table = table->data;
    a->page_table_stride = table->strides[0];
    a->n_pages = (int32_t)k->shape[0];
    a->page_size = (int32_t)k->shape[1];
    a->k_page_stride = k->strides[0];
    a->v_page_stride = v->strides[0];
    pl__ffi_same(c, "page_table, rows", table->shape[0], a->n_seqs);
    if (table->type_code != PL_DL_INT || table->type_bits != 32)
        pl__ffi_fail(c, PL_FFI_TYPE_ERROR,
                     "page_table: wrong element type (got code %d with %d bits, want int32)",
                     table->type_code, table->type_bits);
    else if (table->shape[1] > 1 && table->strides[1] != 1)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                     "page_table: the last dimension has gaps (got a stride of %" PRId64
                     ", want 1)",
                     table->strides[1]);
    else if (a->page_table_stride < table->shape[1])
        a->page_table_stride = table->shape[1]; /* one row: its stride means nothing */
}

static void read_sink(pl_ffi_call *c, pl_attention_varlen_args *a)
{
    pl_ffi_tensor t = pl__ffi_tensor(c, "sink", 0, true);

    if (c->failed || !t.n_dims)
        return;
    if (t.type_code != PL_DL_FLOAT || t.type_bits != 32)
        pl__ffi_fail(c, PL_FFI_TYPE_ERROR,
                     "sink: wrong element type (got code %d with %d bits, want fp32)", t.type_code,
                     t.type_bits);
    else if (t.n_dims > 2 || t.shape[t.n_dims - 1] != a->n_heads)
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR,
                     "sink: wrong shape (got %d dimensions, the last %" PRId64
                     " long, want [%d] or [n][%d])",
                     t.n_dims, t.shape[t.n_dims - 1], a->n_heads, a->n_heads);
    else if (t.strides[t.n_dims - 1] != 1 ||
             (t.n_dims == 2 && t.shape[0] > 1 && t.strides[0] != t.shape[1]))
        pl__ffi_fail(c, PL_FFI_VALUE_ERROR, "sink: has gaps (got strides, want none)");
    a->sink = t.data;
    a->n_sinks = t.n_dims == 2 ? (int32_t)t.shape[0] : 1;
}

static void read_outputs(pl_ffi_call *c, pl_attention_varlen_args *a, const pl_ffi_tensor *q)
{
    pl_ffi_tensor out = rows(c, "out", 3, q);

    if (c->failed)
        return;
    pl__ffi_same(c, "out and q, tokens", out.shape[0], q->shape[0]);
    pl__ffi_same(c, "out and q, heads", out.shape[1], a->n_heads);
    pl__ffi_same(c, "out and v, dims", out.shape[2], a->value_dim);
    a->out = out.data;
    a->out_token_stride = out.strides[0];
    a->out_head_stride = out.strides[1];
    a->lse = pl__ffi_stats(c, "lse", a->n_heads, q->shape[0]);
}

static void check_totals(pl_ffi_call *c, const pl_attention_varlen_args *a, int64_t n_tokens,
                         int64_t n_keys)
{
    if (c->failed)
        return;
    pl__ffi_same(c, "cu_seqlens_q, its end and q", a->cu_seqlens_q[a->n_seqs], n_tokens);
    if (n_keys >= 0)
        pl__ffi_same(c, "cu_seqlens_k, its end and k", a->cu_seqlens_k[a->n_seqs], n_keys);
}

/* (context, q, k, v, cu_seqlens_q, cu_seqlens_k, page_table or None, sink or None, softmax_scale, causal, window_left,
 * window_right, softcap, out, lse or None, workspace) -> None. The contract is pl_attention_varlen's. */
int __tvm_ffi_attention_varlen(void *self, const pl_ffi_any *args, int32_t n_args,
                               pl_ffi_any *result)
{
    pl_ffi_call c = pl__ffi_begin("attention_varlen", args, n_args, 16, result);
    pl_attention_varlen_args a = pl_attention_varlen_default();
    pl_ops_context *context = pl__ffi_opaque(&c, "context");
    pl_ffi_tensor q = rows(&c, "q", 3, NULL), k, v, cu_q, cu_k, table, workspace;
    bool paged = !c.failed && n_args > 6 && args[6].type_index != PL_FFI_NONE;
    int64_t n_keys = -1;
    pl_error err;

    a.dtype = c.failed ? PL_DTYPE_BF16 : dtype_of(&c, "q", &q);
    a.q = q.data;
    a.q_token_stride = q.strides[0];
    a.q_head_stride = q.strides[1];
    a.n_heads = (int32_t)q.shape[1];
    a.head_dim = (int32_t)q.shape[2];
    k = rows(&c, "k", paged ? 4 : 3, &q);
    v = rows(&c, "v", paged ? 4 : 3, &q);
    cu_q = pl__ffi_array(&c, "cu_seqlens_q", PL_DL_INT, 32, -1, false);
    cu_k = pl__ffi_array(&c, "cu_seqlens_k", PL_DL_INT, 32, c.failed ? -1 : cu_q.shape[0], false);
    if (!c.failed && (cu_q.shape[0] < 1 || cu_q.shape[0] > INT32_MAX))
        pl__ffi_fail(&c, PL_FFI_VALUE_ERROR,
                     "cu_seqlens_q: wrong length (got %" PRId64 ", want sequences + 1)",
                     cu_q.shape[0]);
    a.cu_seqlens_q = cu_q.data;
    a.cu_seqlens_k = cu_k.data;
    a.n_seqs = (int32_t)cu_q.shape[0] - 1;
    table = pl__ffi_tensor(&c, "page_table", 2, true);
    if (!c.failed)
        read_keys(&c, &a, &k, &v, &table, &n_keys);
    read_sink(&c, &a);
    a.softmax_scale = (float)pl__ffi_float(&c, "softmax_scale");
    a.causal = pl__ffi_int(&c, "causal") != 0;
    a.window_left = pl__ffi_int32_of(&c, "window_left");
    a.window_right = pl__ffi_int32_of(&c, "window_right");
    a.softcap = (float)pl__ffi_float(&c, "softcap");
    read_outputs(&c, &a, &q);
    workspace = pl__ffi_array(&c, "workspace", PL_DL_UINT, 8, -1, false);
    check_totals(&c, &a, q.shape[0], n_keys);
    if (!c.failed)
        pl__ffi_fail_status(
            &c,
            pl_attention_varlen(context, &a, workspace.data, (uint64_t)workspace.shape[0], &err),
            &err);
    return pl__ffi_end(&c);
}
