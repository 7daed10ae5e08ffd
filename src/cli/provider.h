/* The kinds of plimsoll provider, and what they share: a table with the libraries of the command line. */
#ifndef PL_CLI_PROVIDER_H
#define PL_CLI_PROVIDER_H

#include "cli/commands.h"
#include "cli/json_out.h"
#include "plimsoll/provider.h"

extern const pl_command pl_command_provider_list;
extern const pl_command pl_command_provider_check;
extern const pl_command pl_command_provider_stats;
extern const pl_command pl_command_provider_explain;

typedef struct pl_provider_table {
    pl_ops_context *context;
    pl_providers *set;
} pl_provider_table;

/* The built-in provider and the libraries args[0 .. n - 1], up to the first NULL, with one worker each. NOT_FOUND for a file that
 * is not there; what else is wrong with a library is in its record. Closed by the other, also after a failure. */
pl_status pl_provider_table_open(pl_provider_table *t, const char *const *args, int n,
                                 const pl_provider_pin *pin, pl_error *err) PL_MUST_CHECK;
void pl_provider_table_close(pl_provider_table *t);

/* Who takes a call and each candidate's reason: keys of an open object, or lines. */
void pl_provider_choice_json(pl_out *j, const pl_providers *set, const pl_provider_choice *c);
void pl_provider_choice_text(const pl_providers *set, const pl_provider_choice *c);

#endif
