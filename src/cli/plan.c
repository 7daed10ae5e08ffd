/* plimsoll plan: every byte, before any is taken. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/json_out.h"

struct options {
    pl_engine_options engine;
    bool json;
};

static const pl_option table[] = {
    {.name = "--json",
     .kind = PL_OPTION_FLAG,
     .help = "print one JSON document",
     .offset = offsetof(struct options, json)},
    PL_ENGINE_OPTION_ROWS(struct options, engine, "what fits the lines, at most the model's", "16"),
    {0},
};

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

static void print_json(const pl_plan *plan)
{
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
    pl_out_close(&j, '{');
    pl_out_open(&j, "reserve", '[');
    pl_out_close(&j, '[');
    pl_out_close(&j, '{');
    pl_out_end(&j);
}

/* 12.3 GiB beside the exact number. */
static const char *short_bytes(uint64_t bytes, char *text, size_t size)
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
           short_bytes(bytes, text, sizeof text), formula);
}

static void print_text(const pl_plan *plan)
{
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
    print_row("charged to a control group", "", t.charged_bytes,
              "with page tables and kernel stacks");
    if (t.budget_bytes)
        print_row("line", "", t.budget_bytes, "");
    printf("\n%d requests at once, %d tokens each; %d tokens a step; %d threads\n", t.max_num_seqs,
           t.max_model_len, t.max_num_batched_tokens, t.threads);
    printf("one request: %" PRIu64 " bytes and %" PRIu64 " for each 128 tokens (%.1f a token)\n",
           t.request_fixed_bytes, t.request_bytes_per_128_tokens,
           (double)t.request_bytes_per_128_tokens / 128);
    printf("capacity: %" PRId64 " requests of %d tokens, or one of %" PRId64 "\n",
           t.requests_at_max_model_len, t.max_model_len, t.tokens_for_one_request);
    printf("%s%s%s\n", t.fits ? "fits" : "does not fit", t.fits ? "" : "; ", pl_plan_advice(plan));
}

static int run(int argc, char **argv)
{
    struct options o = {.engine = pl_engine_options_none()};
    const char *args[1];
    pl_engine_params params;
    pl_error err = {0};
    pl_plan *plan;
    int status;

    if (!pl_options_parse(&pl_command_plan, argc, argv, &o, args, &status))
        return status;
    params = pl_engine_options_params(&o.engine);
    if (pl_plan_create(args[0], &params, &plan, &err) != PL_OK)
        return pl_report_error(&err);
    if (o.json)
        print_json(plan);
    else
        print_text(plan);
    if (pl_plan_note(plan)[0])
        fprintf(stderr, "plimsoll: plan: %s\n", pl_plan_note(plan));
    status = pl_plan_check_fits(plan, &err) == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
    pl_plan_destroy(plan);
    return status;
}

const pl_command pl_command_plan = {
    .name = "plan",
    .usage = "MODEL|config.json [options]",
    .summary = "the memory plan: every region with its closed form, before a byte is taken",
    .details =
        "Works from the headers of a checkpoint folder, with or without data, or from config.json\n"
        "alone, and does not ask what memory this machine has: any budget can be planned for. "
        "'run'\n"
        "with the same options takes what is printed here. Parts: exact (to the byte), capped (a\n"
        "bound), measured (a reference run). Exit status 1 where it does not fit.\n\n"
        "examples:\n"
        "  plimsoll plan DeepSeek-V4-Flash --memory 256GiB\n"
        "  plimsoll plan config.json --max-model-len 131072 --max-num-seqs 4 --json",
    .options = table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
