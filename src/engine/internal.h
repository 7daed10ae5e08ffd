/* Inside of an engine: what engine.c (opening), requests.c (their lives), snapshot.c (state from
 * elsewhere), prefix.c (state from other requests), step.c (running), choose.c (tokens) and
 * draft.c (drafts) share. */
#ifndef PL_ENGINE_INTERNAL_H
#define PL_ENGINE_INTERNAL_H

#include "base/meminfo.h"
#include "engine/depth.h"
#include "engine/logits.h"
#include "engine/plan.h"
#include "model/digest.h"

/* A row of logits that is about to choose a token; behind a draft that is not accepted, in vain. */
typedef struct pl__row {
    pl_logits_summary summary;
    int32_t token;
    float logprob;
} pl__row;

/* Requests stand in one of these, first to last. */
typedef struct pl__list {
    pl_request *first, *last;
    int n;
} pl__list;

struct pl_request {
    XXH3_state_t digest; /* first: it asks for 64-byte alignment */
    pl_engine *engine;
    pl_request *prev, *next;
    pl__list *list; /* free, queue, running or ended */
    pl_request_params params;
    pl_request_state state;
    uint64_t arrival; /* number of its submission */
    uint64_t n_preempted;
    int32_t place,
        strip; /* of its cache, of its outputs; -1: none. Preempted: a strip without a place */
    bool prefilling; /* has chosen no token since it got its place */
    int32_t n_output, max_output;
    int32_t n_drafts; /* for the next step; they lie behind the outputs */
    int32_t n_chosen; /* in this step: outputs that do not count yet */
    /* Of this step's rows the first ones that tell of the prompt; positions whose rows have been told. */
    int32_t n_prompt_rows, n_prompt_told;
    int32_t n_cached; /* positions that were restored when it first ran */
    /* Positions of its text that others had run before it, stored or not; up to which it has looked what to store; of its
     * last state that a later one may replace. 0: none. */
    int32_t n_shared, n_stored, n_passing;
    pl_speculation speculation;
    int32_t row;              /* of logits that chose the token being told; -1: none is */
    bool cancelled, released; /* asked for within a step; done at its end */
};

struct pl_engine {
    pl_plan *plan;
    pl_tokenizer *tokenizer;
    pl_pool *pool;
    pl_ranks *ranks; /* NULL: one */
    pl_weights *weights;
    pl_load_report load;
    pl_forward *forward;
    pl_mem weights_memory, cache_memory, work_memory;
    pl_arena work, cache; /* what the memory was carved by */
    pl_engine_parts parts;
    char checkpoint[PL_DIGEST_TEXT_BYTES + 16];

    pl__list free, queue, running, ended;
    int32_t n_free_places, n_free_strips; /* on the stacks parts.free_places, parts.free_strips */
    uint64_t n_submitted;
    bool in_step;
    int32_t n_step_tokens, n_step_seqs, n_rows; /* of the step being made */
    pl_engine_stats stats;
    /* Drafts that requests are to get for the next step, and were to get for this one. */
    int32_t n_depth, n_depth_before;
    pl_depth depth;
};

/* requests.c */
void pl__requests_init(pl_engine *e);
void pl__list_append(pl__list *list, pl_request *r);
void pl__list_remove(pl_request *r);
const pl_config *pl__engine_config(const pl_engine *e);
int32_t *pl__request_outputs(const pl_request *r);
float *pl__request_logprobs(const pl_request *r);
/* -1 where the end token is an ordinary one. */
int32_t pl__request_eos(const pl_request *r);
/* Gives queued requests places while there are some, or some to be had by preempting. */
void pl__requests_admit(pl_engine *e);
/* Ends running requests that were cancelled and frees those released. */
void pl__requests_settle(pl_engine *e);

/* choose.c: tokens from the logits of the step that was run, as many of a request as its drafts allow; takes back
 * the rest of the drafts; then the callbacks. Returns the tokens of requests that were decoding. */
int32_t pl__choose(pl_engine *e);
/* What a row of the mtp block's logits drafts as output n_output + n_drafts; the outputs and drafts before it are there. */
int32_t pl__choose_draft(pl_engine *e, const pl_request *r, const void *row, int32_t best);
const void *pl__logits_row(const pl_engine *e, int64_t i);

/* snapshot.c: whether a request can start from its snapshot; its state at the start, empty or restored. */
pl_status pl__snapshot_check(const pl_engine *e, const pl_request_params *p,
                             pl_error *err) PL_MUST_CHECK;
void pl__snapshot_start(pl_request *r);

/* prefix.c: the cache of prefixes; nothing happens where there is none. Its identity, once the memory is there. */
void pl__prefix_init(pl_engine *e);
/* Begins behind the longest prefix that is stored; the state is as it was where there is none. */
void pl__prefix_start(pl_request *r);
/* Of the next n positions of a prompt, those up to where its state is to be stored. */
int32_t pl__prefix_cut(const pl_request *r, int32_t n);
/* Stores what the requests of this step have come to. */
void pl__prefix_store(pl_engine *e);

/* draft.c: after tokens were chosen, the mtp block follows the main stack and drafts for the next step. */
pl_status pl__draft(pl_engine *e, pl_error *err) PL_MUST_CHECK;

/* step.c */
void pl__depth_init(pl_engine *e);
bool pl__request_is_prefilling(const pl_request *r);
pl_state *pl__request_state(const pl_request *r);
/* The token at a position: of the prompt, an output or a draft. */
int32_t pl__request_token_at(const pl_request *r, int32_t position);

#endif
