/* Carrying out a call that passed the gate: what the kernel is given, by the built-in entry points or a library's TVM-FFI
 * function. Arguments become views on the stack; nothing is allocated, and a failure is returned as it came. */
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "provider/provider.h"
#include "provider/tensor.h"

static bool round_up(uint64_t *n)
{
    return !__builtin_add_overflow(*n, 63, n) && (*n &= ~UINT64_C(63), true);
}

bool pl__provider_prepare(const pl_provider_entry *e, const pl_provider_call *call,
                          pl_provider_launch *l)
{
    const pl_provider_claims *c = &e->record.op[call->op];
    bool native = call->flags & PL_PROVIDER_NATIVE_SINK, th = c->lse_layout == PL_LSE_TH;
    bool sunk = call->sink.type != PL_TENSOR_NONE;
    uint64_t bytes = 0;

    *l = (pl_provider_launch){.claims = c, .max_logits = call->max_logits};
    if (call->q.n_dims != 3 || call->q.shape[0] < 0 || call->q.shape[1] < 0)
        return false;
    l->n_tokens = call->q.shape[0];
    l->n_heads = call->q.shape[1];
    l->n_keys = call->k.shape[0];
    l->softcap = call->softcap > 0 ? call->softcap : c->softcap_off;
    l->correct = sunk && !native;
    if (sunk && native)
        l->sink = call->sink;
    if (l->correct || call->lse.type != PL_TENSOR_NONE) {
        l->scratch = call->lse.type == PL_TENSOR_NONE || (call->lse_layout == PL_LSE_TH) != th;
        l->lse = pl_tensor_of(call->lse.data, PL_TENSOR_FP32, 2, th ? l->n_tokens : l->n_heads,
                              th ? l->n_heads : l->n_tokens, 0);
        if (l->scratch && (__builtin_mul_overflow(l->n_tokens, l->n_heads * 4, &bytes)))
            return false;
    }
    if (__builtin_mul_overflow(c->workspace_per_worker, (uint64_t)e->n_workers, &l->kernel_bytes) ||
        __builtin_add_overflow(l->kernel_bytes, c->workspace_fixed, &l->kernel_bytes))
        return false;
    l->workspace_bytes = l->kernel_bytes;
    if (!round_up(&l->workspace_bytes))
        return false;
    if (l->scratch && call->workspace.data)
        l->lse.data = (uint8_t *)call->workspace.data + l->workspace_bytes;
    return !__builtin_add_overflow(l->workspace_bytes, bytes, &l->workspace_bytes) &&
           round_up(&l->workspace_bytes) && l->workspace_bytes <= INT64_MAX;
}

/* An argument and what it points at. */
typedef struct argument {
    pl_dl_tensor tensor;
    int64_t shape[PL_TENSOR_MAX_DIMS], strides[PL_TENSOR_MAX_DIMS];
} argument;

typedef struct arguments {
    pl_ffi_any any[16];
    argument at[16];
    int n;
} arguments;

static void put_tensor(arguments *a, const pl_tensor *t)
{
    static const struct {
        uint8_t code, bits;
    } types[] = {[PL_TENSOR_BF16] = {PL_DL_BFLOAT, 16},
                 [PL_TENSOR_FP16] = {PL_DL_FLOAT, 16},
                 [PL_TENSOR_FP32] = {PL_DL_FLOAT, 32},
                 [PL_TENSOR_INT32] = {PL_DL_INT, 32},
                 [PL_TENSOR_UINT8] = {PL_DL_UINT, 8}};
    argument *to = &a->at[a->n];

    a->any[a->n] = (pl_ffi_any){.type_index = PL_FFI_NONE};
    if (t->type != PL_TENSOR_NONE) {
        memcpy(to->shape, t->shape, sizeof to->shape);
        memcpy(to->strides, t->strides, sizeof to->strides);
        to->tensor = (pl_dl_tensor){.data = t->data,
                                    .device_type = t->device,
                                    .n_dims = t->n_dims,
                                    .type_code = types[t->type].code,
                                    .type_bits = types[t->type].bits,
                                    .type_lanes = 1,
                                    .shape = to->shape,
                                    .strides = to->strides};
        a->any[a->n] = (pl_ffi_any){.type_index = PL_FFI_DLTENSOR, .v.ptr = &to->tensor};
    }
    a->n++;
}

static void put_float(arguments *a, double f)
{
    a->any[a->n++] = (pl_ffi_any){.type_index = PL_FFI_FLOAT, .v.f = f};
}

static void put_int(arguments *a, int32_t type, int64_t i)
{
    a->any[a->n++] = (pl_ffi_any){.type_index = type, .v.i = i};
}

static float scale_of(const pl_provider_call *call)
{
    return call->softmax_scale > 0 ? call->softmax_scale
                                   : (float)(1.0 / pl_sqrt_f64((double)call->q.shape[2]));
}

/* The order is that of ffi/names.h; a record with another one never gets here. */
static void put_all(arguments *a, const pl_provider_entry *e, const pl_provider_call *call,
                    const pl_provider_launch *l, const pl_tensor *workspace)
{
    a->any[a->n++] = e->context;
    put_tensor(a, &call->q);
    if (call->op == PL_PROVIDER_DECODE)
        put_int(a, PL_FFI_INT, pl__provider_seq_tokens(call));
    put_tensor(a, &call->k);
    if (call->op == PL_PROVIDER_VARLEN)
        put_tensor(a, &call->v);
    put_tensor(a, &call->indices);
    put_tensor(a, &call->lengths);
    if (call->op == PL_PROVIDER_VARLEN) {
        put_tensor(a, &call->pages);
    } else {
        put_tensor(a, &call->extra_k);
        put_tensor(a, &call->extra_indices);
        put_tensor(a, &call->extra_lengths);
    }
    put_tensor(a, &l->sink);
    put_float(a, (double)scale_of(call));
    if (call->op == PL_PROVIDER_VARLEN) {
        put_int(a, PL_FFI_BOOL, call->causal != 0);
        put_int(a, PL_FFI_INT, call->window_left);
        put_int(a, PL_FFI_INT, call->window_right);
        put_float(a, (double)l->softcap);
    }
    put_tensor(a, &call->out);
    if (call->op != PL_PROVIDER_VARLEN)
        put_tensor(a, &l->max_logits);
    put_tensor(a, &l->lse);
    put_tensor(a, workspace);
}

pl_status pl__provider_launch_ffi(const pl_provider_entry *e, const pl_provider_call *call,
                                  const pl_provider_launch *l, pl_error *err)
{
    pl_tensor workspace =
        pl_tensor_of(call->workspace.data, PL_TENSOR_UINT8, 1, (int64_t)l->kernel_bytes, 0, 0);
    pl_ffi_any result = {.type_index = PL_FFI_NONE};
    arguments a = {.n = 0};
    char why[384];
    int rc;

    put_all(&a, e, call, l, &workspace);
    rc = e->launch[call->op](NULL, a.any, a.n, &result);
    if (rc != 0)
        return pl_error_set(err, PL_ERR_INTERNAL, "%s: %s: failed (got %d, want 0): %s",
                            e->record.name, l->claims->function, rc,
                            pl__provider_failure(e->library, why, sizeof why));
    return PL_OK;
}

static pl_status varlen(pl_ops_context *context, const pl_provider_call *c,
                        const pl_provider_launch *l, pl_error *err)
{
    pl_attention_varlen_args a = pl_attention_varlen_default();
    int paged = c->pages.type != PL_TENSOR_NONE;

    a.dtype = c->q.type == PL_TENSOR_BF16   ? PL_DTYPE_BF16
              : c->q.type == PL_TENSOR_FP16 ? PL_DTYPE_FP16
                                            : PL_DTYPE_FP32;
    a.n_seqs = (int32_t)c->indices.shape[0] - 1;
    a.n_heads = (int32_t)l->n_heads;
    a.n_kv_heads = (int32_t)c->k.shape[1 + paged];
    a.head_dim = (int32_t)c->q.shape[2];
    a.value_dim = c->value_dim;
    a.cu_seqlens_q = c->indices.data;
    a.cu_seqlens_k = c->lengths.data;
    a.q = c->q.data;
    a.q_token_stride = c->q.strides[0];
    a.q_head_stride = c->q.strides[1];
    a.k = c->k.data;
    a.k_token_stride = c->k.strides[paged];
    a.k_head_stride = c->k.strides[1 + paged];
    a.v = c->v.data;
    a.v_token_stride = c->v.strides[paged];
    a.v_head_stride = c->v.strides[1 + paged];
    if (paged) {
        a.k_page_stride = c->k.strides[0];
        a.v_page_stride = c->v.strides[0];
        a.page_table = c->pages.data;
        a.page_table_stride = a.n_seqs > 1 ? c->pages.strides[0] : c->pages.shape[1];
        a.n_pages = (int32_t)c->k.shape[0];
        a.page_size = (int32_t)c->k.shape[1];
    }
    a.softmax_scale = scale_of(c);
    a.softcap = l->softcap;
    a.causal = c->causal;
    a.window_left = c->window_left;
    a.window_right = c->window_right;
    a.sink = l->sink.data;
    a.n_sinks = !l->sink.data ? 0 : l->sink.n_dims == 2 ? (int32_t)l->sink.shape[0] : 1;
    a.out = c->out.data;
    a.out_token_stride = c->out.strides[0];
    a.out_head_stride = c->out.strides[1];
    a.lse = l->lse.data;
    return pl_attention_varlen(context, &a, c->workspace.data, l->kernel_bytes, err);
}

/* A cache and its lists; none is all zero. */
static pl_sparse_keys set_of(const pl_provider_call *c, const pl_tensor *k,
                             const pl_tensor *indices, const pl_tensor *lengths)
{
    pl_sparse_keys s = {.cache = {.page_size = 1}};
    bool paged = k->n_dims == 4;

    if (k->type == PL_TENSOR_NONE)
        return s;
    s.cache = (pl_kv_cache){.format = (pl_kv_format)pl__provider_cache_format(k, c->q.shape[2]),
                            .head_dim = (int32_t)c->q.shape[2],
                            .data = k->data,
                            .page_size = paged ? (int32_t)k->shape[1] : 1,
                            .n_pages = k->shape[0]};
    if (paged && k->shape[0] > 1)
        s.cache.page_bytes = k->strides[0] * pl__tensor_size(k->type);
    s.indices = indices->data;
    s.index_stride = indices->shape[2];
    s.n_indices = (int32_t)indices->shape[2];
    s.lengths = lengths->data;
    return s;
}

static pl_status sparse(pl_ops_context *context, const pl_provider_call *c,
                        const pl_provider_launch *l, pl_error *err)
{
    pl_attention_sparse_args a = {
        .n_tokens = (int32_t)l->n_tokens,
        .n_heads = (int32_t)l->n_heads,
        .head_dim = (int32_t)c->q.shape[2],
        .seq_tokens = pl__provider_seq_tokens(c),
        .q = c->q.data,
        .q_token_stride = c->q.strides[0],
        .q_head_stride = c->q.strides[1],
        .softmax_scale = scale_of(c),
        .set = {set_of(c, &c->k, &c->indices, &c->lengths),
                set_of(c, &c->extra_k, &c->extra_indices, &c->extra_lengths)},
        .n_sets = c->extra_k.type == PL_TENSOR_NONE ? 1 : 2,
        .sink = l->sink.data,
        .out = c->out.data,
        .out_token_stride = c->out.strides[0],
        .out_head_stride = c->out.strides[1],
        .lse = l->lse.data,
        .max_logits = l->max_logits.data,
    };

    return c->op == PL_PROVIDER_DECODE
               ? pl_attention_sparse_decode(context, &a, c->workspace.data, l->kernel_bytes, err)
               : pl_attention_sparse_prefill(context, &a, c->workspace.data, l->kernel_bytes, err);
}

pl_status pl__provider_launch_builtin(pl_ops_context *context, const pl_provider_call *call,
                                      const pl_provider_launch *l, pl_error *err)
{
    return call->op == PL_PROVIDER_VARLEN ? varlen(context, call, l, err)
                                          : sparse(context, call, l, err);
}

pl_status pl__provider_launch(pl_providers *set, pl_provider_entry *e, const pl_provider_call *call,
                              const pl_provider_launch *l, pl_error *err)
{
    PL_TRY(e->library ? pl__provider_launch_ffi(e, call, l, err)
                      : pl__provider_launch_builtin(set->builtin, call, l, err));
    pl__provider_finish_lse(call, l);
    return PL_OK;
}
