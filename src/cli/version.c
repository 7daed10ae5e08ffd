/* plimsoll version */
#include <stdio.h>

#include "cli/commands.h"
#include "plimsoll/version.h"

static int run(int argc, char **argv)
{
    int status;

    if (!pl_options_parse(&pl_command_version, argc, argv, NULL, NULL, &status))
        return status;
    printf("plimsoll %s\n", PL_VERSION);
    return PL_EXIT_OK;
}

const pl_command pl_command_version = {
    .name = "version",
    .usage = "",
    .summary = "print the version",
    .run = run,
};
