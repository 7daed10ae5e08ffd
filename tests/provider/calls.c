/* Calls that hold every contract of the test providers, with numbers from a counter. */
#include "calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plimsoll/ops.h"

enum { ARENA = 16 << 20, WORKSPACE = 1 << 20, FENCE = 1 << 16 };

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
    c.call.workspace = pl_tensor_of(case_take(&c, WORKSPACE), PL_TENSOR_UINT8, 1, WORKSPACE, 0, 0);
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
    c.call.workspace = pl_tensor_of(case_take(&c, WORKSPACE), PL_TENSOR_UINT8, 1, WORKSPACE, 0, 0);
    return c;
}

case_call paged_case(const int32_t *n_q, const int32_t *n_k, int64_t n_heads, int64_t n_kv_heads)
{
    enum { PAGE = 4, DIM = 16, WIDTH = 4, GAP = 8 };
    case_call c = varlen_case(n_q, n_k, n_heads, n_kv_heads, DIM, DIM, true);
    int64_t n_seqs = c.call.indices.shape[0] - 1, n_pages = 1;
    int32_t *table = case_take(&c, (size_t)n_seqs * WIDTH * 4);
    pl_tensor *kv[2] = {&c.call.k, &c.call.v};

    for (int64_t b = 0; b < n_seqs; b++)
        n_pages += (n_k[b] + PAGE - 1) / PAGE;
    for (int64_t b = 0, next = n_pages; b < n_seqs; b++)
        for (int64_t i = 0; i < WIDTH; i++) /* numbers that nobody needs are none */
            table[b * WIDTH + i] = i * PAGE < n_k[b] ? (int32_t)--next : -1;
    c.call.pages = pl_tensor_of(table, PL_TENSOR_INT32, 2, n_seqs, WIDTH, 0);
    for (int i = 0; i < 2; i++) {
        int64_t stride = PAGE * n_kv_heads * DIM + GAP;
        pl_tensor t = rows(&c, n_pages, 1, stride, (uint32_t)(8 + i));
        *kv[i] = pl_tensor_pages(t.data, PL_TENSOR_BF16, n_pages, PAGE, n_kv_heads, DIM);
        kv[i]->strides[0] = stride;
    }
    return c;
}

/* Rows of bf16 through pl_kv_insert, so that every byte of the cache is what an engine would have there. */
static pl_tensor cache_of(case_call *c, pl_ops_context *context, int format, uint32_t seed)
{
    enum { ROWS = 80, PAGE = 16, GAP = 64 };
    const int64_t dim = format == PL_KV_V32 ? 576 : 512;
    const int64_t row = format == PL_KV_BF16 ? dim : format == PL_KV_V4 ? 584 : 656;
    const int64_t size = format == PL_KV_BF16 ? 2 : 1, stride = PAGE * row + GAP;
    pl_tensor x = rows(c, ROWS, 1, dim, seed);
    pl_tensor t =
        pl_tensor_pages(case_take(c, (size_t)(ROWS / PAGE * stride * size)),
                        size == 2 ? PL_TENSOR_BF16 : PL_TENSOR_UINT8, ROWS / PAGE, PAGE, 1, row);
    pl_kv_cache cache = {.format = (pl_kv_format)format,
                         .head_dim = (int32_t)dim,
                         .data = t.data,
                         .page_size = PAGE,
                         .n_pages = ROWS / PAGE,
                         .page_bytes = stride * size};
    int32_t slots[ROWS];
    pl_error err;

    t.strides[0] = stride;
    for (int i = 0; i < ROWS; i++)
        slots[i] = i;
    check_ok(pl_kv_insert(context, &cache, ROWS, slots, x.data, dim, &err), &err);
    return t;
}

static void lists_of(case_call *c, int32_t seq_tokens, int64_t n_tokens, int shift,
                     pl_tensor *indices, pl_tensor *lengths)
{
    int64_t n_lengths = n_tokens / (seq_tokens ? seq_tokens : 1);
    int32_t *lists = case_take(c, (size_t)n_tokens * 64 * 4);
    int32_t *length = case_take(c, (size_t)n_lengths * 4);

    for (int64_t b = 0; b < n_lengths; b++)
        length[b] = (int32_t)(b ? 64 - b - shift : 0); /* the first has no key */
    for (int64_t t = 0; t < n_tokens; t++)
        for (int i = 0; i < 64; i++)
            lists[t * 64 + i] = (int32_t)((t * 31 + i * 5 + shift) % 81) - 1;
    *indices = pl_tensor_of(lists, PL_TENSOR_INT32, 3, n_tokens, 1, 64);
    *lengths = pl_tensor_of(length, PL_TENSOR_INT32, 1, n_lengths, 0, 0);
}

case_call cache_case(pl_ops_context *context, int format, bool second_set, int32_t seq_tokens,
                     int64_t n_tokens, int64_t n_heads)
{
    case_call c = sparse_case(n_tokens, n_heads);

    c.call.op = seq_tokens ? PL_PROVIDER_DECODE : PL_PROVIDER_SPARSE;
    c.call.seq_tokens = seq_tokens;
    if (format == PL_KV_V32)
        c.call.q = rows(&c, n_tokens, n_heads, 576, 6);
    c.call.k = cache_of(&c, context, format, 2);
    lists_of(&c, seq_tokens, n_tokens, 0, &c.call.indices, &c.call.lengths);
    if (second_set) {
        c.call.extra_k = cache_of(&c, context, format, 9);
        lists_of(&c, seq_tokens, n_tokens, 3, &c.call.extra_indices, &c.call.extra_lengths);
    }
    return c;
}

void case_free(case_call *c)
{
    free(c->arena);
    free(c->copy);
}

size_t case_bytes(const case_call *c)
{
    return c->used + FENCE < c->bytes ? c->used + FENCE : c->bytes;
}

void case_remember(case_call *c)
{
    memcpy(c->copy, c->arena, case_bytes(c));
}

void case_unchanged(const char *what, const case_call *c)
{
    check_same_bytes(what, c->arena, c->copy, case_bytes(c));
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
