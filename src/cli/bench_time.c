/* Time and the arithmetic of a row. Nothing here knows an operator or a machine: tests give a clock of their
 * own. */
#include <stdlib.h>
#include <time.h>

#include "cli/bench.h"

enum { MAX_SAMPLES = 101, MIN_SAMPLES = 3 };

static const double SAMPLE_NS = 1e6, LONG_NS = 5e8;

static double wall_ns(void *user)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

pl_bench_clock pl_bench_wall_clock(void)
{
    return (pl_bench_clock){wall_ns, NULL};
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Quantile q of n sorted values, between neighbours where it falls between them. */
static double quantile(const double *sorted, int n, double q)
{
    const double at = q * (n - 1);
    const int low = (int)at, high = low + 1 < n ? low + 1 : low;

    return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
}

double pl_bench_median(double *values, int n)
{
    if (n == 0)
        return 0;
    qsort(values, (size_t)n, sizeof *values, ascending);
    return quantile(values, n, 0.5);
}

pl_bench_time pl_bench_measure(const pl_bench_clock *clock, const pl_bench_work *w,
                               double budget_ns)
{
    double samples[MAX_SAMPLES], begin = clock->now_ns(clock->user), warm, spent = 0;
    int64_t round = 0, calls;
    int n = 0, least = MIN_SAMPLES;
    pl_bench_time t;

    w->run(w->user, round++);
    warm = clock->now_ns(clock->user) - begin;
    calls = warm < SAMPLE_NS ? (int64_t)(SAMPLE_NS / (warm > 1 ? warm : 1)) + 1 : 1;
    if (warm > LONG_NS) { /* nothing in it that has to warm up takes that long */
        samples[n++] = warm;
        spent = warm;
        least = 2;
    }
    while (n < MAX_SAMPLES && (n < least || spent < budget_ns)) {
        begin = clock->now_ns(clock->user);
        for (int64_t i = 0; i < calls; i++)
            w->run(w->user, round++);
        samples[n] = clock->now_ns(clock->user) - begin;
        spent += samples[n];
        samples[n++] /= (double)calls;
    }
    t.ns = pl_bench_median(samples, n);
    t.spread =
        t.ns > 0 ? 100 * (quantile(samples, n, 0.75) - quantile(samples, n, 0.25)) / t.ns : 0;
    t.samples = n;
    return t;
}

uint64_t pl_bench_cold_bytes(uint64_t llc_bytes)
{
    const uint64_t most = (uint64_t)512 << 20;

    return llc_bytes > 0 && llc_bytes < most / 8 ? 8 * llc_bytes : most;
}

pl_bench_row pl_bench_judge(const pl_bench_op *op, const char *shape, const pl_bench_work *w,
                            const pl_bench_time *time, double limit_rate, uint64_t cold_bytes)
{
    pl_bench_row r = {.op = op->name, .shape = shape, .limit = w->limit, .limit_rate = limit_rate};
    double rate;

    r.ns = time->ns / (double)(w->units > 0 ? w->units : 1);
    r.spread = time->spread;
    r.gbps = r.ns > 0 ? w->bytes / r.ns : 0;
    r.gflops = r.ns > 0 ? w->flops / r.ns : 0;
    rate = w->limit == PL_BENCH_READ ? r.gbps : r.gflops;
    r.percent = limit_rate > 0 ? 100 * rate / limit_rate : 0;
    r.cold = w->working_set >= cold_bytes;
    return r;
}
