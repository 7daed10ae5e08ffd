/* Calls that are only asked about. The gate reads ends of sequences and addresses, no numbers: those are addresses without
 * memory behind them, so that shapes of any size cost nothing and a dry run that touched one would end the program. */
#include "cli/provider_call.h"

#include <sys/mman.h>

#include "base/error.h"
#include "plimsoll/ops.h"

enum { SLOTS = 14 };

/* A slot for each array, in order; each tensor's own bytes are below a slot's. */
static void place(pl_provider_asked *a, pl_tensor *t, int slot)
{
    if (t->type != PL_TENSOR_NONE)
        t->data = (uint8_t *)a->reserved + a->bytes / SLOTS / 4096 * 4096 * (uint64_t)slot;
}

/* The table of pages is read: zeros, which are page numbers, of memory that nobody has to have. */
static void place_all(pl_provider_asked *a, int64_t workspace)
{
    pl_provider_call *c = &a->call;
    pl_tensor *const all[SLOTS] = {
        &c->q,       &c->k,       &c->v,       &c->out,           &c->lse,           &c->sink,
        &c->indices, &c->lengths, &c->extra_k, &c->extra_indices, &c->extra_lengths, &c->workspace,
        &c->pages};

    c->workspace = pl_tensor_of(NULL, PL_TENSOR_UINT8, 1, workspace, 0, 0);
    for (int i = 0; i < SLOTS; i++)
        if (all[i])
            place(a, all[i], i);
    if (c->pages.type != PL_TENSOR_NONE)
        (void)mprotect(c->pages.data, a->bytes / SLOTS / 4096 * 4096, PROT_READ);
}

static int64_t pages_of(const pl_provider_ask *q)
{
    int64_t n = q->page_size ? (q->keys + q->page_size - 1) / q->page_size : 0;

    return n ? n : 1;
}

/* Keys or values of varlen, or a cache. */
static pl_tensor keys(const pl_provider_ask *q, int64_t heads, int64_t dim)
{
    pl_tensor_type type = q->format == PL_KV_BF16 ? q->type : PL_TENSOR_UINT8;

    if (q->format != PL_KV_BF16)
        dim = q->format == PL_KV_V4 ? 584 : 656;
    return q->page_size ? pl_tensor_pages(NULL, type, pages_of(q), q->page_size, heads, dim)
                        : pl_tensor_of(NULL, type, 3, q->keys, heads, dim);
}

static void sparse_shapes(const pl_provider_ask *q, pl_provider_call *c)
{
    int64_t seqs = q->tokens / (q->seq_tokens ? q->seq_tokens : 1);

    c->k = keys(q, 1, q->dim);
    c->indices = pl_tensor_of(NULL, PL_TENSOR_INT32, 3, q->tokens, 1, q->n_indices);
    c->lengths = pl_tensor_of(NULL, PL_TENSOR_INT32, 1, seqs, 0, 0);
    c->seq_tokens = (int32_t)q->seq_tokens;
    if (!q->second_set)
        return;
    c->extra_k = c->k;
    c->extra_indices = c->indices;
    c->extra_lengths = c->lengths;
}

static void shapes(const pl_provider_ask *q, pl_provider_call *c)
{
    c->q = pl_tensor_of(NULL, q->type, 3, q->tokens, q->heads, q->dim);
    c->out = pl_tensor_of(NULL, q->type, 3, q->tokens, q->heads, q->value_dim);
    c->lse = pl_tensor_of(NULL, PL_TENSOR_FP32, 2, q->heads, q->tokens, 0);
    if (q->sink)
        c->sink = pl_tensor_of(NULL, PL_TENSOR_FP32, 1, q->heads, 0, 0);
    if (q->op != PL_PROVIDER_VARLEN) {
        sparse_shapes(q, c);
        return;
    }
    c->k = keys(q, q->kv_heads, q->dim);
    c->v = keys(q, q->kv_heads, q->value_dim);
    if (q->page_size)
        c->pages = pl_tensor_of(NULL, PL_TENSOR_INT32, 2, 1, pages_of(q), 0);
}

static uint64_t largest(const pl_provider_ask *q, uint64_t workspace)
{
    const int64_t filled = q->page_size ? pages_of(q) * q->page_size : q->keys;
    const int64_t rows = q->tokens > filled ? q->tokens : filled;
    const int64_t dim = q->dim > q->value_dim ? q->dim : q->value_dim;
    uint64_t bytes, lists;

    if (__builtin_mul_overflow((uint64_t)rows, (uint64_t)q->heads, &bytes) ||
        __builtin_mul_overflow(bytes, (uint64_t)dim * 4, &bytes) ||
        __builtin_mul_overflow((uint64_t)q->tokens, (uint64_t)q->n_indices * 4, &lists))
        return UINT64_MAX;
    bytes = bytes > lists ? bytes : lists;
    return bytes > workspace ? bytes : workspace;
}

pl_status pl_provider_ask_make(const pl_providers *set, const pl_provider_ask *ask,
                               pl_provider_asked *to, pl_error *err)
{
    pl_provider_call *c = &to->call;
    uint64_t workspace = 0;

    *to = (pl_provider_asked){.ends = {{0, (int32_t)ask->tokens}, {0, (int32_t)ask->keys}}};
    *c = (pl_provider_call){.op = ask->op,
                            .flags =
                                PL_PROVIDER_REQUEST | PL_PROVIDER_NO_PUBLIC | PL_PROVIDER_DRY_RUN,
                            .capture = ask->capture_unknown ? PL_CAPTURE_UNKNOWN : PL_CAPTURE_NONE,
                            .value_dim = (int32_t)ask->value_dim,
                            .softcap = (float)ask->softcap,
                            .causal = ask->causal,
                            .window_left = -1,
                            .window_right = -1};
    if (ask->native_sink)
        c->flags |= PL_PROVIDER_NATIVE_SINK;
    shapes(ask, c);
    for (int i = 0; i < pl_providers_count(set); i++) {
        uint64_t bytes = pl_providers_workspace_bytes(set, i, c);
        workspace = bytes > workspace ? bytes : workspace;
    }
    to->bytes = largest(ask, workspace);
    if (to->bytes > UINT64_C(1) << 42)
        return pl_error_set(err, PL_ERR_LIMIT,
                            "call: too large to be asked about (want less than 4 TiB an array)");
    to->bytes = (to->bytes + 8192) / 4096 * 4096 * SLOTS;
    to->reserved =
        mmap(NULL, to->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (to->reserved == MAP_FAILED) {
        to->reserved = NULL;
        return pl_error_set(err, PL_ERR_NOMEM, "call: no addresses (want %llu bytes)",
                            (unsigned long long)to->bytes);
    }
    place_all(to, (int64_t)workspace);
    if (ask->op == PL_PROVIDER_VARLEN) {
        c->indices = pl_tensor_of(to->ends[0], PL_TENSOR_INT32, 1, 2, 0, 0);
        c->lengths = pl_tensor_of(to->ends[1], PL_TENSOR_INT32, 1, 2, 0, 0);
    }
    return PL_OK;
}

void pl_provider_ask_free(pl_provider_asked *asked)
{
    if (asked->reserved)
        (void)munmap(asked->reserved, asked->bytes);
    asked->reserved = NULL;
}
