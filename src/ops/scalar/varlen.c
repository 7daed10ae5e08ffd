/* Level scalar: attention over packed sequences, one row after the other (NUMERICS 9). */
#include "ops/scalar/scalar.h"

#include <math.h>
#include <string.h>

typedef struct row {
    float q[PL_VARLEN_MAX_DIM], o[PL_VARLEN_MAX_DIM];
    float k[PL_VARLEN_MAX_DIM], v[PL_VARLEN_BLOCK][PL_VARLEN_MAX_DIM];
    float p[PL_VARLEN_BLOCK];
    float m, l;
} row;

_Static_assert(sizeof(row) <= PL_VARLEN_SCRATCH_BYTES, "scratch");

static void widen(pl_varlen_type type, const void *x, int n, float *out)
{
    for (int i = 0; i < n; i++)
        out[i] = type == PL_VARLEN_F32   ? pl_f32_flush(((const float *)x)[i])
                 : type == PL_VARLEN_F16 ? pl_f16_to_f32(((const uint16_t *)x)[i])
                                         : pl_bf16_to_f32(((const uint16_t *)x)[i]);
}

static float rounded(pl_varlen_type type, float p)
{
    return type == PL_VARLEN_F32   ? p
           : type == PL_VARLEN_F16 ? pl_f16_to_f32(pl_f32_to_f16(p))
                                   : pl_bf16_round(p);
}

/* chain(c; pairs of a and b), the odd element of each pair first. */
static float fma_of(pl_varlen_type type, float a, float b, float c)
{
    return type == PL_VARLEN_F32 ? pl_fma_f32(a, b, c) : pl__fma24(a, b, c);
}

static float score(const pl_varlen_args *a, const row *r)
{
    float s = 0;

    for (int d = 0; d < a->dim; d += 2) {
        s = fma_of(a->type, r->q[d + 1], r->k[d + 1], s);
        s = fma_of(a->type, r->q[d], r->k[d], s);
    }
    s = s * a->scale;
    return a->cap > 0 ? a->cap * pl_tanh_f32(s / a->cap) : s;
}

/* Slots begin .. end - 1 of the block that starts at key `key` are visible. */
static void add_block(const pl_varlen_args *a, const pl_varlen_tile *t, row *r, int64_t key,
                      int64_t begin, int64_t end)
{
    float m = r->m, base, alpha, sum = 0;

    memset(r->v, 0, sizeof r->v);
    for (int64_t j = begin; j < end; j++) {
        widen(a->type, pl_varlen_row(a, &a->k, t->seq, key + j, t->kv_head), a->dim, r->k);
        widen(a->type, pl_varlen_row(a, &a->v, t->seq, key + j, t->kv_head), a->value_dim, r->v[j]);
        r->p[j] = score(a, r);
        m = pl_max_f32(r->p[j], m);
    }
    base = m == -INFINITY ? 0 : m;
    alpha = pl_exp_f32(r->m - base);
    for (int64_t j = 0; j < PL_VARLEN_BLOCK; j++) {
        r->p[j] = j >= begin && j < end ? pl_exp_f32(r->p[j] - base) : 0;
        sum = j == 0 ? r->p[j] : sum + r->p[j];
    }
    r->l = r->l * alpha + sum;
    r->m = m;
    for (int d = 0; d < a->value_dim; d++) {
        float o = r->o[d] * alpha;

        for (int j = 0; j < PL_VARLEN_BLOCK; j += 2) {
            o = fma_of(a->type, rounded(a->type, r->p[j + 1]), r->v[j + 1][d], o);
            o = fma_of(a->type, rounded(a->type, r->p[j]), r->v[j][d], o);
        }
        r->o[d] = o;
    }
}

static void store(pl_varlen_type type, void *out, int64_t i, float x)
{
    if (type == PL_VARLEN_F32)
        ((float *)out)[i] = x;
    else
        ((uint16_t *)out)[i] = type == PL_VARLEN_F16 ? pl_f32_to_f16(x) : pl_f32_to_bf16(x);
}

void pl__scalar_varlen_finish(const pl_varlen_args *a, int64_t token, int32_t head, bool any,
                              float m, float l, float *den)
{
    float base = m == -INFINITY ? 0 : m;

    *den = l;
    for (int32_t r = 0; r < a->n_sinks; r++)
        *den = *den + pl_exp_f32(a->sink[(int64_t)r * a->n_heads + head] - base);
    if (a->lse)
        a->lse[head * a->lse_stride + token] = any ? base + pl_log_f32(l) : -INFINITY;
}

static void attend_row(const pl_varlen_args *a, const pl_varlen_tile *t, int64_t index, row *r)
{
    int32_t group = a->n_heads / a->n_kv_heads;
    int64_t i = index / group, token = a->cu_q[t->seq] + i, begin, end;
    int32_t head = t->kv_head * group + (int32_t)(index % group);
    int64_t q_at = token * a->q.token_stride + head * a->q.head_stride;
    int64_t out_at = token * a->out_token_stride + head * a->out_head_stride;
    float den;

    pl_varlen_visible(a, t->seq, i, &begin, &end);
    widen(a->type, (const uint8_t *)a->q.data + q_at * (a->type == PL_VARLEN_F32 ? 4 : 2), a->dim,
          r->q);
    memset(r->o, 0, sizeof r->o);
    r->m = -INFINITY;
    r->l = 0;
    for (int64_t key = begin / PL_VARLEN_BLOCK * PL_VARLEN_BLOCK; key < end; key += PL_VARLEN_BLOCK)
        add_block(a, t, r, key, begin > key ? begin - key : 0,
                  end - key < PL_VARLEN_BLOCK ? end - key : PL_VARLEN_BLOCK);
    pl__scalar_varlen_finish(a, token, head, begin < end, r->m, r->l, &den);
    for (int d = 0; d < a->value_dim; d++)
        store(a->type, a->out, out_at + d, begin < end ? r->o[d] / den : 0);
}

void pl__scalar_attention_varlen(const pl_op_env *env, const pl_varlen_args *a, int64_t begin,
                                 int64_t end)
{
    for (int64_t u = begin; u < end; u++) {
        pl_varlen_tile t = pl_varlen_tile_of(a, u);

        for (int32_t r = 0; r < t.n; r++)
            attend_row(a, &t, t.first + r, env->scratch);
    }
}
