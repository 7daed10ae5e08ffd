/* The engine: a DeepSeek-V4 checkpoint opened once, many requests run over it.
 *
 * A request's tokens, log-probabilities and digest depend on the request and the checkpoint alone: not on
 * what runs beside it, on chunks, on threads or on the level of kernels (docs/NUMERICS.md).
 *
 * Memory is planned before it is taken. The plan can be had without opening anything; opening carves what it
 * says, touches all of it, and nothing grows afterwards: pl_engine_step allocates nothing.
 *
 * An engine may be used from one thread at a time. Several engines in one process are independent. Parameter
 * structs are filled by their _default function first, then changed: fields are added at the end.
 *
 *     pl_engine_params p = pl_engine_params_default();
 *     pl_engine *e;
 *     pl_error err;
 *     if (pl_engine_open("DeepSeek-V4-Flash", &p, &e, &err) != PL_OK) ...
 *
 * docs/EMBEDDING.md has a whole program. */
#ifndef PL_PLIMSOLL_ENGINE_H
#define PL_PLIMSOLL_ENGINE_H

#include <stdbool.h>

#include "plimsoll/reserve.h"
#include "plimsoll/status.h"
#include "plimsoll/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pl_engine pl_engine;
typedef struct pl_request pl_request;
typedef struct pl_plan pl_plan;

/* ---- parameters of an engine */

/* Told while weights are read: done of total bytes, first with done = 0. */
typedef void pl_load_fn(void *user, uint64_t done, uint64_t total);

/* How drafts and the tokens that they stand for come together where the temperature is above 0. */
typedef enum pl_draft_sampling {
    /* Both are drawn with the noise of the position, and a draft is accepted if the token is the same: drafts never
     * change a bit. */
    PL_DRAFT_SHARED_NOISE,
    /* A draft is accepted with probability min(1, p / q), and something else chosen where it is not. Tokens have the same
     * distribution, but which ones they are depends on the drafts, their number, and so on what else runs: the promise of equal bits
     * ends here. At temperature 0 it still holds. Wants num_speculative_tokens above 0, and memory for what drafts were
     * drawn from. */
    PL_DRAFT_REJECTION
} pl_draft_sampling;

typedef struct pl_engine_params {
    int threads; /* workers, the calling thread included; 0: physical cores that may be used */
    bool no_pin; /* leave the placement of threads to the system */
    /* "scalar", "f64", ..; NULL: what the environment variable PL_CPU asks for, else the best that passes its
     * self-test. Borrowed during the call. */
    const char *level;
    uint64_t memory_bytes;          /* the line: what the plan may come to; 0: none */
    uint64_t kv_cache_memory_bytes; /* the same for the caches alone; 0: none */
    int max_model_len;              /* tokens of a request; 0: what fits, at most the model's */
    int max_num_seqs;               /* requests that run at once */
    int max_num_batched_tokens;     /* of a step; every value from 1 on gives the same bits */
    int max_queued;                 /* requests that wait beside those that run */
    /* What the program holds before it opens an engine: code, libraries, its own data. Planned as measured. The
     * default is that of `plimsoll run`. */
    uint64_t program_bytes;
    /* What the program may take at most while the engine is open: a server's connections, bodies and answers, a
     * conversation. Planned as capped; 0: nothing. */
    uint64_t program_heap_bytes;
    pl_load_fn *on_load; /* NULL: nobody */
    void *on_load_user;
    /* Drafts of a request in a step, 0 to PL_MAX_SPECULATIVE; 0: none. Fewer where a step has no room for them.
     * No value changes a bit of any result. */
    int num_speculative_tokens;
    /* How weights are read: "direct", past the page cache (UNSUPPORTED where the file system cannot); "buffered"; NULL or
     * "auto": direct, unless the files are in the page cache or cannot be read so. Borrowed during the call. */
    const char *load;
    /* Executors of this process, each with its share of heads, experts and vocabulary, with activations and caches of its
     * own; 0: one. No number changes a bit, and none is faster here: they show what ranks on several hosts would do. */
    int ranks;
    /* What the kernel may hold for the caller's sockets: only in charged_bytes of the plan, as no page of it is this
     * process's. 0: none. */
    uint64_t socket_bytes;
    /* Requests that may be preempted at once; the plan holds what each has chosen so far. 0: none is ever, and
     * priorities only order who waits. */
    int max_preempted;
    /* num_speculative_tokens is the most, for which memory is planned; each step has as many drafts as give the most tokens
     * a second, by what steps were measured to cost and drafts seen to be accepted. Without an mtp block: none. */
    bool adapt_speculative_tokens;
    pl_draft_sampling draft_sampling;
    /* What the beginnings of texts may take that were run: a request whose tokens begin like them starts behind them, at a
     * multiple of 128. Changes no bit. 0: none; PL_PREFIX_CACHE_REST: what the lines leave, so that what a control group is charged
     * stays within memory_bytes; none without a line. */
    uint64_t prefix_cache_memory_bytes;
} pl_engine_params;

#define PL_PREFIX_CACHE_REST UINT64_MAX

enum { PL_MAX_SPECULATIVE = 8 };

/* "shared-noise", "rejection". */
PL_API const char *pl_draft_sampling_name(pl_draft_sampling sampling);

PL_API pl_engine_params pl_engine_params_default(void);

/* ---- the plan */

typedef enum pl_plan_part {
    PL_PLAN_EXACT,    /* closed form, to the byte */
    PL_PLAN_CAPPED,   /* an upper bound */
    PL_PLAN_MEASURED, /* from a reference run */
    PL_PLAN_PART_COUNT
} pl_plan_part;

/* "exact", "capped", "measured". */
PL_API const char *pl_plan_part_name(pl_plan_part part);

typedef struct pl_plan_region {
    const char *name; /* "weights.experts", "cache.window", ..; valid as long as the plan */
    pl_plan_part part;
    const char *owner;   /* the module that holds it */
    const char *formula; /* gives `bytes`, words in it only explain; free text where measured */
    uint64_t bytes;
} pl_plan_region;

typedef struct pl_plan_totals {
    uint64_t total_bytes;    /* of all regions */
    uint64_t resident_bytes; /* of it, what is present from the first step on: all */
    uint64_t
        charged_bytes; /* and page tables, kernel stacks, sockets: what a control group is charged */
    uint64_t budget_bytes; /* memory_bytes of the parameters; 0: none */
    bool fits;

    /* Of one request; the slope is exact for each whole 128 tokens. */
    uint64_t request_fixed_bytes, request_bytes_per_128_tokens;

    /* What the engine would be opened with. */
    int max_model_len, max_num_seqs, max_num_batched_tokens, threads;

    /* What the budget allows: requests of max_model_len at once, and the length of one alone. Without a budget
     * those of the plan. 0 where not even one fits. */
    int64_t requests_at_max_model_len, tokens_for_one_request;

    int num_speculative_tokens;

    int ranks;
    uint64_t rank_bytes; /* of the total, what each rank has for itself: activations and caches */

    /* What charged_bytes has beside the total. */
    uint64_t page_table_bytes, kernel_stack_bytes, socket_bytes;

    pl_draft_sampling draft_sampling;
    uint64_t prefix_cache_bytes; /* of the total: whole slots, at most what was asked for */
} pl_plan_totals;

/* Plans for a checkpoint folder, from its headers, or for a config.json alone; both give the same plan. Reads no
 * weights and does not ask what memory this machine has. Succeeds where the plan does not fit: totals.fits
 * tells. On failure *out is NULL. */
PL_API pl_status pl_plan_create(const char *path, const pl_engine_params *params, pl_plan **out,
                                pl_error *err) PL_MUST_CHECK;
PL_API void pl_plan_destroy(pl_plan *plan);

/* Another plan for the model of `like`, which stays as it is; reads no file. Errors as of pl_plan_create. */
PL_API pl_status pl_plan_create_like(const pl_plan *like, const pl_engine_params *params,
                                     pl_plan **out, pl_error *err) PL_MUST_CHECK;

PL_API int pl_plan_n_regions(const pl_plan *plan);
PL_API pl_plan_region pl_plan_region_at(const pl_plan *plan, int index);
PL_API pl_plan_totals pl_plan_totals_of(const pl_plan *plan);

/* Where the plan does not fit: one sentence with the smallest change that would. Else "". */
PL_API const char *pl_plan_advice(const pl_plan *plan);

/* PL_OK where it fits; else LIMIT, with what there is, what may be and the advice. */
PL_API pl_status pl_plan_check_fits(const pl_plan *plan, pl_error *err) PL_MUST_CHECK;

/* What is noteworthy: one sentence, or "". */
PL_API const char *pl_plan_note(const pl_plan *plan);

/* What the configuration says. */
typedef struct pl_engine_model {
    int vocab_size, max_position_embeddings;
    int bos_token_id, eos_token_id;
    bool is_refresh; /* 0731 or 0813: its chats are encoded by PL_CHAT_0731 */
} pl_engine_model;

PL_API pl_engine_model pl_plan_model_of(const pl_plan *plan);

/* What another engine's closed forms need to know of this plan: plimsoll/reserve.h. */
PL_API pl_reserve_params pl_plan_reserve_params(const pl_plan *plan);

/* ---- the engine */

/* Opens a checkpoint folder: plans, refuses with PL_ERR_LIMIT and the advice what does not fit, takes and touches
 * all memory, reads the weights. Where the folder has a tokenizer.json, opens it too. On failure *out is
 * NULL and everything is given back. */
PL_API pl_status pl_engine_open(const char *path, const pl_engine_params *params, pl_engine **out,
                                pl_error *err) PL_MUST_CHECK;

/* Ends all requests; their handles are invalid then. NULL is fine. */
PL_API void pl_engine_close(pl_engine *engine);

/* What was carved; borrowed. */
PL_API const pl_plan *pl_engine_plan(const pl_engine *engine);

/* NULL where the checkpoint has none; borrowed. */
PL_API const pl_tokenizer *pl_engine_tokenizer(const pl_engine *engine);

PL_API pl_engine_model pl_engine_model_of(const pl_engine *engine);

/* The fingerprint of results: equal version, class and checkpoint give equal bits, whatever the level. (Not with
 * PL_DRAFT_REJECTION and a temperature above 0.) */
typedef struct pl_numerics_report {
    int version, numerics_class;
    const char *level; /* static text */
    /* Digest of all tensors up to 1 GiB of them; beyond that, "headers:" and the digest of names, types and shapes.
     * Valid until close. */
    const char *checkpoint;
} pl_numerics_report;

PL_API pl_numerics_report pl_engine_numerics(const pl_engine *engine);

typedef struct pl_memory_report {
    uint64_t plan_bytes;
    uint64_t peak_resident_bytes; /* of the process since it started */
} pl_memory_report;

PL_API pl_status pl_engine_memory(const pl_engine *engine, pl_memory_report *report,
                                  pl_error *err) PL_MUST_CHECK;

/* Drafts and what became of them. */
typedef struct pl_speculation {
    /* Steps in which a request chose tokens after its first, with drafts or without. Each gives one token and one
     * for every accepted draft; where an accepted draft ends a request, one less. */
    uint64_t steps;
    /* By position, 0 first: drafts that a step verified, and those that it accepted. */
    uint64_t drafted[PL_MAX_SPECULATIVE], accepted[PL_MAX_SPECULATIVE];
} pl_speculation;

/* Mean acceptance length as vLLM defines it: 1 and the accepted drafts for each step that had any. 1 where none had. */
PL_API double pl_speculation_mean_length(const pl_speculation *speculation);

/* Accepted of all drafts, from 0 to 1; 0 where there were none. */
PL_API double pl_speculation_acceptance(const pl_speculation *speculation);

/* Since open. A step with both kinds of tokens counts its time to each by their number. decode_tokens are tokens that
 * steps of decoding gave; drafts that were not accepted are none. */
typedef struct pl_engine_stats {
    uint64_t steps, prefill_tokens, decode_tokens;
    double load_s, prefill_s, decode_s;
    int running, queued; /* now */
    pl_speculation speculation;
    const char *load_mode, *load_reason; /* "direct" or "buffered", and why; static text */
    uint64_t preemptions;                /* tokens run again afterwards count as prefill_tokens */
    bool adapts_depth;                   /* adapt_speculative_tokens */
    int depth;                           /* drafts that a request gets now, where there is room */
    uint64_t depth_steps[PL_MAX_SPECULATIVE + 1]; /* steps of choosing requests, by depth */
    /* Tokens of prompts that were looked up in the cache of prefixes, and those found, which are not run. */
    uint64_t prefix_queries, prefix_hits;
} pl_engine_stats;

PL_API pl_engine_stats pl_engine_stats_of(const pl_engine *engine);

/* ---- requests */

typedef struct pl_logit_bias {
    int32_t token;
    float bias;
} pl_logit_bias;

typedef struct pl_token_event {
    int32_t token;
    float logprob; /* log-softmax of the raw logits: before bias, penalties and temperature */
    int32_t index; /* 0 for the first token after the prompt */
} pl_token_event;

/* Called within pl_engine_step for each token of the request, in order: several in a step where drafts were
 * accepted. What is read of the request then ends with that token. May cancel and release any request, submit
 * new ones and read; must not step or close the engine. */
typedef void pl_token_fn(void *user, pl_request *request, const pl_token_event *event);

/* Which tokens may follow: clears in `mask` (laid out as `allowed`) the bits of all that may not. `output` are the
 * request's tokens so far, drafts perhaps among them, so it may be shorter than before or differ at its end; what comes
 * of it must depend on nothing else. Called within pl_engine_step for every token and every draft, one call of
 * an engine at a time, perhaps on another of its threads; must not allocate, nor call the engine. Where the stop
 * tokens that min_tokens bans are all that it leaves, one of them is chosen. A request that is left no token at all
 * is cancelled. */
typedef void pl_mask_fn(void *user, const int32_t *output, int32_t n_output, uint32_t *mask);

/* Sampling: docs/NUMERICS.md 13. Arrays are borrowed until the request has ended or is released. */
typedef struct pl_request_params {
    const int32_t *tokens; /* the prompt, at least one */
    int32_t n_tokens;
    int32_t max_tokens;       /* after the prompt; fewer where max_model_len ends them */
    int32_t min_tokens;       /* before that many no stop token is chosen */
    float temperature;        /* 0: the largest logit */
    int32_t top_k;            /* 0: off */
    float top_p;              /* 1: off */
    float min_p;              /* 0: off */
    float repetition_penalty; /* 1: off */
    float frequency_penalty, presence_penalty; /* 0: off */
    const pl_logit_bias *logit_bias; /* added up where a token repeats in the order given */
    int32_t n_logit_bias;
    const uint32_t
        *allowed; /* bit t & 31 of word t / 32 is set where token t may be chosen; NULL: all */
    const int32_t
        *stop_ids; /* end the request beside the model's end token; they are part of its tokens */
    int32_t n_stop_ids;
    bool ignore_eos; /* the model's end token is an ordinary one */
    uint64_t seed;
    uint32_t choice; /* which of several completions of one prompt */
    pl_token_fn *on_token;
    void *user;
    pl_mask_fn *mask; /* beside `allowed`; NULL: none */
    void *mask_user;
    /* Told of each token of the prompt from the second on, with its log-probability behind those before it; index is its
     * position. May do what on_token may. Such a prompt runs in chunks of as many tokens as a step
     * has rows of logits, max_num_seqs * (1 + num_speculative_tokens), and others may want some of them. NULL:
     * nobody. */
    pl_token_fn *on_prompt_token;
    /* Who gets a place first: the highest, of equal ones who came first. Where no place is free, a request preempts the
     * lowest that runs below it, of equal ones the last that came, if max_preempted allows: that one waits again, keeps
     * its tokens and later runs their positions once more. Nobody's bits change, no token is told twice. */
    int32_t priority;
    /* What pl_request_snapshot wrote, of this or another engine with the same checkpoint: the request then begins behind
     * the snapshot's tokens, which must be the first of `tokens`, one more at least. Changes no bit of what follows. Borrowed as
     * arrays are. Not beside on_prompt_token. NULL: none. */
    const void *snapshot;
    uint64_t snapshot_bytes;
} pl_request_params;

/* 256 tokens, greedy. */
PL_API pl_request_params pl_request_params_default(void);

typedef enum pl_request_state {
    PL_REQUEST_QUEUED, /* waits for a place, also once more after it was preempted */
    PL_REQUEST_RUNNING,
    PL_REQUEST_STOPPED, /* a stop token was chosen */
    PL_REQUEST_LENGTH,  /* max_tokens or max_model_len was reached */
    PL_REQUEST_CANCELLED
} pl_request_state;

/* What pl_engine_submit would refuse for good, before anything is opened: INVALID with field, value and what would
 * be right; a prompt of max_model_len tokens or more among them. */
PL_API pl_status pl_plan_check_request(const pl_plan *plan, const pl_request_params *params,
                                       pl_error *err) PL_MUST_CHECK;

/* Queues a request; it starts within a later step. INVALID as above, AGAIN where max_queued wait already. */
PL_API pl_status pl_engine_submit(pl_engine *engine, const pl_request_params *params,
                                  pl_request **out, pl_error *err) PL_MUST_CHECK;

/* Runs one step over what there is to do; *busy tells whether anything is left. A failure is the system's, not a
 * request's. */
PL_API pl_status pl_engine_step(pl_engine *engine, bool *busy, pl_error *err) PL_MUST_CHECK;

/* Steps until every request has ended. Requests that wait for a place which only pl_request_release would free:
 * STATE. */
PL_API pl_status pl_engine_run(pl_engine *engine, pl_error *err) PL_MUST_CHECK;

/* Text as it comes: whole characters of UTF-8, n_bytes of them, not 0-terminated. */
typedef void pl_text_fn(void *user, const char *text, size_t n_bytes);

/* Goes on from `text`, 0-terminated: a request whose prompt is the model's BOS and the text, in which added tokens are recognised,
 * and whose output is told to on_text without special tokens. All else is as `params` says, in which tokens and on_token
 * stay NULL; NULL: the default. Steps until the request has ended, others with it, and releases it. on_text is called
 * within steps and may do what on_token may. STATE without a tokenizer, else as pl_engine_submit and pl_engine_step;
 * text that was told before a failure stays told. */
PL_API pl_status pl_engine_complete(pl_engine *engine, const char *text,
                                    const pl_request_params *params, pl_text_fn *on_text,
                                    void *user, pl_error *err) PL_MUST_CHECK;

/* Ends it; its cache is free for others at once, within a step at that step's end. Nothing happens to one that has
 * ended. */
PL_API void pl_request_cancel(pl_request *request);

/* Cancels and frees the handle. A request keeps its place, one of max_num_seqs, until it is released: its results
 * can be read until then. NULL is fine. */
PL_API void pl_request_release(pl_request *request);

PL_API pl_request_state pl_request_state_of(const pl_request *request);

/* Tokens chosen so far, and their log-probabilities; valid until release. */
PL_API const int32_t *pl_request_tokens(const pl_request *request, int32_t *n);
PL_API const float *pl_request_logprobs(const pl_request *request, int32_t *n);

typedef struct pl_request_stats {
    pl_speculation speculation;
    uint64_t preemptions; /* how often it was preempted */
    int32_t
        cached_tokens; /* of the prompt that were not run, as a snapshot or the cache had them */
} pl_request_stats;

PL_API pl_request_stats pl_request_stats_of(const pl_request *request);

/* ---- snapshots */

/* Bytes that pl_request_snapshot would write now; 0 for a request without a place: queued, cancelled. */
PL_API uint64_t pl_request_snapshot_bytes(const pl_request *request);

/* Writes what the engine remembers of the request so far, its prompt and its tokens: pl_request_params.snapshot takes it.
 * `bytes` is how many `memory` has. The tokens it holds are in *n_tokens: of a request that runs or has ended, all but those
 * that no step has read yet, the last one at least. The prompt must still be there. STATE within a step and without
 * a place, LIMIT where bytes are too few. */
PL_API pl_status pl_request_snapshot(const pl_request *request, void *memory, uint64_t bytes,
                                     int32_t *n_tokens, pl_error *err) PL_MUST_CHECK;

typedef struct pl_token_logprob {
    int32_t token;
    float logprob;
} pl_token_logprob;

/* Within on_token and on_prompt_token only: the `n` likeliest tokens at the place of the one being told, the likeliest first, of equal
 * ones the smaller id first; log-probabilities as in pl_token_event. Returns how many there are: n, or the
 * vocabulary's size where that is less. Elsewhere 0. */
PL_API int32_t pl_request_top_logprobs(const pl_request *request, pl_token_logprob *top, int32_t n);

/* Within on_token and on_prompt_token only: the place of the token being told in that order, 1 for the likeliest. Elsewhere
 * 0. */
PL_API int32_t pl_request_rank(const pl_request *request);

/* XXH3-128 over all logits that chose a token, 32 hex digits and a 0: rows in the order of their tokens, each the
 * vocabulary's raw logits as little-endian fp32, every NaN as 0x7FC00000. Equal digests: equal bits. */
enum { PL_REQUEST_DIGEST_BYTES = 33 };
PL_API void pl_request_digest(const pl_request *request, char digest[PL_REQUEST_DIGEST_BYTES]);

#ifdef __cplusplus
}
#endif
#endif
