/* `plimsoll cpu` for people. */
#include <inttypes.h>

#include "cli/cpu_report.h"

static void print_bytes(FILE *to, uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    int u = 0;

    for (; v >= 1024 && u < 4; u++)
        v /= 1024;
    fprintf(to, v == (double)(uint64_t)v ? "%.0f %s" : "%.2f %s", v, units[u]);
}

static void print_features(FILE *to, const char *what, uint64_t bits)
{
    if (!bits)
        return;
    fprintf(to, "%-12s", what);
    for (int i = 0; i < PL_CPU_FEATURE_COUNT; i++)
        if (bits >> i & 1)
            fprintf(to, " %s", pl_cpu_feature_name((pl_cpu_feature)i));
    fprintf(to, "\n");
}

static void print_level(FILE *to, const pl_cpu_report *r, pl_level l)
{
    static const char *const tests[] = {"self-test not run", "self-test passed",
                                        "self-test FAILED"};
    const pl_cpu_level_report *v = &r->levels[l];

    fprintf(to, "  %-12s %-10s %-14s %s", pl_level_name(l), v->built ? "built" : "not built",
            v->supported ? "supported" : "not supported", tests[v->test]);
    if (v->missing[0])
        fprintf(to, "; lacks %s", v->missing);
    if (v->failure[0])
        fprintf(to, "; %s", v->failure);
    if (v->warning[0])
        fprintf(to, "; warning: %s", v->warning);
    if (l == PL_LEVEL_F64)
        fprintf(to, "; for tests");
    fprintf(to, "\n");
}

static void print_choice(FILE *to, const pl_cpu_report *r)
{
    static const char *const reasons[] = {"the best there is", "asked for by --level",
                                          "asked for by PL_CPU"};
    char why[64];

    fprintf(to, "chosen       %s, %s%s%s\n", pl_level_name(r->choice.level),
            reasons[r->choice.reason], r->choice.note[0] ? ": " : "", r->choice.note);
    for (const pl_cpu_operators *o = pl_cpu_operator_groups; o->name; o++)
        fprintf(to, "  %-18s %-12s %s\n", o->name,
                pl_level_name(pl_cpu_operators_level(o, r->choice.level)),
                pl_cpu_operators_why(o, r->choice.level, why, sizeof why));
}

static void print_topology(FILE *to, const pl_topology *t)
{
    fprintf(to, "topology     %d package%s, %d core%s, %d hardware thread%s, %d memory node%s\n",
            t->n_packages, t->n_packages == 1 ? "" : "s", t->n_cores, t->n_cores == 1 ? "" : "s",
            t->n_cpus, t->n_cpus == 1 ? "" : "s", t->n_nodes, t->n_nodes == 1 ? "" : "s");
    for (int i = 0; i < t->n_caches; i++) {
        fprintf(to, "  L%d cache     %d x ", t->caches[i].level, t->caches[i].n_instances);
        print_bytes(to, t->caches[i].bytes);
        fprintf(to, "\n");
    }
    for (int i = 0; i < t->n_nodes; i++) {
        fprintf(to, "  node %-7d ", t->nodes[i].os_id);
        print_bytes(to, t->nodes[i].bytes);
        fprintf(to, "\n");
    }
}

static void print_limits(FILE *to, const pl_cpu_report *r)
{
    fprintf(to, "memory       ");
    print_bytes(to, r->memory.total_bytes);
    fprintf(to, ", ");
    print_bytes(to, r->memory.available_bytes);
    fprintf(to, " available\nhuge pages   ");
    if (r->memory.huge_page_bytes)
        print_bytes(to, r->memory.huge_page_bytes);
    else
        fprintf(to, "none");
    fprintf(to, "\ncgroup       ");
    if (r->group.version == 0)
        fprintf(to, "none\n");
    else {
        fprintf(to, "version %d, processors ", r->group.version);
        if (r->group.cpu_quota > 0)
            fprintf(to, "%.2f", r->group.cpu_quota);
        else
            fprintf(to, "unlimited");
        fprintf(to, ", memory ");
        if (r->group.memory_max != UINT64_MAX)
            print_bytes(to, r->group.memory_max);
        else
            fprintf(to, "unlimited");
        fprintf(to, "\n");
    }
    fprintf(to, "threads      %d by default\n", r->default_threads);
}

void pl_cpu_report_print(const pl_cpu_report *r, FILE *to)
{
    const pl_cpu *c = &r->cpu;

    fprintf(to, "processor    %s (%s family %d model %d stepping %d)\n",
            c->name[0] ? c->name : "unnamed", c->vendor, c->family, c->model, c->stepping);
    print_features(to, "features", c->features);
    print_features(to, "not saved", c->unsaved);
    fprintf(to, "levels\n");
    for (int l = 0; l < PL_LEVEL_COUNT; l++)
        print_level(to, r, (pl_level)l);
    print_choice(to, r);
    print_topology(to, &r->topology);
    print_limits(to, r);
}
