/* Plans: from a path and parameters to the table of regions, and the public view of it. */
#include "engine/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/pool.h"
#include "base/selftest.h"
#include "ops/level.h"

enum {
    PROGRAM_BYTES = 5 << 20, /* `plimsoll run` before it opens an engine; a test holds it */
    MAX_SEQS = 1 << 16,
    MAX_QUEUED = 1 << 20,
    MAX_BATCHED = 1 << 20,
};

pl_engine_params pl_engine_params_default(void)
{
    return (pl_engine_params){
        .max_num_seqs = 16,
        .max_num_batched_tokens = 512,
        .max_queued = 256,
        .program_bytes = PROGRAM_BYTES,
    };
}

static pl_status check_params(const pl_engine_params *p, const pl_config *c, pl_error *err)
{
    PL_CHECK(p->threads >= 0 && p->threads <= PL_POOL_MAX_WORKERS, err,
             "threads: out of range (got %d, want 0 to %d)", p->threads, PL_POOL_MAX_WORKERS);
    PL_CHECK(p->max_model_len == 0 || (p->max_model_len >= PL_MIN_MODEL_LEN &&
                                       p->max_model_len <= c->max_position_embeddings),
             err, "max_model_len: out of range (got %d, want 0 or %d to the model's %d)",
             p->max_model_len, PL_MIN_MODEL_LEN, c->max_position_embeddings);
    PL_CHECK(p->max_num_seqs >= 1 && p->max_num_seqs <= MAX_SEQS, err,
             "max_num_seqs: out of range (got %d, want 1 to %d)", p->max_num_seqs, MAX_SEQS);
    PL_CHECK(p->max_num_batched_tokens >= 1 && p->max_num_batched_tokens <= MAX_BATCHED, err,
             "max_num_batched_tokens: out of range (got %d, want 1 to %d)",
             p->max_num_batched_tokens, MAX_BATCHED);
    PL_CHECK(p->num_speculative_tokens >= 0 && p->num_speculative_tokens <= PL_MAX_SPECULATIVE, err,
             "num_speculative_tokens: out of range (got %d, want 0 to %d)",
             p->num_speculative_tokens, PL_MAX_SPECULATIVE);
    PL_CHECK(p->draft_sampling == PL_DRAFT_SHARED_NOISE || p->draft_sampling == PL_DRAFT_REJECTION,
             err, "draft_sampling: unknown (got %d, want %d or %d)", (int)p->draft_sampling,
             (int)PL_DRAFT_SHARED_NOISE, (int)PL_DRAFT_REJECTION);
    PL_CHECK(p->draft_sampling == PL_DRAFT_SHARED_NOISE || p->num_speculative_tokens > 0, err,
             "draft_sampling: rejection wants drafts (got num_speculative_tokens 0, want 1 to %d)",
             PL_MAX_SPECULATIVE);
    PL_CHECK(p->max_preempted >= 0 && p->max_preempted <= MAX_SEQS, err,
             "max_preempted: out of range (got %d, want 0 to %d)", p->max_preempted, MAX_SEQS);
    PL_CHECK(p->ranks >= 0 && p->ranks <= PL_MAX_RANKS, err,
             "ranks: out of range (got %d, want 0 to %d)", p->ranks, PL_MAX_RANKS);
    PL_CHECK(p->max_queued >= 0 && p->max_queued <= MAX_QUEUED, err,
             "max_queued: out of range (got %d, want 0 to %d)", p->max_queued, MAX_QUEUED);
    PL_CHECK(c->max_position_embeddings >= PL_MIN_MODEL_LEN, err,
             "config.json: max_position_embeddings: too few to run (got %d, want at least %d)",
             c->max_position_embeddings, PL_MIN_MODEL_LEN);
    return PL_OK;
}

static pl_status choose_level(const char *name, pl_level *level, pl_error *err)
{
    static const pl_selftest *const tests[] = {pl_base_selftests, pl_ops_selftests, NULL};
    pl_level_choice choice;
    pl_cpu cpu;

    pl_cpu_detect(&cpu, NULL);
    PL_TRY(pl_level_choose(&cpu, pl_level_built(), name, name ? NULL : getenv("PL_CPU"), tests,
                           &choice, err));
    *level = choice.level;
    return PL_OK;
}

/* plan->model is filled; the rest follows from params. */
static pl_status finish(pl_plan *plan, const pl_engine_params *params, pl_error *err)
{
    plan->params = *params;
    PL_TRY(check_params(params, &plan->model.config, err));
    if (params->adapt_speculative_tokens && !plan->model.has_mtp)
        plan->params.num_speculative_tokens = 0;
    PL_CHECK(plan->params.num_speculative_tokens == 0 || plan->model.has_mtp, err,
             "num_speculative_tokens: the checkpoint has no mtp block to draft with (got %d, want "
             "0)",
             params->num_speculative_tokens);
    PL_TRY(choose_level(params->level, &plan->level, err));
    plan->params.level = pl_level_name(plan->level);
    PL_CHECK(params->ranks <= 1 || pl__engine_ops(plan->level)->shard_sum, err,
             "ranks: level %s has no shards, its sums are whole (got %d, want 1)",
             plan->params.level, params->ranks);
    if (params->threads == 0)
        plan->params.threads = pl_cpu_default_threads();
    return pl__plan_fit(plan, err);
}

static pl_status create(pl_plan **out, pl_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return pl_error_set(err, PL_ERR_NOMEM, "plan: out of memory");
    pl_regions_init(&(*out)->regions);
    return PL_OK;
}

static pl_status keep_or_destroy(pl_status s, pl_plan **plan)
{
    if (s != PL_OK) {
        pl_plan_destroy(*plan);
        *plan = NULL;
    }
    return s;
}

pl_status pl__plan_of_checkpoint(const pl_checkpoint *checkpoint, const pl_engine_params *params,
                                 pl_plan **out, pl_error *err)
{
    pl_status s;

    PL_TRY(create(out, err));
    s = pl__model_shape_of_checkpoint(checkpoint, &(*out)->model, err);
    if (s == PL_OK)
        s = finish(*out, params, err);
    return keep_or_destroy(s, out);
}

static pl_status plan_of_config(const char *path, const pl_engine_params *params, pl_plan **out,
                                pl_error *err)
{
    pl_config config;
    pl_status s;

    PL_TRY(pl_config_read(path, &config, err));
    PL_TRY(create(out, err));
    pl__model_shape_of_config(&config, &(*out)->model);
    s = finish(*out, params, err);
    return keep_or_destroy(s, out);
}

pl_status pl_plan_create(const char *path, const pl_engine_params *params, pl_plan **out,
                         pl_error *err)
{
    pl_checkpoint *checkpoint;
    struct stat st;
    pl_status s;

    *out = NULL;
    PL_CHECK(path && params, err, "plan: no path or no parameters");
    if (stat(path, &st) != 0)
        return pl_error_set(err, errno == ENOENT ? PL_ERR_NOT_FOUND : PL_ERR_IO,
                            "%s: cannot look at it (got %s)", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return plan_of_config(path, params, out, err);
    PL_TRY(pl_checkpoint_open(path, &checkpoint, err));
    s = pl__plan_of_checkpoint(checkpoint, params, out, err);
    pl_checkpoint_close(checkpoint);
    return s;
}

pl_status pl_plan_create_like(const pl_plan *like, const pl_engine_params *params, pl_plan **out,
                              pl_error *err)
{
    pl_status s;

    *out = NULL;
    PL_CHECK(like && params, err, "plan: no plan or no parameters");
    PL_TRY(create(out, err));
    (*out)->model = like->model;
    s = finish(*out, params, err);
    return keep_or_destroy(s, out);
}

void pl_plan_destroy(pl_plan *plan)
{
    if (!plan)
        return;
    pl_regions_fini(&plan->regions);
    free(plan);
}

/* ---- the public view */

const char *pl_plan_part_name(pl_plan_part part)
{
    return pl_region_part_name((pl_region_part)part);
}

const char *pl_draft_sampling_name(pl_draft_sampling sampling)
{
    return sampling == PL_DRAFT_REJECTION ? "rejection" : "shared-noise";
}

int pl_plan_n_regions(const pl_plan *plan)
{
    return plan->regions.n;
}

pl_plan_region pl_plan_region_at(const pl_plan *plan, int index)
{
    const pl_region *r = &plan->regions.rows[index];

    _Static_assert((int)PL_PLAN_EXACT == (int)PL_REGION_EXACT &&
                       (int)PL_PLAN_CAPPED == (int)PL_REGION_CAPPED &&
                       (int)PL_PLAN_MEASURED == (int)PL_REGION_MEASURED,
                   "one list");
    return (pl_plan_region){r->name, (pl_plan_part)r->part, r->owner, r->formula, r->bytes};
}

pl_plan_totals pl_plan_totals_of(const pl_plan *plan)
{
    return plan->totals;
}

const char *pl_plan_advice(const pl_plan *plan)
{
    return plan->advice;
}

pl_status pl_plan_check_fits(const pl_plan *plan, pl_error *err)
{
    const uint64_t total = plan->totals.total_bytes, line = plan->params.memory_bytes;

    if (plan->totals.fits)
        return PL_OK;
    if (line && total > line)
        return pl_error_set(err, PL_ERR_LIMIT,
                            "plan: does not fit (got %" PRIu64 " bytes, want at most %" PRIu64
                            "); %s",
                            total, line, plan->advice);
    return pl_error_set(err, PL_ERR_LIMIT,
                        "plan: caches do not fit (got %" PRIu64 " bytes, want at most %" PRIu64
                        "); %s",
                        pl_regions_bytes_of(&plan->regions, "cache"),
                        plan->params.kv_cache_memory_bytes, plan->advice);
}

const char *pl_plan_note(const pl_plan *plan)
{
    return plan->note;
}

pl_engine_model pl_plan_model_of(const pl_plan *plan)
{
    const pl_config *c = &plan->model.config;

    return (pl_engine_model){
        .vocab_size = c->vocab_size,
        .max_position_embeddings = c->max_position_embeddings,
        .bos_token_id = c->bos_token_id,
        .eos_token_id = c->eos_token_id,
        .is_refresh = c->has_dspark_keys,
    };
}

pl_reserve_params pl_plan_reserve_params(const pl_plan *plan)
{
    const pl_config *c = &plan->model.config;
    pl_reserve_params p = {
        .n_layers = c->n_layers,
        .hidden_size = c->hidden_size,
        .max_model_len = plan->totals.max_model_len,
        .max_num_batched_tokens = plan->totals.max_num_batched_tokens,
    };

    for (int32_t l = 0; l < c->n_layers; l++) {
        p.n_csa_layers += c->compress_ratio[l] == 4;
        p.n_hca_layers += c->compress_ratio[l] == 128;
    }
    return p;
}
