/* Level scalar: attention over keys listed by number (NUMERICS 9). The heads of a token share each block of 64 slots,
 * widened once; a chain is whole in every lane. */
#include "ops/scalar/scalar.h"

#include <math.h>
#include <string.h>

enum { BLOCK = PL_SPARSE_BLOCK, VALUE = PL_SPARSE_VALUE_DIM, HEADS = 8 };

typedef struct head {
    float q[PL_CACHE_MAX_DIM], o[VALUE];
    float m, l;
} head;

typedef struct block {
    float key[BLOCK][PL_CACHE_MAX_DIM]; /* zero where not visible */
    float by_dim[2][BLOCK];
    bool visible[BLOCK], any;
} block;

_Static_assert(sizeof(block) + HEADS * sizeof(head) <= PL_SPARSE_SCRATCH_BYTES, "scratch");

/* Slots first .. first + 63 of a list of n places. */
static void load_block(block *b, const pl_sparse_set *set, int64_t t, int32_t first, int32_t n)
{
    b->any = false;
    for (int32_t j = 0; j < BLOCK; j++) {
        int32_t i = first + j < n ? set->index[t * set->index_stride + first + j] : -1;

        b->visible[j] = i >= 0 && i < set->rows.n;
        b->any |= b->visible[j];
        if (b->visible[j])
            pl_cache_row_widen(&set->rows, i, b->key[j]);
        else
            memset(b->key[j], 0, sizeof b->key[j]);
    }
}

static void scores(block *b, const float *q, int32_t dim, float scale, float s[BLOCK])
{
    memset(s, 0, BLOCK * sizeof *s);
    for (int32_t d = 0; d < dim; d += 2) {
        for (int j = 0; j < BLOCK; j++) {
            b->by_dim[0][j] = b->key[j][d];
            b->by_dim[1][j] = b->key[j][d + 1];
        }
        for (int j = 0; j < BLOCK; j++)
            s[j] = pl__pair(s[j], q[d], b->by_dim[0][j], q[d + 1], b->by_dim[1][j]);
    }
    for (int j = 0; j < BLOCK; j++)
        s[j] = s[j] * scale;
}

static float base_of(float m)
{
    return m == -INFINITY ? 0 : m;
}

static void add_block(head *h, block *b, int32_t dim, float scale)
{
    float s[BLOCK], m = h->m, alpha, sum = 0;

    scores(b, h->q, dim, scale, s);
    for (int j = 0; j < BLOCK; j++)
        if (b->visible[j])
            m = pl_max_f32(s[j], m);
    alpha = pl_exp_f32(h->m - base_of(m));
    for (int j = 0; j < BLOCK; j++) {
        s[j] = b->visible[j] ? pl_exp_f32(s[j] - base_of(m)) : 0;
        sum = j == 0 ? s[j] : sum + s[j];
    }
    h->l = h->l * alpha + sum;
    h->m = m;
    for (int d = 0; d < VALUE; d++)
        h->o[d] = h->o[d] * alpha;
    for (int j = 0; j < BLOCK; j += 2) {
        float p0 = pl_bf16_round(s[j]), p1 = pl_bf16_round(s[j + 1]);
        for (int d = 0; d < VALUE; d++)
            h->o[d] = pl__pair(h->o[d], p0, b->key[j][d], p1, b->key[j + 1][d]);
    }
}

float pl__scalar_sparse_finish(const pl_sparse_args *a, int64_t t, int64_t h, bool any, float m,
                               float l)
{
    int64_t at = h * a->stat_stride + t;

    if (a->lse)
        a->lse[at] = any ? base_of(m) + pl_log_f32(l) : INFINITY;
    if (a->max_logits)
        a->max_logits[at] = m + 0.0f;
    return a->sink ? l + pl_exp_f32(a->sink[h] - base_of(m)) : l;
}

static void start(head *h, const uint16_t *q, int32_t dim)
{
    h->m = -INFINITY;
    h->l = 0;
    memset(h->o, 0, sizeof h->o);
    for (int32_t d = 0; d < dim; d++)
        h->q[d] = pl_bf16_to_f32(q[d]);
}

/* Heads h0 .. h0 + n - 1 of token t. */
static void attend(const pl_op_env *env, const pl_sparse_args *a, int64_t t, int64_t h0, int64_t n)
{
    block *b = env->scratch;
    head *heads = (head *)(b + 1);
    bool any = false;

    for (int64_t h = 0; h < n; h++)
        start(&heads[h], a->q + t * a->q_token_stride + (h0 + h) * a->q_head_stride, a->dim);
    for (int32_t i = 0; i < a->n_sets; i++) {
        int32_t length = pl_sparse_length(a, &a->set[i], t);
        for (int32_t first = 0; first < length; first += BLOCK) {
            load_block(b, &a->set[i], t, first, length);
            any |= b->any;
            for (int64_t h = 0; b->any && h < n; h++)
                add_block(&heads[h], b, a->dim, a->scale);
        }
    }
    for (int64_t h = 0; h < n; h++) {
        float den = pl__scalar_sparse_finish(a, t, h0 + h, any, heads[h].m, heads[h].l);
        uint16_t *out = a->out + t * a->out_token_stride + (h0 + h) * a->out_head_stride;

        for (int d = 0; d < VALUE; d++)
            out[d] = any ? pl_f32_to_bf16(heads[h].o[d] / den) : 0;
    }
}

void pl__scalar_attention_sparse(const pl_op_env *env, const pl_sparse_args *a, int64_t begin,
                                 int64_t end)
{
    for (int64_t u = begin; u < end;) {
        int64_t t = u / a->n_heads, h0 = u % a->n_heads, n = a->n_heads - h0;

        n = n > HEADS ? HEADS : n;
        n = n > end - u ? end - u : n;
        attend(env, a, t, h0, n);
        u += n;
    }
}
