/* Snapshots of requests: cache/snapshot.h between the engine's states and the caller's memory.
 *
 * A snapshot holds positions, not a request: options, noise and the digest are those of the request that begins with it.
 * Everything about it is checked when the request is submitted; that it starts only copies. */
#include <string.h>

#include "base/error.h"
#include "cache/snapshot.h"
#include "engine/internal.h"
#include "plimsoll/version.h"

static pl_snapshot_id id_of(const pl_engine *e)
{
    return (pl_snapshot_id){PL_NUMERICS_VERSION, e->checkpoint};
}

pl_status pl__snapshot_check(const pl_engine *e, const pl_request_params *p, pl_error *err)
{
    const pl_snapshot_id id = id_of(e);
    const uint8_t *tokens;
    int32_t n;

    if (!p->snapshot)
        return PL_OK;
    PL_CHECK(!p->on_prompt_token, err,
             "snapshot: not beside on_prompt_token, for which all of the prompt has to run");
    PL_TRY(
        pl_snapshot_check(e->parts.states, &id, p->snapshot, p->snapshot_bytes, &n, &tokens, err));
    PL_CHECK(n < p->n_tokens, err,
             "snapshot: as long as the prompt (got %d tokens, want at most %d: one less)", n,
             p->n_tokens - 1);
    for (int32_t i = 0; i < n; i++) {
        int32_t token;

        memcpy(&token, tokens + (size_t)i * sizeof token, sizeof token);
        PL_CHECK(token == p->tokens[i], err,
                 "snapshot: is of other tokens than the prompt (at position %d got %d, want %d)", i,
                 token, p->tokens[i]);
    }
    return PL_OK;
}

void pl__snapshot_start(pl_request *r)
{
    pl_state *state = pl__request_state(r);

    pl_state_reset(state);
    if (r->params.snapshot)
        pl_snapshot_restore(state, r->params.snapshot);
    else
        pl__prefix_start(r);
    if (!r->n_preempted)
        r->n_cached = state->n;
}

uint64_t pl_request_snapshot_bytes(const pl_request *r)
{
    return r->place < 0 ? 0 : pl_snapshot_bytes(pl__request_state(r));
}

pl_status pl_request_snapshot(const pl_request *r, void *memory, uint64_t bytes, int32_t *n_tokens,
                              pl_error *err)
{
    const pl_engine *e = r->engine;
    const pl_snapshot_id id = id_of(e);
    const pl_snapshot_tokens tokens = {r->params.tokens, pl__request_outputs(r),
                                       r->params.n_tokens};
    const uint64_t want = pl_request_snapshot_bytes(r);

    *n_tokens = 0;
    if (e->in_step)
        return pl_error_set(err, PL_ERR_STATE, "snapshot: within a step (want it between steps)");
    if (r->place < 0)
        return pl_error_set(err, PL_ERR_STATE,
                            "snapshot: the request has no state (want one that runs or has ended)");
    if (!memory || bytes < want)
        return pl_error_set(err, PL_ERR_LIMIT,
                            "snapshot: too little memory (got %llu bytes, want %llu)",
                            memory ? (unsigned long long)bytes : 0ULL, (unsigned long long)want);
    pl_snapshot_save(pl__request_state(r), &id, &tokens, memory);
    *n_tokens = pl__request_state(r)->n;
    return PL_OK;
}
