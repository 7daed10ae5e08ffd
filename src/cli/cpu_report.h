/* Everything `plimsoll cpu` tells, gathered first so that text and JSON say the same. */
#ifndef PL_CLI_CPU_REPORT_H
#define PL_CLI_CPU_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "base/cgroup.h"
#include "base/cpu.h"
#include "base/meminfo.h"
#include "base/selftest.h"
#include "base/topology.h"

typedef enum pl_cpu_test {
    PL_CPU_TEST_NOT_RUN, /* not built, or this processor cannot execute it */
    PL_CPU_TEST_PASSED,
    PL_CPU_TEST_FAILED,
} pl_cpu_test;

typedef struct pl_cpu_level_report {
    bool built, supported;
    char missing[256]; /* features that the processor lacks; "" */
    pl_cpu_test test;
    char failure[PL_ERROR_MSG_BYTES]; /* of the self-test, or "" */
    char warning[PL_ERROR_MSG_BYTES]; /* likewise */
} pl_cpu_level_report;

typedef struct pl_cpu_report {
    pl_cpu cpu;
    pl_cpu_level_report levels[PL_LEVEL_COUNT];
    pl_level_choice choice;
    pl_topology topology;
    pl_cgroup_limits group;
    pl_mem_machine memory;
    int default_threads;
} pl_cpu_report;

/* `option` of --level, `environment` of PL_CPU; either may be NULL. The caller frees with _fini, whatever the
 * result. Errors: pl_level_choose, pl_topology_init. */
PL_MUST_CHECK pl_status pl_cpu_report_init(pl_cpu_report *r, const char *option,
                                           const char *environment, pl_error *err);
void pl_cpu_report_fini(pl_cpu_report *r);

void pl_cpu_report_print(const pl_cpu_report *r, FILE *to);

/* One JSON document and a newline; NOMEM, or IO where writing fails. */
PL_MUST_CHECK pl_status pl_cpu_report_write_json(const pl_cpu_report *r, FILE *to, pl_error *err);

/* Operators by what they have in common, and the levels they have kernels for. */
typedef struct pl_cpu_operators {
    const char *name;
    unsigned levels; /* bits 1 << pl_level */
} pl_cpu_operators;

/* Ends with a NULL name. */
extern const pl_cpu_operators pl_cpu_operator_groups[];

/* The level that a group runs at when `chosen` is: the highest of its own that is not above. */
pl_level pl_cpu_operators_level(const pl_cpu_operators *o, pl_level chosen);

/* Why that one: "the level chosen", "the only one built", "has no avx512 kernels". Returns `text`. */
const char *pl_cpu_operators_why(const pl_cpu_operators *o, pl_level chosen, char *text,
                                 size_t size);

#endif
