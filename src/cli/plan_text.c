/* The plan as a table for people: every region with its closed form, sums, and what the line buys. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/plan_report.h"

const char *pl_plan_short_bytes(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double v = (double)bytes;
    size_t u = 0;

    while (v >= 1024 && u + 1 < sizeof units / sizeof units[0]) {
        v /= 1024;
        u++;
    }
    (void)snprintf(text, size, u ? "%.1f %s" : "%.0f %s", v, units[u]);
    return text;
}

static void print_row(const char *name, const char *part, uint64_t bytes, const char *formula)
{
    char text[32];

    printf("%-28s %-8s %16" PRIu64 " %10s  %s\n", name, part, bytes,
           pl_plan_short_bytes(bytes, text, sizeof text), formula);
}

static void print_what_if(const pl_plan_report *report)
{
    char total[32], before[32] = "";

    printf("\n%-24s %10s %16s %10s  %-5s %14s %9s %16s\n", "what if", "value", "total", "", "fits",
           "tokens each", "requests", "tokens for one");
    for (int i = 0; i < report->n_what_if; i++) {
        const pl_what_if_row *r = &report->what_if[i];
        const char *name = pl_what_if_name(r->parameter);

        printf("%-24s %10d %16" PRIu64 " %10s  %-5s %14d %9" PRId64 " %16" PRId64 "\n",
               strcmp(name, before) == 0 ? "" : name, r->value, r->totals.total_bytes,
               pl_plan_short_bytes(r->totals.total_bytes, total, sizeof total),
               r->totals.fits ? "yes" : "no", r->totals.max_model_len,
               r->totals.requests_at_max_model_len, r->totals.tokens_for_one_request);
        (void)snprintf(before, sizeof before, "%s", name);
    }
}

static void print_reserve(const pl_plan_report *report)
{
    printf("\nclosed forms of another engine; none of it is part of this plan\n");
    for (int i = 0; i < report->n_reserve; i++)
        print_row(report->reserve[i].name, "", report->reserve[i].bytes,
                  report->reserve[i].formula);
}

static void print_charged(const pl_plan_totals *t)
{
    char sockets[48] = "", text[128];

    if (t->socket_bytes)
        (void)snprintf(sockets, sizeof sockets, ", sockets %" PRIu64, t->socket_bytes);
    (void)snprintf(text, sizeof text, "with page tables %" PRIu64 ", kernel stacks %" PRIu64 "%s",
                   t->page_table_bytes, t->kernel_stack_bytes, sockets);
    print_row("charged to a control group", "", t->charged_bytes, text);
}

void pl_plan_print_text(const pl_plan_report *report)
{
    const pl_plan *plan = report->plan;
    const pl_plan_totals t = pl_plan_totals_of(plan);
    uint64_t parts[PL_PLAN_PART_COUNT] = {0};

    printf("%-28s %-8s %16s %10s  %s\n", "region", "part", "bytes", "", "closed form");
    for (int i = 0; i < pl_plan_n_regions(plan); i++) {
        const pl_plan_region r = pl_plan_region_at(plan, i);
        print_row(r.name, pl_plan_part_name(r.part), r.bytes, r.formula);
        parts[r.part] += r.bytes;
    }
    printf("\n");
    for (int p = 0; p < PL_PLAN_PART_COUNT; p++)
        print_row("sum", pl_plan_part_name((pl_plan_part)p), parts[p], "");
    print_row("total", "", t.total_bytes, "");
    print_charged(&t);
    if (t.budget_bytes)
        print_row("line", "", t.budget_bytes, "");
    printf("\n%d requests at once, %d tokens each; %d tokens a step; %d threads\n", t.max_num_seqs,
           t.max_model_len, t.max_num_batched_tokens, t.threads);
    if (!t.prefix_cache_bytes)
        printf("no prefix cache (--prefix-cache-memory BYTES: requests that begin alike run that "
               "once)\n");
    if (t.ranks > 1)
        printf("%d ranks: %" PRIu64 " bytes each for activations and caches; all else they share\n",
               t.ranks, t.rank_bytes);
    printf("one request: %" PRIu64 " bytes and %" PRIu64 " for each 128 tokens (%.1f a token)\n",
           t.request_fixed_bytes, t.request_bytes_per_128_tokens,
           (double)t.request_bytes_per_128_tokens / 128);
    printf("capacity: %" PRId64 " requests of %d tokens, or one of %" PRId64 "\n",
           t.requests_at_max_model_len, t.max_model_len, t.tokens_for_one_request);
    printf("%s%s%s\n", t.fits ? "fits" : "does not fit", t.fits ? "" : "; ", pl_plan_advice(plan));
    if (report->n_what_if)
        print_what_if(report);
    if (report->n_reserve)
        print_reserve(report);
}
