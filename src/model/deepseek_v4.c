/* DeepSeek-V4, one token from embedding to logits: specification section 2, Appendix C.
 *
 * Every line is an operator over all tokens of the step: appended to the chain ws.rows where it needs nothing of other
 * tokens, else run at once. X are a token's four residual streams; each half
 * of a block reads one vector out of them (hc_pre), works on it, and writes the result back (hc_post). How
 * tokens find their caches, jobs their weights and pairs their experts is in deepseek_v4_*.c. */
#include "model/deepseek_v4.h"

/* ------------------------------------------------------------ streams, sections 2.1 to 2.3 ---- */

/* Rows of the embedding: four equal streams, or one vector for mtp. */
static void embed(pl_forward *f, int32_t n_copies, void *x)
{
    pl_chain_embed(&f->ws.rows, &(pl_embed_args){
                                    .embed = pl__view(f, f->slots->embed),
                                    .tokens = f->step->tokens,
                                    .n_copies = n_copies,
                                    .x = x,
                                });
}

/* The parameters of one hyper-connection site. */
typedef struct site {
    pl_slot fn, base, scale, norm;
} site;

/* x = norm(hc_pre(X)); post and C wait for hc_post. */
static void read_streams(pl_forward *f, const void *X, site s)
{
    const pl_config *c = f->config;
    pl_workspace *ws = &f->ws;

    pl_chain_hc_dots(&ws->rows, &(pl_hc_dots_args){.fn = pl__view(f, s.fn), .x = X, .m = ws->m});
    pl_chain_hc_pre(&ws->rows, &(pl_hc_pre_args){
                                   .base = pl__view(f, s.base),
                                   .scale = pl__view(f, s.scale),
                                   .rms_eps = c->rms_norm_eps,
                                   .hc_eps = c->hc_eps,
                                   .sinkhorn_iters = c->hc_sinkhorn_iters,
                                   .dim = c->hidden_size,
                                   .m = ws->m,
                                   .x = X,
                                   .y = ws->x,
                                   .post = ws->post,
                                   .comb = ws->comb,
                               });
    pl__rms_norm(f, &ws->rows, s.norm, ws->x, ws->x);
}

/* X = hc_post(out, X). */
static void write_streams(pl_forward *f, const pl__block *b, pl_tap tap)
{
    const pl_config *c = f->config;
    pl_workspace *ws = &f->ws;

    pl_chain_hc_post(&ws->rows, &(pl_hc_post_args){
                                    .dim = c->hidden_size,
                                    .f = ws->out,
                                    .post = ws->post,
                                    .comb = ws->comb,
                                    .x = b->X,
                                });
    pl__tap(f, b, tap, PL_TAP_KIND_ACT, PL_HC_MULT * (int64_t)c->hidden_size, b->X);
}

/* ---------------------------------------------------------------- attention, section 3 ---- */

/* Everything that is a projection of x: query, key, compressor rows, indexer weights. */
static void project(pl_forward *f, const pl__block *b)
{
    const pl_layer_slots *w = b->w;
    pl_workspace *ws = &f->ws;
    pl_linear_job *job = ws->jobs;
    int32_t n = 0;

    pl__quantise(f, &ws->rows, f->config->hidden_size, ws->x, ws->xq);
    pl_chain_run(&f->exec, &ws->rows);
    job[n++] = pl__linear(f, w->wq_a, ws->xq, ws->qr, PL_LINEAR_ACT);
    job[n++] = pl__linear(f, w->wkv, ws->xq, ws->kv, PL_LINEAR_ACT);
    if (w->ratio) {
        job[n++] = pl__linear(f, w->comp_wkv, ws->x, ws->main.kv, PL_LINEAR_ACC);
        job[n++] = pl__linear(f, w->comp_wgate, ws->x, ws->main.gate, PL_LINEAR_ACC);
    }
    if (w->ratio == 4) {
        job[n++] = pl__linear(f, w->index_comp_wkv, ws->x, ws->index.kv, PL_LINEAR_ACC);
        job[n++] = pl__linear(f, w->index_comp_wgate, ws->x, ws->index.gate, PL_LINEAR_ACC);
        job[n++] = pl__linear(f, w->index_weights_proj, ws->x, ws->iw, PL_LINEAR_ACT);
    }
    pl__compress_replay(f, b);
    pl_run_together(&f->exec, &(pl_together){
                                  .chains = (pl_chain *const[]){&ws->side[0], &ws->side[1]},
                                  .n_chains = 2,
                                  .jobs = job,
                                  .n_jobs = n,
                              });
}

/* The window key (= value) of every token, section 3.2. */
static void window_key(pl_forward *f, const pl__block *b)
{
    pl_workspace *ws = &f->ws;
    pl_chain *c = &ws->side[2];
    int comp = b->w->ratio != 0;

    pl_chain_begin(c, f->step->n_tokens);
    pl__rms_norm(f, c, b->w->kv_norm, ws->kv, ws->kv);
    pl_chain_kv_store(c, &(pl_kv_store_args){
                             .kv = ws->kv,
                             .angles = {ws->cos[comp], ws->sin[comp]},
                             .dest = ws->step_dest,
                         });
}

/* Queries, window keys and compressed entries: three lines side by side. With few tokens the first step of the queries is
 * too little to share, and what is beside it goes along with the linear layers. */
static void query_and_keys(pl_forward *f, const pl__block *b)
{
    pl_workspace *ws = &f->ws;
    pl_chain *const all[] = {&ws->side[0], &ws->side[1], &ws->side[2], &ws->rows};
    bool many = pl_rows_are_many(&f->exec, f->step->n_tokens), drafts = pl__step_has_drafts(f);

    pl__rms_norm(f, &ws->rows, b->w->q_norm, ws->qr, ws->qr);
    pl__quantise(f, &ws->rows, f->config->q_lora_rank, ws->qr, ws->qrq);
    window_key(f, b);
    pl__compress_sure(f, b);
    if (many) {
        pl__run_side_by_side(f, all, 4);
        (drafts ? pl__compress_drafts : pl__compress_finish)(f, b);
    } else {
        pl_chain_run(&f->exec, &ws->rows);
    }
    pl__query(f, b, all, 3);
    if (drafts && !many) {
        pl__compress_drafts(f, b);
        pl__run_side_by_side(f, all, 2);
    }
    if (drafts || !many) {
        pl__compress_finish(f, b);
        pl__run_side_by_side(f, all, 2);
    }
    pl__tap(f, b, PL_TAP_ATTN_Q, PL_TAP_KIND_ACT, (int64_t)f->share.n_heads * PL_HEAD_DIM, ws->q);
    pl__tap(f, b, PL_TAP_ATTN_KV, PL_TAP_KIND_ROWS, PL_HEAD_DIM, NULL);
}

/* Which entries each token sees, section 3.8. */
static void select_entries(pl_forward *f, const pl__block *b)
{
    const pl_config *c = f->config;
    pl_workspace *ws = &f->ws;
    bool scores = f->hooks && f->hooks->scores;
    int64_t n = f->step->n_tokens, max_scores = f->limits.max_len / 4;
    int64_t tiles = 2 * (int64_t)pl_pool_n_workers(f->exec.pool);
    int32_t n_parts = n >= tiles ? 1 : (int32_t)((tiles + n - 1) / n);

    pl_chain_index_topk(&ws->rows, &(pl_index_topk_args){
                                       .n_heads = c->index_n_heads,
                                       .topk = c->index_topk,
                                       .n_parts = n_parts,
                                       .query = ws->iquery,
                                       .w = ws->iw,
                                       .factor = f->index_factor,
                                       .seqs = ws->seqs,
                                       .seq_of = ws->seq_of,
                                       .position = ws->position,
                                       .best_score = ws->best_score,
                                       .best = ws->best,
                                       .n_best = ws->n_best,
                                       .scores = scores ? ws->scores : NULL,
                                       .scores_stride = max_scores * f->exec.ops->acc_bytes,
                                   });
    pl_chain_index_merge(&ws->rows, &(pl_index_merge_args){
                                        .topk = c->index_topk,
                                        .n_parts = n_parts,
                                        .best_score = ws->best_score,
                                        .best = ws->best,
                                        .n_best = ws->n_best,
                                        .sel = ws->sel,
                                        .n_sel = ws->n_sel,
                                    });
    if (scores)
        pl__tap(f, b, PL_TAP_ATTN_SCORES, PL_TAP_KIND_ACC, max_scores, ws->scores);
    pl__tap(f, b, PL_TAP_ATTN_SEL, PL_TAP_KIND_I32, c->index_topk, ws->sel);
    if (f->hooks)
        pl__recount_selection(f);
}

/* Softmax over window and entries, section 3.4; the rotation back and the two output projections, 3.5. */
static void attend(pl_forward *f, const pl__block *b)
{
    const pl_config *c = f->config;
    const pl_layer_slots *w = b->w;
    const pl_share *own = &f->share;
    pl_workspace *ws = &f->ws;
    pl_weight_view sink = pl__view(f, w->attn_sink);

    sink.data = (const float *)sink.data + own->head;
    pl__attend_and_project(f, b,
                           &(pl_attention_args){
                               .n_heads = own->n_heads,
                               .ratio = w->ratio,
                               .q = ws->q,
                               .sink = sink,
                               .seqs = ws->seqs,
                               .seq_of = ws->seq_of,
                               .position = ws->position,
                               .step = ws->step,
                               .sel = w->ratio == 4 ? ws->sel : NULL,
                               .n_sel = w->ratio == 4 ? ws->n_sel : NULL,
                               .sel_stride = c->index_topk,
                               .o = ws->q,
                           });
    pl_run_linear(
        &f->exec, ws->jobs,
        pl__linear_shards(f, pl__linear(f, w->wo_b, ws->zq, ws->out, PL_LINEAR_ACT), ws->jobs));
    pl__add_shards(f, (int64_t)c->o_groups * c->o_lora_rank / PL_QUANT_BLOCK, NULL, ws->out);
    pl__tap(f, b, PL_TAP_ATTN_OUT, PL_TAP_KIND_ACT, c->hidden_size, ws->out);
}

static void attention(pl_forward *f, const pl__block *b)
{
    pl__step_enter(f, b);
    project(f, b);
    query_and_keys(f, b);
    if (b->w->ratio == 4)
        select_entries(f, b);
    attend(f, b);
    pl__step_keep_keys(f, b);
}

/* ------------------------------------------------------------------ experts, section 5 ---- */

/* Which experts, and with what weights, section 5.1. */
static void route(pl_forward *f, const pl__block *b)
{
    const pl_config *c = f->config;
    const pl_layer_slots *w = b->w;
    pl_workspace *ws = &f->ws;
    bool by_token = w->gate_tid2eid != PL_SLOT_NONE;
    pl_linear_job gate = pl__linear(f, w->gate, ws->x, ws->score, PL_LINEAR_ACC);
    pl_route_args args = {
        .n_experts = c->n_experts,
        .top_k = c->n_experts_per_tok,
        .by_token = by_token,
        .tokens = f->step->tokens,
        .score = ws->score,
        .ids = ws->ids,
    };

    if (by_token)
        args.table = pl__view(f, w->gate_tid2eid);
    else
        args.bias = pl__view(f, w->gate_bias);
    pl_chain_linear(&ws->rows, &gate);
    pl_chain_route(&ws->rows, &args);
    pl__tap(f, b, PL_TAP_FFN_IDS, PL_TAP_KIND_I32, c->n_experts_per_tok, ws->ids);
    pl_chain_route_weights(&ws->rows, &(pl_route_weights_args){
                                          .n_experts = c->n_experts,
                                          .top_k = c->n_experts_per_tok,
                                          .scale = c->routed_scaling_factor,
                                          .score = ws->score,
                                          .ids = ws->ids,
                                          .weight = ws->weight,
                                      });
    pl__tap(f, b, PL_TAP_FFN_WEIGHTS, PL_TAP_KIND_ACC, c->n_experts_per_tok, ws->weight);
}

/* Routed experts and the shared one side by side: an expert's weights are read once per step. */
static void experts(pl_forward *f, const pl__block *b)
{
    const pl_config *c = f->config;
    pl_workspace *ws = &f->ws;

    pl__quantise(f, &ws->rows, c->hidden_size, ws->x, ws->xq);
    route(f, b);
    pl_chain_run(&f->exec, &ws->rows);
    pl__group_by_expert(f);
    pl__experts_up(f, b);
    pl_run_linear(&f->exec, ws->jobs, pl__linear_experts_down(f, b, ws->jobs));
    pl__add_experts(f);
    pl__tap(f, b, PL_TAP_FFN_OUT, PL_TAP_KIND_ACT, c->hidden_size, ws->out);
}

/* --------------------------------------------- blocks, head, the whole, sections 2.4, 2.5 ---- */

static void block(pl_forward *f, const pl__block *b)
{
    const pl_layer_slots *w = b->w;

    read_streams(f, b->X, (site){w->hc_attn_fn, w->hc_attn_base, w->hc_attn_scale, w->attn_norm});
    attention(f, b);
    write_streams(f, b, PL_TAP_STREAMS_MID);

    read_streams(f, b->X, (site){w->hc_ffn_fn, w->hc_ffn_base, w->hc_ffn_scale, w->ffn_norm});
    experts(f, b);
    write_streams(f, b, PL_TAP_STREAMS);
}

/* Logits of the wanted rows, section 2.5. */
static void head(pl_forward *f, const void *X, site s, int32_t layer)
{
    const pl_config *c = f->config;
    pl_workspace *ws = &f->ws;
    int64_t n = f->step->n_logits;
    pl_linear_job *job = ws->jobs;

    if (n == 0)
        return;
    pl_chain_begin(&ws->rows, n);
    pl_chain_hc_dots(&ws->rows, &(pl_hc_dots_args){
                                    .fn = pl__view(f, s.fn),
                                    .x = X,
                                    .rows = f->step->logit_rows,
                                    .m = ws->m,
                                });
    pl_chain_hc_head(&ws->rows, &(pl_hc_head_args){
                                    .base = pl__view(f, s.base),
                                    .scale = pl__view(f, s.scale),
                                    .rms_eps = c->rms_norm_eps,
                                    .hc_eps = c->hc_eps,
                                    .dim = c->hidden_size,
                                    .m = ws->m,
                                    .x = X,
                                    .rows = f->step->logit_rows,
                                    .y = ws->head_x,
                                });
    pl__rms_norm(f, &ws->rows, s.norm, ws->head_x, ws->head_x);
    pl_chain_run(&f->exec, &ws->rows);
    *job =
        pl__linear(f, f->slots->head, ws->head_x,
                   (uint8_t *)ws->logits + f->share.vocab * f->exec.ops->acc_bytes, PL_LINEAR_ACC);
    job->n = (int32_t)n;
    job->first_row = f->share.vocab;
    job->n_rows = f->share.vocab_end - f->share.vocab;
    pl_run_linear(&f->exec, job, 1);
    pl__gather_logits(f);
    pl__tap_logits(f, layer);
}

void pl__dsv4_run_head(pl_forward *f)
{
    const pl_model_slots *m = f->slots;

    head(f, f->ws.X, (site){m->hc_head_fn, m->hc_head_base, m->hc_head_scale, m->norm},
         PL_TAP_LAYER_NONE);
}

void pl__dsv4_run(pl_forward *f)
{
    const pl_model_slots *m = f->slots;

    pl__step_begin(f, false);
    embed(f, PL_HC_MULT, f->ws.X);
    for (int32_t l = 0; l < f->config->n_layers; l++)
        block(f, &(pl__block){&m->layer[l], l, l, f->ws.X});
    pl_chain_run(&f->exec, &f->ws.rows);
    pl__dsv4_run_head(f);
}

/* ---------------------------------------------------------------------- mtp, section 6 ---- */

void pl__dsv4_run_mtp(pl_forward *f, const void *streams, const int32_t *rows)
{
    const pl_model_slots *m = f->slots;
    pl_workspace *ws = &f->ws;
    int64_t n = f->step->n_tokens, dim = f->config->hidden_size;
    pl__block b = {&m->mtp, f->config->n_layers, PL_TAP_LAYER_MTP, ws->mtp_X};
    pl_chain *h = &ws->side[0];

    pl__step_begin(f, true);
    embed(f, 1, ws->e);
    pl__rms_norm(f, &ws->rows, m->mtp_enorm, ws->e, ws->e);
    pl__quantise(f, &ws->rows, dim, ws->e, ws->eq);
    pl__gather_streams(f, streams, rows, ws->h);
    pl_chain_begin(h, n * PL_HC_MULT);
    pl__rms_norm(f, h, m->mtp_hnorm, ws->h, ws->h);
    pl__quantise(f, h, dim, ws->h, ws->hq);
    pl__run_side_by_side(f, (pl_chain *const[]){&ws->rows, h}, 2);
    ws->jobs[0] = pl__linear(f, m->mtp_e_proj, ws->eq, ws->e, PL_LINEAR_ACT);
    ws->jobs[1] = pl__linear(f, m->mtp_h_proj, ws->hq, ws->h, PL_LINEAR_ACT);
    ws->jobs[1].n = (int32_t)(n * PL_HC_MULT);
    pl_run_linear(&f->exec, ws->jobs, 2);
    pl_chain_mtp_join(&ws->rows, &(pl_mtp_join_args){dim, ws->e, ws->h, ws->mtp_X});
    block(f, &b);
    pl_chain_run(&f->exec, &ws->rows);
    head(f, b.X, (site){m->mtp_hc_head_fn, m->mtp_hc_head_base, m->mtp_hc_head_scale, m->mtp_norm},
         PL_TAP_LAYER_MTP);
}
