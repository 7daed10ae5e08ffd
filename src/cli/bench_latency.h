/* plimsoll bench latency: what its files share. bench_latency.c opens the model and goes through the figures,
 * bench_latency_steps.c makes and times steps, bench_latency_cost.c says what a step has to read and to multiply, and
 * bench_latency_report.c and bench_latency_svg.c write what came out. */
#ifndef PL_CLI_BENCH_LATENCY_H
#define PL_CLI_BENCH_LATENCY_H

#include "cli/bench.h"
#include "model/forward.h"

enum {
    PL_LATENCY_MAX_ROWS = 512,
    PL_LATENCY_MAX_BATCH = 64,
    PL_LATENCY_MAX_K = 4,
    PL_LATENCY_MAX_SAMPLES = 31,
    PL_LATENCY_GROUP =
        4, /* steps of a sample: with them every kind of token, as ratio 4 has them */
};

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

typedef struct pl_latency_report {
    const char *model, *level;
    int threads, n_layers, n_experts;
    double barrier_ns; /* an empty region, median */
    pl_bench_limits limits;
    const pl_latency_row *rows;
    int n;
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
    pl_step_seq seqs[PL_LATENCY_MAX_BATCH];
    pl_step step;
    double probes[PL_BENCH_LIMIT_COUNT][4 * PL_LATENCY_MAX_ROWS];
    int n_probes[PL_BENCH_LIMIT_COUNT];
    pl_latency_row rows[PL_LATENCY_MAX_ROWS];
    int n_rows;
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

/* An empty run of the pool. */
double pl_latency_barrier_ns(pl_latency *l);

#endif
