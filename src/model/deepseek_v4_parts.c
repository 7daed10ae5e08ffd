/* What the forward pass needs besides operators: which cache a token belongs to, which weight a job reads,
 * whom to show a tensor. */
#include <string.h>

#include "model/deepseek_v4.h"

pl_weight_view pl__view(const pl_forward *f, pl_slot slot)
{
    return pl_weights_view(f->weights, slot);
}

void pl__rms_norm(const pl_forward *f, pl_chain *c, pl_slot w, const void *x, void *y)
{
    pl_weight_view view = pl__view(f, w);

    pl_chain_rms_norm(c, &(pl_rms_norm_args){
                             .w = view,
                             .eps = f->config->rms_norm_eps,
                             .dim = view.cols,
                             .x = x,
                             .y = y,
                         });
}

void pl__quantise(const pl_forward *f, pl_chain *c, int64_t dim, const void *x, void *q)
{
    pl_chain_quantise(c, &(pl_quantise_args){
                             .dim = dim,
                             .x = x,
                             .x_stride = dim * f->exec.ops->act_bytes,
                             .q = q,
                             .q_stride = pl__quant_row_bytes(f->exec.ops, dim),
                         });
}

pl_state *pl__state(const pl_forward *f, int32_t s)
{
    pl_state *state = f->step->seqs[s].state;

    for (int r = 0; r < f->share.rank; r++)
        state = state->next_rank;
    return state;
}

pl_linear_job pl__linear(const pl_forward *f, pl_slot w, const void *x, void *y, pl_linear_out out)
{
    const pl_ops *ops = f->exec.ops;
    pl_weight_view view = pl__view(f, w);
    bool quantised = view.format != PL_WEIGHT_BF16;

    return (pl_linear_job){
        .w = view,
        .n_rows = view.rows,
        .x = x,
        .x_stride = quantised ? pl__quant_row_bytes(ops, view.cols) : view.cols * ops->act_bytes,
        .n = f->step->n_tokens,
        .out = out,
        .y = y,
        .y_stride = view.rows * (out == PL_LINEAR_ACT ? ops->act_bytes : ops->acc_bytes),
    };
}

int32_t pl__linear_wo_a(const pl_forward *f, pl_slot w, pl_linear_job *jobs)
{
    const pl_config *c = f->config;
    const pl_share *own = &f->share;
    int64_t act = f->exec.ops->act_bytes, rank = c->o_lora_rank;
    pl_weight_view view = pl__view(f, w);

    for (int32_t g = own->shard; g < own->shard_end; g++)
        jobs[g - own->shard] = (pl_linear_job){
            .w = view,
            .first_row = g * rank,
            .n_rows = rank,
            .a16 = true,
            .x = (const uint8_t *)f->ws.q + (g - own->shard) * view.cols * act,
            .x_stride = (int64_t)own->n_heads * PL_HEAD_DIM * act,
            .n = f->step->n_tokens,
            .out = PL_LINEAR_ACT,
            .y = (uint8_t *)f->ws.z + g * rank * act,
            .y_stride = c->o_groups * rank * act,
        };
    return own->shard_end - own->shard;
}

void pl__step_begin(pl_forward *f, bool mtp)
{
    const pl_step *step = f->step;
    pl_workspace *ws = &f->ws;

    for (int32_t s = 0; s < step->n_seqs; s++) {
        const pl_step_seq *seq = &step->seqs[s];
        const pl_state *state = pl__state(f, s);
        int32_t start = mtp ? state->n_mtp : state->n;

        ws->seqs[s] = (pl_attention_seq){
            .first = seq->first,
            .n = seq->n,
            .start = start,
            .ring_rows = state->ring_rows,
        };
        for (int32_t i = 0; i < seq->n; i++) {
            ws->position[seq->first + i] = start + i;
            ws->seq_of[seq->first + i] = s;
            ws->step_dest[seq->first + i] = (pl_row_dest){&ws->step, seq->first + i};
        }
    }
    for (int i = 0; i < 3; i++)
        pl_chain_begin(&ws->side[i], 0);
    pl_chain_begin(&ws->rows, step->n_tokens);
    for (int comp = 0; comp < 2; comp++)
        pl_chain_rope_angles(&ws->rows, &(pl_rope_angles_args){
                                            .freq = f->freq[comp],
                                            .position = ws->position,
                                            .cos = ws->cos[comp],
                                            .sin = ws->sin[comp],
                                        });
}

bool pl__step_has_drafts(const pl_forward *f)
{
    for (int32_t s = 0; s < f->step->n_seqs; s++)
        if (f->step->seqs[s].n_draft)
            return true;
    return false;
}

void pl__step_enter(pl_forward *f, const pl__block *b)
{
    for (int32_t s = 0; s < f->step->n_seqs; s++) {
        const pl_layer_state *layer = &pl__state(f, s)->layer[b->state];

        f->ws.seqs[s].ring = layer->ring;
        f->ws.seqs[s].entries = layer->entries;
        f->ws.seqs[s].keys = layer->keys;
    }
}

void pl__step_keep_keys(pl_forward *f, const pl__block *b)
{
    for (int32_t s = 0; s < f->step->n_seqs; s++) {
        const pl_attention_seq *seq = &f->ws.seqs[s];
        int32_t i = seq->n > seq->ring_rows ? seq->n - seq->ring_rows : 0;

        for (; i < seq->n; i++)
            pl_rows_copy(&seq->ring, (seq->start + i) % seq->ring_rows, &f->ws.step,
                         seq->first + i);
    }
}

void pl__gather_streams(const pl_forward *f, const void *streams, const int32_t *rows, void *out)
{
    size_t bytes =
        (size_t)PL_HC_MULT * (size_t)f->config->hidden_size * (size_t)f->exec.ops->act_bytes;

    for (int32_t r = 0; r < f->step->n_tokens; r++)
        memcpy((uint8_t *)out + (size_t)r * bytes,
               (const uint8_t *)streams + (size_t)rows[r] * bytes, bytes);
}

void pl__recount_selection(pl_forward *f)
{
    int64_t topk = f->config->index_topk;

    for (int64_t t = 0; t < f->step->n_tokens; t++) {
        int32_t n = 0;

        while (n < topk && f->ws.sel[t * topk + n] >= 0)
            n++;
        f->ws.n_sel[t] = n;
    }
}

bool pl__is_watched(const pl_forward *f, pl_tap tap)
{
    return f->hooks && (!f->hooks->only || (f->hooks->only & 1u << tap));
}

static void visit(pl_forward *f, pl_tap_view view)
{
    pl_chain_run(&f->exec, &f->ws.rows);
    view.step = f->step;
    view.ops = f->exec.ops;
    f->hooks->visit(f->hooks->user, &view);
}

void pl__tap(pl_forward *f, const pl__block *b, pl_tap tap, pl_tap_kind kind, int64_t cols,
             void *data)
{
    if (pl__is_watched(f, tap))
        visit(f, (pl_tap_view){
                     .tap = tap,
                     .kind = kind,
                     .layer = b->tap,
                     .rows = f->step->n_tokens,
                     .cols = cols,
                     .data = data,
                     .kv = kind == PL_TAP_KIND_ROWS ? &f->ws.step : NULL,
                 });
}

void pl__tap_logits(pl_forward *f, int32_t layer)
{
    if (pl__is_watched(f, PL_TAP_LOGITS))
        visit(f, (pl_tap_view){
                     .tap = PL_TAP_LOGITS,
                     .kind = PL_TAP_KIND_ACC,
                     .layer = layer,
                     .rows = f->step->n_logits,
                     .cols = f->config->vocab_size,
                     .data = f->ws.logits,
                 });
}
