/* Topology through hwloc, copied into plain arrays so that hwloc's tree lives only while it is read.
 *
 * hwloc knows cores, siblings, nodes and caches under every kernel and container; it does not know CPU
 * quotas, which come from base/cgroup.h. */
#include "base/topology.h"

#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/error.h"

/* Index of the object's first usable ancestor of this type among all of them, counted over the usable
 * ones only, so that numbers are dense. */
static int dense_index(hwloc_topology_t h, hwloc_const_cpuset_t usable, hwloc_obj_type_t type,
                       hwloc_const_cpuset_t pu)
{
    int n = 0;

    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(h, type, o));) {
        if (!o->cpuset || !hwloc_bitmap_intersects(o->cpuset, usable))
            continue;
        if (hwloc_bitmap_intersects(o->cpuset, pu))
            return n;
        n++;
    }
    return 0;
}

/* How many usable hardware threads of the same core come before this one. */
static int sibling_index(const pl_topology *t, int n, int core)
{
    int thread = 0;

    for (int i = 0; i < n; i++)
        thread += t->cpus[i].core == core;
    return thread;
}

static int by_thread_then_core(const void *a, const void *b)
{
    const pl_topology_cpu *x = a, *y = b;

    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    return x->core < y->core ? -1 : x->core > y->core;
}

static int max_plus_one(int so_far, int index)
{
    return index >= so_far ? index + 1 : so_far;
}

static void copy_cpus(pl_topology *t, hwloc_topology_t h, hwloc_const_cpuset_t usable)
{
    int n = 0;

    for (hwloc_obj_t pu = NULL; (pu = hwloc_get_next_obj_by_type(h, HWLOC_OBJ_PU, pu));) {
        pl_topology_cpu *c = &t->cpus[n];
        if (!hwloc_bitmap_isset(usable, pu->os_index))
            continue;
        c->os_id = (int)pu->os_index;
        /* Some virtual machines describe no cores at all: then every thread is one. */
        c->core = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_CORE) > 0
                      ? dense_index(h, usable, HWLOC_OBJ_CORE, pu->cpuset)
                      : n;
        c->node = dense_index(h, usable, HWLOC_OBJ_NUMANODE, pu->cpuset);
        c->package = dense_index(h, usable, HWLOC_OBJ_PACKAGE, pu->cpuset);
        c->thread = sibling_index(t, n, c->core);
        t->n_cores = max_plus_one(t->n_cores, c->core);
        t->n_packages = max_plus_one(t->n_packages, c->package);
        n++;
    }
    t->n_cpus = n;
    qsort(t->cpus, (size_t)n, sizeof *t->cpus, by_thread_then_core);
}

static void copy_nodes(pl_topology *t, hwloc_topology_t h, hwloc_const_cpuset_t usable)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(h, HWLOC_OBJ_NUMANODE, o));)
        if (o->cpuset && hwloc_bitmap_intersects(o->cpuset, usable))
            t->nodes[t->n_nodes++] =
                (pl_topology_node){(int)o->os_index, o->attr->numanode.local_memory};
}

static void copy_caches(pl_topology *t, hwloc_topology_t h, hwloc_const_cpuset_t usable)
{
    static const hwloc_obj_type_t types[PL_TOPOLOGY_MAX_CACHES] = {
        HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE,
        HWLOC_OBJ_L5CACHE};

    for (int i = 0; i < PL_TOPOLOGY_MAX_CACHES; i++) {
        pl_topology_cache c = {.level = i + 1};
        for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(h, types[i], o));) {
            if (!hwloc_bitmap_intersects(o->cpuset, usable))
                continue;
            c.bytes = o->attr->cache.size;
            c.n_instances++;
        }
        if (c.n_instances > 0)
            t->caches[t->n_caches++] = c;
    }
}

static pl_status copy_all(pl_topology *t, hwloc_topology_t h, hwloc_const_cpuset_t usable,
                          pl_error *err)
{
    int n_pu = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_PU);
    int n_nodes = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_NUMANODE);

    if (n_pu < 1 || n_nodes < 1)
        return pl_error_set(err, PL_ERR_IO, "topology: no processors found (got %d, %d nodes)",
                            n_pu, n_nodes);
    t->cpus = calloc((size_t)n_pu, sizeof *t->cpus);
    t->nodes = calloc((size_t)n_nodes, sizeof *t->nodes);
    if (!t->cpus || !t->nodes) {
        pl_topology_fini(t);
        return pl_error_set(err, PL_ERR_NOMEM, "topology: out of memory (got %d processors)", n_pu);
    }
    copy_cpus(t, h, usable);
    copy_nodes(t, h, usable);
    copy_caches(t, h, usable);
    if (t->n_cpus < 1) {
        pl_topology_fini(t);
        return pl_error_set(err, PL_ERR_IO, "topology: no usable processor in the affinity mask");
    }
    return PL_OK;
}

/* `description` NULL: this machine. */
static pl_status read_topology(pl_topology *t, const char *description, pl_error *err)
{
    hwloc_topology_t h = NULL;
    hwloc_bitmap_t usable = hwloc_bitmap_alloc_full();
    pl_status s = PL_OK;

    memset(t, 0, sizeof *t);
    if (!usable || hwloc_topology_init(&h) != 0)
        s = pl_error_set(err, PL_ERR_NOMEM, "topology: out of memory");
    else if (description && hwloc_topology_set_synthetic(h, description) != 0)
        s = pl_error_set(err, PL_ERR_INVALID, "topology: bad description (got '%s')", description);
    else if (hwloc_topology_load(h) != 0)
        s = pl_error_set(err, PL_ERR_IO, "topology: hwloc cannot read this machine");
    else if (!description && hwloc_get_cpubind(h, usable, HWLOC_CPUBIND_THREAD) != 0)
        s = pl_error_set(err, PL_ERR_IO, "topology: cannot read the affinity mask");
    else
        s = copy_all(t, h, usable, err);
    if (h)
        hwloc_topology_destroy(h);
    hwloc_bitmap_free(usable);
    return s;
}

pl_status pl_topology_init(pl_topology *t, pl_error *err)
{
    return read_topology(t, NULL, err);
}

pl_status pl_topology_init_synthetic(pl_topology *t, const char *description, pl_error *err)
{
    return read_topology(t, description, err);
}

void pl_topology_fini(pl_topology *t)
{
    free(t->cpus);
    free(t->nodes);
    memset(t, 0, sizeof *t);
}

int pl__threads_under_quota(const pl_topology *t, double quota)
{
    int n = t->n_cores;

    if (quota > 0 && quota < n)
        n = (int)quota + (quota > (int)quota);
    return n < 1 ? 1 : n;
}

int pl_topology_default_threads(const pl_topology *t)
{
    pl_cgroup_limits limits;

    pl_cgroup_read(&limits);
    return pl__threads_under_quota(t, limits.cpu_quota);
}

int pl_cpu_default_threads(void)
{
    pl_topology t;
    int n;

    if (pl_topology_init(&t, NULL) != PL_OK)
        return 1;
    n = pl_topology_default_threads(&t);
    pl_topology_fini(&t);
    return n;
}
