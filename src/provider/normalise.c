/* From a provider's numbers to ours: LSE to natural logarithm and to one sign for rows without keys, the sink applied to
 * what was computed without it. In plain fp32 with subnormals: the formula is part of the contract, and whoever checks it
 * does so in IEEE arithmetic. NaN is never replaced. */
#include <inttypes.h>
#include <math.h>

#include "base/error.h"
#include "base/math.h"
#include "ops/varlen.h"
#include "provider/provider.h"
#include "provider/tensor.h"

static float natural(float x, bool base2, bool empty_positive)
{
    if (empty_positive && x == INFINITY)
        return -INFINITY;
    return base2 ? (float)((double)x * 0x1.62e42fefa39efp-1) : x;
}

pl_status pl_lse_normalise(const float *src, const int64_t shape[2], pl_lse_layout layout,
                           int base2, int empty_positive, int64_t n_heads, int64_t n_tokens,
                           float *dst, pl_error *err)
{
    bool ht = shape[0] == n_heads && shape[1] == n_tokens;
    bool th = shape[0] == n_tokens && shape[1] == n_heads;

    PL_CHECK(n_heads >= 0 && n_tokens >= 0 && (layout == PL_LSE_TH ? th : ht || th), err,
             "lse: another shape (got [%" PRId64 ", %" PRId64 "], want [%" PRId64 ", %" PRId64 "])",
             shape[0], shape[1], layout == PL_LSE_TH ? n_tokens : n_heads,
             layout == PL_LSE_TH ? n_heads : n_tokens);
    PL_CHECK(layout != PL_LSE_HT || ht, err,
             "lse: another shape (got [%" PRId64 ", %" PRId64 "], want [%" PRId64 ", %" PRId64 "])",
             shape[0], shape[1], n_heads, n_tokens);
    PL_CHECK(layout != PL_LSE_UNDECLARED || ht != th, err,
             "lse: [H,T] and [T,H] cannot be told apart (got %" PRId64 " of both, want a layout)",
             n_heads);
    th = layout == PL_LSE_TH || (layout == PL_LSE_UNDECLARED && th);
    for (int64_t h = 0; h < n_heads; h++)
        for (int64_t t = 0; t < n_tokens; t++)
            dst[h * n_tokens + t] = natural(src[th ? t * n_heads + h : h * n_tokens + t],
                                            base2 != 0, empty_positive != 0);
    return PL_OK;
}

/* Subnormals stay, unlike in the operators. */
static float from_bf16(uint16_t b)
{
    return pl_f32_from_bits((uint32_t)b << 16);
}

static uint16_t to_bf16(float x)
{
    uint32_t u = pl_f32_bits(x);

    if (x != x)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

static void scale_row(const pl_tensor *out, int64_t at, float w)
{
    for (int64_t i = 0; i < out->shape[2]; i++) {
        int64_t j = at + i * out->strides[2];
        if (out->type == PL_TENSOR_FP32) {
            ((float *)out->data)[j] *= w;
        } else {
            uint16_t *x = (uint16_t *)out->data + j;
            *x = out->type == PL_TENSOR_BF16 ? to_bf16(from_bf16(*x) * w)
                                             : pl_f32_to_f16(pl_f16_to_f32(*x) * w);
        }
    }
}

/* ln of the sum of e^z; one row is itself. */
static float fold(const float *sink, int32_t n_sinks, int64_t heads, int64_t h)
{
    double max = sink[h], sum = 0;

    for (int32_t i = 1; i < n_sinks; i++)
        if (sink[i * heads + h] > max || isnan(sink[i * heads + h]))
            max = sink[i * heads + h];
    if (n_sinks == 1 || !isfinite(max))
        return (float)max;
    for (int32_t i = 0; i < n_sinks; i++)
        sum += pl_exp_f64(sink[i * heads + h] - max);
    return (float)(max + pl_log_f64(sum));
}

static float weight(float lse, float z)
{
    if (isnan(lse) || isnan(z))
        return NAN;
    if (lse == -INFINITY || z == INFINITY)
        return 0;
    return (float)pl_sigmoid_f64((double)(lse - z));
}

void pl__provider_correct(pl_tensor *out, const float *lse, int64_t head_stride,
                          int64_t token_stride, const float *sink, int32_t n_sinks)
{
    for (int64_t h = 0; h < out->shape[1]; h++) {
        float z = fold(sink, n_sinks, out->shape[1], h);
        for (int64_t t = 0; t < out->shape[0]; t++)
            scale_row(out, t * out->strides[0] + h * out->strides[1],
                      weight(lse[h * head_stride + t * token_stride], z));
    }
}

pl_status pl_sink_correct(pl_tensor *out, const float *lse, const float *sink, int32_t n_sinks,
                          pl_error *err)
{
    PL_CHECK(pl__tensor_is(out, 3) && pl__tensor_apart(out) && out->type <= PL_TENSOR_FP32, err,
             "out: no array of numbers (want bf16, fp16 or fp32 [tokens][heads][dims])");
    PL_CHECK(lse != NULL || out->shape[0] == 0, err, "lse: missing (got NULL)");
    PL_CHECK(sink != NULL && n_sinks >= 1, err, "sink: missing (got %d rows, want 1 or more)",
             n_sinks);
    pl__provider_correct(out, lse, out->shape[0], 1, sink, n_sinks);
    return PL_OK;
}

void pl__provider_finish_lse(const pl_provider_call *call, const pl_provider_launch *l)
{
    const pl_provider_claims *c = l->claims;
    bool th = c->lse_layout == PL_LSE_TH, call_th = call->lse_layout == PL_LSE_TH;
    int64_t hs = th ? 1 : l->n_tokens, ts = th ? l->n_heads : 1;
    float *lse = l->lse.data, *to = call->lse.data;
    pl_tensor out = call->out;

    if (l->lse.type == PL_TENSOR_NONE)
        return;
    for (int64_t i = 0; i < l->n_heads * l->n_tokens; i++)
        lse[i] = natural(lse[i], c->lse_base2 != 0, c->lse_empty_positive != 0);
    if (l->correct)
        pl__provider_correct(&out, lse, hs, ts, call->sink.data,
                             call->sink.n_dims == 2 ? (int32_t)call->sink.shape[0] : 1);
    if (call->lse.type == PL_TENSOR_NONE)
        return;
    for (int64_t h = 0; h < l->n_heads; h++)
        for (int64_t t = 0; t < l->n_tokens; t++) {
            float x = lse[h * hs + t * ts];
            /* Restored at the edge; the other sign is a sum that overflowed, which stays what it is. */
            to[call_th ? t * l->n_heads + h : h * l->n_tokens + t] =
                call->lse_empty_positive && x == -INFINITY ? INFINITY : x;
        }
}
