/* plimsoll plan: every byte, before any is taken.
 *
 * Options, exit status, order of output: the picture first, since a file that cannot be written leaves standard output
 * empty. What is printed lies in plan_text.c, plan_json.c and plan_svg.c; --what-if in plan_what_if.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/plan_report.h"

struct options {
    pl_engine_options engine;
    pl_what_if_ask what_if;
    bool json;
    const char *svg, *reserve, *provider;
    double memory_utilization; /* below 0: not given */
    uint64_t machine_memory;
};

static pl_status take_what_if(void *options, const char *name, const char *value, pl_error *err)
{
    return pl_what_if_parse(&((struct options *)options)->what_if, name, value, err);
}

static const char *const reserve_kinds[] = {"padded", "vllm", NULL};

static const pl_option table[] = {
    {.name = "--json",
     .kind = PL_OPTION_FLAG,
     .help = "print one JSON document",
     .offset = offsetof(struct options, json)},
    {.name = "--svg",
     .kind = PL_OPTION_STRING,
     .value = "FILE",
     .help = "also draw the budget, with the line in it",
     .offset = offsetof(struct options, svg)},
    {.name = "--what-if",
     .kind = PL_OPTION_CALL_MAYBE,
     .value = "[=NAME[=N,N..]]",
     .help = "also the plans for other values of max-num-seqs, max-model-len, "
             "max-num-batched-tokens",
     .call = take_what_if},
    {.name = "--reserve",
     .kind = PL_OPTION_CHOICE,
     .value = "padded|vllm",
     .help = "also what other engines take, in closed form: transients, or vLLM's cache",
     .offset = offsetof(struct options, reserve),
     .choices = reserve_kinds},
    {.name = "--provider",
     .kind = PL_OPTION_STRING,
     .value = "LIB.so",
     .help = "also what this provider of attention takes itself in a step (docs/PROVIDERS.md)",
     .offset = offsetof(struct options, provider)},
    {.name = "--memory-utilization",
     .kind = PL_OPTION_FLOAT,
     .value = "F",
     .help = "the line as a share of --machine-memory",
     .offset = offsetof(struct options, memory_utilization),
     .max = 1},
    {.name = "--machine-memory",
     .kind = PL_OPTION_BYTES,
     .value = "BYTES",
     .help = "memory of the machine that is planned for; this one is not asked",
     .offset = offsetof(struct options, machine_memory),
     .min = 1},
    PL_ENGINE_OPTION_ROWS(struct options, engine, "what fits the lines, at most the model's", "16",
                          "0"),
    {0},
};

/* --memory, or a share of a machine that was named. */
static pl_status choose_line(const struct options *o, pl_engine_params *p, pl_error *err)
{
    if (o->memory_utilization < 0 && o->machine_memory == 0)
        return PL_OK;
    PL_CHECK(o->machine_memory, err,
             "--memory-utilization: 'plan' asks no machine how much memory it has (want "
             "--machine-memory BYTES beside it, or --memory BYTES alone)");
    PL_CHECK(o->memory_utilization >= 0, err,
             "--machine-memory: is no line in itself (want --memory-utilization F beside it, or "
             "--memory BYTES alone)");
    PL_CHECK(p->memory_bytes == 0, err,
             "--memory-utilization: a second line beside --memory (want one of both)");
    p->memory_bytes = (uint64_t)(o->memory_utilization * (double)o->machine_memory);
    PL_CHECK(p->memory_bytes > 0, err, "--memory-utilization: leaves no memory (got %g)",
             o->memory_utilization);
    return PL_OK;
}

static pl_status add_reserve(const struct options *o, pl_plan_report *report, pl_error *err)
{
    const pl_reserve_params p = pl_plan_reserve_params(report->plan);

    if (!o->reserve)
        return PL_OK;
    return pl_reserve_rows(strcmp(o->reserve, "vllm") == 0 ? PL_RESERVE_VLLM : PL_RESERVE_PADDED,
                           &p, report->reserve, &report->n_reserve, err);
}

static pl_status make_report(const struct options *o, const pl_engine_params *params,
                             pl_plan_report *report, pl_error *err)
{
    PL_TRY(pl_what_if_run(&o->what_if, params, report, err));
    PL_TRY(add_reserve(o, report, err));
    if (o->provider)
        PL_TRY(pl_plan_add_provider(o->provider, report, err));
    return o->svg ? pl_plan_write_svg(report->plan, o->svg, err) : PL_OK;
}

static int print(const struct options *o, const pl_plan_report *report)
{
    pl_error err = {0};

    if (o->json)
        pl_plan_print_json(report);
    else
        pl_plan_print_text(report);
    if (pl_plan_note(report->plan)[0])
        fprintf(stderr, "plimsoll: plan: %s\n", pl_plan_note(report->plan));
    return pl_plan_check_fits(report->plan, &err) == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
}

static int run(int argc, char **argv)
{
    struct options o = {.engine = pl_engine_options_none(), .memory_utilization = -1};
    const char *args[1];
    pl_plan_report report = {0};
    pl_engine_params params;
    pl_error err = {0};
    pl_plan *plan;
    int status;

    if (!pl_options_parse(&pl_command_plan, argc, argv, &o, args, &status))
        return status;
    params = pl_engine_options_params(&o.engine);
    if (choose_line(&o, &params, &err) != PL_OK ||
        pl_plan_create(args[0], &params, &plan, &err) != PL_OK)
        return pl_report_error(&err);
    report.plan = plan;
    status = make_report(&o, &params, &report, &err) == PL_OK ? print(&o, &report)
                                                              : pl_report_error(&err);
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
        "  plimsoll plan config.json --max-model-len 131072 --max-num-seqs 4 --json\n"
        "  plimsoll plan config.json --memory 256GiB --what-if=max-num-seqs=1,4,16 --svg "
        "plan.svg\n\n"
        "docs/MEMORY.md says how the plan is made, how it is kept, and what its JSON holds.",
    .options = table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
