/* One pass for the maximum, a second one for the sum of exponentials; the digest is a pass of its own, since not every
 * row that is looked at chooses a token. Rows are read in blocks
 * through pl_ops, so that every level is treated alike. */
#include "engine/logits.h"

#include <math.h>

#include "base/math.h"

static int32_t block_at(const pl_ops *ops, const void *row, int32_t vocab, int32_t first,
                        float *out)
{
    int32_t n = vocab - first < PL_LOGITS_BLOCK ? vocab - first : PL_LOGITS_BLOCK;

    ops->acc_get((const uint8_t *)row + (int64_t)first * ops->acc_bytes, n, out);
    return n;
}

/* x86 is little-endian; NaNs are one class (docs/NUMERICS.md 1), so they are made one value. */
static void feed(XXH3_state_t *digest, const float *l, int32_t n)
{
    uint32_t bits[PL_LOGITS_BLOCK];

    for (int32_t i = 0; i < n; i++)
        bits[i] = l[i] != l[i] ? 0x7FC00000u : pl_f32_bits(l[i]);
    (void)XXH3_128bits_update(digest, bits, (size_t)n * sizeof bits[0]);
}

static float block_sum(const float *l, int32_t n, float max)
{
    float sum = 0;

    for (int32_t i = 0; i < n; i++)
        sum = sum + pl_exp_f32(l[i] - max);
    return sum;
}

static pl_logits_summary find_best(const pl_ops *ops, const void *row, int32_t vocab)
{
    pl_logits_summary s = {.best = 0, .max = -INFINITY};
    float l[PL_LOGITS_BLOCK];

    for (int32_t first = 0; first < vocab; first += PL_LOGITS_BLOCK) {
        int32_t n = block_at(ops, row, vocab, first, l);
        for (int32_t i = 0; i < n; i++)
            if (l[i] > s.max) {
                s.max = l[i];
                s.best = first + i;
            }
    }
    return s;
}

int32_t pl_logits_best(const pl_ops *ops, const void *row, int32_t vocab)
{
    return find_best(ops, row, vocab).best;
}

void pl_logits_digest(const pl_ops *ops, const void *row, int32_t vocab, XXH3_state_t *digest)
{
    float l[PL_LOGITS_BLOCK];

    for (int32_t first = 0; first < vocab; first += PL_LOGITS_BLOCK)
        feed(digest, l, block_at(ops, row, vocab, first, l));
}

pl_logits_summary pl_logits_summarise(const pl_ops *ops, const void *row, int32_t vocab)
{
    pl_logits_summary s = find_best(ops, row, vocab);
    float l[PL_LOGITS_BLOCK], sum = 0;

    for (int32_t first = 0; first < vocab; first += PL_LOGITS_BLOCK) {
        int32_t n = block_at(ops, row, vocab, first, l);
        sum = sum + block_sum(l, n, s.max);
    }
    s.log_sum = pl_log_f32(sum);
    return s;
}

float pl_logits_logprob(const pl_ops *ops, const void *row, const pl_logits_summary *summary,
                        int32_t id)
{
    float l;

    ops->acc_get((const uint8_t *)row + (int64_t)id * ops->acc_bytes, 1, &l);
    return (l - summary->max) - summary->log_sum;
}

/* `top` holds logits until the end. Most ids come behind its last entry, so that inserting is rare. */
void pl_logits_top(const pl_ops *ops, const void *row, int32_t vocab,
                   const pl_logits_summary *summary, pl_token_logprob *top, int32_t n)
{
    float l[PL_LOGITS_BLOCK];
    int32_t n_top = 0;

    for (int32_t first = 0; first < vocab; first += PL_LOGITS_BLOCK) {
        int32_t n_block = block_at(ops, row, vocab, first, l);
        for (int32_t i = 0; i < n_block; i++) {
            int32_t at = n_top;
            while (at > 0 &&
                   pl_logit_before(l[i], first + i, top[at - 1].logprob, top[at - 1].token))
                at--;
            if (at == n)
                continue;
            n_top += n_top < n;
            for (int32_t k = n_top - 1; k > at; k--)
                top[k] = top[k - 1];
            top[at] = (pl_token_logprob){first + i, l[i]};
        }
    }
    for (int32_t i = 0; i < n; i++)
        top[i].logprob = (top[i].logprob - summary->max) - summary->log_sum;
}

int32_t pl_logits_rank(const pl_ops *ops, const void *row, int32_t vocab, int32_t id)
{
    float l[PL_LOGITS_BLOCK], own;
    int32_t rank = 1;

    ops->acc_get((const uint8_t *)row + (int64_t)id * ops->acc_bytes, 1, &own);
    for (int32_t first = 0; first < vocab; first += PL_LOGITS_BLOCK) {
        int32_t n_block = block_at(ops, row, vocab, first, l);
        for (int32_t i = 0; i < n_block; i++)
            rank += first + i != id && pl_logit_before(l[i], first + i, own, id);
    }
    return rank;
}
