/* plimsoll synth: options, the overrides file, a progress line and a way to stop. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "model/synth.h"

enum { MAX_OVERRIDES_BYTES = 1 << 20 };

struct synth_options {
    const char *preset, *ratios, *overrides;
    int64_t layers, experts, vocab, seed, threads;
    bool no_mtp, dspark, base, headers_only, force;
};

#define FIELD(name) offsetof(struct synth_options, name)

static const pl_option options_table[] = {
    {"--preset", PL_OPTION_CHOICE, "NAME", "nano, micro, mini-pro, flash or pro (default nano)",
     FIELD(preset), .choices = pl_synth_presets},
    {"--layers", PL_OPTION_INT, "N", "the first N layers (default: all)", FIELD(layers), 1,
     PL_MAX_LAYERS},
    {"--ratios", PL_OPTION_STRING, "4,128",
     "compression ratios of the layers, repeated as needed; each 0, 4 or 128", FIELD(ratios)},
    {"--experts", PL_OPTION_INT, "E", "routed experts of a layer", FIELD(experts), 1, INT32_MAX},
    {"--vocab", PL_OPTION_INT, "V", "size of the vocabulary", FIELD(vocab), 2, INT32_MAX},
    {"--seed", PL_OPTION_INT, "S", "seed of all random numbers (default 1)", FIELD(seed), 0,
     INT64_MAX},
    {"--base", PL_OPTION_FLAG, NULL, "the Base layout: FP8 experts, F32 scales", FIELD(base)},
    {"--no-mtp", PL_OPTION_FLAG, NULL, "without the draft block mtp.0", FIELD(no_mtp)},
    {"--dspark", PL_OPTION_FLAG, NULL,
     "with the block drafter of the 0731 and 0813 releases in place of mtp.0", FIELD(dspark)},
    {"--config", PL_OPTION_STRING, "FILE",
     "JSON object whose keys replace those of config.json, after all other options",
     FIELD(overrides)},
    {"--headers-only", PL_OPTION_FLAG, NULL,
     "sparse files: true shapes, no data; enough for 'inspect' and 'plan'", FIELD(headers_only)},
    {"--force", PL_OPTION_FLAG, NULL, "replace the checkpoint that lies in OUT", FIELD(force)},
    {"--threads", PL_OPTION_INT, "N", "threads (default: one per core); bytes do not depend on it",
     FIELD(threads), 1, 1024},
    {NULL},
};

/* ---- progress and interruption */

struct progress {
    const char *out;
    uint64_t n_bytes;
    size_t n_shards;
    bool show;
    double began, shown;
    sigset_t stop_signals; /* blocked: they are looked for, so that the half file can be removed */
};

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool keep_going(void *user, uint64_t bytes_done, size_t shards_done)
{
    struct progress *p = user;
    const double now = seconds(), spent = now - p->began, gib = 1 << 30;
    const double left = (double)(p->n_bytes - bytes_done);

    if (p->show && now - p->shown >= 0.1) {
        p->shown = now;
        fprintf(stderr, "\r%s: shard %zu of %zu, %.2f of %.2f GiB, %.0f MB/s, %.0f s left\033[K",
                p->out, shards_done + 1, p->n_shards, (double)bytes_done / gib,
                (double)p->n_bytes / gib, (double)bytes_done / spent / 1e6,
                left / (double)bytes_done * spent);
        fflush(stderr);
    }
    return sigtimedwait(&p->stop_signals, NULL, &(struct timespec){0}) < 0;
}

static void begin_progress(struct progress *p, const char *out, const pl_synth *synth)
{
    *p = (struct progress){.out = out,
                           .n_bytes = pl_synth_data_bytes(synth),
                           .n_shards = pl_synth_n_shards(synth),
                           .show = isatty(STDERR_FILENO),
                           .began = seconds()};
    sigemptyset(&p->stop_signals);
    sigaddset(&p->stop_signals, SIGINT);
    sigaddset(&p->stop_signals, SIGTERM);
    sigaddset(&p->stop_signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &p->stop_signals, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error to report, not a reason to die */
}

static void end_progress(const struct progress *p)
{
    if (p->show && p->shown > 0)
        fputs("\r\033[K", stderr);
}

/* ---- the command */

static pl_status create_synth(const struct synth_options *o, pl_synth **synth, pl_error *err)
{
    pl_synth_config_options config = {
        .preset = o->preset,
        .layers = o->layers,
        .experts = o->experts,
        .vocab = o->vocab,
        .ratios = o->ratios,
        .no_mtp = o->no_mtp,
        .dspark = o->dspark,
        .base = o->base,
        .overrides_name = o->overrides,
    };
    pl_status status = PL_OK;
    char *text = NULL;

    *synth = NULL;
    if (o->overrides)
        status =
            pl_input_read(o->overrides, MAX_OVERRIDES_BYTES, &text, &config.overrides_bytes, err);
    if (status != PL_OK)
        pl_error_prefix(err, "--config");
    config.overrides = text;
    if (status == PL_OK)
        status = pl_synth_create(&config, (uint64_t)o->seed, synth, err);
    free(text);
    return status;
}

static int run(int argc, char **argv)
{
    struct synth_options o = {.preset = "nano", .seed = 1};
    struct progress progress;
    const char *out;
    pl_error err = {0};
    pl_synth *synth;
    pl_status status;
    int exit_status;

    if (!pl_options_parse(&pl_command_synth, argc, argv, &o, &out, &exit_status))
        return exit_status;
    status = create_synth(&o, &synth, &err);
    if (status == PL_OK) {
        begin_progress(&progress, out, synth);
        status = pl_synth_write(synth, out,
                                &(pl_synth_write_options){.headers_only = o.headers_only,
                                                          .force = o.force,
                                                          .n_threads = (int)o.threads,
                                                          .progress = keep_going,
                                                          .user = &progress},
                                &err);
        end_progress(&progress);
    }
    if (status == PL_OK)
        printf("%s: %zu tensors in %zu shards, %" PRIu64 " bytes of data%s\n", out,
               pl_synth_n_tensors(synth), pl_synth_n_shards(synth), pl_synth_data_bytes(synth),
               o.headers_only ? " (headers only)" : "");
    pl_synth_destroy(synth);
    return status == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
}

const pl_command pl_command_synth = {
    .name = "synth",
    .usage = "OUT [options]",
    .summary = "write a random checkpoint in the official format",
    .details =
        "OUT becomes a checkpoint folder: config.json, safetensors shards and their index, with "
        "the\n"
        "names, types and shapes of DeepSeek-V4. Every tensor is a function of its name and the\n"
        "seed, so equal options give equal bytes on every machine and for any number of threads.\n"
        "\n"
        "nano, micro and mini-pro are small models with every kind of layer (about 9, 28 and 40\n"
        "MB); flash and pro have the released sizes (160 and 865 GB), which --layers, --ratios,\n"
        "--experts and --vocab cut to something a test can hold.\n"
        "\n"
        "A folder that is not empty is refused unless its config.json is byte for byte the new\n"
        "one, as after an earlier run: that checkpoint is replaced, also where its seed was "
        "another.\n"
        "--force replaces any checkpoint. Other files there are left alone. The index is written\n"
        "last: without it the folder is not complete.\n"
        "\n"
        "examples:\n"
        "  plimsoll synth /tmp/nano\n"
        "  plimsoll synth /tmp/micro-base --preset micro --base --seed 7\n"
        "  plimsoll synth /tmp/slice --preset flash --layers 2 --ratios 4,128 --experts 16\n"
        "  plimsoll synth /tmp/refresh --preset micro --dspark\n"
        "  plimsoll synth /tmp/pro --preset pro --headers-only && plimsoll plan /tmp/pro\n"
        "  echo '{\"index_topk\": 8}' > k.json && plimsoll synth /tmp/k8 --config k.json",
    .options = options_table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
