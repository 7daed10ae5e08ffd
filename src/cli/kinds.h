/* Commands that are several: "bench ops", "provider list". */
#ifndef PL_CLI_KINDS_H
#define PL_CLI_KINDS_H

#include "cli/options.h"

/* Runs the kind that argv[1] names; each has options and help of its own, and a name that begins with the command's.
 * --help lists them. Without one, or with one that is not there, an error on standard error ("nothing named to MISSING")
 * and exit status 2. */
int pl_run_kind(const pl_command *command, const char *missing, const pl_command *const *kinds,
                int n_kinds, int argc, char **argv);

#endif
