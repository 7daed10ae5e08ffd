/* Picks a command of several by the second word. The kinds are the caller's; nothing is known of them but their names. */
#include "cli/kinds.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* "bench ops" is "ops" here. */
static const char *kind_name(const pl_command *c)
{
    return strchr(c->name, ' ') + 1;
}

static void print_usage(const pl_command *command, const pl_command *const *kinds, int n_kinds)
{
    printf("usage: plimsoll %s KIND [arguments]\n\n%s\n\nkinds:\n", command->name,
           command->summary);
    for (int i = 0; i < n_kinds; i++)
        printf("  %-12s %s\n", kind_name(kinds[i]), kinds[i]->summary);
    printf("\n'plimsoll %s KIND --help' explains one.\n\noptions:\n  %-28s %s\n", command->name,
           "--help", "this text");
}

int pl_run_kind(const pl_command *command, const char *missing, const pl_command *const *kinds,
                int n_kinds, int argc, char **argv)
{
    pl_error err;

    if (argc < 2) {
        fprintf(stderr, "plimsoll: %s: nothing named to %s; see 'plimsoll %s --help'\n",
                command->name, missing, command->name);
        return PL_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage(command, kinds, n_kinds);
        return PL_EXIT_OK;
    }
    for (int i = 0; i < n_kinds; i++)
        if (strcmp(argv[1], kind_name(kinds[i])) == 0)
            return kinds[i]->run(argc - 1, argv + 1);
    (void)pl_error_set(&err, PL_ERR_INVALID, "%s: unknown %s (got '%s')", command->name,
                       argv[1][0] == '-' ? "option" : "kind", argv[1]);
    fprintf(stderr, "plimsoll: %s; see 'plimsoll %s --help'\n", err.msg, command->name);
    return PL_EXIT_USAGE;
}
