/* The part of the gate that knows where keys lie: packed, in pages, in the rows of a cache, in two of them; and how they are
 * named: by ends of sequences, or by lists. Ends and page numbers are read, since a kernel that checks nothing would leave
 * the caller's arrays by them; what lists hold is not. */
#include <inttypes.h>
#include <stdio.h>

#include "plimsoll/ops.h"
#include "provider/gate.h"
#include "provider/tensor.h"

enum { V4_ROW_BYTES = 584, V32_ROW_BYTES = 656 };

const char *pl__gate_shape(const pl_tensor *t, char to[PL_GATE_SHAPE])
{
    int n = snprintf(to, PL_GATE_SHAPE, "type %d [", (int)t->type);

    for (int i = 0; i < t->n_dims && i < PL_TENSOR_MAX_DIMS; i++)
        n += snprintf(to + n, PL_GATE_SHAPE - (size_t)n, "%s%" PRId64, i ? ", " : "", t->shape[i]);
    (void)snprintf(to + n, PL_GATE_SHAPE - (size_t)n, "]");
    return to;
}

bool pl__gate_rows(const pl_gate *g, const pl_tensor *t, int32_t n_dims)
{
    uintptr_t begin, end;

    if (!pl__tensor_is(t, n_dims) || t->device != g->call->q.device ||
        !pl__tensor_extent(t, &begin, &end))
        return false;
    if (g->c->contiguous)
        return pl__tensor_packed(t);
    for (int32_t i = 0; i < n_dims - 1; i++)
        if (t->shape[i] > 1 && t->strides[i] < t->shape[n_dims - 1])
            return false;
    return t->shape[n_dims - 1] == 1 || t->strides[n_dims - 1] == 1;
}

static bool ints(const pl_gate *g, const pl_tensor *t, int32_t n_dims)
{
    return t->type == PL_TENSOR_INT32 && pl__tensor_is(t, n_dims) &&
           t->device == g->call->q.device && pl__tensor_packed(t);
}

/* ---- varlen */

static pl_provider_reason varlen_keys(const pl_gate *g)
{
    const pl_tensor *q = &g->call->q, *k = &g->call->k, *v = &g->call->v;
    bool paged = g->call->pages.type != PL_TENSOR_NONE;
    int32_t n = paged ? 4 : 3;
    char got[PL_GATE_SHAPE];

    if (!pl__gate_rows(g, k, n) || k->type != q->type || k->shape[n - 1] != q->shape[2] ||
        k->shape[n - 2] < 1 || q->shape[1] % k->shape[n - 2] || (!g->public && k->shape[0] == 0) ||
        (paged && k->shape[1] < 1))
        return FAIL(g, KEYS,
                    "k: another contract (got %s, want that of q%s, with a divisor of its heads)",
                    pl__gate_shape(k, got), paged ? " in pages" : "");
    if (!pl__gate_rows(g, v, n) || v->type != k->type || v->shape[0] != k->shape[0] ||
        v->shape[1] != k->shape[1] || v->shape[n - 2] != k->shape[n - 2] ||
        v->shape[n - 1] != g->call->value_dim)
        return FAIL(g, KEYS, "v: another contract (got %s, want that of k, value_dim wide)",
                    pl__gate_shape(v, got));
    return PL_PROVIDER_DIRECT;
}

/* Ends of sequences: from 0, ascending, up to n; -1: to anywhere. */
static bool ends(const pl_tensor *t, int64_t n)
{
    const int32_t *cu = t->data;

    for (int64_t i = 1; i < t->shape[0]; i++)
        if (cu[i] < cu[i - 1])
            return false;
    return cu[0] == 0 && (n < 0 || cu[t->shape[0] - 1] == n);
}

static pl_provider_reason varlen_ends(const pl_gate *g)
{
    const pl_tensor *q = &g->call->indices, *k = &g->call->lengths;
    bool paged = g->call->pages.type != PL_TENSOR_NONE;

    if (!ints(g, q, 1) || q->shape[0] < 1 || !ends(q, g->call->q.shape[0]))
        return FAIL(g, INDICES,
                    "indices: no ends of queries (want int32 [n + 1], contiguous, from 0 up to "
                    "%" PRId64 ")",
                    g->call->q.shape[0]);
    if (!ints(g, k, 1) || k->shape[0] != q->shape[0] || !ends(k, paged ? -1 : g->call->k.shape[0]))
        return FAIL(g, LENGTHS,
                    "lengths: no ends of keys (want int32 [%" PRId64
                    "], contiguous, from 0, ascending%s)",
                    q->shape[0], paged ? "" : ", up to the number of keys");
    return PL_PROVIDER_DIRECT;
}

/* Every page that a sequence needs is named, and is one. */
static pl_provider_reason page_table(const pl_gate *g)
{
    const pl_tensor *t = &g->call->pages, *k = &g->call->k;
    const int32_t *cu = g->call->lengths.data, *table = t->data;
    int64_t n_seqs = g->call->lengths.shape[0] - 1;
    char got[PL_GATE_SHAPE];

    if (t->type == PL_TENSOR_NONE)
        return PL_PROVIDER_DIRECT;
    if (!g->c->pages)
        return FAIL(g, PAGES, "pages: not offered");
    if (!pl__gate_rows(g, t, 2) || t->type != PL_TENSOR_INT32 || t->shape[0] != n_seqs)
        return FAIL(g, PAGES, "pages: another contract (got %s, want int32 [%" PRId64 ", pages])",
                    pl__gate_shape(t, got), n_seqs);
    for (int64_t b = 0; b < n_seqs; b++) {
        int64_t need = (cu[b + 1] - cu[b] + k->shape[1] - 1) / k->shape[1];
        if (need > t->shape[1])
            return FAIL(g, PAGES,
                        "pages: too few for sequence %" PRId64 " (got %" PRId64 ", want %" PRId64
                        ")",
                        b, t->shape[1], need);
        for (int64_t i = 0; i < need; i++) {
            int32_t page = table[b * t->strides[0] + i];
            if (page < 0 || page >= k->shape[0])
                return FAIL(g, PAGES,
                            "pages[%" PRId64 "][%" PRId64
                            "]: no such page (got %d, want 0 .. %" PRId64 ")",
                            b, i, page, k->shape[0] - 1);
        }
    }
    return PL_PROVIDER_DIRECT;
}

/* ---- sparse */

int pl__provider_cache_format(const pl_tensor *k, int64_t dim)
{
    int64_t row = k->n_dims >= 1 && k->n_dims <= PL_TENSOR_MAX_DIMS ? k->shape[k->n_dims - 1] : 0;

    if (k->type == PL_TENSOR_BF16 && row == dim && (k->n_dims == 3 || k->n_dims == 4))
        return PL_KV_BF16;
    if (k->type == PL_TENSOR_UINT8 && k->n_dims == 4 && row == V4_ROW_BYTES && dim == 512)
        return PL_KV_V4;
    return k->type == PL_TENSOR_UINT8 && k->n_dims == 4 && row == V32_ROW_BYTES && dim == 576
               ? PL_KV_V32
               : -1;
}

/* Rows of one head, without gaps in their page; pages apart. */
static bool cache_rows(const pl_gate *g, const pl_tensor *k)
{
    uintptr_t begin, end;
    int64_t row, page;

    if (pl__provider_cache_format(k, g->call->q.shape[2]) < 0 ||
        g->call->q.type != PL_TENSOR_BF16 || !pl__tensor_is(k, k->n_dims) ||
        k->device != g->call->q.device || !pl__tensor_extent(k, &begin, &end) ||
        k->shape[k->n_dims - 2] != 1 || (!g->public && k->shape[0] == 0))
        return false;
    if (k->n_dims == 3 || g->c->contiguous)
        return pl__tensor_packed(k) && (k->n_dims == 3 || k->shape[1] >= 1);
    row = k->shape[3];
    page = k->shape[1];
    return page >= 1 && k->strides[3] == 1 && (page == 1 || k->strides[1] == row) &&
           (k->shape[0] <= 1 || k->strides[0] >= page * row) &&
           (k->type != PL_TENSOR_BF16 || k->shape[0] <= 1 || k->strides[0] % 2 == 0);
}

/* What is right in itself may not be offered. */
static pl_provider_reason cache_offered(const pl_gate *g, const char *name, const pl_tensor *k)
{
    static const char *const formats[] = {"bf16", "V4", "V32"};
    int format = pl__provider_cache_format(k, g->call->q.shape[2]);

    if (format < 0 || !(g->c->caches & 1u << format))
        return FAIL(g, CACHE, "%s: rows of %s are not offered", name,
                    format < 0 ? "no known form" : formats[format]);
    if (k->n_dims == 4 && !g->c->pages)
        return FAIL(g, PAGES, "%s: rows in pages are not offered", name);
    return PL_PROVIDER_DIRECT;
}

static pl_provider_reason sparse_keys(const pl_gate *g)
{
    const pl_tensor *k = &g->call->k, *v = &g->call->v;
    char got[PL_GATE_SHAPE];

    if (!cache_rows(g, k))
        return FAIL(g, KEYS,
                    "k: another contract (got %s, want rows of one head and q's width: bf16, or "
                    "pages of 584 or 656 bytes a row)",
                    pl__gate_shape(k, got));
    if (v->type != PL_TENSOR_NONE)
        return FAIL(g, KEYS, "v: another contract (got %s, want none)", pl__gate_shape(v, got));
    return PL_PROVIDER_DIRECT;
}

static bool lists(const pl_gate *g, const pl_tensor *t)
{
    return ints(g, t, 3) && t->shape[0] == g->call->q.shape[0] && t->shape[1] == 1 &&
           t->shape[2] % g->c->index_multiple == 0;
}

static bool list_lengths(const pl_gate *g, const pl_tensor *t)
{
    return t->type == PL_TENSOR_NONE
               ? g->public
               : ints(g, t, 1) &&
                     t->shape[0] == g->call->q.shape[0] / pl__provider_seq_tokens(g->call);
}

#define LISTS \
    ": another contract (got %s, want int32 [%" PRId64 ", 1, a multiple of %d], contiguous)"
#define LENGTHS ": another contract (got %s, want int32 [%" PRId64 "], contiguous)"

static pl_provider_reason sparse_lists(const pl_gate *g)
{
    const pl_tensor *i = &g->call->indices, *n = &g->call->lengths;
    int64_t n_tokens = g->call->q.shape[0];
    char got[PL_GATE_SHAPE];

    if (!lists(g, i))
        return FAIL(g, INDICES, "indices" LISTS, pl__gate_shape(i, got), n_tokens,
                    g->c->index_multiple);
    if (!list_lengths(g, n))
        return FAIL(g, LENGTHS, "lengths" LENGTHS, pl__gate_shape(n, got),
                    n_tokens / pl__provider_seq_tokens(g->call));
    return PL_PROVIDER_DIRECT;
}

static pl_provider_reason second_set(const pl_gate *g)
{
    const pl_tensor *k = &g->call->extra_k, *i = &g->call->extra_indices,
                    *n = &g->call->extra_lengths;
    bool any = i->type != PL_TENSOR_NONE || n->type != PL_TENSOR_NONE;
    char got[PL_GATE_SHAPE];

    if (k->type == PL_TENSOR_NONE && !any)
        return PL_PROVIDER_DIRECT;
    if (k->type == PL_TENSOR_NONE || !g->c->second_set)
        return FAIL(g, SECOND_SET, "extra_k: %s",
                    g->c->second_set ? "missing, but its lists are there" : "not offered");
    if (!cache_rows(g, k))
        return FAIL(g, EXTRA_KEYS, "extra_k: another contract (got %s, want a cache as k's)",
                    pl__gate_shape(k, got));
    if (!lists(g, i))
        return FAIL(g, EXTRA_INDICES, "extra_indices" LISTS, pl__gate_shape(i, got),
                    g->call->q.shape[0], g->c->index_multiple);
    if (!list_lengths(g, n))
        return FAIL(g, EXTRA_LENGTHS, "extra_lengths" LENGTHS, pl__gate_shape(n, got),
                    g->call->q.shape[0] / pl__provider_seq_tokens(g->call));
    return cache_offered(g, "extra_k", k);
}

static pl_provider_reason seq_tokens(const pl_gate *g)
{
    int32_t n = g->call->seq_tokens;
    bool decode = g->call->op == PL_PROVIDER_DECODE;

    if (n < 0 || (n > 1 && !decode) || g->call->q.shape[0] % pl__provider_seq_tokens(g->call))
        return FAIL(g, SEQ_TOKENS, "seq_tokens: %s (got %d, want %s)",
                    decode ? "does not divide the tokens" : "of decode", n,
                    decode ? "a divisor" : "0");
    return PL_PROVIDER_DIRECT;
}

pl_provider_reason pl__gate_keys(const pl_gate *g)
{
    bool sparse = g->call->op != PL_PROVIDER_VARLEN;
    pl_provider_reason r = sparse ? sparse_keys(g) : varlen_keys(g);

    if (r == PL_PROVIDER_DIRECT)
        r = seq_tokens(g);
    if (r == PL_PROVIDER_DIRECT)
        r = sparse ? sparse_lists(g) : varlen_ends(g);
    if (r != PL_PROVIDER_DIRECT)
        return r;
    if (!sparse) {
        r = page_table(g);
    } else if (g->call->pages.type != PL_TENSOR_NONE) {
        return FAIL(g, PAGES, "pages: of varlen (got a table, want none)");
    } else {
        r = cache_offered(g, "k", &g->call->k);
    }
    return r == PL_PROVIDER_DIRECT ? second_set(g) : r;
}
