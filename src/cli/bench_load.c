/* plimsoll bench load: reading a checkpoint into memory, against reading the same bytes and nothing else.
 *
 * Both ways of reading are measured, each figure between two plain reads of the same chunks by the same
 * threads. Memory is mapped and touched before, as an engine does. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/meminfo.h"
#include "cli/bench.h"
#include "cli/json_out.h"
#include "model/weights.h"
#include "ops/level.h"

enum { MAX_REPEAT = 9, N_MODES = 2 };

struct options {
    bool json;
    int64_t threads, repeat;
    const char *load;
};

struct figure {
    const char *mode, *refused; /* refused: why this way cannot be, or NULL */
    double plain_s, load_s;
    uint64_t bytes;
};

struct session {
    const struct options *o;
    pl_checkpoint *checkpoint;
    pl_pool *pool;
    pl_mem memory;
    pl_bench_clock clock;
    struct figure figure[N_MODES];
    int n_figures;
    char text[PL_ERROR_MSG_BYTES];
};

struct touching {
    const pl_mem *memory;
    _Atomic int failed;
};

static void touch_share(void *user, int64_t tile, int worker)
{
    const uint64_t step = 2 << 20;
    struct touching *t = user;
    const uint64_t at = (uint64_t)tile * step, left = t->memory->bytes - at;

    if (pl_mem_touch(t->memory->base + at, left < step ? left : step, NULL) != PL_OK)
        t->failed = 1;
}

static pl_status take_memory(struct session *s, pl_error *err)
{
    struct touching t = {.memory = &s->memory};

    PL_TRY(pl_mem_map(pl_weights_bytes(s->checkpoint), PL_MEM_HUGE, &s->memory, err));
    pl_pool_run(s->pool, (int64_t)((s->memory.bytes + (2 << 20) - 1) / (2 << 20)), touch_share, &t);
    return t.failed ? pl_mem_touch(s->memory.base, s->memory.bytes, err) : PL_OK;
}

static pl_status read_plain(struct session *s, const pl_load_params *p, double *seconds,
                            pl_error *err)
{
    const double begin = s->clock.now_ns(s->clock.user);

    PL_TRY(pl_weights_read_only(s->checkpoint, p, NULL, err));
    *seconds = 1e-9 * (s->clock.now_ns(s->clock.user) - begin);
    return PL_OK;
}

static pl_status load(struct session *s, const pl_load_params *p, double *seconds, uint64_t *bytes,
                      pl_error *err)
{
    const double begin = s->clock.now_ns(s->clock.user);
    pl_load_report report;
    pl_weights *w;

    PL_TRY(pl_weights_load_as(s->checkpoint, s->memory.base, p, &w, &report, err));
    *seconds = 1e-9 * (s->clock.now_ns(s->clock.user) - begin);
    *bytes = report.bytes;
    pl_weights_close(w);
    return PL_OK;
}

static pl_status measure(struct session *s, pl_load_mode mode, pl_error *err)
{
    const pl_load_params p = {.layout = PL_WEIGHT_TILES, .mode = mode, .pool = s->pool};
    struct figure *f = &s->figure[s->n_figures];
    double plain[2 * MAX_REPEAT], loads[MAX_REPEAT];
    pl_status status;
    int n = (int)s->o->repeat;

    *f = (struct figure){.mode = mode == PL_LOAD_DIRECT ? "direct" : "buffered"};
    /* Once for nothing: it fills the page cache where that is asked about. */
    status = read_plain(s, &p, &plain[0], err);
    if (status == PL_ERR_UNSUPPORTED && mode == PL_LOAD_DIRECT && !s->o->load) {
        (void)snprintf(s->text, sizeof s->text, "%s", err->msg);
        f->refused = s->text;
        s->n_figures++;
        return PL_OK;
    }
    PL_TRY(status);
    for (int i = 0; i < n; i++) {
        PL_TRY(read_plain(s, &p, &plain[2 * i], err));
        PL_TRY(load(s, &p, &loads[i], &f->bytes, err));
        PL_TRY(read_plain(s, &p, &plain[2 * i + 1], err));
    }
    f->plain_s = pl_bench_median(plain, 2 * n);
    f->load_s = pl_bench_median(loads, n);
    s->n_figures++;
    return PL_OK;
}

static double gbps(uint64_t bytes, double seconds)
{
    return seconds > 0 ? 1e-9 * (double)bytes / seconds : 0;
}

static double percent(const struct figure *f)
{
    return f->load_s > 0 ? 100 * f->plain_s / f->load_s : 0;
}

static void print(const struct session *s)
{
    printf("%d threads; plain: the same bytes read and not used\n%-10s %14s %9s %9s %9s %7s\n",
           pl_pool_n_workers(s->pool), "mode", "bytes", "seconds", "GB/s", "plain", "%");
    for (int i = 0; i < s->n_figures; i++) {
        const struct figure *f = &s->figure[i];

        if (f->refused)
            printf("%-10s %s\n", f->mode, f->refused);
        else
            printf("%-10s %14" PRIu64 " %9.3f %9.2f %9.2f %7.1f\n", f->mode, f->bytes, f->load_s,
                   gbps(f->bytes, f->load_s), gbps(f->bytes, f->plain_s), percent(f));
    }
}

static void write_json(const struct session *s)
{
    pl_out j;

    pl_out_begin(&j, stdout);
    pl_out_open(&j, NULL, '{');
    pl_out_open(&j, "rows", '[');
    for (int i = 0; i < s->n_figures; i++) {
        const struct figure *f = &s->figure[i];

        pl_out_open(&j, NULL, '{');
        pl_out_string(&j, "mode", f->mode);
        if (f->refused)
            pl_out_string(&j, "refused", f->refused);
        else
            pl_out_null(&j, "refused");
        pl_out_int(&j, "threads", pl_pool_n_workers(s->pool));
        pl_out_uint(&j, "bytes", f->bytes);
        pl_out_fixed(&j, "seconds", f->load_s, 6);
        pl_out_fixed(&j, "gbps", gbps(f->bytes, f->load_s), 3);
        pl_out_fixed(&j, "plain_gbps", gbps(f->bytes, f->plain_s), 3);
        pl_out_fixed(&j, "percent", percent(f), 2);
        pl_out_close(&j, '{');
    }
    pl_out_close(&j, '[');
    pl_out_close(&j, '{');
    pl_out_end(&j);
}

/* A line on the terminal that overwrites itself; files and pipes get none. */
static void show_progress(void *user, uint64_t done, uint64_t total)
{
    int *shown = user, now = total ? (int)(100.0 * (double)done / (double)total) : 100;

    if (now != *shown)
        fprintf(stderr, "\rreading %d %%%s", now, done == total ? "\r\033[K" : "");
    *shown = now;
}

static pl_status run_session(struct session *s, const char *path, pl_error *err)
{
    pl_load_mode mode;
    int shown = -1;

    PL_TRY(pl_load_mode_parse(s->o->load, &mode, err));
    PL_TRY(pl_checkpoint_open(path, &s->checkpoint, err));
    PL_TRY(pl_pool_create(&(pl_pool_params){.n_workers = (int)s->o->threads}, &s->pool, err));
    if (!pl_checkpoint_has_data(s->checkpoint))
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "%s: holds headers without data: there is nothing to read", path);
    PL_TRY(take_memory(s, err));
    if (isatty(STDERR_FILENO))
        pl_checkpoint_on_progress(s->checkpoint, show_progress, &shown);
    if (mode != PL_LOAD_DIRECT)
        PL_TRY(measure(s, PL_LOAD_BUFFERED, err));
    if (mode != PL_LOAD_BUFFERED)
        PL_TRY(measure(s, PL_LOAD_DIRECT, err));
    if (s->o->json)
        write_json(s);
    else
        print(s);
    return PL_OK;
}

static const char *const modes[] = {"direct", "buffered", NULL};

#define OFFSET(field) offsetof(struct options, field)

static const pl_option table[] = {
    {"--json", PL_OPTION_FLAG, NULL, "print one JSON document", OFFSET(json)},
    {"--load", PL_OPTION_CHOICE, "direct|buffered", "one way to read; default: both", OFFSET(load),
     .choices = modes},
    {"--threads", PL_OPTION_INT, "N", "workers; default: physical cores that may be used",
     OFFSET(threads), 1, PL_POOL_MAX_WORKERS},
    {"--repeat", PL_OPTION_INT, "N", "loads, of which the median counts; default: 3",
     OFFSET(repeat), 1, MAX_REPEAT},
    {0},
};

static int run(int argc, char **argv)
{
    struct options o = {.repeat = 3};
    struct session s = {.o = &o, .clock = pl_bench_wall_clock()};
    const char *args[1];
    pl_error err = {0};
    pl_status status;
    int exit_status;

    if (!pl_options_parse(&pl_command_bench_load, argc, argv, &o, args, &exit_status))
        return exit_status;
    status = run_session(&s, args[0], &err);
    pl_mem_unmap(&s.memory);
    pl_pool_destroy(s.pool);
    pl_checkpoint_close(s.checkpoint);
    return status == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
}

const pl_command pl_command_bench_load = {
    .name = "bench load",
    .usage = "MODEL [options]",
    .summary = "reading a checkpoint into tiles, in % of plainly reading its bytes",
    .details =
        "Direct reads go past the page cache, buffered ones through it; those are measured with "
        "the\n"
        "files in the cache, so MODEL has to fit there twice. Takes the memory of the weights.",
    .options = table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
