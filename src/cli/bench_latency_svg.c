/* The figures of `bench latency` as a picture: for each step of the layers a bar as long as its share of the limit, cut by
 * the operators that the time went to.
 *
 * Bars end at the limit, whose line stands at 100 %: what is missing is what could still be gained. Colours follow the
 * reader's light or dark scheme; only text that this program makes is written, so nothing has to be escaped. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "cli/bench_latency.h"

enum { WIDTH = 960, LEFT = 250, BAR = 560, TOP = 120, STEP = 26, HEIGHT = 16 };

/* Operators in the groups that a reader can tell apart. */
static const struct group {
    const char *prefix, *title, *colour;
} groups[] = {
    {"linear_fp4", "experts (FP4)", "#3b6ea5"},
    {"linear_fp8", "projections (FP8)", "#5b93c9"},
    {"linear_bf16", "projections (bf16)", "#9cc3e6"},
    {"attention", "attention", "#b5651d"},
    {"index_", "indexer", "#e39b4a"},
    {"compress", "compressors", "#b0a04a"},
    {"hc_", "residual streams", "#4f9d69"},
    {"", "all others", "#8a8f98"},
};
enum { N_GROUPS = sizeof groups / sizeof groups[0] };

static int group_of(const char *name)
{
    int g = 0;

    while (strncmp(name, groups[g].prefix, strlen(groups[g].prefix)) != 0)
        g++;
    return g;
}

static void write_head(FILE *to, const pl_latency_report *r, int height)
{
    fprintf(to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" role=\"img\" aria-labelledby=\"title\">\n"
            "<title id=\"title\">Steps in percent of the limit that binds</title>\n<style>\n"
            "  svg { --paper: #ffffff; --ink: #1c2733; --soft: #5c6b7a; }\n"
            "  @media (prefers-color-scheme: dark) {\n"
            "    svg { --paper: #12181f; --ink: #e8eef4; --soft: #a3b1bf; }\n  }\n"
            "  text { font-family: system-ui, sans-serif; font-size: 13px; fill: var(--ink); }\n"
            "  .title { font-size: 20px; font-weight: 600; }\n  .soft { fill: var(--soft); }\n"
            "  .line { stroke: var(--soft); stroke-dasharray: 3 3; }\n</style>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"var(--paper)\"/>\n"
            "<text class=\"title\" x=\"30\" y=\"36\">Layers, in percent of the limit that "
            "binds</text>\n"
            "<text class=\"soft\" x=\"30\" y=\"58\">level %s, %d threads; read %.1f GB/s, "
            "multiply-adds %.1f GFLOP/s; %d layers of %d experts</text>\n",
            WIDTH, height, WIDTH, height, WIDTH, height, r->level, r->threads,
            r->limits.all[PL_BENCH_READ],
            strcmp(r->level, "avx512bf16") == 0 ? r->limits.all[PL_BENCH_BF16]
                                                : r->limits.all[PL_BENCH_FP32],
            r->n_layers, r->n_experts);
    for (int g = 0; g < N_GROUPS; g++)
        fprintf(to,
                "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>"
                "<text class=\"soft\" x=\"%d\" y=\"%d\">%s</text>\n",
                30 + g % 4 * 220, 72 + g / 4 * 20, groups[g].colour, 48 + g % 4 * 220,
                83 + g / 4 * 20, groups[g].title);
}

static void write_bar(FILE *to, const pl_latency_row *r, int y)
{
    double part[N_GROUPS] = {0}, sum = r->between_ms, x = LEFT;
    const double length = (r->percent < 110 ? r->percent : 110) / 100 * BAR;

    part[N_GROUPS - 1] = r->between_ms;
    for (int op = 0; op < PL_PROFILE_COUNT; op++) {
        part[group_of(pl_profile_name((pl_profile_op)op))] += r->op_ms[op];
        sum += r->op_ms[op];
    }
    fprintf(to, "<text x=\"30\" y=\"%d\">%s %" PRId64 ", batch %d%s", y + 13, r->phase, r->context,
            r->batch, r->k ? "" : "</text>\n");
    if (r->k)
        fprintf(to, ", k %d%s</text>\n", r->k, r->equal_experts ? ", equal experts" : "");
    for (int g = 0; g < N_GROUPS; g++) {
        const double width = sum > 0 ? length * part[g] / sum : 0;

        fprintf(to,
                "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>%s: "
                "%.3f ms</title></rect>\n",
                x, y, width, HEIGHT, groups[g].colour, groups[g].title, part[g]);
        x += width;
    }
    fprintf(to, "<text x=\"%.2f\" y=\"%d\">%.0f %% of %s, %.2f ms</text>\n", x + 6, y + 13,
            r->percent, pl_bench_limit_name(r->limit), r->ms);
}

pl_status pl_latency_write_svg(const char *path, const pl_latency_report *r, pl_error *err)
{
    FILE *to = fopen(path, "we");
    int n = 0, y = TOP;
    bool failed;

    if (!to)
        return pl_error_set(err, PL_ERR_IO, "%s: cannot write (got %s)", path, strerror(errno));
    for (int i = 0; i < r->n; i++)
        n += r->rows[i].has_profile;
    write_head(to, r, TOP + n * STEP + 30);
    for (int i = 0; i < r->n; i++) {
        if (!r->rows[i].has_profile)
            continue;
        write_bar(to, &r->rows[i], y);
        y += STEP;
    }
    fprintf(to, "<path class=\"line\" d=\"M%d %d V%d\"/>\n</svg>\n", LEFT + BAR, TOP - 8, y);
    failed = ferror(to) != 0;
    failed = fclose(to) != 0 || failed;
    if (failed)
        return pl_error_set(err, PL_ERR_IO, "%s: cannot write (got %s)", path, strerror(errno));
    return PL_OK;
}
