/* Layout of the step's buffers. Everything is a product of a step's limits and the model's dims, so the
 * plan knows it before a weight is read. */
#include "model/workspace.h"

#include <inttypes.h>
#include <stdio.h>

/* Pieces of one region; base NULL counts. pl_config_parse bounds the dims and
 * pl_forward_check_limits the limits, so that no product overflows. */
typedef struct layout {
    uint8_t *base;
    uint64_t used;
    const pl_config *c;
    const pl_ops *ops;
    const pl_forward_limits *limits;
    uint64_t n; /* max_tokens */
    int n_workers;
    bool has_mtp;
} layout;

static void *piece(layout *l, uint64_t n, uint64_t bytes)
{
    uint64_t at = l->used;

    l->used += (n * bytes + PL_ARENA_ALIGN - 1) / PL_ARENA_ALIGN * PL_ARENA_ALIGN;
    return l->base ? l->base + at : NULL;
}

static void *act(layout *l, uint64_t n, uint64_t dim)
{
    return piece(l, n * dim, (uint64_t)l->ops->act_bytes);
}

static void *acc(layout *l, uint64_t n, uint64_t dim)
{
    return piece(l, n * dim, (uint64_t)l->ops->acc_bytes);
}

static void *quantised(layout *l, uint64_t n, uint64_t dim)
{
    return piece(l, n, (uint64_t)pl__quant_row_bytes(l->ops, (int64_t)dim));
}

static pl_rows rows(layout *l, uint64_t n, int32_t data_bytes, int32_t scale_bytes)
{
    int64_t bytes = pl_rows_page_bytes((int32_t)n, data_bytes, scale_bytes);
    uint8_t *base = piece(l, 1, (uint64_t)bytes);

    return (pl_rows){base, bytes, (int32_t)n, data_bytes, scale_bytes};
}

static void layout_compress(layout *l, pl_compress_ws *w, int32_t dim)
{
    uint64_t n_seqs = (uint64_t)l->limits->max_seqs, max_draft = (uint64_t)l->limits->max_draft;
    /* Of each sequence at most one more than its share, and as many of replayed drafts. */
    uint64_t entries = l->n / 4 + (1 + max_draft / 4 + 1) * n_seqs;
    uint64_t state = l->ops->compress_state_bytes(4, dim);

    if (dim == PL_HEAD_DIM && l->ops->compress_state_bytes(128, dim) > state)
        state = l->ops->compress_state_bytes(128, dim);
    w->draft_state_bytes = (state + 63) / 64 * 64;
    w->kv = acc(l, l->n, 2 * (uint64_t)dim);
    w->gate = acc(l, l->n, 2 * (uint64_t)dim);
    w->pooled = act(l, entries, (uint64_t)dim);
    w->position = piece(l, entries, sizeof *w->position);
    w->cos = acc(l, entries, PL_ROPE_PAIRS);
    w->sin = acc(l, entries, PL_ROPE_PAIRS);
    w->dest = piece(l, entries, sizeof *w->dest);
    w->job = piece(l, n_seqs, sizeof *w->job);
    w->draft_state = l->limits->max_draft ? piece(l, n_seqs, w->draft_state_bytes) : NULL;
}

static void layout_attention(layout *l, pl_workspace *w)
{
    const pl_config *c = l->c;
    uint64_t n = l->n, index = (uint64_t)c->index_n_heads, topk = (uint64_t)c->index_topk;
    uint64_t z = (uint64_t)c->o_groups * (uint64_t)c->o_lora_rank;

    w->qr = act(l, n, (uint64_t)c->q_lora_rank);
    w->qrq = quantised(l, n, (uint64_t)c->q_lora_rank);
    w->q = act(l, n, (uint64_t)c->n_heads * PL_HEAD_DIM);
    w->kv = act(l, n, PL_HEAD_DIM);
    w->step = rows(l, n, l->ops->kv_data_bytes, l->ops->kv_scale_bytes);
    layout_compress(l, &w->main, PL_HEAD_DIM);
    layout_compress(l, &w->index, PL_INDEX_DIM);
    w->iq = act(l, n, index * PL_INDEX_DIM);
    w->iquery = rows(l, n * index, l->ops->key_data_bytes, l->ops->key_scale_bytes);
    w->iw = act(l, n, index);
    w->max_best = (int64_t)n + 2 * l->n_workers;
    w->best_score = acc(l, (uint64_t)w->max_best, topk);
    w->best = piece(l, (uint64_t)w->max_best * topk, sizeof *w->best);
    w->n_best = piece(l, (uint64_t)w->max_best, sizeof *w->n_best);
    w->sel = piece(l, n * topk, sizeof *w->sel);
    w->n_sel = piece(l, n, sizeof *w->n_sel);
    if (l->limits->want_scores)
        w->scores = acc(l, n, (uint64_t)l->limits->max_len / 4);
    w->z = act(l, n, z);
    w->zq = quantised(l, n, z);
}

static void layout_experts(layout *l, pl_workspace *w)
{
    const pl_config *c = l->c;
    uint64_t k = (uint64_t)c->n_experts_per_tok, pairs = l->n * (k + 1);

    w->score = acc(l, l->n, (uint64_t)c->n_experts);
    w->ids = piece(l, l->n * k, sizeof *w->ids);
    w->weight = acc(l, l->n, k);
    w->pair_token = piece(l, pairs, sizeof *w->pair_token);
    w->pair_weight = piece(l, pairs, sizeof *w->pair_weight);
    w->token_rows = piece(l, l->n * k, sizeof *w->token_rows);
    w->token_ids = piece(l, l->n * k, sizeof *w->token_ids);
    w->token_fill = piece(l, l->n, sizeof *w->token_fill);
    w->expert_begin = piece(l, (uint64_t)c->n_experts + 2, sizeof *w->expert_begin);
    w->g = act(l, pairs, (uint64_t)c->moe_intermediate_size);
    w->u = act(l, pairs, (uint64_t)c->moe_intermediate_size);
    w->aq = quantised(l, pairs, (uint64_t)c->moe_intermediate_size);
    w->y = act(l, pairs, (uint64_t)c->hidden_size);
}

static void layout_mtp(layout *l, pl_workspace *w)
{
    uint64_t dim = (uint64_t)l->c->hidden_size;

    w->e = act(l, l->n, dim);
    w->eq = quantised(l, l->n, dim);
    w->h = act(l, l->n * PL_HC_MULT, dim);
    w->hq = quantised(l, l->n * PL_HC_MULT, dim);
}

/* Of one parallel region: the experts' w1 and w3, their w2 and the shared one's shards, the groups of wo_a, or the
 * projections of x. */
static uint64_t max_jobs(const pl_config *c)
{
    uint64_t E = (uint64_t)c->n_experts, G = (uint64_t)c->o_groups;
    uint64_t n = E + 2 > G ? 2 * (E + 1) : E + G;

    return n > 8 ? n : 8;
}

static void layout_common(layout *l, pl_workspace *w)
{
    uint64_t n = l->n, dim = (uint64_t)l->c->hidden_size;

    w->position = piece(l, n, sizeof *w->position);
    w->seq_of = piece(l, n, sizeof *w->seq_of);
    w->seqs = piece(l, (uint64_t)l->limits->max_seqs, sizeof *w->seqs);
    w->step_dest = piece(l, n, sizeof *w->step_dest);
    for (int i = 0; i < 2; i++) {
        w->cos[i] = acc(l, n, PL_ROPE_PAIRS);
        w->sin[i] = acc(l, n, PL_ROPE_PAIRS);
    }
    w->X = act(l, n * PL_HC_MULT, dim);
    w->mtp_X = l->has_mtp ? act(l, n * PL_HC_MULT, dim) : NULL;
    w->m = acc(l, n, PL_HC_OUT + 1);
    w->post = acc(l, n, PL_HC_MULT);
    w->comb = acc(l, n, PL_HC_MULT * PL_HC_MULT);
    w->x = act(l, n, dim);
    w->xq = quantised(l, n, dim);
    w->out = act(l, n, dim);
    if (l->limits->n_ranks > 1)
        w->part = acc(l, n * (uint64_t)l->c->o_groups, dim);
    w->head_x = act(l, (uint64_t)l->limits->max_logits, dim);
    w->jobs = piece(l, max_jobs(l->c), sizeof *w->jobs);
}

static void layout_logits(layout *l, pl_workspace *w)
{
    w->logits = acc(l, (uint64_t)l->limits->max_logits, (uint64_t)l->c->vocab_size);
}

/* Attention, experts and mtp join never live at once: they share memory, the largest decides. */
static void layout_shared(layout *l, pl_workspace *w)
{
    uint64_t largest = 0;
    void (*const parts[])(layout *, pl_workspace *) = {layout_attention, layout_experts,
                                                       layout_mtp};

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        l->used = 0;
        parts[i](l, w);
        largest = l->used > largest ? l->used : largest;
    }
    l->used = largest;
}

/* The bytes of one rank's `part` as a line in the number of tokens, where it is one. */
static void end_region(layout *l, pl_regions *regions, uint64_t bytes,
                       void (*part)(layout *, pl_workspace *))
{
    enum { MORE = 64 };
    pl_workspace counted = {0};
    uint64_t n = l->n, slope;
    char text[128];

    l->n = n + MORE;
    l->used = 0;
    part(l, &counted);
    l->n = n;
    slope = (l->used - bytes) / MORE;
    if (slope > 0 && slope * n <= bytes)
        (void)snprintf(text, sizeof text, "%" PRIu64 " tokens * %" PRIu64 " + %" PRIu64, n, slope,
                       bytes - slope * n);
    else
        (void)snprintf(text, sizeof text, "%" PRIu64, bytes);
    if (pl__n_ranks(l->limits) > 1)
        pl_region_end(regions, "%d ranks * (%s)", pl__n_ranks(l->limits), text);
    else
        pl_region_end(regions, "%s", text);
}

/* A region holds the part of every rank. */
static void carve(layout *l, pl_arena *arena, pl_regions *regions, const char *name, pl_forward *f,
                  void (*part)(layout *, pl_workspace *))
{
    int n_ranks = pl__n_ranks(l->limits);
    pl_workspace counted = {0};
    uint64_t bytes;

    l->base = NULL;
    l->used = 0;
    part(l, &counted);
    bytes = l->used;
    if (regions)
        pl_region_begin(regions, arena, name, "model");
    for (int r = 0; r < n_ranks; r++) {
        l->base = pl_arena_alloc(arena, bytes, 0);
        l->used = 0;
        part(l, f ? &f[r].ws : &counted);
    }
    l->base = NULL;
    if (regions)
        end_region(l, regions, bytes, part);
}

void pl__workspace_layout(pl_forward *f, pl_arena *arena, pl_regions *regions,
                          const pl_config *config, const pl_ops *ops, bool has_mtp, int n_workers,
                          const pl_forward_limits *limits)
{
    layout l = {
        .c = config,
        .ops = ops,
        .limits = limits,
        .n = (uint64_t)limits->max_tokens,
        .n_workers = n_workers,
        .has_mtp = has_mtp,
    };
    int64_t group = (int64_t)config->n_heads / config->o_groups * PL_HEAD_DIM;
    int64_t z = (int64_t)config->o_groups * config->o_lora_rank;
    int64_t dims[] = {config->hidden_size, config->q_lora_rank, config->moe_intermediate_size,
                      group, z};
    pl_ops_shape shape = {
        .topk = config->index_topk,
        .max_keys = PL_WINDOW + (int64_t)limits->max_len / 4,
        .n_experts = config->n_experts,
    };
    pl_exec exec = {0};

    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        shape.max_k = dims[i] > shape.max_k ? dims[i] : shape.max_k;
    carve(&l, arena, regions, "forward.step", f, layout_common);
    carve(&l, arena, regions, "forward.logits", f, layout_logits);
    carve(&l, arena, regions, "forward.halves", f, layout_shared);
    if (regions)
        pl_region_begin(regions, arena, "forward.scratch", "ops");
    pl_exec_layout(&exec, arena, ops, n_workers, &shape);
    for (int r = 0; f && r < pl__n_ranks(limits); r++)
        f[r].exec = exec;
    if (regions)
        pl_region_end(regions, "up(%d workers * %zu, 64) + %d workers * up(%" PRIu64 ", 64)",
                      n_workers, sizeof *exec.env, n_workers, ops->scratch_bytes(&shape));
}
