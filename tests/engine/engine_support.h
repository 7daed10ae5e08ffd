/* Engines over the checkpoints of the build, and requests whose results are kept. */
#ifndef PL_TESTS_ENGINE_SUPPORT_H
#define PL_TESTS_ENGINE_SUPPORT_H

#include "plimsoll/engine.h"
#include "support/check.h"

/* Sanitizers keep what was freed and hold tables of their own: resident memory then says nothing of ours. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* Path of a checkpoint of the build: "nano", "micro". Static memory. */
const char *checkpoint_path(const char *name);

/* Level scalar, 2 threads not pinned, 4 requests of 160 tokens, 64 tokens a step. */
pl_engine_params small_params(void);

/* Fails the test where it cannot be opened. */
pl_engine *open_engine(const char *name, const pl_engine_params *params);

enum { MAX_RESULT_TOKENS = 512 };

typedef struct result {
    int32_t tokens[MAX_RESULT_TOKENS];
    float logprobs[MAX_RESULT_TOKENS];
    int32_t n;
    pl_request_state state;
    pl_request_stats stats; /* not compared: how it was made, not what it is */
    char digest[PL_REQUEST_DIGEST_BYTES];
} result;

/* Reads an ended request and releases it. */
void take(pl_request *request, result *r);

/* Runs the requests together, submitted in the order given; results in the order of params. */
void run_all(pl_engine *e, const pl_request_params *params, int n, const int *order, result *r);

/* Steps in which a request had drafts taken back, and of them those whose drafts had ended a group of 4, a block of 128, had
 * gone round the end of the ring. */
typedef struct taken_back {
    uint64_t n, over_4, over_128, over_ring;
} taken_back;

/* As run_all, and adds to *seen. */
void run_watched(pl_engine *e, const pl_request_params *params, int n, const int *order, result *r,
                 taken_back *seen);

/* Fails unless all bits are equal. */
void check_same_result(const char *what, const result *got, const result *want);

/* n fixed tokens below `vocab`, different for each `which`. */
void fill_prompt(int32_t *tokens, int32_t n, int32_t vocab, uint32_t which);

#endif
