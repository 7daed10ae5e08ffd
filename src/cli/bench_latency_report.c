/* The results of `bench latency`: tables to read, a document to parse. */
#include <inttypes.h>
#include <string.h>

#include "cli/bench_latency.h"
#include "cli/json_out.h"

enum { SHOWN_OPERATORS = 8 };

static const char *words_of(const pl_latency_row *r)
{
    return r->equal_experts ? "equal experts" : r->synthetic ? "synthetic" : "";
}

/* The operators that took longest, descending. */
static int largest(const pl_latency_row *r, int n, int *ops)
{
    bool used[PL_PROFILE_COUNT] = {false};

    for (int i = 0; i < n; i++) {
        int best = -1;

        for (int op = 0; op < PL_PROFILE_COUNT; op++)
            if (!used[op] && r->op_ms[op] > 0 && (best < 0 || r->op_ms[op] > r->op_ms[best]))
                best = op;
        if (best < 0)
            return i;
        used[best] = true;
        ops[i] = best;
    }
    return n;
}

static void print_operators(FILE *to, const pl_latency_row *r)
{
    int ops[SHOWN_OPERATORS], n = largest(r, SHOWN_OPERATORS, ops);
    double sum = r->between_ms;

    for (int op = 0; op < PL_PROFILE_COUNT; op++)
        sum += r->op_ms[op];
    fprintf(to, "%-8s %7" PRId64 " %3d %d %s\n    ", r->phase, r->context, r->batch, r->k,
            words_of(r));
    for (int i = 0; i < n; i++)
        fprintf(to, "%s %.1f%%, ", pl_profile_name((pl_profile_op)ops[i]),
                100 * r->op_ms[ops[i]] / sum);
    fprintf(to,
            "between operators %.1f%%\n    %.1f parallel regions a layer; empty ones would take "
            "%.2f%%, workers waited %.1f%%\n",
            100 * r->between_ms / sum, r->regions_per_layer, r->barrier_percent, r->idle_percent);
}

static void print_depths(FILE *to, const pl_latency_report *r)
{
    if (r->n_depths)
        fprintf(to, "\ndrafts: ms of a step\n%5s %2s %11s %11s %11s\n", "batch", "k", "verify",
                "draft", "both");
    for (int i = 0; i < r->n_depths; i++) {
        const pl_latency_depth *d = &r->depths[i];

        fprintf(to, "%5d %2d %11.3f %11.3f %11.3f\n", d->batch, d->k, d->verify_ms, d->draft_ms,
                d->verify_ms + d->draft_ms);
    }
    if (r->n_choices)
        fprintf(to, "\nthe depth that pays\n%5s %10s %2s %10s %20s\n", "batch", "acceptance", "k",
                "tokens/s", "times without drafts");
    for (int i = 0; i < r->n_choices; i++) {
        const pl_latency_choice *c = &r->choices[i];

        fprintf(to, "%5d %10.2f %2d %10.2f %20.2f\n", c->batch, c->acceptance, c->k,
                c->tokens_per_s, c->gain);
    }
}

void pl_latency_print(FILE *to, const pl_latency_report *r)
{
    fprintf(to,
            "%s: %d layers, %d experts; level %s, %d threads\n"
            "read %.1f GB/s, multiply-adds %.1f GFLOP/s (fp32), %.1f (bf16); an empty region %.1f "
            "us\n\n%-8s %-7s %8s %5s %2s %11s %6s %10s %8s %9s %13s\n",
            r->model, r->n_layers, r->n_experts, r->level, r->threads, r->limits.all[PL_BENCH_READ],
            r->limits.all[PL_BENCH_FP32], r->limits.all[PL_BENCH_BF16], r->barrier_ns / 1e3,
            "phase", "part", "context", "batch", "k", "ms", "spread", "tokens/s", "MB", "GFLOP",
            "% of limit");
    for (int i = 0; i < r->n; i++) {
        const pl_latency_row *w = &r->rows[i];

        fprintf(to,
                "%-8s %-7s %8" PRId64 " %5d %2d %11.3f %5.1f%% %10.1f %8.1f %9.3f %6.1f %-6s %s\n",
                w->phase, w->part, w->context, w->batch, w->k, w->ms, w->spread, w->tokens_per_s,
                w->bytes_touched / 1e6, w->flops / 1e9, w->percent, pl_bench_limit_name(w->limit),
                words_of(w));
    }
    fprintf(to, "\nwhere the time of the layers goes:\n");
    for (int i = 0; i < r->n; i++)
        if (r->rows[i].has_profile)
            print_operators(to, &r->rows[i]);
    print_depths(to, r);
}

static void write_operators(pl_out *j, const pl_latency_row *r)
{
    pl_out_fixed(j, "regions_per_layer", r->regions_per_layer, 2);
    pl_out_fixed(j, "barrier_percent", r->barrier_percent, 4);
    pl_out_fixed(j, "idle_percent", r->idle_percent, 3);
    pl_out_fixed(j, "between_ms", r->between_ms, 6);
    pl_out_open(j, "operators", '{');
    for (int op = 0; op < PL_PROFILE_COUNT; op++)
        if (r->op_ms[op] > 0)
            pl_out_fixed(j, pl_profile_name((pl_profile_op)op), r->op_ms[op], 6);
    pl_out_close(j, '{');
}

static void write_row(pl_out *j, const pl_latency_row *r)
{
    pl_out_open(j, NULL, '{');
    pl_out_string(j, "phase", r->phase);
    pl_out_string(j, "part", r->part);
    pl_out_int(j, "context", r->context);
    pl_out_int(j, "batch", r->batch);
    pl_out_int(j, "k", r->k);
    pl_out_bool(j, "synthetic", r->synthetic);
    pl_out_string(j, "experts", r->equal_experts ? "equal" : "routed");
    pl_out_fixed(j, "ms", r->ms, 6);
    pl_out_fixed(j, "spread", r->spread, 3);
    pl_out_fixed(j, "tokens_per_s", r->tokens_per_s, 3);
    pl_out_fixed(j, "bytes_touched", r->bytes_touched, 0);
    pl_out_fixed(j, "cache_bytes", r->cache_bytes, 0);
    pl_out_fixed(j, "flops", r->flops, 0);
    pl_out_fixed(j, "percent", r->percent, 4);
    pl_out_string(j, "limit", pl_bench_limit_name(r->limit));
    pl_out_fixed(j, "limit_rate", r->limit_rate, 6);
    if (r->has_profile)
        write_operators(j, r);
    pl_out_close(j, '{');
}

static void write_depths(pl_out *j, const pl_latency_report *r)
{
    pl_out_open(j, "depths", '[');
    for (int i = 0; i < r->n_depths; i++) {
        pl_out_open(j, NULL, '{');
        pl_out_int(j, "batch", r->depths[i].batch);
        pl_out_int(j, "k", r->depths[i].k);
        pl_out_fixed(j, "verify_ms", r->depths[i].verify_ms, 6);
        pl_out_fixed(j, "draft_ms", r->depths[i].draft_ms, 6);
        pl_out_close(j, '{');
    }
    pl_out_close(j, '[');
    pl_out_open(j, "choices", '[');
    for (int i = 0; i < r->n_choices; i++) {
        pl_out_open(j, NULL, '{');
        pl_out_int(j, "batch", r->choices[i].batch);
        pl_out_fixed(j, "acceptance", r->choices[i].acceptance, 2);
        pl_out_int(j, "k", r->choices[i].k);
        pl_out_fixed(j, "tokens_per_s", r->choices[i].tokens_per_s, 3);
        pl_out_fixed(j, "gain", r->choices[i].gain, 4);
        pl_out_close(j, '{');
    }
    pl_out_close(j, '[');
}

void pl_latency_write_json(FILE *to, const pl_latency_report *r)
{
    const pl_bench_limits *l = &r->limits;
    pl_out j;

    pl_out_begin(&j, to);
    pl_out_open(&j, NULL, '{');
    pl_out_string(&j, "level", r->level);
    pl_out_int(&j, "threads", r->threads);
    pl_out_int(&j, "layers", r->n_layers);
    pl_out_int(&j, "experts", r->n_experts);
    pl_out_open(&j, "limits", '{');
    pl_out_fixed(&j, "read_gbps_1", l->one[PL_BENCH_READ], 3);
    pl_out_fixed(&j, "read_gbps", l->all[PL_BENCH_READ], 3);
    pl_out_fixed(&j, "fp32_gflops_1", l->one[PL_BENCH_FP32], 3);
    pl_out_fixed(&j, "fp32_gflops", l->all[PL_BENCH_FP32], 3);
    pl_out_fixed(&j, "bf16_gflops_1", l->one[PL_BENCH_BF16], 3);
    pl_out_fixed(&j, "bf16_gflops", l->all[PL_BENCH_BF16], 3);
    pl_out_fixed(&j, "empty_region_ns", r->barrier_ns, 0);
    pl_out_close(&j, '{');
    pl_out_open(&j, "rows", '[');
    for (int i = 0; i < r->n; i++)
        write_row(&j, &r->rows[i]);
    pl_out_close(&j, '[');
    if (r->n_depths)
        write_depths(&j, r);
    pl_out_close(&j, '{');
    pl_out_end(&j);
}
