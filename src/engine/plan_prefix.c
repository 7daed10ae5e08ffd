/* What a cache of prefixes takes: the bytes asked for, or what the lines leave beside everything else.
 *
 * The line is compared with the total; a cache that fills what is left would let the total meet it, and what a control group
 * is charged for page tables pass it. So what is left is counted in charged bytes. */
#include <inttypes.h>

#include "base/error.h"
#include "engine/plan.h"

static pl_state_shape state_shape(const pl_plan *plan)
{
    return pl_forward_state_shape(&plan->model.config, plan->shape.ops, plan->model.has_mtp,
                                  &plan->shape.limits);
}

static pl_status fits(const pl_plan *plan, uint64_t bytes, bool *yes, pl_error *err)
{
    const pl_engine_params *p = &plan->params;
    pl_engine_shape s = plan->shape;
    pl_plan_totals t = {0};
    uint64_t caches;

    s.prefix_bytes = bytes;
    PL_TRY(pl__engine_bytes(&s, &t.total_bytes, &caches, err));
    pl__plan_charge(plan, &t);
    *yes = (!p->memory_bytes || t.charged_bytes <= p->memory_bytes) &&
           (!p->kv_cache_memory_bytes || caches <= p->kv_cache_memory_bytes);
    return PL_OK;
}

/* The most that fits, to a block; 0 where the least does not. */
static pl_status rest(const pl_plan *plan, uint64_t *bytes, pl_error *err)
{
    const pl_engine_params *p = &plan->params;
    const pl_state_shape shape = state_shape(plan);
    const uint64_t step = pl_prefix_size_of(&shape, 0).block_bytes + 1;
    uint64_t good = pl_prefix_min_bytes(&shape), bad = p->memory_bytes;
    bool yes;

    *bytes = 0;
    if (!bad || (p->kv_cache_memory_bytes && p->kv_cache_memory_bytes < bad))
        bad = p->kv_cache_memory_bytes;
    if (good >= bad)
        return PL_OK;
    PL_TRY(fits(plan, good, &yes, err));
    if (!yes)
        return PL_OK;
    while (bad - good > step) {
        const uint64_t middle = good + (bad - good) / 2;

        PL_TRY(fits(plan, middle, &yes, err));
        *(yes ? &good : &bad) = middle;
    }
    *bytes = good;
    return PL_OK;
}

pl_status pl__plan_prefix(pl_plan *plan, pl_error *err)
{
    const pl_state_shape shape = state_shape(plan);
    const uint64_t asked = plan->params.prefix_cache_memory_bytes,
                   least = pl_prefix_min_bytes(&shape);

    if (asked == PL_PREFIX_CACHE_REST)
        return rest(plan, &plan->shape.prefix_bytes, err);
    PL_CHECK(!asked || asked >= least, err,
             "prefix_cache_memory_bytes: too little for one prefix (got %" PRIu64
             " bytes, want 0 or at "
             "least %" PRIu64 ")",
             asked, least);
    plan->shape.prefix_bytes = asked;
    return PL_OK;
}
