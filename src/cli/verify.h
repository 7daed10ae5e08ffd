/* plimsoll verify: settings that must not change a bit, runs under them, and what differs where they do. */
#ifndef PL_CLI_VERIFY_H
#define PL_CLI_VERIFY_H

#include "base/cpu.h"
#include "plimsoll/engine.h"

enum { PL_VERIFY_MAX_VALUES = 16 }; /* of one axis */

typedef enum pl_verify_axis {
    PL_VERIFY_CHECKPOINT, /* --against: another folder under the reference's settings */
    PL_VERIFY_BATCH,
    PL_VERIFY_CHUNK,
    PL_VERIFY_THREADS,
    PL_VERIFY_SPECULATION,
    PL_VERIFY_LEVEL,
    PL_VERIFY_PREEMPTION,
    PL_VERIFY_PREFIX, /* prompts begun from snapshots */
    PL_VERIFY_MIXED,  /* several of them at once */
    PL_VERIFY_AXES
} pl_verify_axis;

/* "checkpoint", "batch", .. */
const char *pl_verify_axis_name(pl_verify_axis axis);

/* What one run is made under. */
typedef struct pl_verify_setting {
    const char *path; /* the checkpoint */
    const char *level;
    int batch, chunk, threads, k;
    bool
        preempts; /* one place, and each request takes it from the one before; batch does not count */
    bool restores; /* prompts begin from a snapshot of their first half */
} pl_verify_setting;

typedef struct pl_verify_prompt {
    int32_t *tokens;
    int32_t n;
} pl_verify_prompt;

/* The requests, the same for all runs. Even ones are greedy, odd ones sample with their index as seed. */
typedef struct pl_verify_work {
    pl_verify_prompt *prompt; /* [n] */
    int n, max_batch;
    int32_t max_tokens, longest;
    double memory_utilization;
    uint64_t memory_bytes;
} pl_verify_work;

typedef struct pl_verify_result {
    int32_t *tokens; /* malloc, with the log-probabilities */
    float *logprobs;
    int32_t n;
    char digest[PL_REQUEST_DIGEST_BYTES];
} pl_verify_result;

/* `n` prompts of random ids, the first of `longest` tokens, the others of 1 to `longest`; NOMEM. The caller frees
 * whatever the result. */
pl_status pl_verify_work_init(pl_verify_work *w, int n, int32_t longest, int32_t vocab_size,
                              uint64_t seed, pl_error *err) PL_MUST_CHECK;
void pl_verify_work_fini(pl_verify_work *w);

/* An engine that is kept for as long as settings need no other. */
typedef struct pl_verify_engine {
    pl_engine *engine;
    pl_verify_setting opened;
    uint64_t n_preemptions, n_restored_tokens; /* of all runs */
} pl_verify_engine;

/* Runs all requests, at most s->batch at a time, and fills results[work->n], which the caller frees with
 * pl_verify_results_fini whatever the outcome. */
pl_status pl_verify_run(pl_verify_engine *e, const pl_verify_work *work, const pl_verify_setting *s,
                        pl_verify_result *results, pl_error *err) PL_MUST_CHECK;
void pl_verify_engine_close(pl_verify_engine *e);
void pl_verify_results_fini(pl_verify_result *results, int n);

/* Where two results part. */
typedef struct pl_verify_parting {
    int request; /* -1: nowhere */
    int32_t
        token; /* the first whose id or log-probability differs; their number where only digests do */
    const char *by; /* "token", "logprob", "digest", "length" */
} pl_verify_parting;

pl_verify_parting pl_verify_compare(const pl_verify_result *a, const pl_verify_result *b, int n);

/* ---- the matrix */

typedef struct pl_verify_values {
    int value[PL_VERIFY_MAX_VALUES], n; /* the first is the reference's */
} pl_verify_values;

typedef struct pl_verify_axes {
    pl_verify_values batch, chunk, threads, k;
    const char *level[PL_LEVEL_COUNT];
    int n_levels;
    const char *path, *against; /* NULL: no other checkpoint */
} pl_verify_axes;

typedef struct pl_verify_case {
    pl_verify_axis axis;
    pl_verify_setting setting;
} pl_verify_case;

/* Every value of every axis against the reference, then `n_mixed` draws of all axes together, or, where `full`, each
 * combination that is not among the former. Those that share an engine stand together. *cases is malloc'ed, in *n;
 * the first is the reference. NOMEM, or INVALID where there are too many. */
pl_status pl_verify_matrix(const pl_verify_axes *axes, int n_mixed, bool full, uint64_t seed,
                           pl_verify_case **cases, int *n, pl_error *err) PL_MUST_CHECK;

/* ---- inside of the model */

/* The first tensor of a forward pass that differs, by layer and within it in the order of computing. */
typedef struct pl_verify_place {
    bool found;
    int32_t layer; /* -1: behind the last layer */
    char tensor[64];
    int64_t element;  /* of the whole tensor, row by row */
    int64_t position; /* of the token */
    char bits[2][24]; /* as stored, in hex: the reference's and the other's */
} pl_verify_place;

/* Traces `tokens` under both settings, into files of a folder of its own that is removed again, and compares. Needs
 * the memory of one set of weights. Errors: IO, NOMEM, INVALID where the checkpoints have other shapes. */
pl_status pl_verify_locate(const pl_verify_setting *a, const pl_verify_setting *b,
                           const int32_t *tokens, int32_t n, pl_verify_place *place,
                           pl_error *err) PL_MUST_CHECK;

#endif
