/* The reference of the conformance check: attention by its definition, a row at a time, in double, two passes. It shares
 * nothing with the kernels but the formats of numbers, and is as slow as it looks. */
#include "provider/oracle.h"

#include <math.h>
#include <stdbool.h>

#include "base/math.h"
#include "ops/varlen.h"

double pl__oracle_number(const pl_tensor *t, int64_t i)
{
    if (t->type == PL_TENSOR_FP32)
        return (double)((const float *)t->data)[i];
    if (t->type == PL_TENSOR_FP16)
        return (double)pl_f16_to_f32(((const uint16_t *)t->data)[i]);
    return (double)pl_f32_from_bits((uint32_t)((const uint16_t *)t->data)[i] << 16);
}

/* The keys of a token: rows begin .. end - 1, or those of a list. */
typedef struct visible {
    int64_t begin, end;
    const int32_t *list;
} visible;

static visible keys_of(const pl_provider_call *c, int64_t token)
{
    const int32_t *cu_q = c->indices.data, *cu_k = c->lengths.data;
    int64_t b = 0, i, d, right = c->causal ? 0 : c->window_right;
    visible v = {0};

    if (c->op == PL_PROVIDER_SPARSE) {
        v.list = cu_q + token * c->indices.shape[2];
        v.end = cu_k[token] < c->indices.shape[2] ? cu_k[token] : c->indices.shape[2];
        return v;
    }
    while (cu_q[b + 1] <= token)
        b++;
    i = token - cu_q[b];
    d = (int64_t)(cu_k[b + 1] - cu_k[b]) - (cu_q[b + 1] - cu_q[b]);
    v.end = cu_k[b + 1] - cu_k[b];
    if (right >= 0 && i + d + right + 1 < v.end)
        v.end = i + d + right + 1;
    if (c->window_left >= 0 && i + d - c->window_left > 0)
        v.begin = i + d - c->window_left;
    v.begin += cu_k[b];
    v.end += cu_k[b];
    return v;
}

/* Row of k, or -1. */
static int64_t key_of(const pl_provider_call *c, const visible *v, int64_t j)
{
    int64_t row = v->list ? v->list[j] : j;

    return row >= 0 && row < c->k.shape[0] ? row : -1;
}

static double score(const pl_provider_call *c, int64_t token, int64_t head, int64_t row,
                    double *reach)
{
    int64_t q = token * c->q.strides[0] + head * c->q.strides[1];
    int64_t k = row * c->k.strides[0] + head / (c->q.shape[1] / c->k.shape[1]) * c->k.strides[1];
    double scale =
        c->softmax_scale > 0 ? (double)c->softmax_scale : 1 / pl_sqrt_f64((double)c->q.shape[2]);
    double sum = 0, sizes = 0;

    for (int64_t i = 0; i < c->q.shape[2]; i++) {
        double x = pl__oracle_number(&c->q, q + i) * pl__oracle_number(&c->k, k + i);
        sum += x;
        sizes += fabs(x);
    }
    if (sizes * scale > *reach)
        *reach = sizes * scale;
    sum *= scale;
    return c->softcap > 0 ? (double)c->softcap * pl_tanh_f64(sum / (double)c->softcap) : sum;
}

/* Sum of e^(z - max) of the head's sinks. */
static double sinks(const pl_provider_call *c, int64_t head, double max)
{
    int64_t n = c->sink.n_dims == 2 ? c->sink.shape[0] : 1;
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += pl_exp_f64((double)((const float *)c->sink.data)[i * c->q.shape[1] + head] - max);
    return sum;
}

static void add_values(const pl_provider_call *c, int64_t row, int64_t head, double p,
                       pl_oracle_row *r)
{
    const pl_tensor *v = c->op == PL_PROVIDER_SPARSE ? &c->k : &c->v;
    int64_t at = row * v->strides[0] + head / (c->q.shape[1] / v->shape[1]) * v->strides[1];

    for (int64_t i = 0; i < c->value_dim; i++) {
        double x = p * pl__oracle_number(v, at + i);
        r->out[i] += x;
        r->weight[i] += fabs(x);
    }
}

void pl__oracle_row(const pl_provider_call *call, int64_t token, int64_t head, int with_sink,
                    pl_oracle_row *row)
{
    visible v = keys_of(call, token);
    double sum = 0, all;

    *row = (pl_oracle_row){.lse = -INFINITY, .max_logit = -INFINITY};
    for (int64_t j = v.begin; j < v.end; j++) {
        int64_t k = key_of(call, &v, j);
        double s = k < 0 ? -INFINITY : score(call, token, head, k, &row->reach);
        row->max_logit = s > row->max_logit ? s : row->max_logit;
    }
    if (row->max_logit == -INFINITY)
        return;
    for (int64_t j = v.begin; j < v.end; j++) {
        int64_t k = key_of(call, &v, j);
        double p;
        if (k < 0)
            continue;
        p = pl_exp_f64(score(call, token, head, k, &row->reach) - row->max_logit);
        sum += p;
        add_values(call, k, head, p, row);
    }
    row->lse = row->max_logit + pl_log_f64(sum);
    all = sum + (with_sink ? sinks(call, head, row->max_logit) : 0);
    for (int32_t i = 0; i < call->value_dim; i++) {
        row->out[i] /= all;
        row->weight[i] /= all;
    }
}
