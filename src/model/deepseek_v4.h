/* The model as a chain of operators; model/forward.h is its checked entry. */
#ifndef PL_MODEL_DEEPSEEK_V4_H
#define PL_MODEL_DEEPSEEK_V4_H

#include "model/workspace.h"

/* Runs f->step, which has been checked, through the main stack and, for its logit rows, the head.
 * The states receive keys, entries and compressor rows; their counts are the caller's. */
void pl__dsv4_run(pl_forward *f);

/* The head of the main stack over ws.X as it is. */
void pl__dsv4_run_head(pl_forward *f);

/* The step through the mtp block: row r pairs stream row rows[r] of `streams` with tokens[r]. */
void pl__dsv4_run_mtp(pl_forward *f, const void *streams, const int32_t *rows);

/* One block at work, of the main stack or mtp. */
typedef struct pl__block {
    const pl_layer_slots *w;
    int32_t state; /* its index in pl_state.layer */
    int32_t tap;   /* its layer for hooks */
    void *X;       /* act [n][4][D] */
} pl__block;

/* Operators on weights named by slot, over buffers of the workspace (deepseek_v4_parts.c). */
pl_weight_view pl__view(const pl_forward *f, pl_slot slot);
void pl__rms_norm(const pl_forward *f, pl_chain *c, pl_slot w, const void *x, void *y);
void pl__quantise(const pl_forward *f, pl_chain *c, int64_t dim, const void *x, void *q);

/* y = W x for every token of the step; x is act rows where W is BF16, else quantised rows. */
pl_linear_job pl__linear(const pl_forward *f, pl_slot w, const void *x, void *y, pl_linear_out out);
/* The grouped projection wo_a: a job for each own group, reading its heads of ws.q and writing its part of ws.z.
 * Returns their number. */
int32_t pl__linear_wo_a(const pl_forward *f, pl_slot w, pl_linear_job *jobs);

/* This rank's state of sequence s of the step. */
pl_state *pl__state(const pl_forward *f, int32_t s);

/* What ranks compute together (deepseek_v4_ranks.c). A row-parallel layer is a job for each own shard, into
 * ws.part; pl__add_shards then gives every rank y = the sum of all shards of n_items [+ shared]. */
int32_t pl__linear_shards(const pl_forward *f, pl_linear_job whole, pl_linear_job *jobs);
void pl__add_shards(pl_forward *f, int64_t n_items, const void *shared, void *y);
/* Every rank gets the groups' parts of ws.z, as far as quantising its own shards needs them. */
void pl__gather_groups(pl_forward *f);
/* Every rank gets all logits. */
void pl__gather_logits(pl_forward *f);
/* ws.out = the sum of the experts; the shared one's shards are in ws.part. */
void pl__add_experts(pl_forward *f);

/* Fills the per-step arrays of the workspace; `mtp`: positions of the mtp block. */
void pl__step_begin(pl_forward *f, bool mtp);
bool pl__step_has_drafts(const pl_forward *f);
/* Points ws.seqs at the block's caches. */
void pl__step_enter(pl_forward *f, const pl__block *b);
/* Moves the step's window keys into the rings. */
void pl__step_keep_keys(pl_forward *f, const pl__block *b);

/* out[r] = streams[rows[r]], act [n][4][D]. */
void pl__gather_streams(const pl_forward *f, const void *streams, const int32_t *rows, void *out);
/* n_sel from a selection that a hook may have changed. */
void pl__recount_selection(pl_forward *f);

/* The compressors of a block, from the rows in ws.main and ws.index to finished entries and keys
 * (deepseek_v4_compress.c). Each appends to ws.side[0] and [1], which have to be run before the next one is called. */
void pl__compress_replay(pl_forward *f, const pl__block *b);
void pl__compress_sure(pl_forward *f, const pl__block *b);
/* Nothing in a step without drafts. */
void pl__compress_drafts(pl_forward *f, const pl__block *b);
void pl__compress_finish(pl_forward *f, const pl__block *b);

/* Sorts (token, expert) pairs by expert (deepseek_v4_experts.c): pairs of expert e are rows
 * expert_begin[e] .. expert_begin[e + 1] - 1, the shared expert's begin at expert_begin[E]. */
void pl__group_by_expert(pl_forward *f);
/* Rows of ws.g that this rank fills: ranges [0] and, where others have experts too, [1]. */
typedef struct pl__row_range {
    int64_t begin, n;
} pl__row_range;
int pl__expert_rows(const pl_forward *f, pl__row_range ranges[2]);
/* Jobs of w1 and w3, or of w2, for every own expert with tokens and the own share of the shared one. */
int32_t pl__linear_experts_up(const pl_forward *f, const pl__block *b, pl_linear_job *jobs);
int32_t pl__linear_experts_down(const pl_forward *f, const pl__block *b, pl_linear_job *jobs);

/* Linear layers and what follows them within the same tile (deepseek_v4_pieces.c): queries of attention and the indexer
 * beside chains `side`; attention, the rotation back and wo_a to zq; the experts' w1, w3 and gated unit to aq. */
void pl__query(pl_forward *f, const pl__block *b, pl_chain *const *side, int32_t n_side);
void pl__attend_and_project(pl_forward *f, const pl__block *b, const pl_attention_args *args);
void pl__experts_up(pl_forward *f, const pl__block *b);
/* Chains that need nothing of each other, in one region. */
void pl__run_side_by_side(pl_forward *f, pl_chain *const *chains, int32_t n);

/* Whether a hook wants to see this. */
bool pl__is_watched(const pl_forward *f, pl_tap tap);
/* Call the hook, if there is one, after ws.rows has been run. */
void pl__tap(pl_forward *f, const pl__block *b, pl_tap tap, pl_tap_kind kind, int64_t cols,
             void *data);
void pl__tap_logits(pl_forward *f, int32_t layer);

#endif
