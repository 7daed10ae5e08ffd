/* Calls that hold every contract of the test providers, with numbers from a counter. */
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA = 16 << 20 };

static float number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state * 0x1p-31f;
}

static uint16_t bf16(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return (uint16_t)(u >> 16);
}

void *case_take(case_call *c, size_t bytes)
{
    void *at = c->arena + c->used;

    assert_true(c->used + bytes + 64 <= c->bytes);
    c->used += (bytes + 127) & ~(size_t)63; /* a gap behind each array */
    return at;
}

static case_call begin(pl_provider_op op)
{
    case_call c = {.bytes = ARENA};

    c.arena = aligned_alloc(64, ARENA);
    c.copy = malloc(ARENA);
    assert_non_null(c.arena);
    assert_non_null(c.copy);
    memset(c.arena, 0xa5, ARENA);
    c.call.op = op;
    c.call.flags = PL_PROVIDER_REQUEST;
    c.call.capture = PL_CAPTURE_NONE;
    c.call.window_left = c.call.window_right = -1;
    return c;
}

static pl_tensor rows(case_call *c, int64_t n, int64_t heads, int64_t dim, uint32_t seed)
{
    uint16_t *x = case_take(c, (size_t)(n * heads * dim) * 2);

    for (int64_t i = 0; seed && i < n * heads * dim; i++)
        x[i] = bf16(number(&seed));
    return pl_tensor_of(x, PL_TENSOR_BF16, 3, n, heads, dim);
}

static pl_tensor sinks(case_call *c, int64_t heads)
{
    float *z = case_take(c, (size_t)heads * 4);

    for (int64_t h = 0; h < heads; h++)
        z[h] = (float)(h % 7) * 0.5f - 1;
    return pl_tensor_of(z, PL_TENSOR_FP32, 1, heads, 0, 0);
}

static pl_tensor stat(case_call *c, int64_t heads, int64_t n)
{
    return pl_tensor_of(case_take(c, (size_t)(heads * n) * 4), PL_TENSOR_FP32, 2, heads, n, 0);
}

case_call sparse_case(int64_t n_tokens, int64_t n_heads)
{
    case_call c = begin(PL_PROVIDER_SPARSE);
    int32_t *lists, *lengths;

    c.call.value_dim = 512;
    c.call.q = rows(&c, n_tokens, n_heads, 512, 1);
    c.call.k = rows(&c, 96, 1, 512, 2);
    lists = case_take(&c, (size_t)n_tokens * 64 * 4);
    lengths = case_take(&c, (size_t)n_tokens * 4);
    for (int64_t t = 0; t < n_tokens; t++) {
        lengths[t] = (int32_t)(t ? 64 - t : 0); /* the first has no key */
        for (int i = 0; i < 64; i++)
            lists[t * 64 + i] = (int32_t)((t * 31 + i * 5) % 97) - 1;
    }
    c.call.indices = pl_tensor_of(lists, PL_TENSOR_INT32, 3, n_tokens, 1, 64);
    c.call.lengths = pl_tensor_of(lengths, PL_TENSOR_INT32, 1, n_tokens, 0, 0);
    c.call.sink = sinks(&c, n_heads);
    c.call.out = rows(&c, n_tokens, n_heads, 512, 0);
    c.call.lse = stat(&c, n_heads, n_tokens);
    c.call.max_logits = stat(&c, n_heads, n_tokens);
    c.call.workspace = pl_tensor_of(case_take(&c, 4 << 20), PL_TENSOR_UINT8, 1, 4 << 20, 0, 0);
    return c;
}

case_call varlen_case(const int32_t *n_q, const int32_t *n_k, int64_t n_heads, int64_t n_kv_heads,
                      int64_t dim, int64_t value_dim, bool sink)
{
    case_call c = begin(PL_PROVIDER_VARLEN);
    int32_t *cu_q = case_take(&c, 64 * 4), *cu_k = case_take(&c, 64 * 4), n = 0;

    cu_q[0] = cu_k[0] = 0;
    for (; n_q[n] >= 0; n++) {
        cu_q[n + 1] = cu_q[n] + n_q[n];
        cu_k[n + 1] = cu_k[n] + n_k[n];
    }
    c.call.indices = pl_tensor_of(cu_q, PL_TENSOR_INT32, 1, n + 1, 0, 0);
    c.call.lengths = pl_tensor_of(cu_k, PL_TENSOR_INT32, 1, n + 1, 0, 0);
    c.call.value_dim = (int32_t)value_dim;
    c.call.q = rows(&c, cu_q[n], n_heads, dim, 3);
    c.call.k = rows(&c, cu_k[n], n_kv_heads, dim, 4);
    c.call.v = rows(&c, cu_k[n], n_kv_heads, value_dim, 5);
    if (sink)
        c.call.sink = sinks(&c, n_heads);
    c.call.out = rows(&c, cu_q[n], n_heads, value_dim, 0);
    c.call.lse = stat(&c, n_heads, cu_q[n]);
    c.call.workspace = pl_tensor_of(case_take(&c, 4 << 20), PL_TENSOR_UINT8, 1, 4 << 20, 0, 0);
    return c;
}

void case_free(case_call *c)
{
    free(c->arena);
    free(c->copy);
}

void case_remember(case_call *c)
{
    memcpy(c->copy, c->arena, c->bytes);
}

void case_unchanged(const char *what, const case_call *c)
{
    check_same_bytes(what, c->arena, c->copy, c->bytes);
}

pl_ops_context *case_context(void)
{
    pl_ops_params params = {.n_workers = 1, .no_pin = 1};
    pl_ops_context *context;
    pl_error err = {0};

    check_ok(pl_ops_context_create(&params, &context, &err), &err);
    return context;
}

int add_provider(pl_providers *set, const char *folder, const char *name,
                 const pl_provider_pin *pin)
{
    char path[512];
    pl_error err = {0};
    int index = -1;

    snprintf(path, sizeof path, "%s/libprovider_%s.so", folder, name);
    check_ok(pl_providers_add(set, path, pin, 1, &index, &err), &err);
    return index;
}
