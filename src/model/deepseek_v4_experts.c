/* Tokens sorted by expert, so that each expert is one matrix product over its tokens.
 *
 * Row p of ws.g, ws.u, ws.aq and ws.y is a (token, expert) pair; pairs stand in ascending expert, within one in
 * ascending token. Behind them come the shared expert's rows, one per token. */
#include <string.h>

#include "model/deepseek_v4.h"

void pl__group_by_expert(pl_forward *f)
{
    pl_workspace *ws = &f->ws;
    int32_t n = f->step->n_tokens, k = f->config->n_experts_per_tok, E = f->config->n_experts;
    int32_t *begin = ws->expert_begin;

    memset(begin, 0, ((size_t)E + 2) * sizeof *begin);
    for (int32_t i = 0; i < n * k; i++)
        begin[ws->ids[i] + 2]++;
    for (int32_t e = 0; e <= E; e++)
        begin[e + 1] += begin[e];
    /* begin[e + 1] is now where expert e's pairs begin, and moves to their end. */
    for (int32_t i = 0; i < n * k; i++) {
        int32_t p = begin[ws->ids[i] + 1]++;
        ws->pair_token[p] = i / k;
        ws->pair_weight[p] = i;
    }
    memset(ws->token_fill, 0, (size_t)n * sizeof *ws->token_fill);
    for (int32_t p = 0; p < n * k; p++) {
        int32_t t = ws->pair_token[p], at = t * k + ws->token_fill[t]++;
        ws->token_rows[at] = p;
        ws->token_ids[at] = ws->ids[ws->pair_weight[p]];
    }
    for (int32_t t = 0; t < n; t++)
        ws->pair_weight[n * k + t] = -1;
}

/* `rows` of a buffer whose rows are `bytes` long, from row p on. */
static uint8_t *at(void *base, int64_t p, int64_t bytes)
{
    return (uint8_t *)base + p * bytes;
}

int pl__expert_rows(const pl_forward *f, pl__row_range ranges[2])
{
    const pl_share *own = &f->share;
    const int32_t *begin = f->ws.expert_begin;
    int64_t n = f->step->n_tokens, pairs = begin[f->config->n_experts];

    if (own->n_ranks == 1) {
        ranges[0] = (pl__row_range){0, pairs + n};
        return 1;
    }
    ranges[0] = (pl__row_range){begin[own->expert], begin[own->expert_end] - begin[own->expert]};
    ranges[1] = (pl__row_range){pairs, n};
    return 2;
}

/* w1 and w3 of one expert, rows first .. end - 1 of them, for n pairs from p on. */
static void add_up(const pl_forward *f, pl_slot w1, pl_slot w3, int64_t first, int64_t end,
                   int32_t p, int32_t n, const int32_t *rows, pl_linear_job *jobs)
{
    const pl_workspace *ws = &f->ws;
    int64_t act = f->exec.ops->act_bytes, bytes = f->config->moe_intermediate_size * act;

    jobs[0] = pl__linear(f, w1, ws->xq, at(ws->g, p, bytes) + first * act, PL_LINEAR_ACT);
    jobs[1] = pl__linear(f, w3, ws->xq, at(ws->u, p, bytes) + first * act, PL_LINEAR_ACT);
    for (int i = 0; i < 2; i++) {
        jobs[i].first_row = first;
        jobs[i].n_rows = end - first;
        jobs[i].n = n;
        jobs[i].rows = rows;
    }
}

int32_t pl__linear_experts_up(const pl_forward *f, const pl__block *b, pl_linear_job *jobs)
{
    const pl_workspace *ws = &f->ws;
    const pl_share *own = &f->share;
    int64_t inner = f->config->moe_intermediate_size;
    int32_t n_jobs = 0;

    for (int32_t e = own->expert; e < own->expert_end; e++) {
        int32_t p = ws->expert_begin[e], n = ws->expert_begin[e + 1] - p;

        if (n == 0)
            continue;
        add_up(f, b->w->expert_w1 + e, b->w->expert_w3 + e, 0, inner, p, n, ws->pair_token + p,
               jobs + n_jobs);
        n_jobs += 2;
    }
    add_up(f, b->w->shared_w1, b->w->shared_w3, own->inner, own->inner_end,
           ws->expert_begin[f->config->n_experts], f->step->n_tokens, NULL, jobs + n_jobs);
    return n_jobs + 2;
}

int32_t pl__linear_experts_down(const pl_forward *f, const pl__block *b, pl_linear_job *jobs)
{
    const pl_workspace *ws = &f->ws;
    const pl_share *own = &f->share;
    int64_t x_bytes = pl__quant_row_bytes(f->exec.ops, f->config->moe_intermediate_size);
    int64_t y_bytes = (int64_t)f->config->hidden_size * f->exec.ops->act_bytes;
    int32_t n_jobs = 0, pairs = ws->expert_begin[f->config->n_experts];
    pl_linear_job shared = pl__linear(f, b->w->shared_w2, at(ws->aq, pairs, x_bytes),
                                      at(ws->y, pairs, y_bytes), PL_LINEAR_ACT);

    for (int32_t e = own->expert; e < own->expert_end; e++) {
        int32_t p = ws->expert_begin[e], n = ws->expert_begin[e + 1] - p;

        if (n == 0)
            continue;
        jobs[n_jobs] = pl__linear(f, b->w->expert_w2 + e, at(ws->aq, p, x_bytes),
                                  at(ws->y, p, y_bytes), PL_LINEAR_ACT);
        jobs[n_jobs++].n = n;
    }
    return n_jobs + pl__linear_shards(f, shared, jobs + n_jobs);
}
