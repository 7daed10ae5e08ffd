/* Helpers of the engine's tests. */
#include "engine_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"

const char *checkpoint_path(const char *name)
{
    static char path[1024];
    const char *dir = getenv("PL_CHECKPOINT_DIR");

    if (!dir)
        fail_msg("PL_CHECKPOINT_DIR is not set: run the tests through meson");
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

pl_engine_params small_params(void)
{
    pl_engine_params p = pl_engine_params_default();

    p.level = "scalar";
    p.threads = 2;
    p.no_pin = true;
    p.max_num_seqs = 4;
    p.max_model_len = 160;
    p.max_num_batched_tokens = 64;
    p.max_queued = 8;
    return p;
}

pl_engine *open_engine(const char *name, const pl_engine_params *params)
{
    pl_engine *e;
    pl_error err;

    check_ok(pl_engine_open(checkpoint_path(name), params, &e, &err), &err);
    return e;
}

void take(pl_request *request, result *r)
{
    const int32_t *tokens = pl_request_tokens(request, &r->n);
    const float *logprobs = pl_request_logprobs(request, &r->n);

    assert_in_range(r->n, 0, MAX_RESULT_TOKENS);
    if (r->n) {
        memcpy(r->tokens, tokens, (size_t)r->n * sizeof *tokens);
        memcpy(r->logprobs, logprobs, (size_t)r->n * sizeof *logprobs);
    }
    r->state = pl_request_state_of(request);
    r->stats = pl_request_stats_of(request);
    pl_request_digest(request, r->digest);
    pl_request_release(request);
}

/* What the last step took back: its list of sequences is still there. */
static void watch(const pl_engine *e, taken_back *seen)
{
    for (int32_t s = 0; s < e->n_step_seqs; s++) {
        const pl_step_seq *seq = &e->parts.step_seqs[s];
        const int32_t n = seq->state->n, end = n + seq->n - e->parts.step_requests[s]->n_chosen;
        const int32_t ring = seq->state->ring_rows;

        if (!seq->n_draft || end == n)
            continue;
        seen->n++;
        seen->over_4 += end / 4 > n / 4;
        seen->over_128 += end / 128 > n / 128;
        seen->over_ring += end / ring > n / ring;
    }
}

void run_watched(pl_engine *e, const pl_request_params *params, int n, const int *order, result *r,
                 taken_back *seen)
{
    pl_request *requests[16];
    bool busy = true;
    pl_error err;

    assert_in_range(n, 1, 16);
    for (int i = 0; i < n; i++) {
        int at = order ? order[i] : i;
        check_ok(pl_engine_submit(e, &params[at], &requests[at], &err), &err);
    }
    while (busy) {
        check_ok(pl_engine_step(e, &busy, &err), &err);
        watch(e, seen);
    }
    for (int i = 0; i < n; i++)
        take(requests[i], &r[i]);
}

void run_all(pl_engine *e, const pl_request_params *params, int n, const int *order, result *r)
{
    pl_request *requests[16];
    pl_error err;

    assert_in_range(n, 1, 16);
    for (int i = 0; i < n; i++) {
        int at = order ? order[i] : i;
        check_ok(pl_engine_submit(e, &params[at], &requests[at], &err), &err);
    }
    check_ok(pl_engine_run(e, &err), &err);
    for (int i = 0; i < n; i++)
        take(requests[i], &r[i]);
}

void check_same_result(const char *what, const result *got, const result *want)
{
    if (strcmp(got->digest, want->digest) != 0)
        fail_msg("%s: digest differs (got %s, want %s)", what, got->digest, want->digest);
    assert_int_equal(got->n, want->n);
    assert_int_equal(got->state, want->state);
    check_same_bytes(what, got->tokens, want->tokens, (size_t)want->n * sizeof *want->tokens);
    check_same_bytes(what, got->logprobs, want->logprobs, (size_t)want->n * sizeof *want->logprobs);
}

void fill_prompt(int32_t *tokens, int32_t n, int32_t vocab, uint32_t which)
{
    uint32_t x = 12345 + 77777 * which;

    for (int32_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        tokens[i] = (int32_t)((x >> 8) % (uint32_t)vocab);
    }
}
