/* Contexts of the public operators: the level, and whose threads do the work. Owns the pool; never the workspace. */
#include "attention/context.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "ops/level.h"

static const pl_selftest *const selftests[] = {pl_base_selftests, pl_ops_selftests, NULL};

static pl_status choose_level(const char *level, const pl_ops **ops, pl_error *err)
{
    pl_level_choice choice;
    pl_cpu cpu;

    pl_cpu_detect(&cpu, NULL);
    PL_TRY(
        pl_level_choose(&cpu, pl_level_built(), level, getenv("PL_CPU"), selftests, &choice, err));
    *ops = pl_ops_at(choice.level, PL_MODE_REC);
    if (!(*ops)->attention_varlen)
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "level: has no operators of its own (got %s, want scalar or above)",
                            pl_level_name(choice.level));
    return PL_OK;
}

pl_status pl_ops_context_create(const pl_ops_params *params, pl_ops_context **context,
                                pl_error *err)
{
    pl_ops_params p = params ? *params : (pl_ops_params){0};
    pl_pool_params pool = {.n_workers = p.n_workers, .no_pin = p.no_pin != 0};
    const pl_ops *ops = NULL;
    pl_ops_context *c;

    PL_CHECK(context != NULL, err, "context: no place for it (got NULL, want a pointer)");
    *context = NULL;
    PL_CHECK(p.n_workers >= (p.parallel_for ? 1 : 0) && p.n_workers <= PL_POOL_MAX_WORKERS, err,
             "n_workers: out of range (got %d, want %d .. %d)", p.n_workers, p.parallel_for ? 1 : 0,
             PL_POOL_MAX_WORKERS);
    PL_TRY(choose_level(p.level, &ops, err));
    c = calloc(1, sizeof *c);
    if (!c)
        return pl_error_set(err, PL_ERR_NOMEM, "context: no memory (want %zu bytes)", sizeof *c);
    c->ops = ops;
    c->parallel_for = p.parallel_for;
    c->user = p.user;
    c->n_workers = p.n_workers;
    if (!p.parallel_for) {
        pl_status status = pl_pool_create(&pool, &c->pool, err);
        if (status != PL_OK) {
            free(c);
            return status;
        }
        c->n_workers = pl_pool_n_workers(c->pool);
    }
    *context = c;
    return PL_OK;
}

void pl_ops_context_destroy(pl_ops_context *context)
{
    if (!context)
        return;
    pl_pool_destroy(context->pool);
    free(context);
}

const char *pl_ops_context_level(const pl_ops_context *context)
{
    return context->ops->name;
}

uint64_t pl_ops_workspace_bytes(const pl_ops_context *context)
{
    return (uint64_t)context->n_workers * PL_VARLEN_SCRATCH_BYTES;
}

typedef struct work {
    pl_pool_fn *fn;
    void *user;
} work;

/* A unit on a thread of the caller's: fn is called through a pointer, so that no arithmetic moves out. */
static void foreign_unit(void *arg, int64_t i, int worker)
{
    const work *w = arg;
    pl_fpenv saved = pl_fpenv_begin();

    w->fn(w->user, i, worker);
    pl_fpenv_end(saved);
}

void pl__context_run(pl_ops_context *c, int64_t units, pl_pool_fn *fn, void *user)
{
    work w = {fn, user};

    if (units == 0)
        return;
    if (c->pool)
        pl_pool_run(c->pool, units, fn, user);
    else
        c->parallel_for(c->user, units, foreign_unit, &w);
}
