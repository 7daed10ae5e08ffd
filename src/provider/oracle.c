/* The reference of the conformance check: attention by its definition, a row at a time, in double, two passes. It shares
 * nothing with the kernels but the formats of numbers, and is as slow as it looks. */
#include "provider/oracle.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/math.h"
#include "base/numfmt.h"
#include "ops/varlen.h"
#include "provider/provider.h"

double pl__oracle_number(const pl_tensor *t, int64_t i)
{
    if (t->type == PL_TENSOR_FP32)
        return (double)((const float *)t->data)[i];
    if (t->type == PL_TENSOR_FP16)
        return (double)pl_f16_to_f32(((const uint16_t *)t->data)[i]);
    return (double)pl_f32_from_bits((uint32_t)((const uint16_t *)t->data)[i] << 16);
}

/* A code times its scale is a number of bf16. */
static double scaled(uint8_t code, float scale)
{
    return (double)pl_f32_from_bits((uint32_t)pl_f32_to_bf16(pl_e4m3_to_f32(code) * scale) << 16);
}

/* V4: 576 bytes a row, behind all of a page eight a row; V32: 656 a row. `x` gets dim numbers. */
static void widen_bytes(const pl_tensor *k, int64_t row, int64_t dim, double *x)
{
    const int64_t page = k->shape[1], o = row % page;
    const uint8_t *base = (const uint8_t *)k->data + row / page * k->strides[0];
    const int64_t coded = dim - 64, block = dim == 512 ? 64 : 128;
    const uint8_t *codes = base + o * (dim == 512 ? 576 : 656);
    const uint8_t *scales = dim == 512 ? base + page * 576 + o * 8 : codes + coded;
    const uint8_t *tail = dim == 512 ? codes + coded : codes + coded + 16;

    for (int64_t i = 0; i < coded; i++) {
        float scale = 0;
        if (dim == 512)
            scale = pl_e8m0_to_f32(scales[i / block]);
        else
            memcpy(&scale, scales + i / block * 4, sizeof scale);
        x[i] = scaled(codes[i], scale);
    }
    for (int64_t i = 0; i < 64; i++) {
        uint16_t b;
        memcpy(&b, tail + 2 * i, sizeof b);
        x[coded + i] = (double)pl_f32_from_bits((uint32_t)b << 16);
    }
}

/* n numbers of row `row` of head `head`, wherever they lie. */
static void widen(const pl_tensor *t, int64_t row, int64_t head, int64_t n, double *x)
{
    const bool paged = t->n_dims == 4;
    const int64_t page = paged ? t->shape[1] : 1;
    int64_t at = row / page * t->strides[0] + head * t->strides[1 + paged];

    if (t->type == PL_TENSOR_UINT8) {
        widen_bytes(t, row, n, x);
        return;
    }
    at += paged ? row % page * t->strides[1] : 0;
    for (int64_t i = 0; i < n; i++)
        x[i] = pl__oracle_number(t, at + i);
}

/* The keys of a token: numbers begin .. end - 1, of a sequence's rows or of its lists, one after the other. */
typedef struct visible {
    int64_t begin, end;
    int64_t first, sequence; /* varlen: its first row where keys are packed; its row of the table */
    const int32_t *list[2];
    int64_t n_list; /* of the first list */
} visible;

static const int32_t *list_of(const pl_provider_call *c, int set, int64_t token, int64_t *n)
{
    const pl_tensor *i = set ? &c->extra_indices : &c->indices;
    const pl_tensor *lengths = set ? &c->extra_lengths : &c->lengths;

    *n = 0;
    if (i->type == PL_TENSOR_NONE)
        return NULL;
    *n = i->shape[2];
    if (lengths->type != PL_TENSOR_NONE) {
        int32_t length = ((const int32_t *)lengths->data)[token / pl__provider_seq_tokens(c)];
        *n = length < *n ? length : *n;
    }
    return (const int32_t *)i->data + token * i->shape[2];
}

static visible keys_of(const pl_provider_call *c, int64_t token)
{
    const int32_t *cu_q = c->indices.data, *cu_k = c->lengths.data;
    int64_t b = 0, i, d, right = c->causal ? 0 : c->window_right;
    visible v = {0};

    if (c->op != PL_PROVIDER_VARLEN) {
        v.list[0] = list_of(c, 0, token, &v.n_list);
        v.list[1] = list_of(c, 1, token, &v.end);
        v.end += v.n_list;
        return v;
    }
    while (cu_q[b + 1] <= token)
        b++;
    i = token - cu_q[b];
    d = (int64_t)(cu_k[b + 1] - cu_k[b]) - (cu_q[b + 1] - cu_q[b]);
    v.sequence = b;
    v.first = cu_k[b];
    v.end = cu_k[b + 1] - cu_k[b];
    if (right >= 0 && i + d + right + 1 < v.end)
        v.end = i + d + right + 1;
    if (c->window_left >= 0 && i + d - c->window_left > 0)
        v.begin = i + d - c->window_left;
    return v;
}

/* Row of key j in *of, or -1. */
static int64_t key_of(const pl_provider_call *c, const visible *v, int64_t j, const pl_tensor **of)
{
    int64_t row, n;

    *of = &c->k;
    if (c->op == PL_PROVIDER_VARLEN) {
        if (c->pages.type == PL_TENSOR_NONE)
            return v->first + j;
        n = c->k.shape[1];
        row = ((const int32_t *)c->pages.data)[v->sequence * c->pages.strides[0] + j / n];
        return row * n + j % n;
    }
    if (j >= v->n_list)
        *of = &c->extra_k;
    row = j < v->n_list ? v->list[0][j] : v->list[1][j - v->n_list];
    n = (*of)->shape[0] * ((*of)->n_dims == 4 ? (*of)->shape[1] : 1);
    return row >= 0 && row < n ? row : -1;
}

static int64_t kv_heads(const pl_provider_call *c)
{
    return c->k.shape[c->k.n_dims - 2];
}

static double score(const pl_provider_call *c, int64_t token, int64_t head, const double *key,
                    double *reach)
{
    int64_t q = token * c->q.strides[0] + head * c->q.strides[1];
    double scale =
        c->softmax_scale > 0 ? (double)c->softmax_scale : 1 / pl_sqrt_f64((double)c->q.shape[2]);
    double sum = 0, sizes = 0;

    for (int64_t i = 0; i < c->q.shape[2]; i++) {
        double x = pl__oracle_number(&c->q, q + i) * key[i];
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

static void add_values(const pl_provider_call *c, const double *value, double p, pl_oracle_row *r)
{
    for (int64_t i = 0; i < c->value_dim; i++) {
        double x = p * value[i];
        r->out[i] += x;
        r->weight[i] += fabs(x);
    }
}

void pl__oracle_row(const pl_provider_call *call, int64_t token, int64_t head, int with_sink,
                    pl_oracle_row *row)
{
    visible v = keys_of(call, token);
    int64_t kv_head = head / (call->q.shape[1] / kv_heads(call));
    double sum = 0, all, key[PL_ORACLE_MAX_DIM], value[PL_ORACLE_MAX_DIM];
    const pl_tensor *of;

    *row = (pl_oracle_row){.lse = -INFINITY, .max_logit = -INFINITY};
    for (int64_t j = v.begin; j < v.end; j++) {
        int64_t k = key_of(call, &v, j, &of);
        double s;
        if (k < 0)
            continue;
        widen(of, k, kv_head, call->q.shape[2], key);
        s = score(call, token, head, key, &row->reach);
        row->max_logit = s > row->max_logit ? s : row->max_logit;
    }
    if (row->max_logit == -INFINITY)
        return;
    for (int64_t j = v.begin; j < v.end; j++) {
        int64_t k = key_of(call, &v, j, &of);
        double p;
        if (k < 0)
            continue;
        widen(of, k, kv_head, call->q.shape[2], key);
        p = pl_exp_f64(score(call, token, head, key, &row->reach) - row->max_logit);
        sum += p;
        if (call->op == PL_PROVIDER_VARLEN)
            widen(&call->v, k, kv_head, call->value_dim, value);
        add_values(call, call->op == PL_PROVIDER_VARLEN ? value : key, p, row);
    }
    row->lse = row->max_logit + pl_log_f64(sum);
    all = sum + (with_sink ? sinks(call, head, row->max_logit) : 0);
    for (int32_t i = 0; i < call->value_dim; i++) {
        row->out[i] /= all;
        row->weight[i] /= all;
    }
}
