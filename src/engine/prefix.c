/* Which prefixes a running engine keeps, and who begins with them: cache/prefix.h between requests and states.
 *
 * A state can be stored where a request has just come to, at multiples of 128. Kept are: the last such position of a
 * prompt, for which its last chunk is cut; the position up to which its text was known but had no state, so that what many
 * prompts share gets one the second time it is seen; each 1,024 tokens of a prompt where a chunk happens to end there;
 * and of what is being chosen the latest one, which the next turn of a chat begins with. A request that is preempted
 * and runs again begins like any other. Blocks are copied into a request's own memory: beside what running 128 positions
 * takes, that is nothing, and a running request then depends on nobody. */
#include "engine/internal.h"
#include "plimsoll/version.h"

enum { BLOCK = PL_PREFIX_BLOCK, SPARSE = PL_PREFIX_BLOCK * PL_PREFIX_BLOCKS_PER_STATE };

static bool is_on(const pl_engine *e)
{
    return e->parts.prefix.size.n_blocks > 0;
}

static pl_snapshot_tokens tokens_of(const pl_request *r)
{
    return (pl_snapshot_tokens){r->params.tokens, pl__request_outputs(r), r->params.n_tokens};
}

/* The last position at which a text can begin, as one token at least has to run. */
static int32_t last_start(const pl_request *r)
{
    return (r->params.n_tokens + r->n_output - 1) / BLOCK * BLOCK;
}

void pl__prefix_init(pl_engine *e)
{
    const pl_snapshot_id id = {PL_NUMERICS_VERSION, e->checkpoint};

    if (is_on(e))
        pl_prefix_init(&e->parts.prefix, &id, &e->parts.states[0]);
}

void pl__prefix_start(pl_request *r)
{
    pl_engine *e = r->engine;
    const pl_snapshot_tokens tokens = tokens_of(r);
    int32_t n;

    if (!is_on(e) || r->params.on_prompt_token)
        return;
    n = pl_prefix_restore(&e->parts.prefix, &tokens, last_start(r), pl__request_state(r),
                          &r->n_shared);
    r->n_stored = n;
    r->n_passing = 0;
    if (r->n_preempted)
        return;
    e->stats.prefix_queries += (uint64_t)r->params.n_tokens;
    e->stats.prefix_hits += (uint64_t)n;
}

int32_t pl__prefix_cut(const pl_request *r, int32_t n)
{
    const int32_t begin = pl__request_state(r)->n, last = last_start(r);

    if (!is_on(r->engine) || !pl__request_is_prefilling(r))
        return n;
    if (r->n_shared > begin && r->n_shared < begin + n)
        return r->n_shared - begin;
    return last > begin && last < begin + n ? last - begin : n;
}

static bool is_wanted(const pl_request *r, int32_t n)
{
    return n == last_start(r) || n == r->n_shared || n % SPARSE == 0;
}

/* Accepted drafts lead past a multiple of 128, but their raw rows still wait, so the state can be had as it was there. */
static void store(pl_engine *e, pl_request *r)
{
    const pl_state *state = pl__request_state(r);
    const int32_t n = state->n / BLOCK * BLOCK;
    const bool passing = !pl__request_is_prefilling(r);
    const pl_snapshot_tokens tokens = tokens_of(r);
    const pl_prefix_mark mark = {.passing = passing, .n_replaced = r->n_passing};

    if (n <= r->n_stored || n < state->n_settled || (!passing && !is_wanted(r, n)))
        return;
    r->n_stored = n;
    if (pl_prefix_store(&e->parts.prefix, &tokens, n, state, &mark) && passing)
        r->n_passing = n;
}

void pl__prefix_store(pl_engine *e)
{
    for (int32_t s = 0; is_on(e) && s < e->n_step_seqs; s++)
        store(e, e->parts.step_requests[s]);
}
