/* The option parser: a table walk, nothing clever. Values are converted here so that every command
 * reports a bad one in the same words. */
#include "cli/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

int pl_report_error(const pl_error *err)
{
    fprintf(stderr, "plimsoll: %s\n", err->msg);
    switch (err->status) {
    case PL_OK:
        return PL_EXIT_OK;
    case PL_ERR_INVALID:
    case PL_ERR_UNSUPPORTED:
    case PL_ERR_CORRUPT:
    case PL_ERR_NOT_FOUND:
    case PL_ERR_OVERFLOW:
        return PL_EXIT_USAGE;
    case PL_ERR_LIMIT:
        return PL_EXIT_NO;
    default:
        return PL_EXIT_SYSTEM;
    }
}

pl_status pl_parse_bytes(const char *text, uint64_t *bytes, pl_error *err)
{
    static const struct {
        const char *unit;
        uint64_t factor;
    } units[] = {
        {"", 1},
        {"B", 1},
        {"KiB", 1ull << 10},
        {"MiB", 1ull << 20},
        {"GiB", 1ull << 30},
        {"TiB", 1ull << 40},
        {"PiB", 1ull << 50},
        {"KB", 1000ull},
        {"MB", 1000000ull},
        {"GB", 1000000000ull},
        {"TB", 1000000000000ull},
        {"PB", 1000000000000000ull},
    };
    char *end;
    unsigned long long number;

    errno = 0;
    number = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9')
        return pl_error_set(err, PL_ERR_INVALID,
                            "size is not a number (got '%s', want bytes or e.g. 64GiB)", text);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcasecmp(end, units[i].unit) != 0)
            continue;
        if (errno == ERANGE || number > UINT64_MAX / units[i].factor)
            return pl_error_set(err, PL_ERR_OVERFLOW,
                                "size is too large (got '%s', want less than 16 EiB)", text);
        *bytes = number * units[i].factor;
        return PL_OK;
    }
    return pl_error_set(err, PL_ERR_INVALID,
                        "unknown unit (got '%s', want a whole number and KiB, MiB, GiB or TiB)",
                        text);
}

/* strtoll and strtod would skip white space; strtod also knows hexadecimal, "inf" and "nan". */
static bool looks_decimal(const char *text)
{
    return *text && text[strspn(text, "0123456789+-.eE")] == 0 && *text != '+';
}

static pl_status set_int(const pl_option *o, const char *value, void *field, pl_error *err)
{
    const bool may_be_auto = o->kind == PL_OPTION_INT_OR_AUTO;
    char *end;
    long long v;

    if (may_be_auto && strcmp(value, "auto") == 0) {
        *(int64_t *)field = PL_OPTION_AUTO;
        return PL_OK;
    }
    errno = 0;
    v = strtoll(value, &end, 10);
    if (!looks_decimal(value) || end == value || *end || errno == ERANGE || v < o->min ||
        v > o->max)
        return pl_error_set(err, PL_ERR_INVALID,
                            "%s: not a whole number in range (got '%s', want %" PRId64 "..%" PRId64
                            "%s)",
                            o->name, value, o->min, o->max, may_be_auto ? " or auto" : "");
    *(int64_t *)field = v;
    return PL_OK;
}

static pl_status set_float(const pl_option *o, const char *value, void *field, pl_error *err)
{
    char *end;
    double v = strtod(value, &end);

    if (!looks_decimal(value) || end == value || *end || !isfinite(v) || v < (double)o->min ||
        v > (double)o->max)
        return pl_error_set(err, PL_ERR_INVALID,
                            "%s: not a number in range (got '%s', want %" PRId64 "..%" PRId64 ")",
                            o->name, value, o->min, o->max);
    *(double *)field = v;
    return PL_OK;
}

static pl_status set_bytes(const pl_option *o, const char *value, void *field, pl_error *err)
{
    uint64_t v;
    pl_status s = pl_parse_bytes(value, &v, err);

    if (s != PL_OK) {
        pl_error_prefix(err, "%s", o->name);
        return s;
    }
    if (v < (uint64_t)o->min || (o->max > 0 && v > (uint64_t)o->max))
        return pl_error_set(err, PL_ERR_INVALID,
                            "%s: out of range (got %" PRIu64 ", want %" PRId64 "..%" PRId64
                            " bytes)",
                            o->name, v, o->min, o->max);
    *(uint64_t *)field = v;
    return PL_OK;
}

static pl_status set_choice(const pl_option *o, const char *value, void *field, pl_error *err)
{
    char list[256] = "";

    for (const char *const *c = o->choices; *c; c++) {
        if (strcmp(value, *c) == 0) {
            *(const char **)field = *c;
            return PL_OK;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", list[0] ? ", " : "", *c);
    }
    return pl_error_set(err, PL_ERR_INVALID, "%s: unknown value (got '%s', want %s)", o->name,
                        value, list);
}

static pl_status set_option(const pl_option *o, const char *value, void *options, pl_error *err)
{
    void *field = (char *)options + o->offset;

    switch (o->kind) {
    case PL_OPTION_FLAG:
        *(bool *)field = true;
        return PL_OK;
    case PL_OPTION_STRING:
        *(const char **)field = value;
        return PL_OK;
    case PL_OPTION_INT:
    case PL_OPTION_INT_OR_AUTO:
        return set_int(o, value, field, err);
    case PL_OPTION_FLOAT:
        return set_float(o, value, field, err);
    case PL_OPTION_BYTES:
        return set_bytes(o, value, field, err);
    case PL_OPTION_CHOICE:
        return set_choice(o, value, field, err);
    case PL_OPTION_CALL:
    case PL_OPTION_CALL_MAYBE:
        return o->call(options, o->name, value, err);
    }
    return pl_error_set(err, PL_ERR_INTERNAL, "%s: option of unknown kind", o->name);
}

static const pl_option *find_option(const pl_command *command, const char *word, size_t length)
{
    for (const pl_option *o = command->options; o && o->name; o++)
        if (strlen(o->name) == length && memcmp(o->name, word, length) == 0)
            return o;
    return NULL;
}

static void print_help(const pl_command *command)
{
    printf("usage: plimsoll %s%s%s\n\n%s\n", command->name, command->usage[0] ? " " : "",
           command->usage, command->summary);
    if (command->details)
        printf("\n%s\n", command->details);
    printf("\noptions:\n");
    for (const pl_option *o = command->options; o && o->name; o++) {
        char head[64];
        snprintf(head, sizeof head, "%s%s%s", o->name, o->kind == PL_OPTION_CALL_MAYBE ? "" : " ",
                 o->value ? o->value : "");
        printf("  %-28s %s\n", head, o->help);
    }
    printf("  %-28s %s\n", "--help", "this text");
}

static bool misuse(const pl_command *command, const pl_error *err, int *exit_status)
{
    /* One line and no more: scripts read it. The hint fits behind the message. */
    fprintf(stderr, "plimsoll: %s: %s; see 'plimsoll %s --help'\n", command->name, err->msg,
            command->name);
    *exit_status = PL_EXIT_USAGE;
    return false;
}

/* Handles argv[*i], which starts with '-'; advances *i over a separate value. */
static pl_status take_option(const pl_command *command, int argc, char **argv, int *i,
                             void *options, pl_error *err)
{
    const char *word = argv[*i], *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    const pl_option *o = find_option(command, word, length);

    if (!o)
        return pl_error_set(err, PL_ERR_INVALID, "unknown option (got '%.*s')", (int)length, word);
    if (o->kind == PL_OPTION_FLAG) {
        if (equals)
            return pl_error_set(err, PL_ERR_INVALID, "%s: takes no value (got '%s')", o->name,
                                equals + 1);
        return set_option(o, NULL, options, err);
    }
    if (equals || o->kind == PL_OPTION_CALL_MAYBE)
        return set_option(o, equals ? equals + 1 : NULL, options, err);
    if (*i + 1 >= argc)
        return pl_error_set(err, PL_ERR_INVALID, "%s: value is missing (want %s)", o->name,
                            o->value);
    return set_option(o, argv[++*i], options, err);
}

bool pl_options_parse(const pl_command *command, int argc, char **argv, void *options,
                      const char **args, int *exit_status)
{
    pl_error err = {0};
    int n_args = 0;
    bool only_args = false;

    for (int i = 0; i < command->max_args; i++)
        args[i] = NULL;
    for (int i = 1; i < argc; i++) {
        if (!only_args && strcmp(argv[i], "--") == 0) {
            only_args = true;
        } else if (!only_args && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            print_help(command);
            *exit_status = PL_EXIT_OK;
            return false;
        } else if (!only_args && argv[i][0] == '-' && argv[i][1]) {
            if (take_option(command, argc, argv, &i, options, &err) != PL_OK)
                return misuse(command, &err, exit_status);
        } else if (n_args == command->max_args) {
            pl_error_set(&err, PL_ERR_INVALID, "too many arguments (got '%s', want at most %d)",
                         argv[i], command->max_args);
            return misuse(command, &err, exit_status);
        } else {
            args[n_args++] = argv[i];
        }
    }
    if (n_args < command->min_args) {
        pl_error_set(&err, PL_ERR_INVALID, "too few arguments (got %d, want %s)", n_args,
                     command->usage);
        return misuse(command, &err, exit_status);
    }
    return true;
}
