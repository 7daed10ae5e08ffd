/* The gate: does a call match a provider's record? Cheap conditions first, each with a reason of its own, the first that
 * fails counts. It reads shapes, strides, addresses and ends of sequences
 * and page numbers, and writes nothing. Types, shapes and overlaps
 * are exact here, so that a kernel that checks nothing stays within the caller's arrays; what lists of keys
 * hold is the operator's to check. */
#include "provider/gate.h"

#include <inttypes.h>
#include <math.h>

#include "base/error.h"
#include "provider/tensor.h"

static pl_provider_reason before_shapes(const pl_gate *g)
{
    const pl_provider_call *call = g->call;
    const pl_provider_record *r = &g->e->record;

    if (!g->public && !(call->flags & PL_PROVIDER_REQUEST))
        return FAIL(g, NOT_REQUESTED, "flags: the contract is not asked for (want REQUEST)");
    if (r->reason != PL_PROVIDER_DIRECT) {
        (void)pl_error_set(g->detail, PL_ERR_UNSUPPORTED, "%s", r->problem);
        return r->reason;
    }
    if (!g->c->present)
        return FAIL(g, OPERATOR, "%s: not offered", pl_provider_op_name(call->op));
    if (call->out.type == PL_TENSOR_NONE || !call->out.data)
        return FAIL(g, MISSING, "out: missing");
    if (!(g->public && call->op != PL_PROVIDER_VARLEN) &&
        (call->lengths.type == PL_TENSOR_NONE || !call->lengths.data))
        return FAIL(g, MISSING, "lengths: missing");
    if (call->q.device != g->c->device)
        return FAIL(g, DEVICE, "q: on another device (got type %d, want %d)", call->q.device,
                    g->c->device);
    if (!g->public && call->capture != PL_CAPTURE_NONE && !g->c->capture)
        return FAIL(g, CAPTURE, "capture: %s (want a call that is not recorded)",
                    call->capture == PL_CAPTURE_ACTIVE ? "active" : "unknown");
    if (call->value_dim < g->c->value_min || call->value_dim > g->c->value_max ||
        call->value_dim % g->c->value_step)
        return FAIL(g, VALUE_DIM, "value_dim: not offered (got %d, want %d .. %d in steps of %d)",
                    call->value_dim, g->c->value_min, g->c->value_max, g->c->value_step);
    return PL_PROVIDER_DIRECT;
}

static pl_provider_reason query_and_out(const pl_gate *g)
{
    const pl_tensor *q = &g->call->q, *o = &g->call->out;
    const pl_provider_claims *c = g->c;
    char got[PL_GATE_SHAPE];

    if (!pl__gate_rows(g, q, 3) || !(c->types & 1u << q->type) ||
        (!g->public && q->shape[0] == 0) || q->shape[1] < 1 || q->shape[1] > c->heads_max ||
        (c->heads && q->shape[1] != c->heads) || q->shape[2] < c->dim_min ||
        q->shape[2] > c->dim_max || q->shape[2] % c->dim_step)
        return FAIL(g, QUERY,
                    "q: another contract (got %s, want %d heads, %d .. %d in steps of %d%s)",
                    pl__gate_shape(q, got), c->heads, c->dim_min, c->dim_max, c->dim_step,
                    c->contiguous ? ", contiguous" : "");
    if (!pl__gate_rows(g, o, 3) || o->type != q->type || o->shape[0] != q->shape[0] ||
        o->shape[1] != q->shape[1] || o->shape[2] != g->call->value_dim || !pl__tensor_apart(o))
        return FAIL(g, OUT, "out: another contract (got %s, want that of q, %d wide%s)",
                    pl__gate_shape(o, got), g->call->value_dim,
                    c->contiguous ? ", contiguous" : "");
    return PL_PROVIDER_DIRECT;
}

static pl_provider_reason sink(const pl_gate *g)
{
    const pl_tensor *s = &g->call->sink;
    int32_t n_dims = g->call->op == PL_PROVIDER_VARLEN && s->n_dims == 2 ? 2 : 1;

    if (s->type == PL_TENSOR_NONE)
        return PL_PROVIDER_DIRECT;
    if (s->type != PL_TENSOR_FP32 || !pl__tensor_is(s, n_dims) || !pl__tensor_packed(s) ||
        s->device != g->call->q.device || s->shape[n_dims - 1] != g->call->q.shape[1] ||
        (n_dims == 2 && s->shape[0] < 1))
        return FAIL(g, SINK,
                    "sink: another contract (got type %d, %d dimensions, want fp32 [%" PRId64
                    "], contiguous)",
                    (int)s->type, s->n_dims, g->call->q.shape[1]);
    return PL_PROVIDER_DIRECT;
}

/* [first][second] fp32 without gaps, or none. */
static bool statistic(const pl_gate *g, const pl_tensor *t, int64_t first, int64_t second)
{
    return t->type == PL_TENSOR_NONE ||
           (t->type == PL_TENSOR_FP32 && pl__tensor_is(t, 2) && pl__tensor_packed(t) &&
            t->device == g->call->q.device && t->shape[0] == first && t->shape[1] == second);
}

static pl_provider_reason statistics(const pl_gate *g)
{
    int64_t n_tokens = g->call->q.shape[0], heads = g->call->q.shape[1];
    bool th = g->call->lse_layout == PL_LSE_TH;

    if (g->call->lse_layout != PL_LSE_HT && !th)
        return FAIL(g, LSE_LAYOUT, "lse_layout: undeclared (want [H,T] or [T,H])");
    if (!statistic(g, &g->call->lse, th ? n_tokens : heads, th ? heads : n_tokens))
        return FAIL(g, LSE, "lse: another contract (want fp32, contiguous, %s)",
                    th ? "[tokens][heads]" : "[heads][tokens]");
    if (!statistic(g, &g->call->max_logits, heads, n_tokens) ||
        (g->call->op == PL_PROVIDER_VARLEN && g->call->max_logits.type != PL_TENSOR_NONE))
        return FAIL(g, LSE, "max_logits: another contract (want fp32 [heads][tokens] of sparse)");
    return PL_PROVIDER_DIRECT;
}

/* Outputs and workspace against everything, on bytes from the first to the last. */
static pl_provider_reason alias(const pl_gate *g)
{
    static const char *const names[] = {"out",   "lse",     "max_logits",    "workspace",    "q",
                                        "k",     "v",       "indices",       "lengths",      "sink",
                                        "pages", "extra_k", "extra_indices", "extra_lengths"};
    const pl_provider_call *c = g->call;
    const pl_tensor *t[] = {&c->out,   &c->lse,     &c->max_logits,    &c->workspace,    &c->q,
                            &c->k,     &c->v,       &c->indices,       &c->lengths,      &c->sink,
                            &c->pages, &c->extra_k, &c->extra_indices, &c->extra_lengths};
    enum { N = sizeof t / sizeof t[0], N_OUT = 4 };
    uintptr_t begin[N], end[N];

    for (int i = 0; i < N; i++)
        if (!pl__tensor_extent(t[i], &begin[i], &end[i]))
            return FAIL(g, ALIAS, "%s: reaches past the end of memory", names[i]);
    for (int i = 0; i < N_OUT; i++)
        for (int j = i + 1; j < N; j++)
            if (begin[i] < end[j] && begin[j] < end[i])
                return FAIL(g, ALIAS,
                            "%s: overlaps %s (got bytes 0x%" PRIxPTR " .. 0x%" PRIxPTR
                            ", want none of 0x%" PRIxPTR " .. 0x%" PRIxPTR ")",
                            names[i], names[j], begin[i], end[i], begin[j], end[j]);
    return PL_PROVIDER_DIRECT;
}

static int64_t longest_query(const pl_provider_call *call)
{
    const int32_t *cu = call->indices.data;
    int64_t longest = 0;

    if (call->op != PL_PROVIDER_VARLEN)
        return call->op == PL_PROVIDER_DECODE ? pl__provider_seq_tokens(call) : call->q.shape[0];
    for (int64_t i = 1; i < call->indices.shape[0]; i++)
        if (cu[i] - cu[i - 1] > longest)
            longest = cu[i] - cu[i - 1];
    return longest;
}

static pl_provider_reason options(const pl_gate *g)
{
    const pl_provider_call *call = g->call;
    const pl_provider_claims *c = g->c;
    bool sunk = call->sink.type != PL_TENSOR_NONE, native = call->flags & PL_PROVIDER_NATIVE_SINK;

    if (!isfinite(call->softmax_scale) || call->softmax_scale < 0 || call->window_left < -1 ||
        call->window_right < -1 || (call->causal && !c->causal) ||
        ((call->window_left >= 0 || call->window_right >= 0) && !c->window))
        return FAIL(g, OPTION,
                    "options: not offered (got scale %g, causal %d, window %d, %d; causal is %s, "
                    "windows are %s)",
                    (double)call->softmax_scale, call->causal, call->window_left,
                    call->window_right, c->causal ? "offered" : "not",
                    c->window ? "offered" : "not");
    if (!isfinite(call->softcap) || (call->softcap > 0 && !c->softcap))
        return FAIL(g, SOFTCAP, "softcap: not offered (got %g)", (double)call->softcap);
    if (sunk && native && (!c->sink_native || (c->sink_in_lse && call->lse.type != PL_TENSOR_NONE)))
        return FAIL(g, SINK_NATIVE, "sink: %s (want it corrected after the kernel)",
                    c->sink_native ? "would be counted by lse" : "not taken by the kernel");
    if (c->lse_layout == PL_LSE_UNDECLARED && call->q.shape[0] == call->q.shape[1] &&
        (call->lse.type != PL_TENSOR_NONE || (sunk && !native)))
        return FAIL(
            g, LSE_LAYOUT,
            "lse: as many heads as tokens, and the provider declares no layout (got %" PRId64 ")",
            call->q.shape[0]);
    if (longest_query(call) < c->min_query)
        return FAIL(g, MIN_QUERY, "q: longest sequence is too short (got %" PRId64 ", want %d)",
                    longest_query(call), c->min_query);
    return PL_PROVIDER_DIRECT;
}

static pl_provider_reason workspace(const pl_gate *g)
{
    const pl_tensor *w = &g->call->workspace;
    pl_provider_launch l;

    if (!pl__provider_prepare(g->e, g->call, &l))
        return FAIL(g, WORKSPACE, "workspace: beyond reckoning");
    if (w->type != PL_TENSOR_UINT8 || w->n_dims != 1 || !w->data || (uintptr_t)w->data % 64 ||
        !pl__tensor_packed(w) || w->device != g->call->q.device || w->shape[0] < 0 ||
        (uint64_t)w->shape[0] < l.workspace_bytes)
        return FAIL(g, WORKSPACE,
                    "workspace: too small or not aligned to 64 (got %" PRId64
                    " bytes, want %" PRIu64 ")",
                    w->n_dims == 1 ? w->shape[0] : -1, l.workspace_bytes);
    return PL_PROVIDER_DIRECT;
}

pl_provider_reason pl__provider_gate(const pl_provider_entry *e, const pl_provider_call *call,
                                     pl_gate_kind kind, pl_error *detail)
{
    pl_gate g = {e, &e->record.op[call->op], call, kind == PL_GATE_PUBLIC, detail};
    pl_provider_reason r = before_shapes(&g);

    if (r == PL_PROVIDER_DIRECT)
        r = query_and_out(&g);
    if (r == PL_PROVIDER_DIRECT)
        r = pl__gate_keys(&g);
    if (r == PL_PROVIDER_DIRECT)
        r = sink(&g);
    if (r == PL_PROVIDER_DIRECT)
        r = statistics(&g);
    if (r == PL_PROVIDER_DIRECT)
        r = alias(&g);
    if (r == PL_PROVIDER_DIRECT)
        r = options(&g);
    return r == PL_PROVIDER_DIRECT ? workspace(&g) : r;
}
