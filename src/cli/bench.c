/* plimsoll bench: picks what is measured. Each kind has a file, options and help of its own. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/bench.h"
#include "cli/bench_serve.h"
#include "cli/commands.h"

static const pl_command *const kinds[] = {
    /* One a line. */
    /* clang-format off */
    &pl_command_bench_ops,
    &pl_command_bench_latency,
    &pl_command_bench_load,
    &pl_command_bench_serve,
    /* clang-format on */
};

enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* "bench ops" is "ops" here. */
static const char *kind_name(const pl_command *c)
{
    return strchr(c->name, ' ') + 1;
}

static void print_usage(void)
{
    printf("usage: plimsoll bench KIND [arguments]\n\n%s\n\nkinds:\n", pl_command_bench.summary);
    for (int i = 0; i < N_KINDS; i++)
        printf("  %-12s %s\n", kind_name(kinds[i]), kinds[i]->summary);
    printf("\n'plimsoll bench KIND --help' explains one.\n\noptions:\n  %-28s %s\n", "--help",
           "this text");
}

static int run(int argc, char **argv)
{
    pl_error err;

    if (argc < 2) {
        fprintf(stderr, "plimsoll: bench: nothing named to measure; see 'plimsoll bench --help'\n");
        return PL_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage();
        return PL_EXIT_OK;
    }
    for (int i = 0; i < N_KINDS; i++)
        if (strcmp(argv[1], kind_name(kinds[i])) == 0)
            return kinds[i]->run(argc - 1, argv + 1);
    (void)pl_error_set(&err, PL_ERR_INVALID, "bench: unknown %s (got '%s')",
                       argv[1][0] == '-' ? "option" : "kind", argv[1]);
    fprintf(stderr, "plimsoll: %s; see 'plimsoll bench --help'\n", err.msg);
    return PL_EXIT_USAGE;
}

const pl_command pl_command_bench = {
    .name = "bench",
    .usage = "KIND [options]",
    .summary =
        "speed of operators, steps, loading and a running server, beside the machine's limits",
    .run = run,
};
