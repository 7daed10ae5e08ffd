/* Fitting a plan under the line: what max_model_len may be, what else would fit, which change is enough.
 *
 * Every question is the same one, asked of the layout: does this shape fit? Bytes grow with every parameter,
 * so doubling and bisection find the largest that does. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "engine/plan.h"

typedef enum what {
    MODEL_LEN,
    NUM_SEQS,
    BATCHED_TOKENS,
} what;

static void set(pl_engine_shape *s, what w, int32_t v)
{
    pl_forward_limits *l = &s->limits;
    int64_t rows;

    if (w == MODEL_LEN)
        l->max_len = v;
    else if (w == NUM_SEQS)
        s->max_num_seqs = v;
    else
        l->max_tokens = v;
    /* A step holds no more sequences than tokens. */
    l->max_seqs = s->max_num_seqs < l->max_tokens ? s->max_num_seqs : l->max_tokens;
    l->max_draft = s->n_speculative < l->max_tokens ? s->n_speculative : l->max_tokens - 1;
    rows = (int64_t)s->max_num_seqs * (1 + l->max_draft);
    l->max_logits = rows < l->max_tokens ? (int32_t)rows : l->max_tokens;
}

static pl_status fits(const pl_plan *plan, const pl_engine_shape *s, bool *yes, pl_error *err)
{
    uint64_t total, caches, line = plan->params.memory_bytes;
    uint64_t cache_line = plan->params.kv_cache_memory_bytes;

    PL_TRY(pl__engine_bytes(s, &total, &caches, err));
    *yes = (!line || total <= line) && (!cache_line || caches <= cache_line);
    return PL_OK;
}

/* The largest value in [low, high] that fits; low - 1 where none does. */
static pl_status largest(const pl_plan *plan, pl_engine_shape s, what w, int32_t low, int32_t high,
                         int32_t *out, pl_error *err)
{
    /* Asking for many sequences takes long, as each is laid out: their search comes from below. */
    const bool gallop = w == NUM_SEQS;
    int32_t good = low - 1, bad = high + 1;
    bool yes;

    while (good + 1 < bad) {
        int32_t middle = good + (bad - good) / 2;

        if (bad > high) /* Often everything fits. */
            middle = gallop && good < high / 2 ? (good < low ? low : 2 * good) : high;
        set(&s, w, middle);
        PL_TRY(fits(plan, &s, &yes, err));
        if (yes)
            good = middle;
        else
            bad = middle;
    }
    *out = good;
    return PL_OK;
}

static pl_status choose_model_len(pl_plan *plan, pl_error *err)
{
    const int32_t most = plan->model.config.max_position_embeddings;
    const uint64_t line = plan->params.memory_bytes;
    int32_t len;

    /* The line of the caches is authoritative: it alone decides, and a total above the other one is refused
     * rather than made to fit. */
    if (plan->params.kv_cache_memory_bytes)
        plan->params.memory_bytes = 0;
    PL_TRY(largest(plan, plan->shape, MODEL_LEN, PL_MIN_MODEL_LEN, most, &len, err));
    plan->params.memory_bytes = line;
    set(&plan->shape, MODEL_LEN, len < PL_MIN_MODEL_LEN ? PL_MIN_MODEL_LEN : len);
    return PL_OK;
}

static pl_status find_capacity(pl_plan *plan, pl_error *err)
{
    enum { MOST_SEQS = 1 << 16 };
    pl_engine_shape shape = plan->shape, one;
    pl_plan_totals *t = &plan->totals;
    int32_t n, len;

    if (!plan->params.memory_bytes && !plan->params.kv_cache_memory_bytes) {
        t->requests_at_max_model_len = shape.max_num_seqs;
        t->tokens_for_one_request = shape.limits.max_len;
        return PL_OK;
    }
    /* A cache of prefixes that takes what is left gives way. */
    if (plan->params.prefix_cache_memory_bytes == PL_PREFIX_CACHE_REST)
        shape.prefix_bytes = 0;
    one = shape;
    PL_TRY(largest(plan, shape, NUM_SEQS, 1, MOST_SEQS, &n, err));
    set(&one, NUM_SEQS, 1);
    PL_TRY(largest(plan, one, MODEL_LEN, PL_MIN_MODEL_LEN,
                   plan->model.config.max_position_embeddings, &len, err));
    t->requests_at_max_model_len = n;
    t->tokens_for_one_request = len < PL_MIN_MODEL_LEN ? 0 : len;
    return PL_OK;
}

static void say(char *text, size_t *n, const char *name, uint64_t now, uint64_t would)
{
    *n += (size_t)snprintf(text + *n, PL_PLAN_TEXT_BYTES - *n,
                           "%s %" PRIu64 " instead of %" PRIu64 ", ", name, would, now);
}

static pl_status advise(pl_plan *plan, uint64_t caches, pl_error *err)
{
    const pl_engine_shape *s = &plan->shape;
    const pl_engine_params *p = &plan->params;
    const struct {
        const char *name;
        what w;
        int32_t low, now;
    } changes[] = {
        {"max_model_len", MODEL_LEN, PL_MIN_MODEL_LEN, s->limits.max_len},
        {"max_num_seqs", NUM_SEQS, 1, s->max_num_seqs},
        {"max_num_batched_tokens", BATCHED_TOKENS, 1, s->limits.max_tokens},
    };
    size_t n = (size_t)snprintf(plan->advice, PL_PLAN_TEXT_BYTES, "would fit: ");
    const uint64_t total = plan->totals.total_bytes;
    bool over, cache_over;

    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        int32_t v;
        if (changes[i].now <= changes[i].low)
            continue;
        PL_TRY(largest(plan, *s, changes[i].w, changes[i].low, changes[i].now - 1, &v, err));
        if (v >= changes[i].low)
            say(plan->advice, &n, changes[i].name, (uint64_t)changes[i].now, (uint64_t)v);
    }
    /* A line alone is enough only where the other one holds. */
    over = p->memory_bytes && total > p->memory_bytes;
    cache_over = p->kv_cache_memory_bytes && caches > p->kv_cache_memory_bytes;
    if (cache_over && !over)
        say(plan->advice, &n, "kv_cache_memory_bytes", p->kv_cache_memory_bytes, caches);
    if (over && !cache_over)
        say(plan->advice, &n, "memory_bytes", p->memory_bytes, total);
    plan->advice[n - 2] = 0; /* the last comma */
    if (n == strlen("would fit: "))
        (void)snprintf(plan->advice, PL_PLAN_TEXT_BYTES, "no single change would fit");
    return PL_OK;
}

/* What a control group is charged beside: page tables (8 bytes of each 4 KiB, whatever the size of the pages
 * turns out to be, and a page for each level above), the kernel's stack of each thread, and what the caller says of
 * its sockets. */
void pl__plan_charge(const pl_plan *plan, pl_plan_totals *t)
{
    enum { LEVELS = 4 * 4096, STACK = 16 << 10 };
    const pl_engine_shape *s = &plan->shape;

    t->page_table_bytes = t->total_bytes / 512 + LEVELS;
    t->kernel_stack_bytes = (uint64_t)(s->n_workers + s->limits.n_ranks - 1) * STACK;
    t->socket_bytes = plan->params.socket_bytes;
    t->charged_bytes =
        t->total_bytes + t->page_table_bytes + t->kernel_stack_bytes + t->socket_bytes;
}

/* Activations and caches: every other region all ranks share. */
static uint64_t rank_bytes(const pl_plan *plan)
{
    const pl_regions *t = &plan->regions;

    return (pl_regions_bytes_of(t, "forward.step") + pl_regions_bytes_of(t, "forward.halves") +
            pl_regions_bytes_of(t, "forward.logits") + pl_regions_bytes_of(t, "cache") -
            pl_regions_bytes_of(t, "cache.prefix")) /
           (uint64_t)plan->shape.limits.n_ranks;
}

static void make_note(pl_plan *plan, uint64_t caches)
{
    const char *rejection = plan->shape.rejects
                                ? "draft_sampling rejection: sampled tokens depend on "
                                  "drafts and on what shares a step"
                                : "";
    char limit[192] = "";

    if (plan->params.kv_cache_memory_bytes)
        (void)snprintf(limit, sizeof limit,
                       "kv_cache_memory_bytes limits the caches to %" PRIu64
                       " bytes, of which the plan takes %" PRIu64,
                       plan->params.kv_cache_memory_bytes, caches);
    (void)snprintf(plan->note, sizeof plan->note, "%s%s%s", limit,
                   limit[0] && rejection[0] ? "; " : "", rejection);
}

static pl_status fill_totals(pl_plan *plan, pl_error *err)
{
    const pl_engine_shape *s = &plan->shape;
    pl_state_shape state =
        pl_forward_state_shape(&plan->model.config, s->ops, plan->model.has_mtp, &s->limits);
    pl_cache_geometry g = pl_cache_geometry_of(&state);
    pl_plan_totals *t = &plan->totals;
    const uint64_t caches = pl_regions_bytes_of(&plan->regions, "cache");
    const uint64_t n_ranks = (uint64_t)s->limits.n_ranks;

    t->total_bytes = pl_regions_bytes(&plan->regions, PL_REGION_PART_COUNT);
    t->resident_bytes = t->total_bytes;
    pl__plan_charge(plan, t);
    t->budget_bytes = plan->params.memory_bytes;
    t->request_fixed_bytes = n_ranks * pl_cache_fixed_bytes(&g);
    t->request_bytes_per_128_tokens = n_ranks * pl_cache_block_bytes(&g);
    t->max_model_len = s->limits.max_len;
    t->max_num_seqs = s->max_num_seqs;
    t->max_num_batched_tokens = s->limits.max_tokens;
    t->threads = s->n_workers;
    t->num_speculative_tokens = s->n_speculative;
    t->draft_sampling = plan->params.draft_sampling;
    t->ranks = s->limits.n_ranks;
    t->rank_bytes = rank_bytes(plan);
    t->prefix_cache_bytes = pl_regions_bytes_of(&plan->regions, "cache.prefix");
    PL_TRY(fits(plan, s, &t->fits, err));
    PL_TRY(find_capacity(plan, err));
    make_note(plan, caches);
    return t->fits ? PL_OK : advise(plan, caches, err);
}

pl_status pl__plan_fit(pl_plan *plan, pl_error *err)
{
    const pl_engine_params *p = &plan->params;

    plan->shape = (pl_engine_shape){
        .model = &plan->model,
        .ops = pl__engine_ops(plan->level),
        .n_workers = p->threads,
        .max_queued = p->max_queued,
        .max_preempted = p->max_preempted,
        .rejects = p->draft_sampling == PL_DRAFT_REJECTION,
        .n_speculative = p->num_speculative_tokens,
        .program_bytes = p->program_bytes,
        .program_heap_bytes = p->program_heap_bytes,
        .limits.max_tokens = p->max_num_batched_tokens,
        .limits.max_len = p->max_model_len,
        .limits.n_ranks = p->ranks > 1 ? p->ranks : 1,
    };
    set(&plan->shape, NUM_SEQS, p->max_num_seqs);
    if (p->max_model_len == 0)
        PL_TRY(choose_model_len(plan, err));
    PL_TRY(pl__plan_prefix(plan, err));
    PL_TRY(pl_forward_check_limits(&plan->model.config, &plan->shape.limits, err));
    PL_TRY(pl__engine_plan_regions(&plan->shape, &plan->regions, err));
    return fill_totals(plan, err);
}
