/* Compressors of a step: which rows go into which state, and where finished entries belong
 * (specification sections 3.6, 3.7).
 *
 * A sequence's compressor state never contains a token that may be taken back. Tokens are pushed in three
 * turns: the kept drafts of the step before, then this step's sure tokens, both into the state; then this
 * step's drafts into a copy, while their raw rows are kept for the next step. Entries that drafts finish are
 * stored at once: taking tokens back only lowers the count. */
#include <string.h>

#include "model/deepseek_v4.h"

typedef struct compressor {
    pl_forward *f;
    const pl__block *b;
    bool is_index;
    int32_t ratio, dim;
    int64_t row_bytes; /* of kv and gate */
    pl_slot ape, norm;
    pl_compress_ws *ws;
    pl_chain *chain;
} compressor;

static pl_compressor_state *state_of(const compressor *c, int32_t s)
{
    pl_layer_state *layer = &pl__state(c->f, s)->layer[c->b->state];

    return c->is_index ? &layer->index : &layer->main;
}

static uint8_t *pooled_at(const compressor *c, int64_t entry)
{
    return (uint8_t *)c->ws->pooled + entry * c->dim * c->f->exec.ops->act_bytes;
}

static void append_jobs(const compressor *c, int32_t n_jobs)
{
    pl_chain_begin(c->chain, n_jobs);
    pl_chain_compress(c->chain, &(pl_compress_args){
                                    .ratio = c->ratio,
                                    .dim = c->dim,
                                    .ape = pl__view(c->f, c->ape),
                                    .jobs = c->ws->job,
                                });
}

/* Drafts that the last step left pending and that were kept. Their entries exist already: what comes out
 * here is dropped. */
static void replay(const compressor *c)
{
    int64_t at = 0;
    int32_t n_jobs = 0;

    for (int32_t s = 0; s < c->f->step->n_seqs; s++) {
        const pl_state *state = pl__state(c->f, s);
        const pl_compressor_state *cs = state_of(c, s);

        if (state->n == state->n_settled)
            continue;
        c->ws->job[n_jobs++] = (pl_compress_job){
            .state = cs->state,
            .kv = cs->pending_kv,
            .gate = cs->pending_gate,
            .n = state->n - state->n_settled,
            .start = state->n_settled,
            .pooled = pooled_at(c, at),
        };
        at += state->n / c->ratio - state->n_settled / c->ratio;
    }
    append_jobs(c, n_jobs);
}

/* The job of `n` rows from row `row` of the step on, whose entries go to `entry` on. */
static pl_compress_job rows_job(const compressor *c, void *state, int32_t row, int32_t n,
                                int32_t start, int64_t entry)
{
    return (pl_compress_job){
        .state = state,
        .kv = (uint8_t *)c->ws->kv + row * c->row_bytes,
        .gate = (uint8_t *)c->ws->gate + row * c->row_bytes,
        .n = n,
        .start = start,
        .pooled = pooled_at(c, entry),
    };
}

/* Entries finished by the first n tokens of sequence s in this step. */
static int64_t n_finished(const compressor *c, int32_t s, int32_t n)
{
    int32_t start = c->f->ws.seqs[s].start;

    return (start + n) / c->ratio - start / c->ratio;
}

static void push_sure(const compressor *c)
{
    int64_t at = 0;
    int32_t n_jobs = 0;

    for (int32_t s = 0; s < c->f->step->n_seqs; s++) {
        const pl_step_seq *seq = &c->f->step->seqs[s];
        int32_t n = seq->n - seq->n_draft;

        c->ws->job[n_jobs++] =
            rows_job(c, state_of(c, s)->state, seq->first, n, c->f->ws.seqs[s].start, at);
        at += n_finished(c, s, seq->n);
    }
    append_jobs(c, n_jobs);
}

static void push_drafts(const compressor *c)
{
    int64_t at = 0;
    int32_t n_jobs = 0;

    for (int32_t s = 0; s < c->f->step->n_seqs; s++) {
        const pl_step_seq *seq = &c->f->step->seqs[s];
        const pl_compressor_state *cs = state_of(c, s);
        int32_t sure = seq->n - seq->n_draft, row = seq->first + sure;
        uint8_t *copy = c->ws->draft_state + (uint64_t)n_jobs * c->ws->draft_state_bytes;
        size_t bytes = (size_t)(seq->n_draft * c->row_bytes);

        if (seq->n_draft) {
            memcpy(copy, cs->state, c->f->exec.ops->compress_state_bytes(c->ratio, c->dim));
            memcpy(cs->pending_kv, (uint8_t *)c->ws->kv + row * c->row_bytes, bytes);
            memcpy(cs->pending_gate, (uint8_t *)c->ws->gate + row * c->row_bytes, bytes);
            c->ws->job[n_jobs++] =
                rows_job(c, copy, row, seq->n_draft, c->f->ws.seqs[s].start + sure,
                         at + n_finished(c, s, sure));
        }
        at += n_finished(c, s, seq->n);
    }
    append_jobs(c, n_jobs);
}

/* Positions and places of the entries that this step finishes; returns their number. */
static int64_t address(const compressor *c)
{
    int64_t at = 0;

    for (int32_t s = 0; s < c->f->step->n_seqs; s++) {
        const pl_attention_seq *seq = &c->f->ws.seqs[s];
        int32_t first = seq->start / c->ratio;

        for (int32_t e = first; e < (seq->start + seq->n) / c->ratio; e++, at++) {
            c->ws->position[at] = e * c->ratio;
            c->ws->dest[at] = (pl_row_dest){c->is_index ? &seq->keys : &seq->entries, e};
        }
    }
    return at;
}

/* Norm, rotation and quantisation of pooled vectors. */
static void finish(const compressor *c)
{
    pl_compress_ws *ws = c->ws;
    pl_angles angles = {ws->cos, ws->sin};

    pl_chain_begin(c->chain, address(c));
    pl__rms_norm(c->f, c->chain, c->norm, ws->pooled, ws->pooled);
    pl_chain_rope_angles(c->chain,
                         &(pl_rope_angles_args){c->f->freq[1], ws->position, ws->cos, ws->sin});
    if (c->is_index)
        pl_chain_key_store(c->chain, &(pl_key_store_args){ws->pooled, angles, ws->dest});
    else
        pl_chain_kv_store(c->chain, &(pl_kv_store_args){ws->pooled, angles, ws->dest});
}

static void for_each(pl_forward *f, const pl__block *b, void (*append)(const compressor *))
{
    const pl_layer_slots *w = b->w;
    compressor c = {
        .f = f,
        .b = b,
        .ratio = w->ratio,
        .dim = PL_HEAD_DIM,
        .ape = w->comp_ape,
        .norm = w->comp_norm,
        .ws = &f->ws.main,
        .chain = &f->ws.side[0],
    };

    if (!w->ratio)
        return;
    c.row_bytes = (int64_t)pl_compressor_width(w->ratio, PL_HEAD_DIM) * f->exec.ops->acc_bytes;
    append(&c);
    if (w->ratio != 4)
        return;
    c.is_index = true;
    c.dim = PL_INDEX_DIM;
    c.row_bytes = (int64_t)pl_compressor_width(w->ratio, PL_INDEX_DIM) * f->exec.ops->acc_bytes;
    c.ape = w->index_comp_ape;
    c.norm = w->index_comp_norm;
    c.ws = &f->ws.index;
    c.chain = &f->ws.side[1];
    append(&c);
}

void pl__compress_replay(pl_forward *f, const pl__block *b)
{
    for_each(f, b, replay);
}

void pl__compress_sure(pl_forward *f, const pl__block *b)
{
    for_each(f, b, push_sure);
}

void pl__compress_drafts(pl_forward *f, const pl__block *b)
{
    for_each(f, b, push_drafts);
}

void pl__compress_finish(pl_forward *f, const pl__block *b)
{
    for_each(f, b, finish);
}
