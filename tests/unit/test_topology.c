/* Machines of several shapes: the order in which workers are pinned, and the counts that threads follow. */
#include <sched.h>
#include <unistd.h>

#include "base/topology.h"
#include "support/check.h"

static pl_topology make(const char *description)
{
    pl_topology t;
    pl_error err;

    check_ok(pl_topology_init_synthetic(&t, description, &err), &err);
    return t;
}

static void cores_first_then_siblings(void **state)
{
    /* Two packages with one node each, four cores, two threads: 16 processors. */
    pl_topology t = make("pack:2 numa:1(memory=1GB) l3:1(size=8MB) core:4 pu:2");

    assert_int_equal(t.n_cpus, 16);
    assert_int_equal(t.n_cores, 8);
    assert_int_equal(t.n_nodes, 2);
    assert_int_equal(t.n_packages, 2);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(t.cpus[i].core, i % 8);
        assert_int_equal(t.cpus[i].thread, i / 8);
        assert_int_equal(t.cpus[i].node, i % 8 / 4);
        assert_int_equal(t.cpus[i].package, i % 8 / 4);
        assert_int_equal(t.cpus[i].os_id, i % 8 * 2 + i / 8);
    }
    assert_int_equal(t.nodes[0].bytes, 1000000000);
    assert_int_equal(t.nodes[1].os_id, 1);
    pl_topology_fini(&t);
    assert_null(t.cpus);
}

static void caches_count_instances(void **state)
{
    pl_topology t = make("pack:1 l3:2(size=16MB) l2:4(size=1MB) l1d:1(size=32kB) core:1 pu:2");

    assert_int_equal(t.n_caches, 3);
    assert_int_equal(t.caches[0].level, 1);
    assert_int_equal(t.caches[0].n_instances, 8);
    assert_int_equal(t.caches[2].level, 3);
    assert_int_equal(t.caches[2].n_instances, 2);
    assert_true(t.caches[2].bytes >= 15000000 && t.caches[2].bytes <= 17000000);
    pl_topology_fini(&t);
}

static void nodes_inside_a_package(void **state)
{
    pl_topology t = make("pack:1 numa:4 core:2 pu:1");

    assert_int_equal(t.n_nodes, 4);
    assert_int_equal(t.n_cores, 8);
    assert_int_equal(t.cpus[7].node, 3);
    pl_topology_fini(&t);
}

static void bad_description_is_an_error(void **state)
{
    pl_topology t;
    pl_error err;

    check_error(pl_topology_init_synthetic(&t, "nonsense", &err), PL_ERR_INVALID, &err,
                "got 'nonsense'", NULL);
    pl_topology_fini(&t);
}

static void this_machine_agrees_with_the_system(void **state)
{
    pl_topology t;
    pl_error err;
    cpu_set_t mask;

    sched_getaffinity(0, sizeof mask, &mask);
    check_ok(pl_topology_init(&t, &err), &err);
    assert_int_equal(t.n_cpus, CPU_COUNT(&mask));
    for (int i = 0; i < t.n_cpus; i++)
        assert_true(CPU_ISSET(t.cpus[i].os_id, &mask));
    assert_true(t.n_cores >= 1 && t.n_cores <= t.n_cpus);
    pl_topology_fini(&t);
}

static void only_the_affinity_mask_counts(void **state)
{
    cpu_set_t before, one;
    pl_topology t;
    pl_error err;
    int last = 0, threads;

    sched_getaffinity(0, sizeof before, &before);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &before))
            last = i;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    sched_setaffinity(0, sizeof one, &one);
    check_ok(pl_topology_init(&t, &err), &err);
    threads = pl_cpu_default_threads();
    sched_setaffinity(0, sizeof before, &before);
    assert_int_equal(t.n_cpus, 1);
    assert_int_equal(t.n_cores, 1);
    assert_int_equal(t.n_nodes, 1);
    assert_int_equal(t.cpus[0].os_id, last);
    assert_int_equal(t.cpus[0].node, 0);
    assert_int_equal(threads, 1);
    pl_topology_fini(&t);
}

static void default_threads_follow_the_quota(void **state)
{
    pl_topology t = make("pack:1 core:8 pu:2");

    assert_int_equal(pl__threads_under_quota(&t, 0), 8);
    assert_int_equal(pl__threads_under_quota(&t, 4), 4);
    assert_int_equal(pl__threads_under_quota(&t, 2.5), 3);
    assert_int_equal(pl__threads_under_quota(&t, 0.1), 1);
    assert_int_equal(pl__threads_under_quota(&t, 100), 8);
    pl_topology_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_first_then_siblings),
        cmocka_unit_test(caches_count_instances),
        cmocka_unit_test(nodes_inside_a_package),
        cmocka_unit_test(bad_description_is_an_error),
        cmocka_unit_test(this_machine_agrees_with_the_system),
        cmocka_unit_test(only_the_affinity_mask_counts),
        cmocka_unit_test(default_threads_follow_the_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
