/* A run of plimsoll bench serve: what was asked for, what came of it, and the results made of that. */
#ifndef PL_CLI_BENCH_SERVE_RUN_H
#define PL_CLI_BENCH_SERVE_RUN_H

#include "cli/bench_serve.h"

typedef struct pl_bench_options {
    const char *url, *endpoint, *model, *file, *key_file, *ca_file, *save, *rate_text;
    int64_t n_prompts, input_len, output_len, vocab_size, concurrency, n_warmups, seed, timeout;
    double range_ratio, rate, temperature;
    bool ignore_eos, json, compare, allow_different;
} pl_bench_options;

typedef struct pl_bench_run {
    const pl_bench_options *o;
    pl_http_client client;
    char *model;
    pl_bench_request *request; /* [o->n_prompts] */
    double duration;
    char *before, *after; /* /metrics; NULL where there is none */
    json_t *plan;         /* /v1/plan; NULL */
    int argc;             /* of the command, for the environment */
    char **argv;
} pl_bench_run;

enum { PL_BENCH_TTFT, PL_BENCH_TPOT, PL_BENCH_ITL, PL_BENCH_E2EL, PL_BENCH_N_METRICS };

/* "ttft", "tpot", "itl", "e2el": parts of the keys mean_ttft_ms .. of a result. */
const char *pl_bench_metric_name(int metric);

/* All results as one JSON object, which the caller drops; NULL: NOMEM. */
json_t *pl_bench_serve_results(const pl_bench_run *b, pl_error *err);

/* The same as vLLM's block, with the environment below it, on standard output. */
void pl_bench_serve_print(const pl_bench_options *o, const json_t *results);

#endif
