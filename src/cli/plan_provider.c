/* plan --provider: what a provider of attention takes beside its caller's workspace, as its record says. Known in closed form,
 * so that it stands in the plan before anything takes the rest. The library is loaded for its record alone. */
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "cli/plan_report.h"
#include "cli/provider.h"
#include "plan/formula.h"

/* Operators of a layer follow one another: the largest of all. */
static const pl_provider_claims *largest(const pl_provider_record *r)
{
    const pl_provider_claims *most = &r->op[0];

    for (int op = 1; op < PL_PROVIDER_N_OPS; op++)
        if (r->op[op].transient_per_token > most->transient_per_token)
            most = &r->op[op];
    return most;
}

static pl_status add_row(const pl_provider_record *r, int32_t n_tokens, pl_reserve_row *row,
                         pl_error *err)
{
    const pl_provider_claims *c = largest(r);

    (void)snprintf(row->name, sizeof row->name, "provider.%.30s", r->name);
    if (c->pad_heads)
        (void)snprintf(row->formula, sizeof row->formula, "%d tokens * %d heads * %d * 2", n_tokens,
                       c->pad_heads, c->value_max);
    else
        (void)snprintf(row->formula, sizeof row->formula, "%d tokens * %" PRIu64, n_tokens,
                       c->transient_per_token);
    return pl_formula_eval(row->formula, &row->bytes, err);
}

pl_status pl_plan_add_provider(const char *library, pl_plan_report *report, pl_error *err)
{
    const pl_provider_record *r;
    pl_provider_table t;
    pl_status status = pl_provider_table_open(&t, &library, 1, NULL, err);

    if (status == PL_OK) {
        r = pl_providers_record(t.set, 1);
        if (r->reason != PL_PROVIDER_DIRECT)
            status = pl_error_set(err, PL_ERR_UNSUPPORTED, "--provider: %s: cannot be used: %s: %s",
                                  library, pl_provider_reason_name(r->reason), r->problem);
        else if (report->n_reserve == PL_RESERVE_MAX_ROWS)
            status = pl_error_set(err, PL_ERR_INTERNAL, "--provider: no row is left");
        else
            status = add_row(r, pl_plan_reserve_params(report->plan).max_num_batched_tokens,
                             &report->reserve[report->n_reserve], err);
        report->n_reserve += status == PL_OK;
    }
    pl_provider_table_close(&t);
    return status;
}
