/* What a run gave, printed once all of it is there. */
#ifndef PL_CLI_RUN_RESULTS_H
#define PL_CLI_RUN_RESULTS_H

#include "cli/run_prompts.h"

typedef struct pl_run_result {
    const pl_run_prompt *prompt;
    pl_request *request; /* NULL once it is released */
    int32_t *tokens;     /* copies, where the request had to make room; else NULL */
    float *logprobs;
    int32_t n_tokens;
    int32_t n_cached; /* of the prompt, not run */
    pl_request_state state;
    char digest[PL_REQUEST_DIGEST_BYTES];
    pl_speculation speculation;
} pl_run_result;

typedef struct pl_run_results {
    const pl_engine *engine;
    pl_run_result *result;
    int n;
} pl_run_results;

/* Texts go through the engine's tokenizer; null, or ids in their place, where it has none. */
pl_status pl_run_results_write_json(const pl_run_results *r, pl_error *err) PL_MUST_CHECK;
pl_status pl_run_results_print(const pl_run_results *r, pl_error *err) PL_MUST_CHECK;

/* One line on standard error: tokens, seconds, speed, peak memory against the plan. */
pl_status pl_run_results_print_stats(const pl_run_results *r, pl_error *err) PL_MUST_CHECK;

#endif
