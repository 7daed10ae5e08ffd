/* The budget as a picture: a hull loaded with the plan's regions, and the line in it.
 *
 * One column, as high as the larger of plan and line; kinds of regions stand in it from the keel up, to scale, and a
 * legend names them with their bytes. Colours follow the reader's light or dark scheme. Only text that this program
 * makes is written, so nothing has to be escaped. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/plan_report.h"

enum {
    WIDTH = 880,
    HULL_LEFT = 60,
    HULL_WIDTH = 300,
    HULL_TOP = 110,
    HULL_HEIGHT = 400,
    LEGEND_LEFT = 440,
    LEGEND_STEP = 37,
    FOOT = 64,
};

/* Regions that begin with `prefix` and with no earlier one; from the keel up. */
static const struct kind {
    const char *prefix, *title, *colour;
} kinds[] = {
    {"weights.experts", "weights: routed experts", "#3b6ea5"},
    {"weights.mtp", "weights: multi-token predictor", "#8e6bbf"},
    {"weights.", "weights: all others", "#5b93c9"},
    {"store.", "weights: tables and alignment", "#9cc3e6"},
    {"cache.window", "caches: windows", "#b5651d"},
    {"cache.", "caches: compressed keys and states", "#e39b4a"},
    {"forward.", "work of a step", "#4f9d69"},
    {"engine.", "requests and outputs", "#8cc084"},
    {"heap.", "libraries' heap (capped)", "#b0a04a"},
    {"program", "program (measured)", "#a0567a"},
    {"", "threads and pages", "#8a8f98"},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

typedef struct picture {
    FILE *to;
    const pl_plan *plan;
    pl_plan_totals totals;
    uint64_t bytes[N_KINDS], scale; /* bytes of the whole height */
} picture;

static void count_kinds(picture *p)
{
    for (int i = 0; i < pl_plan_n_regions(p->plan); i++) {
        const pl_plan_region r = pl_plan_region_at(p->plan, i);
        int k = 0;

        while (strncmp(r.name, kinds[k].prefix, strlen(kinds[k].prefix)) != 0)
            k++;
        p->bytes[k] += r.bytes;
    }
}

static double height_of(const picture *p, uint64_t bytes)
{
    return (double)bytes / (double)p->scale * HULL_HEIGHT;
}

static void write_head(const picture *p, int height)
{
    fprintf(p->to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" role=\"img\" aria-labelledby=\"title\">\n"
            "<title id=\"title\">Memory plan</title>\n"
            "<style>\n"
            "  svg { --paper: #ffffff; --ink: #1c2733; --soft: #5c6b7a; --hull: #1c2733;\n"
            "        --water: #0b7285; --over: #c92a2a; }\n"
            "  @media (prefers-color-scheme: dark) {\n"
            "    svg { --paper: #12181f; --ink: #e8eef4; --soft: #a3b1bf; --hull: #d5dee7;\n"
            "          --water: #66d9e8; --over: #ff8787; }\n"
            "  }\n"
            "  text { font-family: system-ui, sans-serif; font-size: 15px; fill: var(--ink); }\n"
            "  .paper { fill: var(--paper); }\n"
            "  .title { font-size: 22px; font-weight: 600; }\n"
            "  .soft { fill: var(--soft); font-size: 13px; }\n"
            "  .number { text-anchor: end; font-variant-numeric: tabular-nums; }\n"
            "  .hull { fill: none; stroke: var(--hull); stroke-width: 3; }\n"
            "  .water { fill: none; stroke: var(--water); stroke-width: 3; }\n"
            "  .wet { fill: var(--water); font-weight: 600; }\n"
            "  .over { fill: var(--over); font-weight: 600; }\n"
            "</style>\n"
            "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n",
            WIDTH, height, WIDTH, height, WIDTH, height);
}

static void write_title(const picture *p)
{
    const pl_plan_totals *t = &p->totals;
    char total[32], line[32], gap[32];

    fprintf(p->to, "<text class=\"title\" x=\"%d\" y=\"40\">Plan: %s</text>\n", HULL_LEFT,
            pl_plan_short_bytes(t->total_bytes, total, sizeof total));
    fprintf(p->to,
            "<text class=\"soft\" x=\"%d\" y=\"64\">%d requests at once, %d tokens each; %d tokens "
            "a step; %d threads</text>\n",
            HULL_LEFT, t->max_num_seqs, t->max_model_len, t->max_num_batched_tokens, t->threads);
    if (!t->budget_bytes)
        return;
    (void)pl_plan_short_bytes(t->budget_bytes, line, sizeof line);
    if (t->total_bytes > t->budget_bytes)
        fprintf(p->to, "<text class=\"over\" x=\"%d\" y=\"86\">%s above the line of %s</text>\n",
                HULL_LEFT, pl_plan_short_bytes(t->total_bytes - t->budget_bytes, gap, sizeof gap),
                line);
    else
        fprintf(p->to, "<text class=\"wet\" x=\"%d\" y=\"86\">%s below the line of %s</text>\n",
                HULL_LEFT, pl_plan_short_bytes(t->budget_bytes - t->total_bytes, gap, sizeof gap),
                line);
}

static void write_load(const picture *p)
{
    double bottom = HULL_TOP + HULL_HEIGHT;

    fprintf(p->to, "<g>\n");
    for (int k = 0; k < N_KINDS; k++) {
        double h = height_of(p, p->bytes[k]);

        if (!p->bytes[k])
            continue;
        bottom -= h;
        fprintf(p->to,
                "  <rect x=\"%d\" y=\"%.2f\" width=\"%d\" height=\"%.2f\" "
                "fill=\"%s\"><title>%s: %" PRIu64 " bytes</title></rect>\n",
                HULL_LEFT, bottom, HULL_WIDTH, h, kinds[k].colour, kinds[k].title, p->bytes[k]);
    }
    fprintf(p->to, "</g>\n<path class=\"hull\" d=\"M%d %d V%d H%d V%d\"/>\n", HULL_LEFT,
            HULL_TOP - 12, HULL_TOP + HULL_HEIGHT, HULL_LEFT + HULL_WIDTH, HULL_TOP - 12);
}

/* Waves from side to side, and the mark: a ring with a bar through it, its bar at the water. */
static void write_line(const picture *p)
{
    enum { REACH = 36, WAVE = 24, RADIUS = 15 };
    const double y = HULL_TOP + HULL_HEIGHT - height_of(p, p->totals.budget_bytes);
    const int left = HULL_LEFT - REACH, right = HULL_LEFT + HULL_WIDTH + REACH;
    const int middle = HULL_LEFT + HULL_WIDTH / 2;

    if (!p->totals.budget_bytes)
        return;
    fprintf(p->to, "<path class=\"water\" d=\"M%d %.2f", left, y);
    for (int x = left; x + WAVE <= right; x += WAVE)
        fprintf(p->to, " q%d -5 %d 0 t%d 0", WAVE / 4, WAVE / 2, WAVE / 2);
    fprintf(p->to, "\"/>\n");
    fprintf(p->to,
            "<circle cx=\"%d\" cy=\"%.2f\" r=\"%d\" fill=\"var(--paper)\" fill-opacity=\"0.85\" "
            "stroke=\"var(--ink)\" stroke-width=\"3\"/>\n"
            "<path d=\"M%d %.2f H%d\" stroke=\"var(--ink)\" stroke-width=\"3\"/>\n",
            middle, y, RADIUS, middle - 2 * RADIUS, y, middle + 2 * RADIUS);
}

static void write_legend(const picture *p)
{
    int y = HULL_TOP;

    for (int k = N_KINDS - 1; k >= 0; k--) {
        char text[32];

        if (!p->bytes[k])
            continue;
        fprintf(p->to,
                "<rect x=\"%d\" y=\"%d\" width=\"16\" height=\"16\" rx=\"3\" fill=\"%s\"/>\n"
                "<text x=\"%d\" y=\"%d\">%s</text>\n"
                "<text class=\"number\" x=\"%d\" y=\"%d\">%s</text>\n",
                LEGEND_LEFT, y, kinds[k].colour, LEGEND_LEFT + 28, y + 13, kinds[k].title,
                WIDTH - 40, y + 13, pl_plan_short_bytes(p->bytes[k], text, sizeof text));
        y += LEGEND_STEP;
    }
}

static void write_foot(const picture *p)
{
    const pl_plan_totals *t = &p->totals;
    char fixed[32], block[32];

    fprintf(p->to,
            "<text class=\"soft\" x=\"%d\" y=\"%d\">one request: %s and %s for each 128 tokens; "
            "room for %" PRId64 " requests of %d tokens, or one of %" PRId64 "</text>\n",
            HULL_LEFT, HULL_TOP + HULL_HEIGHT + FOOT / 2 + 4,
            pl_plan_short_bytes(t->request_fixed_bytes, fixed, sizeof fixed),
            pl_plan_short_bytes(t->request_bytes_per_128_tokens, block, sizeof block),
            t->requests_at_max_model_len, t->max_model_len, t->tokens_for_one_request);
}

pl_status pl_plan_write_svg(const pl_plan *plan, const char *path, pl_error *err)
{
    picture p = {.to = fopen(path, "we"), .plan = plan, .totals = pl_plan_totals_of(plan)};
    bool failed;

    if (!p.to)
        return pl_error_set(err, PL_ERR_IO, "%s: cannot write (got %s)", path, strerror(errno));
    p.scale =
        p.totals.total_bytes > p.totals.budget_bytes ? p.totals.total_bytes : p.totals.budget_bytes;
    count_kinds(&p);
    write_head(&p, HULL_TOP + HULL_HEIGHT + FOOT);
    write_title(&p);
    write_load(&p);
    write_line(&p);
    write_legend(&p);
    write_foot(&p);
    fprintf(p.to, "</svg>\n");
    failed = ferror(p.to) != 0;
    failed = fclose(p.to) != 0 || failed;
    if (failed)
        return pl_error_set(err, PL_ERR_IO, "%s: cannot write (got %s)", path, strerror(errno));
    return PL_OK;
}
