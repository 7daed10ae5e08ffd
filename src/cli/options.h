/* Command-line options from one table: parsing, defaults, ranges and --help cannot drift apart. */
#ifndef PL_CLI_OPTIONS_H
#define PL_CLI_OPTIONS_H

#include <stdbool.h>

#include "plimsoll/status.h"

typedef enum pl_option_kind {
    PL_OPTION_FLAG,        /* bool; takes no value */
    PL_OPTION_STRING,      /* const char *, borrowed from argv */
    PL_OPTION_INT,         /* int64_t within min..max */
    PL_OPTION_INT_OR_AUTO, /* the same, or the word auto: PL_OPTION_AUTO */
    PL_OPTION_FLOAT,       /* double, finite, within min..max */
    PL_OPTION_BYTES,  /* uint64_t: 1073741824, 512MiB, 64GiB, 1TB; within min..max where max > 0 */
    PL_OPTION_CHOICE, /* const char *, one of `choices` */
    PL_OPTION_CALL,   /* `call` is given every occurrence, in order: for options that repeat */
    PL_OPTION_CALL_MAYBE, /* the same, with NULL for the value where none stands behind a '=' */
} pl_option_kind;

enum { PL_OPTION_AUTO = -1 };

typedef struct pl_option {
    const char *name; /* "--max-tokens" */
    pl_option_kind kind;
    const char *value; /* name of the value in --help: "N"; NULL for a flag */
    const char *help;  /* one sentence; says the default where there is one */
    size_t offset;     /* of the field in the command's options struct */
    int64_t min, max;
    const char *const *choices; /* NULL-terminated */
    pl_status (*call)(void *options, const char *name, const char *value, pl_error *err);
} pl_option;

typedef struct pl_command pl_command;
struct pl_command {
    const char *name;                  /* "inspect" */
    const char *usage;                 /* "MODEL [options]" */
    const char *summary;               /* one line for `plimsoll --help` */
    const char *details;               /* paragraphs for `plimsoll NAME --help`; may be NULL */
    const pl_option *options;          /* ends with a NULL name; may be NULL */
    int min_args, max_args;            /* positional arguments */
    int (*run)(int argc, char **argv); /* argv[0] is the command; returns the exit status */
};

/* Exit statuses that are promised to scripts. */
enum { PL_EXIT_OK = 0, PL_EXIT_NO = 1, PL_EXIT_USAGE = 2, PL_EXIT_SYSTEM = 3 };

/* Parses argv[1..] into `options`, which holds the defaults, and the positional arguments into
 * `args` (max_args entries, unused ones NULL). Options may stand anywhere; "--name=value" works; "--"
 * ends them. Prints help and returns false with *exit_status = 0 for --help; reports misuse on standard
 * error and returns false with *exit_status = 2. */
bool pl_options_parse(const pl_command *command, int argc, char **argv, void *options,
                      const char **args, int *exit_status);

/* Parses a size such as "64GiB"; binary (KiB..PiB) and decimal (KB..PB) units, any case, or none. */
pl_status pl_parse_bytes(const char *text, uint64_t *bytes, pl_error *err);

/* Prints "plimsoll: TEXT" to standard error and returns the promised exit status of err->status. */
int pl_report_error(const pl_error *err);

#endif
