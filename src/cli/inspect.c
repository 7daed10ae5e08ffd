/* plimsoll inspect: what a checkpoint folder holds, from its headers. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/inspect_report.h"

struct options {
    bool json, digest, tensors;
};

static const pl_option table[] = {
    {.name = "--json",
     .kind = PL_OPTION_FLAG,
     .help = "print one JSON document",
     .offset = offsetof(struct options, json)},
    {.name = "--digest",
     .kind = PL_OPTION_FLAG,
     .help = "read all data for the checkpoint digest, however much there is",
     .offset = offsetof(struct options, digest)},
    {.name = "--tensors",
     .kind = PL_OPTION_FLAG,
     .help = "also list every tensor: name, type, shape, bytes, file, role",
     .offset = offsetof(struct options, tensors)},
    {0},
};

/* A line on the terminal that overwrites itself; files and pipes get none. */
static void show_progress(void *user, uint64_t done, uint64_t total)
{
    int *shown = user, percent = total ? (int)(100.0 * (double)done / (double)total) : 100;

    if (percent == *shown)
        return;
    *shown = percent;
    fprintf(stderr, "\rreading %d %%%s", percent, done == total ? "\r\033[K" : "");
}

static pl_status inspect(const char *path, const struct options *o, pl_error *err)
{
    pl_inspect_report report;
    pl_checkpoint *c;
    int shown = -1;
    pl_status s = pl_checkpoint_open(path, &c, err);

    if (s != PL_OK)
        return s;
    if (isatty(STDERR_FILENO))
        pl_checkpoint_on_progress(c, show_progress, &shown);
    s = pl_inspect_report_init(&report, c, o->digest, err);
    if (s != PL_OK && shown >= 0)
        fputs("\r\033[K", stderr); /* the error gets a line of its own */
    report.list_tensors = o->tensors;
    if (s == PL_OK && o->json)
        s = pl_inspect_report_write_json(&report, stdout, err);
    else if (s == PL_OK)
        pl_inspect_report_print(&report, stdout);
    pl_checkpoint_close(c);
    return s;
}

static int run(int argc, char **argv)
{
    struct options o = {0};
    const char *args[1];
    pl_error err = {0};
    int status;

    if (!pl_options_parse(&pl_command_inspect, argc, argv, &o, args, &status))
        return status;
    return inspect(args[0], &o, &err) == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
}

const pl_command pl_command_inspect = {
    .name = "inspect",
    .usage = "MODEL [options]",
    .summary = "what a checkpoint folder holds: layers, tensors, bytes, drafter, digests, problems",
    .details =
        "Config, headers and index are checked as they are for serving: what inspect accepts "
        "loads,\n"
        "but for values inside the data. A checkpoint that is refused gives one line on standard\n"
        "error and exit status 2; what is odd and no reason to refuse is listed under problems.\n\n"
        "The header digest stands for names, types and shapes. The checkpoint digest also covers\n"
        "all data; it is made unasked up to 1 GiB of it, and else only with --digest. Both are "
        "the\n"
        "same however the tensors are cut into files.",
    .options = table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
