/* What follows a linear layer within the same tile. Some of its rows are enough to go on with: a head of queries is normed
 * and rotated, a block of 128 of an expert's inner vector or of a group's output is quantised. A tile then takes those
 * rows for all tokens and goes on at once, so that workers meet once behind both.
 *
 * Where such pieces are fewer than keep all workers busy, and where hooks or ranks look between, it is one operator after
 * the other, by finer tiles. Bits are the same. */
#include "model/deepseek_v4.h"

enum { BLOCK_TILES = PL_QUANT_BLOCK / PL_TILE_ROWS };

void pl__run_side_by_side(pl_forward *f, pl_chain *const *chains, int32_t n)
{
    pl_run_together(&f->exec, &(pl_together){.chains = chains, .n_chains = n});
}

/* ---------------------------------------------------------------- queries, sections 3.1, 3.8 ---- */

/* Heads of a linear layer and what each goes on with, for all tokens: queries of attention and of the indexer. */
typedef struct heads {
    const pl_forward *f;
    pl_linear_job job;
    int32_t n_heads, dim;
    bool indexer;
    pl_angles angles;
} heads;

static void finish_heads(const pl_exec *x, int worker, const heads *h, int64_t begin, int64_t end)
{
    const pl_workspace *ws = &h->f->ws;

    if (h->indexer)
        pl_call_index_query(x, worker,
                            &(pl_index_query_args){h->n_heads, ws->iq, h->angles, ws->iquery},
                            begin, end);
    else
        pl_call_q_norm_rope(
            x, worker,
            &(pl_q_norm_rope_args){h->n_heads, h->f->config->rms_norm_eps, h->angles, ws->q}, begin,
            end);
}

static void run_heads(const pl_exec *x, int worker, const void *user, int64_t begin, int64_t end)
{
    const heads *h = user;
    const int64_t units = h->dim / PL_TILE_ROWS, n = h->n_heads;

    pl_call_linear(x, worker, &h->job, begin * units, end * units);
    for (int64_t t = 0; t < h->job.n; t++)
        finish_heads(x, worker, h, t * n + begin, t * n + end);
}

static pl_piece piece_of(const heads *h)
{
    return (pl_piece){run_heads, h, h->n_heads, h->job.n * h->job.w.cols * h->dim};
}

/* Queries from their low-rank vector, sections 3.1 and 3.8, beside `side`: head by head where that keeps all workers
 * busy, else one operator after the other. */
void pl__query(pl_forward *f, const pl__block *b, pl_chain *const *side, int32_t n_side)
{
    const pl_layer_slots *w = b->w;
    pl_workspace *ws = &f->ws;
    const pl_share *own = &f->share;
    int64_t width = (int64_t)own->n_heads * PL_HEAD_DIM;
    int32_t n = w->ratio == 4 ? 2 : 1;
    pl_angles angles = {ws->cos[w->ratio != 0], ws->sin[w->ratio != 0]};
    heads h[2] = {{.f = f, .n_heads = own->n_heads, .dim = PL_HEAD_DIM, .angles = angles}};
    pl_together all = {.chains = side, .n_chains = n_side};
    bool by_head;

    h[0].job = pl__linear(f, w->wq_b, ws->qrq, ws->q, PL_LINEAR_ACT);
    h[0].job.first_row = (int64_t)own->head * PL_HEAD_DIM;
    h[0].job.n_rows = width;
    h[0].job.y_stride = width * f->exec.ops->act_bytes;
    if (n == 2)
        h[1] = (heads){.f = f,
                       .job = pl__linear(f, w->index_wq_b, ws->qrq, ws->iq, PL_LINEAR_ACT),
                       .n_heads = f->config->index_n_heads,
                       .dim = PL_INDEX_DIM,
                       .indexer = true,
                       .angles = angles};
    by_head = pl_pieces_are_many(&f->exec, own->n_heads);
    if (by_head) {
        all.pieces = (const pl_piece[]){piece_of(&h[0]), n == 2 ? piece_of(&h[1]) : (pl_piece){0}};
        all.n_pieces = n;
        pl_run_together(&f->exec, &all);
        return;
    }
    for (int32_t i = 0; i < n; i++)
        ws->jobs[i] = h[i].job;
    all.jobs = ws->jobs;
    all.n_jobs = n;
    pl_run_together(&f->exec, &all);
    if (n == 2)
        pl_chain_index_query(&ws->rows,
                             &(pl_index_query_args){h[1].n_heads, ws->iq, angles, ws->iquery});
    pl_chain_q_norm_rope(
        &ws->rows, &(pl_q_norm_rope_args){own->n_heads, f->config->rms_norm_eps, angles, ws->q});
}

/* ------------------------------------------------------ attention and wo_a, sections 3.4, 3.5 ---- */

/* Blocks of the groups' outputs: their rows of wo_a, then quantised, for all tokens. */
static void run_groups(const pl_exec *x, int worker, const void *user, int64_t begin, int64_t end)
{
    const pl_forward *f = user;
    const int64_t z = (int64_t)f->config->o_groups * f->config->o_lora_rank;
    const int64_t blocks = f->config->o_lora_rank / PL_QUANT_BLOCK;

    for (int64_t u = begin, next; u < end; u = next) {
        const int64_t group = u / blocks, first = u % blocks;

        next = (group + 1) * blocks < end ? (group + 1) * blocks : end;
        pl_call_linear(x, worker, &f->ws.jobs[group], first * BLOCK_TILES,
                       (first + next - u) * BLOCK_TILES);
        pl_call_quantise(x, worker,
                         &(pl_quantise_args){
                             .dim = (next - u) * PL_QUANT_BLOCK,
                             .row_dim = z,
                             .first = u * PL_QUANT_BLOCK,
                             .x = (const uint8_t *)f->ws.z + u * PL_QUANT_BLOCK * x->ops->act_bytes,
                             .x_stride = z * x->ops->act_bytes,
                             .q = f->ws.zq,
                             .q_stride = pl__quant_row_bytes(x->ops, z),
                         },
                         0, f->step->n_tokens);
    }
}

/* zq = the quantised outputs of wo_a: block by block where that keeps all workers busy. */
static void project_groups(pl_forward *f, const pl__block *b)
{
    const pl_config *c = f->config;
    pl_workspace *ws = &f->ws;
    const int32_t n_jobs = pl__linear_wo_a(f, b->w->wo_a, ws->jobs);
    const int64_t z = (int64_t)c->o_groups * c->o_lora_rank, n_blocks = z / PL_QUANT_BLOCK;

    if (f->share.n_ranks == 1 && c->o_lora_rank % PL_QUANT_BLOCK == 0 &&
        pl_pieces_are_many(&f->exec, n_blocks)) {
        pl_run_together(&f->exec,
                        &(pl_together){.pieces = &(pl_piece){run_groups, f, n_blocks,
                                                             ws->jobs[0].w.cols * PL_QUANT_BLOCK *
                                                                 f->step->n_tokens},
                                       .n_pieces = 1});
        return;
    }
    pl_run_linear(&f->exec, ws->jobs, n_jobs);
    pl__gather_groups(f);
    pl__quantise(f, &ws->rows, z, ws->z, ws->zq);
    pl_chain_run(&f->exec, &ws->rows);
}

/* Attention by groups of heads, each with its rows of wo_a behind it. */
typedef struct group_args {
    const pl_forward *f;
    pl_attention_args attention;
    pl_unrope_args unrope;
} group_args;

static void run_whole_groups(const pl_exec *x, int worker, const void *user, int64_t begin,
                             int64_t end)
{
    const group_args *a = user;
    const int64_t n = a->attention.n_heads, per_group = n / a->f->config->o_groups;
    const int64_t blocks = a->f->config->o_lora_rank / PL_QUANT_BLOCK;

    for (int64_t t = 0; t < a->f->step->n_tokens; t++) {
        const int64_t first = t * n + begin * per_group, last = t * n + end * per_group;

        pl_call_attention(x, worker, &a->attention, first, last);
        pl_call_unrope(x, worker, &a->unrope, first, last);
    }
    run_groups(x, worker, a->f, begin * blocks, end * blocks);
}

/* Groups are few: with few tokens for few workers. */
static bool groups_suffice(const pl_forward *f)
{
    return f->share.n_ranks == 1 && !pl__is_watched(f, PL_TAP_ATTN_O) &&
           f->config->o_lora_rank % PL_QUANT_BLOCK == 0 &&
           !pl_rows_are_many(&f->exec, f->step->n_tokens) &&
           pl_pieces_are_many(&f->exec, f->config->o_groups);
}

void pl__attend_and_project(pl_forward *f, const pl__block *b, const pl_attention_args *args)
{
    pl_workspace *ws = &f->ws;
    const int64_t n = f->step->n_tokens, width = (int64_t)args->n_heads * PL_HEAD_DIM;
    const int comp = b->w->ratio != 0;
    group_args a = {f, *args, {args->n_heads, {ws->cos[comp], ws->sin[comp]}, ws->q}};

    if (groups_suffice(f)) {
        const int64_t steps = n * width * (2 * PL_WINDOW + f->config->o_lora_rank);

        pl_chain_run(&f->exec, &ws->rows);
        (void)pl__linear_wo_a(f, b->w->wo_a, ws->jobs);
        pl_run_together(&f->exec, &(pl_together){.pieces = &(pl_piece){run_whole_groups, &a,
                                                                       f->config->o_groups,
                                                                       steps / f->config->o_groups},
                                                 .n_pieces = 1});
        return;
    }
    pl_chain_attention(&ws->rows, &a.attention);
    pl__tap(f, b, PL_TAP_ATTN_O, PL_TAP_KIND_ACT, width, ws->q);
    pl_chain_unrope(&ws->rows, &a.unrope);
    pl_chain_run(&f->exec, &ws->rows);
    project_groups(f, b);
}

/* ------------------------------------------------------------------ experts, section 5 ---- */

/* The gated unit between w1, w3 and w2, on some rows. */
static void activate(pl_forward *f, pl_chain *chain, pl__row_range rows)
{
    const pl_config *c = f->config;
    pl_workspace *ws = &f->ws;
    int64_t bytes = (int64_t)c->moe_intermediate_size * f->exec.ops->act_bytes;
    int64_t q_bytes = pl__quant_row_bytes(f->exec.ops, c->moe_intermediate_size);
    uint8_t *g = (uint8_t *)ws->g + rows.begin * bytes;

    pl_chain_begin(chain, rows.n);
    pl_chain_swiglu(chain, &(pl_swiglu_args){
                               .dim = c->moe_intermediate_size,
                               .limit = c->swiglu_limit,
                               .g = g,
                               .u = (uint8_t *)ws->u + rows.begin * bytes,
                               .weight = ws->weight,
                               .weight_at = ws->pair_weight + rows.begin,
                               .a = g,
                           });
    pl__quantise(f, chain, c->moe_intermediate_size, g, (uint8_t *)ws->aq + rows.begin * q_bytes);
}

/* Blocks of the experts' inner vectors: their rows of w1 and w3, the gated unit, quantised; for all rows of the expert. */
static void run_experts(const pl_exec *x, int worker, const void *user, int64_t begin, int64_t end)
{
    const pl_forward *f = user;
    const pl_workspace *ws = &f->ws;
    const int64_t inner = f->config->moe_intermediate_size, blocks = inner / PL_QUANT_BLOCK;
    const int64_t act = x->ops->act_bytes, row_bytes = inner * act;

    for (int64_t u = begin, next; u < end; u = next) {
        const pl_linear_job *job = &ws->jobs[2 * (u / blocks)];
        const int64_t first = u % blocks, dim = PL_QUANT_BLOCK;
        const int64_t row = ((const uint8_t *)job->y - (const uint8_t *)ws->g) / row_bytes;

        next = (u / blocks + 1) * blocks < end ? (u / blocks + 1) * blocks : end;
        for (int i = 0; i < 2; i++)
            pl_call_linear(x, worker, &job[i], first * BLOCK_TILES,
                           (first + next - u) * BLOCK_TILES);
        for (int64_t r = row; r < row + job->n; r++) {
            uint8_t *g = (uint8_t *)ws->g + r * row_bytes + first * dim * act;

            pl_call_swiglu(x, worker,
                           &(pl_swiglu_args){
                               .dim = (next - u) * dim,
                               .limit = f->config->swiglu_limit,
                               .g = g,
                               .u = (const uint8_t *)ws->u + r * row_bytes + first * dim * act,
                               .weight = ws->weight,
                               .weight_at = ws->pair_weight + r,
                               .a = g,
                           },
                           0, 1);
        }
        pl_call_quantise(x, worker,
                         &(pl_quantise_args){
                             .dim = (next - u) * dim,
                             .row_dim = inner,
                             .first = first * dim,
                             .x = (const uint8_t *)ws->g + row * row_bytes + first * dim * act,
                             .x_stride = row_bytes,
                             .q = (uint8_t *)ws->aq + row * pl__quant_row_bytes(x->ops, inner),
                             .q_stride = pl__quant_row_bytes(x->ops, inner),
                         },
                         0, job->n);
    }
}

/* The first half of every expert: block by block where that keeps all workers busy. */
void pl__experts_up(pl_forward *f, const pl__block *b)
{
    pl_workspace *ws = &f->ws;
    const int32_t n_jobs = pl__linear_experts_up(f, b, ws->jobs);
    const int64_t blocks = f->config->moe_intermediate_size / PL_QUANT_BLOCK;
    const int64_t units = n_jobs / 2 * blocks, pairs = ws->expert_begin[f->config->n_experts];
    pl_chain *const parts[] = {&ws->side[0], &ws->side[1]};
    pl__row_range ranges[2];
    int n_ranges;

    if (f->share.n_ranks == 1 && pl_pieces_are_many(&f->exec, units)) {
        const int64_t rows = pairs + f->step->n_tokens;

        pl_run_together(&f->exec, &(pl_together){.pieces = &(pl_piece){run_experts, f, units,
                                                                       2 * PL_QUANT_BLOCK * rows /
                                                                           (n_jobs / 2) *
                                                                           f->config->hidden_size},
                                                 .n_pieces = 1});
        return;
    }
    pl_run_linear(&f->exec, ws->jobs, n_jobs);
    n_ranges = pl__expert_rows(f, ranges);
    for (int i = 0; i < n_ranges && i < 2; i++)
        activate(f, parts[i], ranges[i]);
    pl__run_side_by_side(f, parts, n_ranges);
}
