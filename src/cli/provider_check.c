/* plimsoll provider check: does a library do what it claims? The library runs in a process of its own, so that one that
 * crashes is an answer too; what that process prints is kept until it has ended. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/json_out.h"
#include "cli/provider.h"

struct options {
    bool json;
    const char *pin, *write_pin;
};

static const pl_option table[] = {
    {.name = "--json",
     .kind = PL_OPTION_FLAG,
     .help = "print one JSON document",
     .offset = offsetof(struct options, json)},
    {.name = "--write-pin",
     .kind = PL_OPTION_STRING,
     .value = "FILE",
     .help = "store name, version and ABI fingerprint, if the library conforms",
     .offset = offsetof(struct options, write_pin)},
    {.name = "--pin",
     .kind = PL_OPTION_STRING,
     .value = "FILE",
     .help = "compare with what --write-pin stored; drift is a finding",
     .offset = offsetof(struct options, pin)},
    {0},
};

static pl_status read_pin(const char *path, pl_provider_pin *pin, pl_error *err)
{
    const char *name, *version, *fingerprint;
    json_error_t why;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    pl_status status = PL_OK;

    if (!root || json_unpack_ex(root, &why, JSON_STRICT, "{s:s,s:s,s:s}", "name", &name, "version",
                                &version, "fingerprint", &fingerprint) != 0)
        status = pl_error_set(err, PL_ERR_INVALID, "%s: no pin (%s)", path, why.text);
    else if (strlen(name) >= sizeof pin->name || strlen(version) >= sizeof pin->version ||
             strlen(fingerprint) != 16)
        status =
            pl_error_set(err, PL_ERR_INVALID, "%s: no pin (want what --write-pin stored)", path);
    if (status == PL_OK) {
        (void)snprintf(pin->name, sizeof pin->name, "%s", name);
        (void)snprintf(pin->version, sizeof pin->version, "%s", version);
        (void)snprintf(pin->fingerprint, sizeof pin->fingerprint, "%s", fingerprint);
    }
    json_decref(root);
    return status;
}

static pl_status write_pin(const char *path, const pl_provider_record *r, pl_error *err)
{
    FILE *to = fopen(path, "w");
    pl_out j;
    bool failed;

    if (!to)
        return pl_error_set(err, PL_ERR_IO, "%s: cannot be written (got %s)", path,
                            strerror(errno));
    pl_out_begin(&j, to);
    pl_out_open(&j, NULL, '{');
    pl_out_string(&j, "name", r->name);
    pl_out_string(&j, "version", r->version);
    pl_out_string(&j, "fingerprint", r->fingerprint);
    pl_out_close(&j, '{');
    pl_out_end(&j);
    failed = ferror(to) != 0;
    if (fclose(to) != 0 || failed)
        return pl_error_set(err, PL_ERR_IO, "%s: write failed", path);
    return PL_OK;
}

static void print_number(pl_out *j, const char *key, double x)
{
    if (isnan(x))
        pl_out_null(j, key);
    else
        pl_out_float(j, key, (float)x);
}

/* Over all claims; NaN where none has a reference. */
static double largest(const pl_provider_finding *f, int n, bool lse)
{
    double max = NAN;

    for (int i = 0; i < n; i++) {
        double x = lse ? f[i].max_abs_lse : f[i].max_abs_out;
        if (!isnan(x) && !(max >= x))
            max = x;
    }
    return max;
}

static void print_json(const pl_provider_record *r, bool conforms, const pl_provider_finding *f,
                       int n)
{
    pl_out j;

    pl_out_begin(&j, stdout);
    pl_out_open(&j, NULL, '{');
    pl_out_string(&j, "name", r->name);
    pl_out_string(&j, "version", r->version);
    pl_out_string(&j, "fingerprint", r->fingerprint);
    pl_out_bool(&j, "conforms", conforms);
    print_number(&j, "max_abs_out", largest(f, n, false));
    print_number(&j, "max_abs_lse", largest(f, n, true));
    pl_out_open(&j, "findings", '[');
    for (int i = 0; i < n; i++) {
        pl_out_open(&j, NULL, '{');
        pl_out_string(&j, "claim", f[i].claim);
        if (f[i].holds < 0)
            pl_out_null(&j, "holds");
        else
            pl_out_bool(&j, "holds", f[i].holds);
        pl_out_int(&j, "cases", f[i].cases);
        print_number(&j, "max_abs_out", f[i].max_abs_out);
        print_number(&j, "max_abs_lse", f[i].max_abs_lse);
        pl_out_string(&j, "detail", f[i].detail);
        pl_out_close(&j, '{');
    }
    pl_out_close(&j, '[');
    pl_out_close(&j, '{');
    pl_out_end(&j);
}

static void print_text(const pl_provider_record *r, bool conforms, const pl_provider_finding *f,
                       int n)
{
    printf("%s %s  %s\n\n%-41s %-12s %5s  %-11s %-11s\n", r->name, r->version, r->fingerprint,
           "claim", "", "cases", "out", "lse");
    for (int i = 0; i < n; i++) {
        printf("%-41s %-12s %5d", f[i].claim,
               f[i].holds < 0 ? "not claimed"
               : f[i].holds   ? "holds"
                              : "BROKEN",
               f[i].cases);
        if (!isnan(f[i].max_abs_out))
            printf("  %-11.3g", f[i].max_abs_out);
        if (!isnan(f[i].max_abs_lse))
            printf(" %-11.3g", f[i].max_abs_lse);
        printf("\n");
        if (f[i].detail[0])
            printf("    %s\n", f[i].detail);
    }
    if (!isnan(largest(f, n, false)))
        printf("\nlargest absolute difference: out %.3g, LSE %.3g\n", largest(f, n, false),
               largest(f, n, true));
    printf("\n%s\n", conforms ? "conforms" : "does not conform");
}

static int check(const struct options *o, const char *const *args, const pl_provider_pin *pin)
{
    pl_provider_finding findings[PL_PROVIDER_MAX_FINDINGS];
    const pl_provider_record *r;
    pl_provider_table t;
    pl_error err = {0};
    bool conforms = true;
    int status = PL_EXIT_OK, n = 0;

    /* No pin for the table: a library that drifted is looked at all the same. */
    if (pl_provider_table_open(&t, args, 1, NULL, &err) != PL_OK ||
        pl_provider_check(t.set, 1, pin, findings, &n, &err) != PL_OK) {
        status = pl_report_error(&err);
    } else {
        r = pl_providers_record(t.set, 1);
        for (int i = 0; i < n; i++)
            conforms = conforms && findings[i].holds != 0;
        if (conforms && o->write_pin && write_pin(o->write_pin, r, &err) != PL_OK) {
            status = pl_report_error(&err);
        } else {
            if (o->json)
                print_json(r, conforms, findings, n);
            else
                print_text(r, conforms, findings, n);
            status = conforms ? PL_EXIT_OK : PL_EXIT_NO;
        }
    }
    pl_provider_table_close(&t);
    return status;
}

/* In a child, whose output is this process's. It prints at its end, so that a crash leaves nothing behind. */
static int check_apart(const struct options *o, const char *const *args, const pl_provider_pin *pin)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        status = check(o, args, pin);
        _exit(fflush(stdout) == 0 ? status : PL_EXIT_SYSTEM);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            child = -1;
    if (child < 0) {
        fprintf(stderr, "plimsoll: provider check: no process (got %s)\n", strerror(errno));
        return PL_EXIT_SYSTEM;
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE)
        (void)raise(SIGPIPE); /* whoever reads has gone, which is no fault of the library */
    if (WIFSIGNALED(status)) {
        pl_error err;
        (void)pl_error_set(&err, PL_ERR_INTERNAL,
                           "%s: crashed (got signal %d, want a conforming provider)", args[0],
                           WTERMSIG(status));
        fprintf(stderr, "plimsoll: %s\n", err.msg);
        return PL_EXIT_NO;
    }
    return WEXITSTATUS(status);
}

static int run(int argc, char **argv)
{
    struct options o = {0};
    pl_provider_pin pin = {0};
    const char *args[1];
    pl_error err = {0};
    int status;

    if (!pl_options_parse(&pl_command_provider_check, argc, argv, &o, args, &status))
        return status;
    if (o.pin && read_pin(o.pin, &pin, &err) != PL_OK)
        return pl_report_error(&err);
    return check_apart(&o, args, o.pin ? &pin : NULL);
}

const pl_command pl_command_provider_check = {
    .name = "provider check",
    .usage = "LIB.so [options]",
    .summary = "does a library do what it claims? Every claim against a reference in double",
    .details =
        "Prints for each claim whether it holds, and the largest absolute differences of out and "
        "LSE\nfrom the reference. Exit status 1 where a claim is broken, the library cannot be "
        "used "
        "or its ABI\nhas drifted from --pin.\n\nexamples:\n"
        "  plimsoll provider check libother.so --write-pin other.pin\n"
        "  plimsoll provider check libother.so --pin other.pin --json\n\n"
        "docs/PROVIDERS.md says what a library has to export.",
    .options = table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
