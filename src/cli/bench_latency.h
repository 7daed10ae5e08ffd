/* plimsoll bench latency: what its files share. bench_latency.c goes through the figures, whose lists
 * bench_latency_lists.c reads, of a model that bench_latency_open.c opens. bench_latency_steps.c makes and times steps,
 * bench_latency_depth.c drafts and says which depth would pay, bench_latency_cost.c says what a step has to read and to
 * multiply, and bench_latency_report.c and bench_latency_svg.c write what came out. */
#ifndef PL_CLI_BENCH_LATENCY_H
#define PL_CLI_BENCH_LATENCY_H

#include "cli/bench.h"
#include "model/forward.h"
#include "plimsoll/engine.h"

enum {
    PL_LATENCY_MAX_ROWS = 512,
    PL_LATENCY_MAX_BATCH = 64,
    PL_LATENCY_MAX_K = PL_MAX_SPECULATIVE,
    PL_LATENCY_MAX_LIST = 32,
    PL_LATENCY_ROOM = 128, /* positions of the steps behind a context */
    PL_LATENCY_MAX_SAMPLES = 31,
    PL_LATENCY_GROUP =
        4, /* steps of a sample: with them every kind of token, as ratio 4 has them */
};

/* ---- what is asked for */

typedef struct pl_latency_list {
    int64_t v[PL_LATENCY_MAX_LIST]; /* ascending */
    int n;
} pl_latency_list;

/* As on the command line; contexts and prefill may be NULL. */
typedef struct pl_latency_texts {
    const char *prefill, *contexts, *batches, *depths;
    int64_t batch_context;
} pl_latency_texts;

typedef struct pl_latency_lists {
    pl_latency_list prefill, contexts, batches, depths;
    int64_t batch_context;
    bool auto_depth; /* every depth, with what drafting costs */
} pl_latency_lists;

/* INVALID for what is no list of numbers that this model can do. */
pl_status pl_latency_read_lists(const pl_latency_texts *texts, const pl_config *config,
                                pl_latency_lists *lists, pl_error *err) PL_MUST_CHECK;

/* The largest; 0 of an empty list. */
int64_t pl_latency_last_of(const pl_latency_list *list);

/* ---- what a step costs */

typedef struct pl_latency_cost {
    const pl_config *config;
    uint64_t dense_bytes, expert_bytes; /* of all layers; of one routed expert of one layer */
    uint64_t head_bytes;                /* of what runs once a row of logits is wanted */
    double dense_weights, expert_weights, head_weights; /* one multiply-add a token each */
    int64_t kv_bytes, key_bytes;                        /* of a cached row */
} pl_latency_cost;

pl_latency_cost pl_latency_cost_of(const pl_checkpoint *checkpoint, const pl_ops *ops);

/* Floating-point operations of the layers for the token at `position`: projections, experts, attention, indexer. */
double pl_latency_token_flops(const pl_latency_cost *c, int64_t position);

/* Bytes of the caches that attention and the indexer read for it. */
double pl_latency_token_cache_bytes(const pl_latency_cost *c, int64_t position);

/* ---- a figure */

typedef struct pl_latency_row {
    const char *phase, *part; /* "prefill" "decode" "verify"; "layers" "head" "all" */
    int64_t context;          /* positions before the step; of prefill: its tokens */
    int32_t batch, k;
    bool synthetic;     /* the context is injected */
    bool equal_experts; /* all tokens of the step were sent to the experts of its first */
    double ms, spread;  /* of a step, of the whole of a prefill; quartiles' distance in percent */
    double tokens_per_s;
    double bytes_touched, cache_bytes, flops;
    pl_bench_limit limit; /* the one that leaves the least time */
    double limit_rate, percent;
    double read_rate, fma_rate; /* what was probed around it, the means */
    /* Of the layers under the clock. */
    bool has_profile;
    double regions_per_layer, barrier_percent, idle_percent, between_ms;
    double op_ms[PL_PROFILE_COUNT];
} pl_latency_row;

/* A step with k drafts: verifying those of the step before, and drafting as many. */
typedef struct pl_latency_depth {
    int32_t batch, k;
    double verify_ms, draft_ms;
} pl_latency_depth;

/* The depth that gives the most tokens a second where each draft is accepted with this chance if all before it were. */
typedef struct pl_latency_choice {
    int32_t batch, k;
    double acceptance;
    double tokens_per_s, gain; /* of all sequences; over an engine that has no drafts */
} pl_latency_choice;

enum {
    PL_LATENCY_ACCEPTANCES = 7,
    PL_LATENCY_MAX_DEPTHS = PL_LATENCY_MAX_LIST * (PL_LATENCY_MAX_K + 1),
    PL_LATENCY_MAX_CHOICES = PL_LATENCY_MAX_LIST * PL_LATENCY_ACCEPTANCES,
};

typedef struct pl_latency_report {
    const char *model, *level;
    int threads, n_layers, n_experts;
    double barrier_ns; /* an empty region, median */
    pl_bench_limits limits;
    const pl_latency_row *rows;
    int n;
    const pl_latency_depth *depths; /* of `--depths auto` */
    int n_depths;
    const pl_latency_choice *choices;
    int n_choices;
} pl_latency_report;

void pl_latency_print(FILE *to, const pl_latency_report *r);
void pl_latency_write_json(FILE *to, const pl_latency_report *r);
pl_status pl_latency_write_svg(const char *path, const pl_latency_report *r,
                               pl_error *err) PL_MUST_CHECK;

/* ---- steps */

typedef struct pl_latency {
    pl_forward *forward;
    pl_state *states; /* [1 + max_batch]: the deep one, then those of a batch */
    pl_profile *profile;
    const pl_config *config;
    pl_latency_cost cost;
    pl_bench_clock clock;
    pl_bench bench; /* pool, level and store of the probes */
    int32_t max_tokens;
    double budget_ns;
    int64_t experts_touched; /* over layers, of the last step */
    bool equal_experts;
    int32_t tokens[1 << 13], logit_rows[1 << 10];
    int32_t stream_rows[1 << 10], best[PL_LATENCY_MAX_BATCH]; /* of drafts */
    pl_step_seq seqs[PL_LATENCY_MAX_BATCH];
    pl_step step;
    double probes[PL_BENCH_LIMIT_COUNT][4 * PL_LATENCY_MAX_ROWS];
    int n_probes[PL_BENCH_LIMIT_COUNT];
    pl_latency_row rows[PL_LATENCY_MAX_ROWS];
    int n_rows;
    pl_latency_depth depths[PL_LATENCY_MAX_DEPTHS];
    int n_depths;
    pl_latency_choice choices[PL_LATENCY_MAX_CHOICES];
    int n_choices;
    double barrier_ns;
    pl_mem memory, weights_memory;
} pl_latency;

/* Counts experts and, where wanted, makes them equal: the hook of all steps. */
void pl_latency_visit(void *user, const pl_tap_view *view);

/* One pass over the first contexts[n - 1] tokens in steps of max_tokens; rows at each of the ascending contexts. */
pl_status pl_latency_prefill(pl_latency *l, const int64_t *contexts, int n,
                             pl_error *err) PL_MUST_CHECK;

/* Steps of `batch` sequences with 1 + k tokens each behind `context` injected positions: states[first ..], which
 * are there already. */
pl_status pl_latency_decode(pl_latency *l, int first, int64_t context, int32_t batch, int32_t k,
                            bool equal_experts, pl_error *err) PL_MUST_CHECK;

/* `batch` sequences with 1 + k tokens each at their position, the last k of them drafts: l->step. */
void pl_latency_make_step(pl_latency *l, int first, int32_t batch, int32_t k);

/* An empty run of the pool. */
double pl_latency_barrier_ns(pl_latency *l);

/* ---- depth */

/* Rows of `batch` sequences with k drafts each, k = 0 first, as pl_latency_decode makes them, and then what drafting as
 * many costs: adds to l->depths. INVALID for a model without an mtp block. */
pl_status pl_latency_depth_cost(pl_latency *l, int64_t context, int32_t batch, int32_t k,
                                pl_error *err) PL_MUST_CHECK;

/* The best of n depths of one batch, 0 drafts first. Drafting nothing has a price too: the block follows all the same. */
pl_latency_choice pl_latency_choose_depth(const pl_latency_depth *depths, int n, double acceptance);

/* l->choices from l->depths. */
void pl_latency_choose_depths(pl_latency *l);

/* ---- a model */

typedef struct pl_latency_session {
    pl_latency_lists lists;
    int64_t max_tokens;
    const char *load_mode;
    pl_checkpoint *checkpoint; /* open already, closed by pl_latency_close */
    pl_weights *weights;
    pl_pool *pool;
    pl_level level;
    pl_latency l;
} pl_latency_session;

/* The model as lists, level and checkpoint ask for, and the store of the probes. n_workers 0: the default. On failure
 * pl_latency_close frees what there is. */
pl_status pl_latency_open(pl_latency_session *s, int n_workers, pl_error *err) PL_MUST_CHECK;
void pl_latency_close(pl_latency_session *s);

#endif
