/* Calls that are only asked about. The gate reads ends of sequences and addresses, no numbers: those are addresses without
 * memory behind them, so that shapes of any size cost nothing and a dry run that touched one would end the program. */
#include "cli/provider_call.h"

#include <sys/mman.h>

#include "base/error.h"

enum { SLOTS = 9 };

/* A slot for each array, in order; each tensor's own bytes are below a slot's. */
static void place(pl_provider_asked *a, pl_tensor *t, int slot)
{
    if (t->type != PL_TENSOR_NONE)
        t->data = (uint8_t *)a->reserved + a->bytes / SLOTS / 4096 * 4096 * (uint64_t)slot;
}

static void shapes(const pl_provider_ask *q, pl_provider_call *c)
{
    bool sparse = q->op == PL_PROVIDER_SPARSE;

    c->q = pl_tensor_of(NULL, q->type, 3, q->tokens, q->heads, q->dim);
    c->k = pl_tensor_of(NULL, q->type, 3, q->keys, sparse ? 1 : q->kv_heads, q->dim);
    if (!sparse)
        c->v = pl_tensor_of(NULL, q->type, 3, q->keys, q->kv_heads, q->value_dim);
    c->out = pl_tensor_of(NULL, q->type, 3, q->tokens, q->heads, q->value_dim);
    c->lse = pl_tensor_of(NULL, PL_TENSOR_FP32, 2, q->heads, q->tokens, 0);
    if (q->sink)
        c->sink = pl_tensor_of(NULL, PL_TENSOR_FP32, 1, q->heads, 0, 0);
    if (sparse) {
        c->indices = pl_tensor_of(NULL, PL_TENSOR_INT32, 3, q->tokens, 1, q->n_indices);
        c->lengths = pl_tensor_of(NULL, PL_TENSOR_INT32, 1, q->tokens, 0, 0);
    }
}

static uint64_t largest(const pl_provider_ask *q, uint64_t workspace)
{
    const int64_t rows = q->tokens > q->keys ? q->tokens : q->keys;
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
    place(to, &c->q, 0);
    place(to, &c->k, 1);
    place(to, &c->v, 2);
    place(to, &c->out, 3);
    place(to, &c->lse, 4);
    place(to, &c->sink, 5);
    place(to, &c->indices, 6);
    place(to, &c->lengths, 7);
    c->workspace = pl_tensor_of(NULL, PL_TENSOR_UINT8, 1, (int64_t)workspace, 0, 0);
    place(to, &c->workspace, 8);
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
