/* Control-group limits from small trees of files as kernels and containers show them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "support/check.h"

struct tree {
    char root[64];
};

static int make_tree(void **state)
{
    struct tree *t = malloc(sizeof *t);

    strcpy(t->root, "/tmp/pl_cgroup_XXXXXX");
    *state = t;
    return mkdtemp(t->root) ? 0 : -1;
}

static int remove_tree(void **state)
{
    struct tree *t = *state;
    char command[128];
    int rc;

    snprintf(command, sizeof command, "rm -rf '%s'", t->root);
    rc = system(command);
    free(t);
    return rc;
}

/* Writes root/path, making the folders on the way. */
static void put(const struct tree *t, const char *path, const char *text)
{
    char full[512];
    FILE *f;

    snprintf(full, sizeof full, "%s/%s", t->root, path);
    for (char *slash = full + strlen(t->root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        if (mkdir(full, 0777) != 0 && errno != EEXIST)
            fail_msg("mkdir %s", full);
        *slash = '/';
    }
    f = fopen(full, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        fail_msg("cannot write %s", full);
}

#define V2_MOUNT "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"

static void nothing_there_is_unlimited(void **state)
{
    pl_cgroup_limits l;

    pl_cgroup_read_at(((struct tree *)*state)->root, &l);
    assert_int_equal(l.version, 0);
    assert_true(l.cpu_quota == 0);
    assert_true(l.memory_max == UINT64_MAX);
    assert_int_equal(l.memory_used, 0);
}

static void version_2_takes_the_tightest_of_all_ancestors(void **state)
{
    const struct tree *t = *state;
    pl_cgroup_limits l;

    put(t, "proc/self/cgroup", "0::/a.slice/b.scope\n");
    put(t, "proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" V2_MOUNT);
    put(t, "sys/fs/cgroup/a.slice/cpu.max", "150000 100000\n");
    put(t, "sys/fs/cgroup/a.slice/memory.max", "1073741824\n");
    put(t, "sys/fs/cgroup/a.slice/memory.current", "5000\n");
    put(t, "sys/fs/cgroup/a.slice/b.scope/cpu.max", "max 100000\n");
    put(t, "sys/fs/cgroup/a.slice/b.scope/memory.max", "4294967296\n");
    put(t, "sys/fs/cgroup/a.slice/b.scope/memory.current", "3000\n");
    pl_cgroup_read_at(t->root, &l);
    assert_int_equal(l.version, 2);
    assert_true(l.cpu_quota == 1.5);
    assert_int_equal(l.memory_max, 1073741824);
    assert_int_equal(l.memory_used, 5000);

    put(t, "sys/fs/cgroup/a.slice/b.scope/memory.high", "536870912\n");
    pl_cgroup_read_at(t->root, &l);
    assert_int_equal(l.memory_max, 536870912);
    assert_int_equal(l.memory_used, 3000);
}

static void version_2_without_limits_still_tells_use(void **state)
{
    const struct tree *t = *state;
    pl_cgroup_limits l;

    put(t, "proc/self/cgroup", "0::/x\n");
    put(t, "proc/self/mountinfo", V2_MOUNT);
    put(t, "sys/fs/cgroup/x/cpu.max", "max 100000\n");
    put(t, "sys/fs/cgroup/x/memory.max", "max\n");
    put(t, "sys/fs/cgroup/x/memory.current", "12345\n");
    pl_cgroup_read_at(t->root, &l);
    assert_int_equal(l.version, 2);
    assert_true(l.cpu_quota == 0);
    assert_true(l.memory_max == UINT64_MAX);
    assert_int_equal(l.memory_used, 12345);
}

/* Inside a container without a name space the path is the host's, the mount shows only its end. */
static void container_paths_are_relative_to_the_mount(void **state)
{
    const struct tree *t = *state;
    pl_cgroup_limits l;

    put(t, "proc/self/cgroup", "0::/docker/abc/inner\n");
    put(t, "proc/self/mountinfo", "35 24 0:30 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put(t, "sys/fs/cgroup/cpu.max", "400000 100000\n");
    put(t, "sys/fs/cgroup/memory.max", "2147483648\n");
    put(t, "sys/fs/cgroup/inner/memory.max", "1000000\n");
    pl_cgroup_read_at(t->root, &l);
    assert_true(l.cpu_quota == 4);
    assert_int_equal(l.memory_max, 1000000);

    /* A path outside of what is mounted: only the mount itself can be read. */
    put(t, "proc/self/cgroup", "0::/../other\n");
    pl_cgroup_read_at(t->root, &l);
    assert_int_equal(l.memory_max, 2147483648);

    /* "/docker/abcdef" is not below "/docker/abc". */
    put(t, "proc/self/cgroup", "0::/docker/abcinner\n");
    pl_cgroup_read_at(t->root, &l);
    assert_int_equal(l.memory_max, 2147483648);
}

static void version_1_has_a_mount_per_controller(void **state)
{
    const struct tree *t = *state;
    pl_cgroup_limits l;

    put(t, "proc/self/cgroup",
        "9:name=systemd:/\n5:cpuacct,cpu:/jobs/1\n4:memory:/jobs/1\n3:cpuset:/wrong\n0::/\n");
    put(t, "proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
        "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "32 31 0:29 / /sys/fs/cgroup/cpu\\040set rw - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    put(t, "sys/fs/cgroup/cpu set/jobs/cpu.cfs_quota_us", "-1\n");
    put(t, "sys/fs/cgroup/cpu set/jobs/cpu.cfs_period_us", "100000\n");
    put(t, "sys/fs/cgroup/cpu set/jobs/1/cpu.cfs_quota_us", "50000\n");
    put(t, "sys/fs/cgroup/cpu set/jobs/1/cpu.cfs_period_us", "200000\n");
    put(t, "sys/fs/cgroup/memory/jobs/1/memory.limit_in_bytes", "9223372036854771712\n");
    put(t, "sys/fs/cgroup/memory/jobs/1/memory.usage_in_bytes", "4096\n");
    put(t, "sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "8388608\n");
    put(t, "sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "8192\n");
    pl_cgroup_read_at(t->root, &l);
    assert_int_equal(l.version, 1);
    assert_true(l.cpu_quota == 0.25);
    assert_int_equal(l.memory_max, 8388608);
    assert_int_equal(l.memory_used, 8192);
}

static void damaged_files_are_unlimited_not_zero(void **state)
{
    const struct tree *t = *state;
    pl_cgroup_limits l;

    put(t, "proc/self/cgroup", "nonsense\n0::\n:::::\n0::/x\n");
    put(t, "proc/self/mountinfo", "short\n1 2 3 - \n1 2 3 / - cgroup2 x rw\n" V2_MOUNT);
    put(t, "sys/fs/cgroup/cpu.max", "garbage\n");
    put(t, "sys/fs/cgroup/x/cpu.max", "100000 0\n");
    put(t, "sys/fs/cgroup/x/memory.max", "\n");
    put(t, "sys/fs/cgroup/memory.max", "-5\n");
    pl_cgroup_read_at(t->root, &l);
    assert_true(l.cpu_quota == 0);
    assert_true(l.memory_max == UINT64_MAX);
}

static void this_process_can_be_asked(void **state)
{
    pl_cgroup_limits l;

    pl_cgroup_read(&l);
    assert_true(l.memory_max > 0);
    assert_true(l.cpu_quota >= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_there_is_unlimited, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(version_2_takes_the_tightest_of_all_ancestors, make_tree,
                                        remove_tree),
        cmocka_unit_test_setup_teardown(version_2_without_limits_still_tells_use, make_tree,
                                        remove_tree),
        cmocka_unit_test_setup_teardown(container_paths_are_relative_to_the_mount, make_tree,
                                        remove_tree),
        cmocka_unit_test_setup_teardown(version_1_has_a_mount_per_controller, make_tree,
                                        remove_tree),
        cmocka_unit_test_setup_teardown(damaged_files_are_unlimited_not_zero, make_tree,
                                        remove_tree),
        cmocka_unit_test(this_process_can_be_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
