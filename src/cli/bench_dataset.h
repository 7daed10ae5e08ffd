/* What plimsoll bench serve asks. */
#ifndef PL_CLI_BENCH_DATASET_H
#define PL_CLI_BENCH_DATASET_H

#include "cli/bench_serve.h"

typedef struct pl_bench_dataset {
    const char *model, *file; /* file NULL: random */
    bool chat, ignore_eos;    /* random prompts always ignore the end token */
    int64_t input_len, output_len, vocab_size;
    double range_ratio, temperature;
    uint64_t seed;
} pl_bench_dataset;

/* Bodies of r[n], which the caller frees whatever the result. A file that is too short is gone over again. Errors: INVALID
 * for what is no dataset, those of pl_input_read, NOMEM. */
pl_status pl_bench_dataset_make(const pl_bench_dataset *d, pl_bench_request *r, int n,
                                pl_error *err) PL_MUST_CHECK;

#endif
