/* The checked entry of the forward pass: memory, arguments, counts. */
#include "model/forward.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "model/deepseek_v4.h"
#include "ops/rope_table.h"

pl_state_shape pl_forward_state_shape(const pl_config *config, const pl_ops *ops, bool has_mtp,
                                      const pl_forward_limits *limits)
{
    return (pl_state_shape){
        .ops = ops,
        .n_layers = config->n_layers,
        .has_mtp = has_mtp,
        .ratio = config->compress_ratio,
        .max_len = limits->max_len,
        .max_draft = limits->max_draft,
    };
}

static pl_forward *layout(pl_regions *regions, pl_arena *arena, const pl_config *config,
                          const pl_ops *ops, bool has_mtp, int n_workers,
                          const pl_forward_limits *limits)
{
    const int n = pl__n_ranks(limits);
    pl_forward *f;

    if (regions)
        pl_region_begin(regions, arena, "forward.record", "model");
    f = pl_arena_array(arena, (size_t)n, sizeof *f, 0);
    if (regions)
        pl_region_end(regions, "up(%d ranks * %zu, 64)", n, sizeof *f);
    for (int r = 0; f && r < n; r++)
        f[r] = (pl_forward){.share = pl__share_of(config, r, n)};
    pl__workspace_layout(f, arena, regions, config, ops, has_mtp, n_workers, limits);
    return f;
}

void *pl_forward_layout(pl_regions *regions, pl_arena *arena, const pl_config *config,
                        const pl_ops *ops, bool has_mtp, int n_workers,
                        const pl_forward_limits *limits)
{
    return layout(regions, arena, config, ops, has_mtp, n_workers, limits);
}

uint64_t pl_forward_bytes(const pl_config *config, const pl_ops *ops, bool has_mtp, int n_workers,
                          const pl_forward_limits *limits)
{
    pl_arena arena;

    pl_arena_init_dry(&arena);
    layout(NULL, &arena, config, ops, has_mtp, n_workers, limits);
    return pl_arena_peak_bytes(&arena);
}

pl_status pl_forward_check_limits(const pl_config *c, const pl_forward_limits *l, pl_error *err)
{
    PL_CHECK(l->max_tokens >= 1 && l->max_tokens <= 1 << 20, err,
             "forward: max_tokens out of range (got %d, want 1 to %d)", l->max_tokens, 1 << 20);
    PL_CHECK(l->max_seqs >= 1 && l->max_seqs <= l->max_tokens, err,
             "forward: max_seqs out of range (got %d, want 1 to %d)", l->max_seqs, l->max_tokens);
    PL_CHECK(l->max_logits >= 0 && l->max_logits <= l->max_tokens, err,
             "forward: max_logits out of range (got %d, want 0 to %d)", l->max_logits,
             l->max_tokens);
    PL_CHECK(l->max_len >= 1 && l->max_len <= c->max_position_embeddings, err,
             "forward: max_len out of range (got %d, want 1 to %d)", l->max_len,
             c->max_position_embeddings);
    PL_CHECK(l->max_draft >= 0 && l->max_draft < l->max_tokens && l->max_draft <= 64, err,
             "forward: max_draft out of range (got %d, want 0 to 64, below max_tokens)",
             l->max_draft);
    PL_CHECK(l->n_ranks >= 0 && l->n_ranks <= PL_MAX_RANKS, err,
             "forward: ranks out of range (got %d, want 1 to %d)", l->n_ranks, PL_MAX_RANKS);
    return PL_OK;
}

static void set_model(pl_forward *f, const pl_weights *weights, const pl_forward_limits *limits)
{
    const pl_config *c = pl_weights_config(weights);
    pl_rope_yarn yarn = {c->yarn_factor, c->yarn_original_max_position, c->yarn_beta_fast,
                         c->yarn_beta_slow};

    f->config = c;
    f->weights = weights;
    f->slots = pl_weights_slots(weights);
    f->limits = *limits;
    pl_rope_table_freq(c->rope_theta, NULL, f->freq[0]);
    pl_rope_table_freq(c->compress_rope_theta, &yarn, f->freq[1]);
    f->index_factor = (float)(1 / sqrt(PL_INDEX_DIM) * (1 / sqrt(c->index_n_heads)));
}

pl_status pl_forward_init(void *memory, const pl_weights *weights, const pl_ops *ops, pl_pool *pool,
                          const pl_forward_limits *limits, pl_forward **out, pl_error *err)
{
    const pl_config *config = pl_weights_config(weights);
    const pl_model_slots *slots = pl_weights_slots(weights);
    int n_workers = pl_pool_n_workers(pool);
    pl_arena arena;
    pl_forward *f;

    *out = NULL;
    PL_TRY(pl_forward_check_limits(config, limits, err));
    PL_CHECK(pl_weights_layout(weights) == PL_WEIGHT_ROWS || ops != pl_ops_f64(ops->mode), err,
             "forward: level f64 reads weights in rows (got tiles, want rows)");
    PL_CHECK(limits->n_ranks <= 1 || ops->shard_sum, err,
             "forward: level %s has no shards, its sums are whole (got %d ranks, want 1)",
             ops->name, limits->n_ranks);
    pl_arena_init(&arena, memory, pl_forward_bytes(config, ops, slots->has_mtp, n_workers, limits));
    f = layout(NULL, &arena, config, ops, slots->has_mtp, n_workers, limits);
    PL_TRY(pl_arena_check(&arena, "forward", err));
    for (int r = 0; r < pl__n_ranks(limits); r++) {
        set_model(&f[r], weights, limits);
        f[r].exec.pool = pool;
    }
    *out = f;
    return PL_OK;
}

pl_status pl_forward_set_ranks(pl_forward *f, pl_ranks *ranks, pl_error *err)
{
    PL_CHECK(pl_ranks_count(ranks) == f->share.n_ranks, err, "forward: ranks (got %d, want %d)",
             pl_ranks_count(ranks), f->share.n_ranks);
    f->ranks = ranks;
    return PL_OK;
}

void pl_forward_set_hooks(pl_forward *f, const pl_hooks *hooks)
{
    f->hooks = hooks;
}

void pl_forward_set_profile(pl_forward *f, pl_profile *profile)
{
    for (int r = 0; r < f->share.n_ranks; r++)
        f[r].exec.profile = profile;
}

/* The states of sequence s at all ranks: as many as ranks, of this model, in step with each other. */
static pl_status check_states(const pl_forward *f, const pl_step_seq *seq, int32_t s, bool mtp,
                              pl_error *err)
{
    const pl_state *first = seq->state, *state = first;
    int n = 0;

    for (; state && n < f->share.n_ranks; state = state->next_rank, n++) {
        PL_CHECK(state->n_layers == f->config->n_layers &&
                     state->max_draft == f->limits.max_draft && state->ops == f->exec.ops &&
                     (!mtp || state->has_mtp),
                 err, "step: the state of sequence %d belongs to another model or level", s);
        PL_CHECK(state->n == first->n && state->n_settled == first->n_settled &&
                     state->n_mtp == first->n_mtp && state->max_len == first->max_len,
                 err, "step: the states of sequence %d differ at rank %d (got %d tokens, want %d)",
                 s, n, state->n, first->n);
    }
    PL_CHECK(!state && n == f->share.n_ranks, err,
             "step: the states of sequence %d are not those of %d ranks (got %s)", s,
             f->share.n_ranks, state ? "more" : "fewer");
    return PL_OK;
}

static pl_status check_seq(const pl_forward *f, const pl_step *step, int32_t s, bool mtp,
                           int32_t first, pl_error *err)
{
    const pl_step_seq *seq = &step->seqs[s];
    int32_t start, most;

    PL_CHECK(seq->first == first && seq->n >= 1, err,
             "step: sequence %d is out of place (got rows %d + %d, want them from %d on)", s,
             seq->first, seq->n, first);
    PL_CHECK(seq->n_draft >= 0 && seq->n_draft < seq->n && seq->n_draft <= f->limits.max_draft, err,
             "step: sequence %d has %d drafts of %d tokens (want at most %d, one token sure)", s,
             seq->n_draft, seq->n, f->limits.max_draft);
    PL_TRY(check_states(f, seq, s, mtp, err));
    start = mtp ? seq->state->n_mtp : seq->state->n;
    most = seq->state->max_len < f->limits.max_len ? seq->state->max_len : f->limits.max_len;
    PL_CHECK(seq->n <= most - start, err,
             "step: sequence %d is too long (got %d tokens at position %d, want at most %d)", s,
             seq->n, start, most);
    return PL_OK;
}

/* Every state is one sequence's: each is marked with the last that names it, and then each has to find its mark. */
static pl_status check_owners(const pl_step *step, pl_error *err)
{
    for (int32_t s = 0; s < step->n_seqs; s++)
        for (pl_state *state = step->seqs[s].state; state; state = state->next_rank)
            state->seq_of_step = s;
    for (int32_t s = 0; s < step->n_seqs; s++)
        for (const pl_state *state = step->seqs[s].state; state; state = state->next_rank)
            PL_CHECK(state->seq_of_step == s, err,
                     "step: sequences %d and %d have the same state (want one each)", s,
                     state->seq_of_step);
    return PL_OK;
}

static pl_status check_hooks(const pl_forward *f, pl_error *err)
{
    PL_CHECK(!f->hooks || f->share.n_ranks == 1, err,
             "step: hooks see whole tensors (got %d ranks, want 1)", f->share.n_ranks);
    PL_CHECK(!f->hooks || !f->hooks->scores || f->limits.want_scores, err,
             "step: hooks want indexer scores, for which no memory was planned (want want_scores "
             "among the limits)");
    PL_CHECK(f->share.n_ranks == 1 || f->ranks, err, "step: nobody runs the %d ranks",
             f->share.n_ranks);
    return PL_OK;
}

static pl_status check_logits(const pl_forward *f, const pl_step *step, pl_error *err)
{
    PL_CHECK(step->n_logits >= 0 && step->n_logits <= f->limits.max_logits &&
                 step->n_logits <= step->n_tokens,
             err, "step: rows of logits (got %d, want at most %d)", step->n_logits,
             f->limits.max_logits);
    for (int32_t i = 0; i < step->n_logits; i++)
        PL_CHECK(step->logit_rows[i] >= 0 && step->logit_rows[i] < step->n_tokens, err,
                 "step: logit row %d (got %d, want 0 to %d)", i, step->logit_rows[i],
                 step->n_tokens - 1);
    return PL_OK;
}

static pl_status check_step(const pl_forward *f, const pl_step *step, bool mtp, pl_error *err)
{
    int32_t first = 0, V = f->config->vocab_size;

    PL_TRY(check_hooks(f, err));
    PL_CHECK(step->n_tokens >= 1 && step->n_tokens <= f->limits.max_tokens, err,
             "step: number of tokens (got %d, want 1 to %d)", step->n_tokens, f->limits.max_tokens);
    PL_CHECK(step->n_seqs >= 1 && step->n_seqs <= f->limits.max_seqs, err,
             "step: number of sequences (got %d, want 1 to %d)", step->n_seqs, f->limits.max_seqs);
    for (int32_t s = 0; s < step->n_seqs; s++) {
        PL_TRY(check_seq(f, step, s, mtp, first, err));
        PL_CHECK(step->seqs[s].n <= step->n_tokens - first, err,
                 "step: its sequences have more tokens than it (got %d, want %d)",
                 first + step->seqs[s].n, step->n_tokens);
        first += step->seqs[s].n;
    }
    PL_TRY(check_owners(step, err));
    PL_CHECK(first == step->n_tokens, err, "step: tokens of its sequences (got %d, want %d)", first,
             step->n_tokens);
    for (int32_t t = 0; t < step->n_tokens; t++)
        PL_CHECK((step->tokens[t] >= 0 || (mtp && step->tokens[t] == -1)) && step->tokens[t] < V,
                 err, "step: token id %d of row %d is not in the vocabulary (want 0 to %d)",
                 step->tokens[t], t, V - 1);
    return check_logits(f, step, err);
}

/* A checked step on its way through the ranks. */
typedef struct rank_step {
    pl_forward *f;
    const pl_step *step;
    bool mtp; /* else the main stack */
    const void *streams;
    const int32_t *rows;
} rank_step;

/* Streams that a pass holds are those of the same rank; others are the caller's. */
static const void *streams_of(const pl_forward *first, const pl_forward *f, const void *streams)
{
    if (streams == first->ws.X)
        return f->ws.X;
    return streams == first->ws.mtp_X ? f->ws.mtp_X : streams;
}

static void run_pass(const rank_step *r, pl_forward *f)
{
    f->step = r->step;
    if (r->mtp)
        pl__dsv4_run_mtp(f, streams_of(r->f, f, r->streams), r->rows);
    else
        pl__dsv4_run(f);
    f->step = NULL;
}

static void run_rank(void *user, pl_comm *comm)
{
    const rank_step *r = user;
    pl_forward *f = &r->f[pl_comm_rank(comm)];

    f->comm = comm;
    run_pass(r, f);
    f->comm = NULL;
}

static void run(rank_step r)
{
    if (r.f->ranks)
        pl_ranks_run(r.f->ranks, run_rank, &r);
    else
        run_pass(&r, r.f);
}

pl_status pl_forward_run(pl_forward *f, const pl_step *step, pl_error *err)
{
    PL_TRY(check_step(f, step, false, err));
    run((rank_step){.f = f, .step = step});
    for (int32_t s = 0; s < step->n_seqs; s++)
        for (pl_state *state = step->seqs[s].state; state; state = state->next_rank) {
            state->n += step->seqs[s].n;
            state->n_settled = state->n - step->seqs[s].n_draft;
        }
    return PL_OK;
}

pl_status pl_forward_run_mtp(pl_forward *f, const pl_step *step, const void *streams,
                             const int32_t *rows, pl_error *err)
{
    PL_CHECK(f->slots->has_mtp, err, "mtp: this checkpoint has no mtp block");
    PL_TRY(check_step(f, step, true, err));
    for (int32_t t = 0; t < step->n_tokens; t++)
        PL_CHECK(rows[t] >= 0 && rows[t] < f->limits.max_tokens, err,
                 "mtp: stream row of row %d (got %d, want 0 to %d)", t, rows[t],
                 f->limits.max_tokens - 1);
    run((rank_step){f, step, true, streams, rows});
    for (int32_t s = 0; s < step->n_seqs; s++)
        for (pl_state *state = step->seqs[s].state; state; state = state->next_rank)
            state->n_mtp += step->seqs[s].n;
    return PL_OK;
}

pl_status pl_forward_run_head(pl_forward *f, const pl_step *step, pl_error *err)
{
    PL_CHECK(f->share.n_ranks == 1, err, "head: runs alone at one rank (got %d ranks)",
             f->share.n_ranks);
    PL_TRY(check_logits(f, step, err));
    f->step = step;
    pl__dsv4_run_head(f);
    f->step = NULL;
    return PL_OK;
}

const void *pl_forward_streams(const pl_forward *f)
{
    return f->ws.X;
}

const void *pl_forward_mtp_streams(const pl_forward *f)
{
    return f->ws.mtp_X;
}

const void *pl_forward_logits(const pl_forward *f)
{
    return f->ws.logits;
}

int32_t pl_forward_argmax(const pl_forward *f, int32_t i)
{
    const pl_ops *ops = f->exec.ops;
    int32_t V = f->config->vocab_size, best = 0;
    const uint8_t *row = (const uint8_t *)f->ws.logits + (int64_t)i * V * ops->acc_bytes;
    float largest = -INFINITY;

    for (int32_t id = 0; id < V; id++) {
        float v;

        ops->acc_get(row + (int64_t)id * ops->acc_bytes, 1, &v);
        if (v > largest) {
            largest = v;
            best = id;
        }
    }
    return best;
}
