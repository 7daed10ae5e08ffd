/* plimsoll bench: picks what is measured. Each kind has a file, options and help of its own. */
#include "cli/bench.h"
#include "cli/bench_serve.h"
#include "cli/commands.h"
#include "cli/kinds.h"

static const pl_command *const kinds[] = {
    /* One a line. */
    /* clang-format off */
    &pl_command_bench_ops,
    &pl_command_bench_latency,
    &pl_command_bench_load,
    &pl_command_bench_serve,
    /* clang-format on */
};

static int run(int argc, char **argv)
{
    return pl_run_kind(&pl_command_bench, "measure", kinds, sizeof kinds / sizeof kinds[0], argc,
                       argv);
}

const pl_command pl_command_bench = {
    .name = "bench",
    .usage = "KIND [options]",
    .summary =
        "speed of operators, steps, loading and a running server, beside the machine's limits",
    .run = run,
};
