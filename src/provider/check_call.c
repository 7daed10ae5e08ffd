/* Calls for the conformance check. Sizes are those of small shapes that the check itself chooses, within what a record was
 * allowed to claim; behind every output lies a fence of known bytes. */
#include "provider/check_call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/numfmt.h"
#include "ops/varlen.h"
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

static pl_tensor rows(pl_check_call *c, const pl_check_shape *s, int64_t n, int64_t heads,
                      int64_t dim, uint32_t seed)
{
    pl_tensor t = pl_tensor_of(NULL, s->type, 3, n, heads, dim);
    int64_t count = n * heads * dim;

    t.data = take(c, (size_t)(count * pl__tensor_size(s->type)));
    for (int64_t i = 0; t.data && seed && i < count; i++) {
        float x = number((uint64_t)i, seed);
        if (s->type == PL_TENSOR_FP32)
            ((float *)t.data)[i] = x;
        else
            ((uint16_t *)t.data)[i] =
                s->type == PL_TENSOR_BF16 ? pl_f32_to_bf16(x) : pl_f32_to_f16(x);
    }
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

/* The first token has no key; -1 and numbers past the end stand between the others; odd rows behind `n_rows` are NaN. */
static void add_lists(pl_check_call *c, const pl_check_shape *s, int64_t n_tokens, int64_t n_rows)
{
    int64_t width = s->index_multiple > 64 ? s->index_multiple : 64 - 64 % s->index_multiple;
    int32_t *list, *length;
    uint16_t *k = c->call.k.data;

    c->call.indices = ints(c, 3, n_tokens, 1, width);
    c->call.lengths = ints(c, 1, n_tokens, 0, 0);
    list = c->call.indices.data;
    length = c->call.lengths.data;
    for (int64_t t = 0; list && t < n_tokens; t++) {
        length[t] = (int32_t)(t ? width - t % 7 : 0);
        for (int64_t i = 0; i < width; i++)
            list[t * width + i] = i >= length[t] ? (int32_t)n_rows /* NaN, and not to be read */
                                  : i % 11 == 3  ? -1
                                  : i % 11 == 7  ? INT32_MAX
                                                 : (int32_t)((t * 7 + i * 5) % n_rows);
    }
    for (int64_t i = n_rows * s->dim; k && i < (n_rows + EXTRA_ROWS) * s->dim; i++)
        k[i] = 0x7FC0;
}

static void add_all(const pl_providers *set, int index, const pl_check_shape *s, pl_check_call *c)
{
    bool sparse = s->op == PL_PROVIDER_SPARSE;
    int64_t n_q = 0, n_k = 0;
    uint64_t workspace;

    for (int32_t i = 0; i < s->n_seqs; i++) {
        n_q += s->n_q[i];
        n_k += s->n_k[i];
    }
    c->used = 0;
    c->call.q = rows(c, s, n_q, s->n_heads, s->dim, 1);
    c->call.k = rows(c, s, n_k + (sparse ? EXTRA_ROWS : 0), s->n_kv_heads, s->dim, 2);
    if (!sparse)
        c->call.v = rows(c, s, n_k, s->n_kv_heads, s->value_dim, 3);
    if (sparse)
        add_lists(c, s, n_q, n_k);
    else
        add_ends(c, s);
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
