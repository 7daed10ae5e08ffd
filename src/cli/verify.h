/* plimsoll verify: settings that must not change a bit, runs under them, and what differs where they do. */
#ifndef PL_CLI_VERIFY_H
#define PL_CLI_VERIFY_H

#include <stdio.h>

#include "base/cpu.h"
#include "plimsoll/engine.h"

enum {
    PL_VERIFY_MAX_VALUES = 16, /* of one axis */
    PL_VERIFY_HIT = 128,       /* tokens: hits of the cache of prefixes are multiples of it */
};

typedef enum pl_verify_axis {
    PL_VERIFY_CHECKPOINT, /* --against: another folder under the reference's settings */
    PL_VERIFY_BATCH,
    PL_VERIFY_CHUNK,
    PL_VERIFY_THREADS,
    PL_VERIFY_SPECULATION,
    PL_VERIFY_LEVEL,
    PL_VERIFY_PREEMPTION,
    PL_VERIFY_SNAPSHOT, /* prompts begun from snapshots */
    PL_VERIFY_PREFIX,   /* prompts begun from hits of the cache of prefixes */
    PL_VERIFY_MIXED,    /* several of them at once */
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
    /* PL_VERIFY_SNAPSHOT: prompts begin from a snapshot of their first half. PL_VERIFY_PREFIX: there is a cache of prefixes
     * in which all prompts were run before. Else 0: they begin with their first token. */
    pl_verify_axis begins;
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

/* What happened in all runs: whoever compares them wants to know that it did. */
typedef struct pl_verify_counts {
    uint64_t preemptions;
    uint64_t restored_tokens; /* of prompts, from snapshots */
    uint64_t hit_tokens; /* of prompts, from the cache of prefixes, beside those that filled it */
} pl_verify_counts;

/* An engine that is kept for as long as settings need no other. */
typedef struct pl_verify_engine {
    pl_engine *engine;
    pl_verify_setting opened;
    pl_verify_counts counts;
} pl_verify_engine;

/* Runs all requests, at most s->batch at a time, and fills results[work->n], which the caller frees with
 * pl_verify_results_fini whatever the outcome. STATE where a setting with hits had none. */
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

/* ---- beginnings: verify_begin.c */

/* What an engine remembers of a prompt's first half. */
typedef struct pl_verify_snapshot {
    void *data; /* malloc; NULL for a prompt of one token */
    uint64_t bytes;
} pl_verify_snapshot;

/* Runs the first half of a prompt; NOMEM. The caller frees out->data whatever the outcome. */
pl_status pl_verify_snapshot_take(pl_engine *e, const pl_verify_prompt *prompt,
                                  pl_verify_snapshot *out, pl_error *err) PL_MUST_CHECK;

/* Bytes for a cache that holds all prompts, and what comes behind them, for an engine with such a plan without one. */
uint64_t pl_verify_cache_bytes(const pl_plan *plan, const pl_verify_work *work);

/* Runs every prompt once, so that the engine's cache has what it keeps of them. */
pl_status pl_verify_cache_fill(pl_engine *e, const pl_verify_work *work,
                               pl_error *err) PL_MUST_CHECK;

/* ---- the matrix */

/* As given, values separated by commas; NULL: the default. */
typedef struct pl_verify_lists {
    const char *batch, *chunk, *threads, *k, *level;
} pl_verify_lists;

typedef struct pl_verify_values {
    int value[PL_VERIFY_MAX_VALUES], n; /* the first is the reference's */
} pl_verify_values;

typedef struct pl_verify_axes {
    pl_verify_values batch, chunk, threads, k;
    const char *level[PL_LEVEL_COUNT];
    int n_levels;
    const char *path, *against; /* NULL: no other checkpoint */
    /* Why drafts or hits are not to be had; NULL: they are. */
    const char *no_drafts, *no_hits;
} pl_verify_axes;

/* Fills the lists of values; path, against and the reasons are the caller's. INVALID with the option's name. */
pl_status pl_verify_axes_choose(const pl_verify_lists *lists, bool full, pl_verify_axes *axes,
                                pl_error *err) PL_MUST_CHECK;

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

/* ---- what is told: verify_report.c */

typedef struct pl_verify_outcome {
    pl_verify_case *cases; /* malloc; the first is the reference */
    int n_cases, n_skipped, n_requests;
    int n_run[PL_VERIFY_AXES], n_differing[PL_VERIFY_AXES];
    int first; /* index of the case that differed first; -1 */
    pl_verify_parting parting;
    pl_verify_place place;
    pl_verify_counts counts;
    const char *no_drafts, *no_hits; /* as in pl_verify_axes */
} pl_verify_outcome;

/* On one line, without its end. */
void pl_verify_print_setting(FILE *to, const pl_verify_setting *s);

/* To standard output. */
void pl_verify_report_text(const pl_verify_outcome *found);
void pl_verify_report_json(const pl_verify_outcome *found);

#endif
