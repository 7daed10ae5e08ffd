/* Limits that the process's control groups set, version 1 and version 2, up the whole hierarchy. */
#ifndef PL_BASE_CGROUP_H
#define PL_BASE_CGROUP_H

#include "plimsoll/status.h"

typedef struct pl_cgroup_limits {
    int version;      /* 0: no group with either controller; 2, or 1 where any limit is from v1 */
    double cpu_quota; /* processors' worth of time; 0: unlimited */
    uint64_t memory_max; /* bytes; UINT64_MAX: unlimited */
    uint64_t
        memory_used; /* bytes charged to the group with the tightest limit, or to the process's own
                             group where none is limited; 0 where not known */
} pl_cgroup_limits;

/* Never fails: what cannot be read is unlimited. Quota and memory are each the tightest of the process's
 * group and all its ancestors. */
void pl_cgroup_read(pl_cgroup_limits *limits);

/* The same under another root, which holds "proc/self/cgroup", "proc/self/mountinfo" and the mount points
 * that the latter names; for tests. */
void pl_cgroup_read_at(const char *root, pl_cgroup_limits *limits);

#endif
