/* `plimsoll cpu --json`. What is unlimited or absent is null. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/error.h"
#include "cli/cpu_report.h"

static json_t *features_json(uint64_t bits)
{
    json_t *list = json_array();

    for (int i = 0; i < PL_CPU_FEATURE_COUNT; i++)
        if (bits >> i & 1)
            json_array_append_new(list, json_string(pl_cpu_feature_name((pl_cpu_feature)i)));
    return list;
}

static json_t *bytes_or_null(uint64_t bytes, bool known)
{
    return known ? json_integer((json_int_t)bytes) : json_null();
}

static json_t *levels_json(const pl_cpu_report *r)
{
    static const char *const tests[] = {"not run", "passed", "failed"};
    json_t *list = json_array();

    for (int l = 0; l < PL_LEVEL_COUNT; l++) {
        const pl_cpu_level_report *v = &r->levels[l];
        json_array_append_new(
            list,
            json_pack("{s:s, s:b, s:b, s:o, s:s, s:o, s:o}", "level", pl_level_name((pl_level)l),
                      "built", v->built, "supported", v->supported, "missing",
                      features_json(pl_level_features((pl_level)l) & ~r->cpu.features), "self_test",
                      tests[v->test], "self_test_failure",
                      v->failure[0] ? json_string(v->failure) : json_null(), "self_test_warning",
                      v->warning[0] ? json_string(v->warning) : json_null()));
    }
    return list;
}

static json_t *operators_json(const pl_cpu_report *r)
{
    json_t *list = json_array();
    char why[64];

    for (const pl_cpu_operators *o = pl_cpu_operator_groups; o->name; o++) {
        json_t *built = json_array();
        for (int l = 0; l < PL_LEVEL_COUNT; l++)
            if (o->levels >> l & 1)
                json_array_append_new(built, json_string(pl_level_name((pl_level)l)));
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:s, s:o}", "operator", o->name, "level",
                      pl_level_name(pl_cpu_operators_level(o, r->choice.level)), "why",
                      pl_cpu_operators_why(o, r->choice.level, why, sizeof why), "built", built));
    }
    return list;
}

static json_t *topology_json(const pl_topology *t)
{
    json_t *cpus = json_array(), *caches = json_array(), *nodes = json_array();

    for (int i = 0; i < t->n_cpus; i++)
        json_array_append_new(cpus,
                              json_pack("{s:i, s:i, s:i, s:i, s:i}", "id", t->cpus[i].os_id, "core",
                                        t->cpus[i].core, "thread", t->cpus[i].thread, "node",
                                        t->cpus[i].node, "package", t->cpus[i].package));
    for (int i = 0; i < t->n_caches; i++)
        json_array_append_new(caches, json_pack("{s:i, s:I, s:i}", "level", t->caches[i].level,
                                                "bytes", (json_int_t)t->caches[i].bytes, "count",
                                                t->caches[i].n_instances));
    for (int i = 0; i < t->n_nodes; i++)
        json_array_append_new(nodes, json_pack("{s:i, s:I}", "id", t->nodes[i].os_id, "bytes",
                                               (json_int_t)t->nodes[i].bytes));
    return json_pack("{s:i, s:i, s:i, s:i, s:o, s:o, s:o}", "packages", t->n_packages, "cores",
                     t->n_cores, "threads", t->n_cpus, "nodes", t->n_nodes, "cpus", cpus, "caches",
                     caches, "memory_nodes", nodes);
}

static json_t *limits_json(const pl_cpu_report *r)
{
    const pl_cgroup_limits *g = &r->group;

    return json_pack(
        "{s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:i}", "memory_bytes",
        (json_int_t)r->memory.total_bytes, "memory_available_bytes",
        (json_int_t)r->memory.available_bytes, "memory_limit_bytes",
        (json_int_t)r->memory.limit_bytes, "huge_page_bytes",
        bytes_or_null(r->memory.huge_page_bytes, r->memory.huge_page_bytes > 0), "cgroup_version",
        bytes_or_null((uint64_t)g->version, g->version > 0), "cgroup_processors",
        g->cpu_quota > 0 ? json_real(g->cpu_quota) : json_null(), "cgroup_memory_bytes",
        bytes_or_null(g->memory_max, g->memory_max != UINT64_MAX), "cgroup_memory_used_bytes",
        bytes_or_null(g->memory_used, g->memory_used > 0), "default_threads", r->default_threads);
}

static json_t *report_json(const pl_cpu_report *r)
{
    static const char *const reasons[] = {"best", "--level", "PL_CPU"};
    const pl_cpu *c = &r->cpu;

    return json_pack(
        "{s:{s:s, s:s, s:i, s:i, s:i, s:o, s:o}, s:o, s:{s:s, s:s, s:s}, s:o, s:o, s:o}",
        "processor", "vendor", c->vendor, "name", c->name, "family", c->family, "model", c->model,
        "stepping", c->stepping, "features", features_json(c->features), "not_saved",
        features_json(c->unsaved), "levels", levels_json(r), "chosen", "level",
        pl_level_name(r->choice.level), "reason", reasons[r->choice.reason], "note", r->choice.note,
        "operators", operators_json(r), "topology", topology_json(&r->topology), "limits",
        limits_json(r));
}

pl_status pl_cpu_report_write_json(const pl_cpu_report *r, FILE *to, pl_error *err)
{
    json_t *doc = report_json(r);
    int rc;

    if (!doc)
        return pl_error_set(err, PL_ERR_NOMEM, "cpu: out of memory for the report");
    rc = json_dumpf(doc, to, JSON_INDENT(2));
    json_decref(doc);
    if (rc != 0 || fputc('\n', to) == EOF)
        return pl_error_set(err, PL_ERR_IO, "standard output: write failed (got %s)",
                            strerror(errno));
    return PL_OK;
}
