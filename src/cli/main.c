/* plimsoll: picks the sub-command. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/error.h"
#include "cli/commands.h"
#include "plimsoll/version.h"

static const pl_command *const commands[] = {
    /* One a line, in the order of --help. */
    /* clang-format off */
    &pl_command_inspect,
    &pl_command_synth,
    &pl_command_plan,
    &pl_command_run,
    &pl_command_serve,
    &pl_command_trace,
    &pl_command_bench,
    &pl_command_verify,
    &pl_command_cpu,
    &pl_command_tokenize,
    &pl_command_detokenize,
    &pl_command_encode_chat,
    &pl_command_parse_output,
    &pl_command_provider,
    &pl_command_version,
    /* clang-format on */
};

static void print_usage(FILE *to)
{
    fprintf(to,
            "usage: plimsoll COMMAND [arguments]\n\n"
            "A DeepSeek-V4 inference server and attention library that plans every byte before it\n"
            "loads and gives the same bits whatever shares the batch.\n\ncommands:\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(to, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to, "\n'plimsoll COMMAND --help' explains a command.\n");
}

static int dispatch(int argc, char **argv)
{
    pl_error err;

    if (argc < 2) {
        fprintf(stderr, "plimsoll: no command given; see 'plimsoll --help'\n");
        return PL_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return PL_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("plimsoll %s\n", PL_VERSION);
        return PL_EXIT_OK;
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i]->name) == 0)
            return commands[i]->run(argc - 1, argv + 1);
    /* Through pl_error_set, which makes what someone typed one printable line. */
    (void)pl_error_set(&err, PL_ERR_INVALID, "unknown command (got '%s')", argv[1]);
    fprintf(stderr, "plimsoll: %s; see 'plimsoll --help'\n", err.msg);
    return PL_EXIT_USAGE;
}

/* hwloc would load its plugins, and with them what they are linked to (OpenCL, X11, drivers): megabytes that no
 * plan knows of, for devices that we do not ask about. In a sandbox without /sys it would also write a
 * line of its own on standard error, which is ours. Who wants either sets the variable. */
static void tame_hwloc(void)
{
    (void)setenv("HWLOC_PLUGINS_PATH", "/dev/null", 0);
    (void)setenv("HWLOC_HIDE_ERRORS", "2", 0);
}

/* A checkpoint has a file open for each shard, up to 4096, and the usual soft limit is 1024. */
static void raise_file_limit(void)
{
    const rlim_t wanted = 8192;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* A full disk or a closed pipe must not look like success. */
int main(int argc, char **argv)
{
    int status;

    tame_hwloc();
    raise_file_limit();
    status = dispatch(argc, argv);

    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "plimsoll: standard output: write failed (got %s)\n", strerror(errno));
        return PL_EXIT_SYSTEM;
    }
    return status;
}
