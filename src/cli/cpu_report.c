/* Gathers what `plimsoll cpu` tells. */
#include "cli/cpu_report.h"

#include <string.h>

#include "base/error.h"
#include "ops/level.h"

static const pl_selftest *const selftests[] = {pl_base_selftests, pl_ops_selftests, NULL};

/* Levels that an operator has kernels of its own for. Each kernel file that is added puts its bit here; tests
 * compare with the operator tables. */
enum { DEFINITION = 1u << PL_LEVEL_SCALAR | 1u << PL_LEVEL_F64 };
#ifdef PL_HAVE_AVX2
enum { AVX2 = 1u << PL_LEVEL_AVX2 };
#else
enum { AVX2 = 0 };
#endif
#ifdef PL_HAVE_AVX512
enum { AVX512 = 1u << PL_LEVEL_AVX512 | 1u << PL_LEVEL_AVX512BF16 };
#else
enum { AVX512 = 0 };
#endif
enum { VECTOR = DEFINITION | AVX2, LINEAR = VECTOR | AVX512 };

const pl_cpu_operators pl_cpu_operator_groups[] = {
    {"linear_fp8", LINEAR},        {"linear_fp8_a16", LINEAR}, {"linear_fp4", LINEAR},
    {"linear_bf16", LINEAR},       {"attention", VECTOR},      {"indexer", VECTOR},
    {"compressor", VECTOR},        {"quantise", VECTOR},       {"norm_rope", VECTOR},
    {"hyper_connections", VECTOR}, {"experts", VECTOR},        {NULL, 0},
};

pl_level pl_cpu_operators_level(const pl_cpu_operators *o, pl_level chosen)
{
    if (chosen == PL_LEVEL_F64)
        return chosen;
    for (int l = (int)chosen; l > PL_LEVEL_SCALAR; l--)
        if (o->levels >> l & 1)
            return (pl_level)l;
    return PL_LEVEL_SCALAR;
}

const char *pl_cpu_operators_why(const pl_cpu_operators *o, pl_level chosen, char *text,
                                 size_t size)
{
    if (chosen == PL_LEVEL_F64)
        snprintf(text, size, "the level chosen");
    else if (o->levels == DEFINITION)
        snprintf(text, size, "the only one built");
    else if (pl_cpu_operators_level(o, chosen) == chosen)
        snprintf(text, size, "the level chosen");
    else
        snprintf(text, size, "has no %s kernels", pl_level_name(chosen));
    return text;
}

static void report_level(pl_cpu_report *r, pl_level l)
{
    pl_cpu_level_report *v = &r->levels[l];
    pl_error err = {0}, warning;

    v->built = pl_level_built() >> l & 1;
    pl_level_missing(&r->cpu, l, v->missing, sizeof v->missing);
    v->supported = !v->missing[0];
    if (!v->built || !v->supported)
        return;
    if (pl_selftest_run(selftests, l, &warning, &err) == PL_OK) {
        memcpy(v->warning, warning.msg, sizeof v->warning);
        v->test = PL_CPU_TEST_PASSED;
        return;
    }
    v->test = PL_CPU_TEST_FAILED;
    memcpy(v->failure, err.msg, sizeof v->failure);
}

pl_status pl_cpu_report_init(pl_cpu_report *r, const char *option, const char *environment,
                             pl_error *err)
{
    memset(r, 0, sizeof *r);
    pl_cpu_detect(&r->cpu, NULL);
    PL_TRY(pl_level_choose(&r->cpu, pl_level_built(), option, environment, selftests, &r->choice,
                           err));
    for (int l = 0; l < PL_LEVEL_COUNT; l++)
        report_level(r, (pl_level)l);
    PL_TRY(pl_topology_init(&r->topology, err));
    PL_TRY(pl_mem_read_machine(&r->memory, err));
    pl_cgroup_read(&r->group);
    r->default_threads = pl_topology_default_threads(&r->topology);
    return PL_OK;
}

void pl_cpu_report_fini(pl_cpu_report *r)
{
    pl_topology_fini(&r->topology);
}
