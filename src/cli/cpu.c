/* plimsoll cpu: what this processor can do, and what we do with it. */
#include <stdlib.h>

#include "cli/commands.h"
#include "cli/cpu_report.h"

struct options {
    bool json;
    const char *level;
};

static const pl_option table[] = {
    {.name = "--json",
     .kind = PL_OPTION_FLAG,
     .help = "print one JSON document",
     .offset = offsetof(struct options, json)},
    {.name = "--level",
     .kind = PL_OPTION_STRING,
     .value = "L",
     .help = "scalar, avx2, avx512, avx512bf16 or f64; default: the best that passes its self-test",
     .offset = offsetof(struct options, level)},
    {0},
};

static int run(int argc, char **argv)
{
    struct options o = {0};
    pl_cpu_report report;
    pl_error err = {0};
    int status;
    pl_status s;

    if (!pl_options_parse(&pl_command_cpu, argc, argv, &o, NULL, &status))
        return status;
    s = pl_cpu_report_init(&report, o.level, getenv("PL_CPU"), &err);
    if (s == PL_OK && o.json)
        s = pl_cpu_report_write_json(&report, stdout, &err);
    else if (s == PL_OK)
        pl_cpu_report_print(&report, stdout);
    pl_cpu_report_fini(&report);
    return s == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
}

const pl_command pl_command_cpu = {
    .name = "cpu",
    .usage = "[options]",
    .summary = "levels of kernels, which is chosen and why; processors, memory and their limits",
    .details =
        "A level is chosen only where the processor has it, this build has kernels for it and its\n"
        "self-test passes. --level, or else the environment variable PL_CPU, lowers it and never\n"
        "raises it. All levels give the same bits; f64 is the reference of the tests.",
    .options = table,
    .run = run,
};
