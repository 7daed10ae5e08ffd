/* The plan as one JSON document. Its keys are promised: docs/MEMORY.md 5 lists them; they may grow, not change. */
#include "cli/json_out.h"
#include "cli/plan_report.h"

static void print_bytes_or_null(pl_out *j, const char *key, uint64_t bytes)
{
    if (bytes)
        pl_out_uint(j, key, bytes);
    else
        pl_out_null(j, key);
}

static void print_regions_json(pl_out *j, const pl_plan *plan)
{
    pl_out_open(j, "regions", '[');
    for (int i = 0; i < pl_plan_n_regions(plan); i++) {
        const pl_plan_region r = pl_plan_region_at(plan, i);
        pl_out_open(j, NULL, '{');
        pl_out_string(j, "name", r.name);
        pl_out_string(j, "part", pl_plan_part_name(r.part));
        pl_out_string(j, "owner", r.owner);
        pl_out_string(j, "formula", r.formula);
        pl_out_uint(j, "bytes", r.bytes);
        pl_out_close(j, '{');
    }
    pl_out_close(j, '[');
}

static void print_row_totals(pl_out *j, const pl_plan_totals *t)
{
    pl_out_uint(j, "total_bytes", t->total_bytes);
    pl_out_uint(j, "charged_bytes", t->charged_bytes);
    pl_out_bool(j, "fits", t->fits);
    pl_out_int(j, "max_model_len", t->max_model_len);
    pl_out_int(j, "requests_at_max_model_len", t->requests_at_max_model_len);
    pl_out_int(j, "tokens_for_one_request", t->tokens_for_one_request);
}

static void print_what_if(pl_out *j, const pl_plan_report *report)
{
    pl_out_open(j, "what_if", '[');
    for (int i = 0; i < report->n_what_if; i++) {
        const pl_what_if_row *r = &report->what_if[i];
        pl_out_open(j, NULL, '{');
        pl_out_string(j, "parameter", pl_what_if_name(r->parameter));
        pl_out_int(j, "value", r->value);
        print_row_totals(j, &r->totals);
        pl_out_close(j, '{');
    }
    pl_out_close(j, '[');
}

static void print_reserve(pl_out *j, const pl_plan_report *report)
{
    pl_out_open(j, "reserve", '[');
    for (int i = 0; i < report->n_reserve; i++) {
        const pl_reserve_row *r = &report->reserve[i];
        pl_out_open(j, NULL, '{');
        pl_out_string(j, "name", r->name);
        pl_out_string(j, "formula", r->formula);
        pl_out_uint(j, "bytes", r->bytes);
        pl_out_close(j, '{');
    }
    pl_out_close(j, '[');
}

/* What charged_bytes has beside total_bytes. */
static void print_charged(pl_out *j, const pl_plan_totals *t)
{
    pl_out_open(j, "charged", '{');
    pl_out_uint(j, "page_table_bytes", t->page_table_bytes);
    pl_out_uint(j, "kernel_stack_bytes", t->kernel_stack_bytes);
    pl_out_uint(j, "socket_bytes", t->socket_bytes);
    pl_out_close(j, '{');
}

void pl_plan_print_json(const pl_plan_report *report)
{
    const pl_plan *plan = report->plan;
    const pl_plan_totals t = pl_plan_totals_of(plan);
    pl_out j;

    pl_out_begin(&j, stdout);
    pl_out_open(&j, NULL, '{');
    print_regions_json(&j, plan);
    pl_out_uint(&j, "total_bytes", t.total_bytes);
    pl_out_uint(&j, "resident_bytes", t.resident_bytes);
    pl_out_uint(&j, "charged_bytes", t.charged_bytes);
    print_bytes_or_null(&j, "budget_bytes", t.budget_bytes);
    pl_out_bool(&j, "fits", t.fits);
    pl_out_string(&j, "advice", pl_plan_advice(plan));
    pl_out_open(&j, "per_request", '{');
    pl_out_uint(&j, "fixed_bytes", t.request_fixed_bytes);
    pl_out_uint(&j, "bytes_per_128_tokens", t.request_bytes_per_128_tokens);
    pl_out_fixed(&j, "bytes_per_token", (double)t.request_bytes_per_128_tokens / 128, 4);
    pl_out_close(&j, '{');
    pl_out_open(&j, "capacity", '{');
    pl_out_int(&j, "max_model_len", t.max_model_len);
    pl_out_int(&j, "requests_at_max_model_len", t.requests_at_max_model_len);
    pl_out_int(&j, "tokens_for_one_request", t.tokens_for_one_request);
    pl_out_close(&j, '{');
    pl_out_open(&j, "parameters", '{');
    pl_out_int(&j, "max_num_seqs", t.max_num_seqs);
    pl_out_int(&j, "max_num_batched_tokens", t.max_num_batched_tokens);
    pl_out_int(&j, "threads", t.threads);
    pl_out_int(&j, "ranks", t.ranks);
    pl_out_close(&j, '{');
    pl_out_uint(&j, "rank_bytes", t.rank_bytes);
    print_charged(&j, &t);
    print_reserve(&j, report);
    print_what_if(&j, report);
    pl_out_close(&j, '{');
    pl_out_end(&j);
}
