/* How the requests of plimsoll verify can begin behind their first token: from a snapshot of half a prompt, and from what
 * the engine's own cache of prefixes found. Both are made by the engine that uses them, under the setting in question. */
#include <stdlib.h>

#include "base/error.h"
#include "cli/verify.h"

/* Runs the first n tokens of a prompt; *out keeps its place until it is released. */
static pl_status run_part(pl_engine *e, const pl_verify_prompt *prompt, int32_t n, pl_request **out,
                          pl_error *err)
{
    pl_request_params p = pl_request_params_default();
    pl_status s = PL_OK;
    bool busy;

    p.tokens = prompt->tokens;
    p.n_tokens = n;
    p.max_tokens = 1;
    PL_TRY(pl_engine_submit(e, &p, out, err));
    while (s == PL_OK && pl_request_state_of(*out) <= PL_REQUEST_RUNNING)
        s = pl_engine_step(e, &busy, err);
    if (s != PL_OK)
        pl_request_release(*out);
    return s;
}

pl_status pl_verify_snapshot_take(pl_engine *e, const pl_verify_prompt *prompt,
                                  pl_verify_snapshot *out, pl_error *err)
{
    pl_request *r;
    int32_t n;
    pl_status s;

    if (prompt->n < 2)
        return PL_OK;
    PL_TRY(run_part(e, prompt, prompt->n / 2, &r, err));
    out->bytes = pl_request_snapshot_bytes(r);
    out->data = malloc(out->bytes ? out->bytes : 1);
    s = out->data ? pl_request_snapshot(r, out->data, out->bytes, &n, err)
                  : pl_error_set(err, PL_ERR_NOMEM, "verify: out of memory for a snapshot");
    pl_request_release(r);
    return s;
}

uint64_t pl_verify_cache_bytes(const pl_plan *plan, const pl_verify_work *work)
{
    enum { RECORD_BYTES = 1024, BLOCKS_PER_STATE = 8, DENSE = 1024 };
    const pl_plan_totals t = pl_plan_totals_of(plan);
    /* One behind the prompt's last whole block, one that moves on with what is chosen, and one each 1,024 tokens. */
    const uint64_t n_states = 2 + (uint64_t)(work->longest + work->max_tokens) / DENSE;
    const uint64_t block = t.request_bytes_per_128_tokens + RECORD_BYTES;

    /* A state takes less than a request has without tokens. */
    return (uint64_t)work->n * n_states * (t.request_fixed_bytes + BLOCKS_PER_STATE * block);
}

pl_status pl_verify_cache_fill(pl_engine *e, const pl_verify_work *work, pl_error *err)
{
    for (int i = 0; i < work->n; i++) {
        pl_request *r;

        if (work->prompt[i].n <= PL_VERIFY_HIT)
            continue;
        PL_TRY(run_part(e, &work->prompt[i], work->prompt[i].n, &r, err));
        pl_request_release(r);
    }
    return PL_OK;
}
