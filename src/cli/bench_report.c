/* The results of `bench ops`: a table to read, a document to parse. */
#include <inttypes.h>

#include "cli/bench.h"
#include "cli/json_out.h"

static const char *const names[PL_BENCH_LIMIT_COUNT] = {"read", "fp32", "bf16"};

const char *pl_bench_limit_name(pl_bench_limit limit)
{
    return names[limit];
}

static void print_time(FILE *to, double ns)
{
    if (ns < 1e4)
        fprintf(to, "%9.0f ns", ns);
    else if (ns < 1e7)
        fprintf(to, "%9.1f us", ns / 1e3);
    else
        fprintf(to, "%9.1f ms", ns / 1e6);
}

void pl_bench_print(FILE *to, const pl_bench_limits *l, const pl_bench_row *rows, int n)
{
    fprintf(to,
            "limits           1 thread        all\n"
            "read        %8.1f GB/s %8.1f GB/s\n"
            "fp32     %8.1f GFLOP/s %5.1f GFLOP/s\n"
            "bf16     %8.1f GFLOP/s %5.1f GFLOP/s\n\n",
            l->one[PL_BENCH_READ], l->all[PL_BENCH_READ], l->one[PL_BENCH_FP32],
            l->all[PL_BENCH_FP32], l->one[PL_BENCH_BF16], l->all[PL_BENCH_BF16]);
    fprintf(to, "%-18s %-26s %-4s %12s %8s %9s %16s %7s\n", "operator", "shape", "", "time", "GB/s",
            "GFLOP/s", "% of limit", "spread");
    for (int i = 0; i < n; i++) {
        const pl_bench_row *r = &rows[i];

        fprintf(to, "%-18s %-26s %-4s ", r->op, r->shape, r->cold ? "cold" : "");
        print_time(to, r->ns);
        fprintf(to, " %8.2f %9.2f %6.1f %s %5.1f %5.1f %%\n", r->gbps, r->gflops, r->percent,
                names[r->limit], r->limit_rate, r->spread);
    }
}

void pl_bench_write_json(FILE *to, const pl_bench_limits *l, const pl_bench_row *rows, int n)
{
    pl_out j;

    pl_out_begin(&j, to);
    pl_out_open(&j, NULL, '{');
    pl_out_open(&j, "limits", '{');
    pl_out_fixed(&j, "read_gbps_1", l->one[PL_BENCH_READ], 3);
    pl_out_fixed(&j, "read_gbps", l->all[PL_BENCH_READ], 3);
    pl_out_fixed(&j, "fp32_gflops_1", l->one[PL_BENCH_FP32], 3);
    pl_out_fixed(&j, "fp32_gflops", l->all[PL_BENCH_FP32], 3);
    pl_out_fixed(&j, "bf16_gflops_1", l->one[PL_BENCH_BF16], 3);
    pl_out_fixed(&j, "bf16_gflops", l->all[PL_BENCH_BF16], 3);
    pl_out_close(&j, '{');
    pl_out_open(&j, "rows", '[');
    for (int i = 0; i < n; i++) {
        const pl_bench_row *r = &rows[i];

        pl_out_open(&j, NULL, '{');
        pl_out_string(&j, "op", r->op);
        pl_out_string(&j, "shape", r->shape);
        pl_out_string(&j, "level", r->level);
        pl_out_int(&j, "threads", r->threads);
        pl_out_bool(&j, "cold", r->cold);
        pl_out_fixed(&j, "ns", r->ns, 1);
        pl_out_fixed(&j, "gbps", r->gbps, 6);
        pl_out_fixed(&j, "gflops", r->gflops, 6);
        pl_out_string(&j, "limit", names[r->limit]);
        pl_out_fixed(&j, "limit_rate", r->limit_rate, 6);
        pl_out_fixed(&j, "percent", r->percent, 4);
        pl_out_fixed(&j, "spread", r->spread, 3);
        pl_out_close(&j, '{');
    }
    pl_out_close(&j, '[');
    pl_out_close(&j, '{');
    pl_out_end(&j);
}
