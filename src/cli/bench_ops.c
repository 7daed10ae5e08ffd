/* plimsoll bench ops: operators against what this machine can do, both measured in turn.
 *
 * Before and after every figure the limit that binds it is probed, and the figure is a share of the mean of the
 * two; `limits` are the medians of all probes. Nothing is reported of a level but the one in use. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/selftest.h"
#include "base/topology.h"
#include "cli/bench.h"
#include "ops/level.h"

enum { MAX_ROWS = 256, MAX_PROBES = 2 * MAX_ROWS + 2 };

struct options {
    bool json, quick;
    const char *op, *shape, *level;
    int64_t threads;
    double seconds;
};

struct session {
    const struct options *o;
    pl_bench bench;
    pl_bench_clock clock;
    uint64_t cold_bytes;
    bool shows; /* progress, on a terminal */
    pl_bench_row rows[MAX_ROWS];
    int n_rows, n_wanted;
    double probes[PL_BENCH_LIMIT_COUNT][MAX_PROBES];
    int n_probes[PL_BENCH_LIMIT_COUNT];
    double one[PL_BENCH_LIMIT_COUNT][2];
};

static double probe(struct session *s, pl_bench_limit limit)
{
    const int n = s->n_probes[limit];
    const double rate = pl_bench_probe(&s->bench, &s->clock, limit, false, n);

    if (n < MAX_PROBES)
        s->probes[limit][s->n_probes[limit]++] = rate;
    return rate;
}

/* All limits, at begin (0) and end (1). */
static void probe_all(struct session *s, int which)
{
    for (int l = 0; l < PL_BENCH_LIMIT_COUNT; l++) {
        s->one[l][which] = pl_bench_probe(&s->bench, &s->clock, (pl_bench_limit)l, true, which);
        (void)probe(s, (pl_bench_limit)l);
    }
}

static void show(const struct session *s, const char *op, const char *shape)
{
    if (s->shows)
        fprintf(stderr, "\r\033[K%d of %d: %s %s", s->n_rows + 1, s->n_wanted, op, shape);
}

static pl_status measure(struct session *s, const pl_bench_op *op, const char *shape, pl_error *err)
{
    pl_bench *b = &s->bench;
    pl_bench_work w = {0};
    pl_bench_time time;
    double before, after;
    pl_status status;

    PL_TRY(pl_bench_check_shape(op, shape, err));
    show(s, op->name, shape);
    status = op->prepare(b, shape, &w, err);
    if (status == PL_OK && b->failed)
        status = err->status; /* of the piece that was refused */
    if (status == PL_OK) {
        before = probe(s, w.limit);
        time = pl_bench_measure(&s->clock, &w, 1e9 * s->o->seconds);
        after = probe(s, w.limit);
        s->rows[s->n_rows] =
            pl_bench_judge(op, shape, &w, &time, (before + after) / 2, s->cold_bytes);
        s->rows[s->n_rows].level = pl_level_name(b->level);
        s->rows[s->n_rows++].threads = pl_pool_n_workers(b->exec.pool);
    }
    pl_bench_release(b);
    return status;
}

static bool is_wanted(const struct options *o, const pl_bench_op *op)
{
    return !o->op || strcmp(o->op, op->name) == 0;
}

/* Shapes of an operator that this run measures. */
static int n_shapes(const struct options *o, const pl_bench_op *op)
{
    int n = 0;

    if (o->shape || o->quick)
        return 1;
    while (op->shapes[n])
        n++;
    return n;
}

static pl_status check_op(const struct options *o, pl_error *err)
{
    char list[512] = "";

    if (!o->op) {
        PL_CHECK(!o->shape, err, "--shape: of which operator (want --op NAME)");
        return PL_OK;
    }
    for (const pl_bench_op *const *op = pl_bench_ops; *op; op++) {
        if (strcmp(o->op, (*op)->name) == 0)
            return PL_OK;
        (void)snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", list[0] ? ", " : "",
                       (*op)->name);
    }
    return pl_error_set(err, PL_ERR_INVALID, "--op: unknown operator (got '%s', want %s)", o->op,
                        list);
}

static pl_status measure_all(struct session *s, pl_error *err)
{
    for (const pl_bench_op *const *op = pl_bench_ops; *op; op++)
        s->n_wanted += is_wanted(s->o, *op) ? n_shapes(s->o, *op) : 0;
    PL_CHECK(s->n_wanted <= MAX_ROWS, err, "bench ops: too many rows (got %d, want at most %d)",
             s->n_wanted, MAX_ROWS);
    probe_all(s, 0);
    for (const pl_bench_op *const *op = pl_bench_ops; *op; op++)
        for (int i = 0; is_wanted(s->o, *op) && i < n_shapes(s->o, *op); i++)
            PL_TRY(measure(s, *op, s->o->shape ? s->o->shape : (*op)->shapes[i], err));
    probe_all(s, 1);
    return PL_OK;
}

static void report(struct session *s)
{
    pl_bench_limits limits;

    for (int l = 0; l < PL_BENCH_LIMIT_COUNT; l++) {
        limits.one[l] = pl_bench_median(s->one[l], 2);
        limits.all[l] = pl_bench_median(s->probes[l], s->n_probes[l]);
    }
    if (s->shows)
        fprintf(stderr, "\r\033[K");
    if (s->o->json) {
        pl_bench_write_json(stdout, &limits, s->rows, s->n_rows);
        return;
    }
    printf("level %s, %d threads\n", pl_level_name(s->bench.level),
           pl_pool_n_workers(s->bench.exec.pool));
    pl_bench_print(stdout, &limits, s->rows, s->n_rows);
}

pl_status pl_bench_choose_level(const char *name, pl_level *level, pl_error *err)
{
    static const pl_selftest *const tests[] = {pl_base_selftests, pl_ops_selftests, NULL};
    pl_level_choice choice;
    pl_cpu cpu;

    pl_cpu_detect(&cpu, NULL);
    PL_TRY(pl_level_choose(&cpu, pl_level_built(), name, name ? NULL : getenv("PL_CPU"), tests,
                           &choice, err));
    *level = choice.level;
    return PL_OK;
}

/* A machine that cannot be asked has a cache of unknown size. */
static uint64_t last_cache_bytes(void)
{
    pl_topology t = {0};
    uint64_t bytes = 0;
    pl_error err;

    if (pl_topology_init(&t, &err) == PL_OK && t.n_caches > 0)
        bytes = t.caches[t.n_caches - 1].bytes * (uint64_t)t.caches[t.n_caches - 1].n_instances;
    pl_topology_fini(&t);
    return bytes;
}

static pl_status run_ops(const struct options *o, pl_error *err)
{
    /* Above both bounds of `cold`, and room for Pro's head; a quick run takes what its first shapes need. */
    const uint64_t store = (o->quick ? (uint64_t)64 << 20 : (uint64_t)2 << 30);
    struct session *s;
    pl_level level;
    pl_pool *pool;
    pl_status status;

    PL_TRY(check_op(o, err));
    PL_TRY(pl_bench_choose_level(o->level, &level, err));
    PL_TRY(pl_pool_create(&(pl_pool_params){.n_workers = (int)o->threads, .pin_caller = true},
                          &pool, err));
    s = calloc(1, sizeof *s);
    if (!s) {
        pl_pool_destroy(pool);
        return pl_error_set(err, PL_ERR_NOMEM, "bench ops: out of memory");
    }
    s->o = o;
    s->clock = pl_bench_wall_clock();
    s->cold_bytes = pl_bench_cold_bytes(last_cache_bytes());
    s->shows = isatty(STDERR_FILENO);
    status = pl_bench_open(&s->bench, level, pool, store, err);
    if (status == PL_OK)
        status = measure_all(s, err);
    if (status == PL_OK)
        report(s);
    else if (s->shows)
        fprintf(stderr, "\r\033[K");
    pl_bench_close(&s->bench);
    pl_pool_destroy(pool);
    free(s);
    return status;
}

#define OFFSET(field) offsetof(struct options, field)

static const pl_option table[] = {
    {"--json", PL_OPTION_FLAG, NULL, "print one JSON document", OFFSET(json)},
    {"--op", PL_OPTION_STRING, "NAME", "one operator; default: all", OFFSET(op)},
    {"--shape", PL_OPTION_STRING, "WORDS",
     "one shape of it, in the words of its own: 'm7 n8192 k4096'", OFFSET(shape)},
    {"--level", PL_OPTION_STRING, "L",
     "level of kernels, as 'plimsoll cpu' lists them; default: the best that is sound",
     OFFSET(level)},
    {"--threads", PL_OPTION_INT, "N", "workers; default: physical cores that may be used",
     OFFSET(threads), 1, PL_POOL_MAX_WORKERS},
    {"--seconds", PL_OPTION_FLOAT, "S", "time of a row, three calls at least; default: 0.5",
     OFFSET(seconds), 0, 60},
    {"--quick", PL_OPTION_FLAG, NULL, "the first shape of each operator, from 64 MiB of weights",
     OFFSET(quick)},
    {0},
};

static int run(int argc, char **argv)
{
    struct options o = {.seconds = 0.5};
    pl_error err = {0};
    int status;

    if (!pl_options_parse(&pl_command_bench_ops, argc, argv, &o, NULL, &status))
        return status;
    return run_ops(&o, &err) == PL_OK ? PL_EXIT_OK : pl_report_error(&err);
}

const pl_command pl_command_bench_ops = {
    .name = "bench ops",
    .usage = "[options]",
    .summary = "operators at the shapes of V4-Flash and V4-Pro, in % of the limit that binds",
    .details =
        "Reading of memory and multiply-adds of the level are probed before and after each figure. "
        "A\n"
        "row gives the median of one call, its bytes (weights as in the file) and its "
        "floating-point\n"
        "operations by it, the share of the limit, and the distance of the quartiles in percent. "
        "Rows\n"
        "marked cold go over more memory than caches hold. A default run takes some minutes.\n\n"
        "In a shape m is tokens of a product, n outputs, k inputs, h heads, t tokens, d values,\n"
        "e experts of which each token has `top`. One row (m1) is bound by reading.",
    .options = table,
    .run = run,
};
