/* Calls for the conformance check. Sizes are those of small shapes that the check itself chooses, within what a record was
 * allowed to claim; behind every output lies a fence of known bytes. */
#include "provider/check_call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/numfmt.h"
#include "ops/varlen.h"
#include "plimsoll/ops.h"
#include "provider/tensor.h"

enum { FENCE = 4096, PATTERN = 0xa5, EXTRA_ROWS = 32 };

/* An array of n bytes and its fence; with no memory yet, only counts. */
static void *take(pl_check_call *c, size_t n)
{
    void *at = c->memory ? c->memory + c->used : NULL;

    c->used += (n + FENCE + 63) & ~(size_t)63;
    if (at)
        memset(at, PATTERN, n + FENCE);
    return at;
}

static float number(uint64_t i, uint32_t seed)
{
    uint64_t x = (i + 1) * UINT64_C(0x9E3779B97F4A7C15) + seed * UINT64_C(0xD1B54A32D192ED03);

    x ^= x >> 29;
    x *= UINT64_C(0xBF58476D1CE4E5B9);
    return (float)(int32_t)(x >> 32) * 0x1p-30f; /* -2 .. 2 */
}

/* Numbers from `seed`; 0 leaves the pattern. */
static void fill(const pl_tensor *t, int64_t count, uint32_t seed)
{
    for (int64_t i = 0; t->data && seed && i < count; i++) {
        float x = number((uint64_t)i, seed);
        if (t->type == PL_TENSOR_FP32)
            ((float *)t->data)[i] = x;
        else
            ((uint16_t *)t->data)[i] =
                t->type == PL_TENSOR_BF16 ? pl_f32_to_bf16(x) : pl_f32_to_f16(x);
    }
}

/* NaN where nobody may look. */
static void poison(const pl_tensor *t, int64_t from, int64_t count)
{
    for (int64_t i = from; t->data && i < from + count; i++)
        if (t->type == PL_TENSOR_FP32)
            ((float *)t->data)[i] = NAN;
        else
            ((uint16_t *)t->data)[i] = t->type == PL_TENSOR_BF16 ? 0x7FC0 : 0x7E00;
}

static pl_tensor rows(pl_check_call *c, const pl_check_shape *s, int64_t n, int64_t heads,
                      int64_t dim, uint32_t seed)
{
    pl_tensor t = pl_tensor_of(NULL, s->type, 3, n, heads, dim);
    int64_t count = n * heads * dim;

    t.data = take(c, (size_t)(count * pl__tensor_size(s->type)));
    fill(&t, count, seed);
    return t;
}

/* [n_pages][page][heads][dim] with a gap behind each page, all of it filled. */
static pl_tensor pages(pl_check_call *c, const pl_check_shape *s, pl_tensor_type type,
                       int64_t n_pages, int64_t heads, int64_t dim, uint32_t seed)
{
    pl_tensor t = pl_tensor_pages(NULL, type, n_pages, s->page_size, heads, dim);

    t.strides[0] += s->page_gap;
    t.data = take(c, (size_t)(n_pages * t.strides[0] * pl__tensor_size(type)));
    if (type != PL_TENSOR_UINT8)
        fill(&t, n_pages * t.strides[0], seed);
    return t;
}

static pl_tensor ints(pl_check_call *c, int32_t n_dims, int64_t d0, int64_t d1, int64_t d2)
{
    int64_t n = d0 * (n_dims > 1 ? d1 * d2 : 1);

    return pl_tensor_of(take(c, (size_t)n * 4), PL_TENSOR_INT32, n_dims, d0, d1, d2);
}

static void add_ends(pl_check_call *c, const pl_check_shape *s)
{
    int32_t *q, *k;

    c->call.indices = ints(c, 1, s->n_seqs + 1, 0, 0);
    c->call.lengths = ints(c, 1, s->n_seqs + 1, 0, 0);
    q = c->call.indices.data;
    k = c->call.lengths.data;
    for (int32_t i = 0; q && i <= s->n_seqs; i++) {
        q[i] = i ? q[i - 1] + s->n_q[i - 1] : 0;
        k[i] = i ? k[i - 1] + s->n_k[i - 1] : 0;
    }
}

enum { SPARE_PAGES = 2 };

static int64_t pages_of(const pl_check_shape *s, int32_t n_rows)
{
    return (n_rows + s->page_size - 1) / s->page_size;
}

/* Keys and values in pages that lie backwards; what no sequence has is NaN. */
static void add_pages(pl_check_call *c, const pl_check_shape *s)
{
    int64_t n_pages = SPARE_PAGES, width = 1, row = s->page_size * s->n_kv_heads;
    int32_t *table;

    for (int32_t b = 0; b < s->n_seqs; b++) {
        int64_t n = pages_of(s, s->n_k[b]);
        n_pages += n;
        width = n > width ? n : width;
    }
    c->call.k = pages(c, s, s->type, n_pages, s->n_kv_heads, s->dim, 2);
    c->call.v = pages(c, s, s->type, n_pages, s->n_kv_heads, s->value_dim, 3);
    table = take(c, (size_t)(s->n_seqs * width) * 4);
    c->call.pages = pl_tensor_of(table, PL_TENSOR_INT32, 2, s->n_seqs, width, 0);
    poison(&c->call.k, 0, SPARE_PAGES * c->call.k.strides[0]);
    poison(&c->call.v, 0, SPARE_PAGES * c->call.v.strides[0]);
    for (int32_t b = 0; table && b < s->n_seqs; b++)
        for (int64_t i = 0; i < width; i++) {
            int64_t left = s->n_k[b] - i * s->page_size, page = --n_pages;
            if (left <= 0) {
                table[b * width + i] = INT32_MAX; /* needed by nobody */
                n_pages++;
                continue;
            }
            table[b * width + i] = (int32_t)page;
            left = (left < s->page_size ? left : s->page_size) * s->n_kv_heads;
            poison(&c->call.k, page * c->call.k.strides[0] + left * s->dim, (row - left) * s->dim);
            poison(&c->call.v, page * c->call.v.strides[0] + left * s->value_dim,
                   (row - left) * s->value_dim);
        }
}

/* A row of V4 or V32: codes, scales about 1, bf16 numbers; `nan`: codes that are none. */
static void put_row(const pl_tensor *k, int64_t row, bool v4, bool nan, uint32_t seed)
{
    const int64_t page = k->shape[1], o = row % page, coded = v4 ? 448 : 512;
    uint8_t *base = (uint8_t *)k->data + row / page * k->strides[0];
    uint8_t *codes = base + o * (v4 ? 576 : 656), *tail = codes + coded + (v4 ? 0 : 16);

    for (int64_t i = 0; i < coded; i++) {
        int32_t x = (int32_t)(number((uint64_t)(row * coded + i), seed) * 31.5f); /* -63 .. 63 */
        codes[i] = nan ? 0x7F : x < 0 ? (uint8_t)(0x80 - x) : (uint8_t)x;
    }
    for (int64_t i = 0; i < (v4 ? 7 : 4); i++) {
        float x = 1 + number((uint64_t)(row * 7 + i), seed + 1) / 4;
        if (v4)
            base[page * 576 + o * 8 + i] = (uint8_t)(x < 1 ? 126 : 127);
        else
            memcpy(codes + coded + 4 * i, &x, sizeof x);
    }
    if (v4)
        base[page * 576 + o * 8 + 7] = 0;
    for (int64_t i = 0; i < 64; i++) {
        uint16_t x = nan ? 0x7FC0 : pl_f32_to_bf16(number((uint64_t)(row * 64 + i), seed + 2));
        memcpy(tail + 2 * i, &x, sizeof x);
    }
}

/* n_rows rows and EXTRA_ROWS or more of NaN behind them. */
static pl_tensor cache(pl_check_call *c, const pl_check_shape *s, int32_t n_rows, uint32_t seed)
{
    const bool v4 = s->format == PL_KV_V4;
    int64_t n_pages = s->page_size ? pages_of(s, n_rows + EXTRA_ROWS) : 0;
    pl_tensor t;

    if (!s->page_size) {
        t = rows(c, s, n_rows + EXTRA_ROWS, 1, s->dim, seed);
        poison(&t, (int64_t)n_rows * s->dim, (int64_t)EXTRA_ROWS * s->dim);
        return t;
    }
    if (s->format == PL_KV_BF16) {
        t = pages(c, s, PL_TENSOR_BF16, n_pages, 1, s->dim, seed);
        for (int64_t r = n_rows; r < n_pages * s->page_size; r++)
            poison(&t, r / s->page_size * t.strides[0] + r % s->page_size * s->dim, s->dim);
        return t;
    }
    t = pages(c, s, PL_TENSOR_UINT8, n_pages, 1, v4 ? 584 : 656, 0);
    for (int64_t r = 0; t.data && r < n_pages * s->page_size; r++)
        put_row(&t, r, v4, r >= n_rows, seed);
    return t;
}

/* The first sequence has no key; -1 and numbers past the end stand between the others. */
static void add_lists(pl_check_call *c, const pl_check_shape *s, int64_t n_tokens, int64_t n_rows,
                      int64_t shift, pl_tensor *indices, pl_tensor *lengths)
{
    int64_t width = s->index_multiple > 64 ? s->index_multiple : 64 - 64 % s->index_multiple;
    int32_t seq_tokens = s->seq_tokens ? s->seq_tokens : 1, *list, *length;

    *indices = ints(c, 3, n_tokens, 1, width);
    *lengths = ints(c, 1, n_tokens / seq_tokens, 0, 0);
    list = indices->data;
    length = lengths->data;
    for (int64_t b = 0; length && b < n_tokens / seq_tokens; b++)
        length[b] = (int32_t)(b ? width - (b + shift) % 7 : 0);
    for (int64_t t = 0; list && length && t < n_tokens; t++)
        for (int64_t i = 0; i < width; i++)
            list[t * width + i] = i >= length[t / seq_tokens]
                                      ? (int32_t)n_rows /* NaN, and not to be read */
                                  : i % 11 == 3 ? -1
                                  : i % 11 == 7 ? INT32_MAX
                                                : (int32_t)((t * 7 + i * 5 + shift) % n_rows);
}

static void add_sparse(pl_check_call *c, const pl_check_shape *s, int64_t n_tokens, int32_t n_rows)
{
    c->call.k = cache(c, s, n_rows, 2);
    add_lists(c, s, n_tokens, n_rows, 0, &c->call.indices, &c->call.lengths);
    if (!s->second_set)
        return;
    c->call.extra_k = cache(c, s, n_rows, 7);
    add_lists(c, s, n_tokens, n_rows, 3, &c->call.extra_indices, &c->call.extra_lengths);
}

static void add_all(const pl_providers *set, int index, const pl_check_shape *s, pl_check_call *c)
{
    bool sparse = s->op != PL_PROVIDER_VARLEN;
    int64_t n_q = 0;
    int32_t n_k = 0;
    uint64_t workspace;

    for (int32_t i = 0; i < s->n_seqs; i++) {
        n_q += s->n_q[i];
        n_k += s->n_k[i];
    }
    c->used = 0;
    c->call.q = rows(c, s, n_q, s->n_heads, s->dim, 1);
    if (sparse) {
        add_sparse(c, s, n_q, n_k);
    } else {
        if (s->page_size) {
            add_pages(c, s);
        } else {
            c->call.k = rows(c, s, n_k, s->n_kv_heads, s->dim, 2);
            c->call.v = rows(c, s, n_k, s->n_kv_heads, s->value_dim, 3);
        }
        add_ends(c, s);
    }
    if (s->sink) {
        float *z = take(c, (size_t)s->n_heads * 4);
        c->call.sink = pl_tensor_of(z, PL_TENSOR_FP32, 1, s->n_heads, 0, 0);
        for (int32_t h = 0; z && h < s->n_heads; h++)
            z[h] = 2 + number((uint64_t)h, 4);
    }
    c->call.out = rows(c, s, n_q, s->n_heads, s->value_dim, 0);
    c->out_bytes = (size_t)(n_q * s->n_heads * s->value_dim * pl__tensor_size(s->type));
    c->lse_bytes = (size_t)(n_q * s->n_heads) * 4;
    c->call.lse = pl_tensor_of(take(c, c->lse_bytes), PL_TENSOR_FP32, 2, s->n_heads, n_q, 0);
    if (sparse)
        c->call.max_logits =
            pl_tensor_of(take(c, c->lse_bytes), PL_TENSOR_FP32, 2, s->n_heads, n_q, 0);
    workspace = pl_providers_workspace_bytes(set, index, &c->call);
    if (workspace > UINT64_C(1) << 31) /* refused below */
        workspace = UINT64_C(1) << 31;
    c->call.workspace =
        pl_tensor_of(take(c, (size_t)workspace), PL_TENSOR_UINT8, 1, (int64_t)workspace, 0, 0);
    c->bytes = c->used;
}

pl_status pl__check_call_make(const pl_providers *set, int index, const pl_check_shape *shape,
                              pl_check_call *c, pl_error *err)
{
    *c = (pl_check_call){.call = {.op = shape->op,
                                  .capture = PL_CAPTURE_NONE,
                                  .value_dim = shape->value_dim,
                                  .softcap = shape->softcap,
                                  .causal = shape->causal,
                                  .seq_tokens = shape->seq_tokens,
                                  .window_left = shape->window_left,
                                  .window_right = shape->window_right}};
    add_all(set, index, shape, c);
    if (c->bytes > (size_t)1 << 30)
        return pl_error_set(
            err, PL_ERR_LIMIT,
            "check: arrays of the claimed shapes are too large (got %zu bytes, want "
            "at most 2^30)",
            c->bytes);
    c->memory = aligned_alloc(64, c->bytes);
    if (!c->memory)
        return pl_error_set(err, PL_ERR_NOMEM, "check: no memory (want %zu bytes)", c->bytes);
    add_all(set, index, shape, c);
    return PL_OK;
}

void pl__check_call_free(pl_check_call *c)
{
    free(c->memory);
    c->memory = NULL;
}

static bool stands(const void *data, size_t n)
{
    const uint8_t *at = (const uint8_t *)data + n;

    for (size_t i = 0; data && i < FENCE; i++)
        if (at[i] != PATTERN)
            return false;
    return true;
}

bool pl__check_fences_stand(const pl_check_call *c)
{
    return stands(c->call.out.data, c->out_bytes) && stands(c->call.lse.data, c->lse_bytes) &&
           stands(c->call.max_logits.data, c->lse_bytes) &&
           stands(c->call.workspace.data, (size_t)c->call.workspace.shape[0]);
}
