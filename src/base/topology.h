/* The processors this thread may run on: which are cores, which are siblings, where their memory is.
 *
 * Everything is restricted to the affinity mask of the calling thread, so cpusets and taskset count. */
#ifndef PL_BASE_TOPOLOGY_H
#define PL_BASE_TOPOLOGY_H

#include "plimsoll/status.h"

typedef struct pl_topology_cpu {
    int os_id;   /* number that sched_setaffinity takes */
    int core;    /* 0 .. n_cores - 1 */
    int thread;  /* 0 for the first usable hardware thread of its core, then 1, ... */
    int node;    /* 0 .. n_nodes - 1 */
    int package; /* 0 .. n_packages - 1 */
} pl_topology_cpu;

typedef struct pl_topology_cache {
    int level;       /* 1, 2, 3, ... */
    uint64_t bytes;  /* of one instance; data or unified */
    int n_instances; /* reachable from the usable processors */
} pl_topology_cache;

typedef struct pl_topology_node {
    int os_id;
    uint64_t bytes; /* memory of the node */
} pl_topology_node;

enum { PL_TOPOLOGY_MAX_CACHES = 5 };

typedef struct pl_topology {
    int n_cpus; /* usable hardware threads */
    int n_cores;
    int n_nodes;
    int n_packages;
    int n_caches;
    pl_topology_cache caches[PL_TOPOLOGY_MAX_CACHES]; /* ascending levels */
    /* n_cpus entries: first one hardware thread of every core, then the second ones, and so on; within
     * each, cores that share a node and a cache are neighbours. Workers are pinned in this order. */
    pl_topology_cpu *cpus;
    pl_topology_node *nodes; /* n_nodes entries */
} pl_topology;

/* Reads the machine. NOMEM, or IO where the system cannot be asked. The caller frees with _fini. */
PL_MUST_CHECK pl_status pl_topology_init(pl_topology *t, pl_error *err);

/* The same from a description in hwloc's synthetic language ("pack:2 core:4 pu:2"), for tests. The
 * affinity mask of the caller is ignored. */
PL_MUST_CHECK pl_status pl_topology_init_synthetic(pl_topology *t, const char *description,
                                                   pl_error *err);

/* Frees what _init made; fine on a zeroed struct. */
void pl_topology_fini(pl_topology *t);

/* Threads to use by default: usable physical cores, capped by the cgroup's quota rounded up; at least
 * 1. */
int pl_topology_default_threads(const pl_topology *t);

/* The arithmetic of it; quota in processors, 0: none. */
int pl__threads_under_quota(const pl_topology *t, double quota);

/* The same for a caller that holds no topology; 1 where the system cannot be asked. */
int pl_cpu_default_threads(void);

#endif
