/* The requests of plimsoll verify, run under a setting through the public engine, and the comparison of their results.
 *
 * An engine is opened again only where a setting needs it; how many requests run at once needs none. What differs inside
 * of the model is not known here: verify_locate.c looks for it. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/numfmt.h"
#include "base/philox.h"
#include "cli/memory_line.h"
#include "cli/verify.h"

static uint32_t draw(uint64_t seed, uint32_t request, uint32_t index)
{
    const uint32_t counter[4] = {index, request, 0, 0},
                   key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];

    pl_philox4x32(counter, key, out);
    return out[0];
}

pl_status pl_verify_work_init(pl_verify_work *w, int n, int32_t longest, int32_t vocab_size,
                              uint64_t seed, pl_error *err)
{
    w->prompt = calloc((size_t)n, sizeof *w->prompt);
    w->n = n;
    w->longest = longest;
    for (int i = 0; w->prompt && i < n; i++) {
        pl_verify_prompt *p = &w->prompt[i];

        p->n = i ? 1 + (int32_t)(draw(seed, (uint32_t)i, UINT32_MAX) % (uint32_t)longest) : longest;
        p->tokens = malloc((size_t)p->n * sizeof *p->tokens);
        if (!p->tokens)
            return pl_error_set(err, PL_ERR_NOMEM, "verify: out of memory for prompts");
        for (int32_t t = 0; t < p->n; t++)
            p->tokens[t] = (int32_t)(draw(seed, (uint32_t)i, (uint32_t)t) % (uint32_t)vocab_size);
    }
    return w->prompt ? PL_OK : pl_error_set(err, PL_ERR_NOMEM, "verify: out of memory for prompts");
}

void pl_verify_work_fini(pl_verify_work *w)
{
    for (int i = 0; w->prompt && i < w->n; i++)
        free(w->prompt[i].tokens);
    free(w->prompt);
}

enum { MAX_PREEMPTED = 3 };

static bool same_engine(const pl_verify_setting *a, const pl_verify_setting *b)
{
    return strcmp(a->path, b->path) == 0 && strcmp(a->level, b->level) == 0 &&
           a->chunk == b->chunk && a->threads == b->threads && a->k == b->k &&
           a->preempts == b->preempts &&
           (a->begins == PL_VERIFY_PREFIX) == (b->begins == PL_VERIFY_PREFIX);
}

void pl_verify_engine_close(pl_verify_engine *e)
{
    pl_engine_close(e->engine);
    e->engine = NULL;
}

/* The cache comes on top of what the same engine takes without. */
static pl_status add_cache(const pl_verify_work *work, const char *path, pl_engine_params *p,
                           pl_error *err)
{
    pl_plan *plan;

    PL_TRY(pl_plan_create(path, p, &plan, err));
    p->prefix_cache_memory_bytes = pl_verify_cache_bytes(plan, work);
    pl_plan_destroy(plan);
    return PL_OK;
}

static pl_status open_for(pl_verify_engine *e, const pl_verify_work *work,
                          const pl_verify_setting *s, pl_error *err)
{
    pl_engine_params p = pl_engine_params_default();

    if (e->engine && same_engine(&e->opened, s))
        return PL_OK;
    pl_verify_engine_close(e);
    p.threads = s->threads;
    p.level = s->level;
    p.max_num_batched_tokens = s->chunk;
    p.num_speculative_tokens = s->k;
    p.max_num_seqs = s->preempts ? 1 : work->max_batch;
    p.max_preempted = s->preempts ? MAX_PREEMPTED : 0;
    p.max_model_len = work->longest + work->max_tokens;
    p.memory_bytes = work->memory_bytes;
    PL_TRY(pl_memory_line_choose(work->memory_utilization, &p, err));
    if (s->begins == PL_VERIFY_PREFIX)
        PL_TRY(add_cache(work, s->path, &p, err));
    PL_TRY(pl_engine_open(s->path, &p, &e->engine, err));
    e->opened = *s;
    return PL_OK;
}

static pl_status submit(pl_engine *e, const pl_verify_work *work, int i, bool rises,
                        const pl_verify_snapshot *from, pl_request **out, pl_error *err)
{
    pl_request_params p = pl_request_params_default();

    p.tokens = work->prompt[i].tokens;
    p.n_tokens = work->prompt[i].n;
    p.snapshot = from ? from->data : NULL;
    p.snapshot_bytes = p.snapshot ? from->bytes : 0;
    p.priority = rises ? i : 0;
    p.max_tokens = work->max_tokens;
    p.ignore_eos = true;
    p.temperature = i % 2 ? 0.8F : 0;
    p.seed = (uint64_t)i;
    return pl_engine_submit(e, &p, out, err);
}

static pl_status take(pl_request *r, pl_verify_result *out, pl_error *err)
{
    int32_t n;
    const int32_t *tokens = pl_request_tokens(r, &n);
    const float *logprobs = pl_request_logprobs(r, &n);
    const size_t bytes = (size_t)n * 4;

    out->tokens = malloc(bytes ? bytes : 1);
    out->logprobs = malloc(bytes ? bytes : 1);
    if (!out->tokens || !out->logprobs)
        return pl_error_set(err, PL_ERR_NOMEM, "verify: out of memory for results");
    memcpy(out->tokens, tokens, bytes);
    memcpy(out->logprobs, logprobs, bytes);
    out->n = n;
    pl_request_digest(r, out->digest);
    return PL_OK;
}

/* Takes what has ended; returns how many. */
static pl_status collect(pl_request **running, pl_verify_result *results, int n, int *n_running,
                         pl_error *err)
{
    for (int i = 0; i < n; i++) {
        if (!running[i] || pl_request_state_of(running[i]) <= PL_REQUEST_RUNNING)
            continue;
        PL_TRY(take(running[i], &results[i], err));
        pl_request_release(running[i]);
        running[i] = NULL;
        --*n_running;
    }
    return PL_OK;
}

/* How many may be in flight now. Who preempts has to find the one before running, so those come one a step. */
static int room(const pl_verify_setting *s, int n_running)
{
    if (s->preempts)
        return n_running <= MAX_PREEMPTED ? n_running + 1 : n_running;
    return s->batch;
}

static pl_status run_all(pl_verify_engine *e, const pl_verify_work *work,
                         const pl_verify_setting *s, const pl_verify_snapshot *snapshots,
                         pl_request **running, pl_verify_result *results, pl_error *err)
{
    int next = 0, n_running = 0;
    bool busy = true;

    while (next < work->n || n_running > 0) {
        for (const int most = room(s, n_running); next < work->n && n_running < most; next++) {
            PL_TRY(submit(e->engine, work, next, s->preempts, snapshots ? &snapshots[next] : NULL,
                          &running[next], err));
            n_running++;
        }
        PL_TRY(pl_engine_step(e->engine, &busy, err));
        for (int i = 0; i < work->n; i++)
            if (running[i] && pl_request_state_of(running[i]) > PL_REQUEST_RUNNING) {
                const pl_request_stats t = pl_request_stats_of(running[i]);

                e->counts.preemptions += t.preemptions;
                if (s->begins == PL_VERIFY_SNAPSHOT)
                    e->counts.restored_tokens += (uint64_t)t.cached_tokens;
            }
        PL_TRY(collect(running, results, work->n, &n_running, err));
    }
    return PL_OK;
}

/* A run whose prompts were all in the cache, which has counted them: else nothing was compared. */
static pl_status run_hits(pl_verify_engine *e, const pl_verify_work *work,
                          const pl_verify_setting *s, pl_request **running,
                          pl_verify_result *results, pl_error *err)
{
    uint64_t before, hits;

    PL_TRY(pl_verify_cache_fill(e->engine, work, err));
    before = pl_engine_stats_of(e->engine).prefix_hits;
    PL_TRY(run_all(e, work, s, NULL, running, results, err));
    hits = pl_engine_stats_of(e->engine).prefix_hits - before;
    if (hits == 0)
        return pl_error_set(err, PL_ERR_STATE,
                            "verify: the cache of prefixes had none of the prompts (got 0 tokens, "
                            "want %d at least)",
                            PL_VERIFY_HIT);
    e->counts.hit_tokens += hits;
    return PL_OK;
}

static pl_status run_snapshots(pl_verify_engine *e, const pl_verify_work *work,
                               const pl_verify_setting *s, pl_request **running,
                               pl_verify_result *results, pl_error *err)
{
    pl_verify_snapshot *snapshots = calloc((size_t)work->n, sizeof *snapshots);
    pl_status status = PL_OK;

    if (!snapshots)
        return pl_error_set(err, PL_ERR_NOMEM, "verify: out of memory for snapshots");
    for (int i = 0; status == PL_OK && i < work->n; i++)
        status = pl_verify_snapshot_take(e->engine, &work->prompt[i], &snapshots[i], err);
    if (status == PL_OK)
        status = run_all(e, work, s, snapshots, running, results, err);
    /* Requests borrow them. */
    for (int i = 0; i < work->n; i++) {
        pl_request_release(running[i]);
        running[i] = NULL;
        free(snapshots[i].data);
    }
    free(snapshots);
    return status;
}

pl_status pl_verify_run(pl_verify_engine *e, const pl_verify_work *work, const pl_verify_setting *s,
                        pl_verify_result *results, pl_error *err)
{
    pl_request **running;
    pl_status status;

    memset(results, 0, (size_t)work->n * sizeof *results);
    PL_TRY(open_for(e, work, s, err));
    running = calloc((size_t)work->n, sizeof(pl_request *));
    if (!running)
        return pl_error_set(err, PL_ERR_NOMEM, "verify: out of memory for requests");
    if (s->begins == PL_VERIFY_SNAPSHOT)
        status = run_snapshots(e, work, s, running, results, err);
    else if (s->begins == PL_VERIFY_PREFIX)
        status = run_hits(e, work, s, running, results, err);
    else
        status = run_all(e, work, s, NULL, running, results, err);
    for (int i = 0; i < work->n; i++)
        pl_request_release(running[i]);
    free((void *)running);
    return status;
}

void pl_verify_results_fini(pl_verify_result *results, int n)
{
    for (int i = 0; results && i < n; i++) {
        free(results[i].tokens);
        free(results[i].logprobs);
    }
    free(results);
}

/* Log-probabilities as bits: -0 is not 0, and a NaN is itself. */
static pl_verify_parting compare_one(const pl_verify_result *a, const pl_verify_result *b, int i)
{
    const int32_t n = a->n < b->n ? a->n : b->n;

    for (int32_t t = 0; t < n; t++) {
        if (a->tokens[t] != b->tokens[t])
            return (pl_verify_parting){i, t, "token"};
        if (pl_f32_bits(a->logprobs[t]) != pl_f32_bits(b->logprobs[t]))
            return (pl_verify_parting){i, t, "logprob"};
    }
    if (a->n != b->n)
        return (pl_verify_parting){i, n, "length"};
    if (strcmp(a->digest, b->digest) != 0)
        return (pl_verify_parting){i, n, "digest"};
    return (pl_verify_parting){-1, 0, ""};
}

pl_verify_parting pl_verify_compare(const pl_verify_result *a, const pl_verify_result *b, int n)
{
    pl_verify_parting p = {-1, 0, ""};

    for (int i = 0; i < n && p.request < 0; i++)
        p = compare_one(&a[i], &b[i], i);
    return p;
}
