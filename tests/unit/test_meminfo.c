/* Memory probes against mappings of known size: what is touched is counted, what is not is not. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/meminfo.h"
#include "support/check.h"

/* A sanitizer's own mappings count as data. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WITH_SANITIZER true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WITH_SANITIZER true
#endif
#endif
#ifndef WITH_SANITIZER
#define WITH_SANITIZER false
#endif

enum { MIB = 1 << 20, SLACK = 1 * MIB };

static pl_mem_usage usage(void)
{
    pl_mem_usage u;
    pl_error err;

    check_ok(pl_mem_read_usage(&u, &err), &err);
    return u;
}

static void check_near(const char *what, uint64_t got, uint64_t want)
{
    if (got + SLACK < want || got > want + SLACK)
        fail_msg("%s: got %llu, want about %llu", what, (unsigned long long)got,
                 (unsigned long long)want);
}

static size_t resident_pages(const pl_mem *m)
{
    size_t n = m->bytes / 4096, present = 0;
    unsigned char *vec = malloc(n);

    assert_int_equal(mincore(m->base, m->bytes, vec), 0);
    for (size_t i = 0; i < n; i++)
        present += vec[i] & 1;
    free(vec);
    return present;
}

static void touched_mappings_are_resident_and_zero(void **state)
{
    for (unsigned flags = PL_MEM_TOUCH; flags <= (PL_MEM_TOUCH | PL_MEM_HUGE); flags++) {
        pl_mem_usage before = usage(), after;
        pl_mem m;
        pl_error err;

        check_ok(pl_mem_map(37 * MIB + 5000, flags, &m, &err), &err);
        after = usage();
        assert_int_equal(m.bytes, 37 * MIB + 8192);
        assert_int_equal((uintptr_t)m.base % (flags & PL_MEM_HUGE ? 2 * MIB : 4096), 0);
        check_near("resident", after.resident_bytes - before.resident_bytes, m.bytes);
        check_near("anonymous", after.anonymous_bytes - before.anonymous_bytes, m.bytes);
        check_near("data", after.data_bytes - before.data_bytes, m.bytes);
        assert_int_equal(resident_pages(&m), m.bytes / 4096);
        for (uint64_t i = 0; i < m.bytes; i += 1001)
            assert_int_equal(m.base[i], 0);
        m.base[m.bytes - 1] = 1;
        pl_mem_unmap(&m);
        assert_null(m.base);
        check_near("resident after", usage().resident_bytes, before.resident_bytes);
    }
}

static void untouched_mappings_are_not(void **state)
{
    pl_mem_usage before = usage();
    uint64_t exact_before, exact_after;
    pl_mem m;
    pl_error err;

    check_ok(pl_mem_map(64 * MIB, 0, &m, &err), &err);
    madvise(m.base, m.bytes, MADV_NOHUGEPAGE); /* where the system gives them unasked */
    check_near("resident", usage().resident_bytes, before.resident_bytes);
    check_ok(pl_mem_read_exact(&exact_before, NULL, &err), &err);
    memset(m.base + 8 * MIB, 7, 4096);
    check_ok(pl_mem_touch(m.base + 8 * MIB + 5, 16 * MIB, &err), &err);
    assert_int_equal(m.base[8 * MIB + 5], 7); /* contents stay */
    check_ok(pl_mem_read_exact(&exact_after, NULL, &err), &err);
    assert_true(exact_after - exact_before >= 16 * MIB + 4096);
    check_near("exact", exact_after - exact_before, 16 * MIB);
    assert_int_equal(resident_pages(&m), 16 * MIB / 4096 + 1);
    pl_mem_unmap(&m);
}

static void peak_stays_until_it_is_reset(void **state)
{
    uint64_t base = usage().resident_bytes;
    pl_mem m;
    pl_error err;

    check_ok(pl_mem_map(32 * MIB, PL_MEM_TOUCH, &m, &err), &err);
    pl_mem_unmap(&m);
    assert_true(usage().peak_resident_bytes >= base + 31 * MIB);
    check_ok(pl_mem_reset_peak(&err), &err);
    check_near("peak", usage().peak_resident_bytes, base);
}

static void page_tables_grow_with_small_pages(void **state)
{
    uint64_t before = usage().page_table_bytes;
    pl_mem m;
    pl_error err;

    check_ok(pl_mem_map(64 * MIB, 0, &m, &err), &err);
    madvise(m.base, m.bytes, MADV_NOHUGEPAGE);
    check_ok(pl_mem_touch(m.base, m.bytes, &err), &err);
    /* 8 bytes a page: 128 KiB, and whole pages of tables. */
    assert_true(usage().page_table_bytes >= before + 128 * 1024);
    assert_true(usage().page_table_bytes <= before + 160 * 1024);
    pl_mem_unmap(&m);
}

static void empty_and_impossible_sizes(void **state)
{
    pl_mem m = {(uint8_t *)1, 1};
    pl_error err;

    check_ok(pl_mem_map(0, PL_MEM_TOUCH, &m, &err), &err);
    assert_null(m.base);
    pl_mem_unmap(&m);
    check_error(pl_mem_map(UINT64_MAX, PL_MEM_HUGE, &m, &err), PL_ERR_NOMEM, &err, "memory:", NULL);
    assert_null(m.base);
    check_error(pl_mem_map(1ull << 60, 0, &m, &err), PL_ERR_NOMEM, &err, "refuses", NULL);
    assert_int_equal(pl_mem_mapped_bytes(1), 4096);
    assert_int_equal(pl_mem_mapped_bytes(8192), 8192);
    assert_true(pl_mem_mapped_bytes(UINT64_MAX - 5) == UINT64_MAX);
}

/* In a child, since a limit cannot harm the other tests there. */
static int try_the_line(void)
{
    uint64_t now = usage().data_bytes;
    void *volatile heap; /* or clang would do without the allocation */
    pl_mem m, n;
    pl_error err;

    if (pl_mem_set_line(now - 4096, &err) != PL_ERR_INVALID)
        return 1;
    if (pl_mem_set_line(now + 20 * MIB, &err) != PL_OK)
        return 2;
    if (pl_mem_map(16 * MIB, PL_MEM_TOUCH, &m, &err) != PL_OK)
        return 3;
    if (pl_mem_map(8 * MIB, PL_MEM_HUGE, &n, &err) != PL_ERR_NOMEM || n.base)
        return 4;
    if (!strstr(err.msg, "over the line (got 8388608 bytes, want at most "))
        return 5;
    heap = malloc(64 * MIB);
    if (heap)
        return 6;
    pl_mem_unmap(&m);
    if (pl_mem_map(8 * MIB, 0, &n, &err) != PL_OK)
        return 7;
    if (pl_mem_set_line(UINT64_MAX, &err) != PL_OK)
        return 8;
    return pl_mem_map(64 * MIB, 0, &m, &err) == PL_OK ? 0 : 9;
}

/* Whoever started the program may have drawn a line below what it has already. */
static int try_a_line_below_what_is_there(void)
{
    struct rlimit line;
    pl_mem m;
    pl_error err;

    if (getrlimit(RLIMIT_DATA, &line) != 0)
        return 1;
    line.rlim_cur = usage().data_bytes - 8192;
    if (setrlimit(RLIMIT_DATA, &line) != 0)
        return 2;
    if (pl_mem_map(8 * MIB, 0, &m, &err) != PL_ERR_NOMEM || m.base)
        return 3;
    return strstr(err.msg, "over the line (got 8388608 bytes, want at most 0)") ? 0 : 4;
}

static void check_in_a_child(int (*run)(void))
{
    int status;
    pid_t child;

    if (WITH_SANITIZER)
        skip();
    child = fork();
    if (child == 0)
        _exit(run());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void the_line_holds(void **state)
{
    check_in_a_child(try_the_line);
}

static void a_line_below_what_is_there_leaves_nothing(void **state)
{
    check_in_a_child(try_a_line_below_what_is_there);
}

static void machine_is_plausible(void **state)
{
    pl_mem_machine m;
    pl_error err;

    check_ok(pl_mem_read_machine(&m, &err), &err);
    assert_true(m.total_bytes >= (uint64_t)64 * MIB);
    assert_true(m.total_bytes <= (uint64_t)sysconf(_SC_PHYS_PAGES) * 4096 + 4096);
    assert_true(m.available_bytes > 0 && m.available_bytes <= m.total_bytes);
    assert_true(m.limit_bytes > 0 && m.limit_bytes <= m.total_bytes);
    assert_true(m.huge_page_bytes == 0 || m.huge_page_bytes >= 64 * 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(touched_mappings_are_resident_and_zero),
        cmocka_unit_test(untouched_mappings_are_not),
        cmocka_unit_test(peak_stays_until_it_is_reset),
        cmocka_unit_test(page_tables_grow_with_small_pages),
        cmocka_unit_test(empty_and_impossible_sizes),
        cmocka_unit_test(the_line_holds),
        cmocka_unit_test(a_line_below_what_is_there_leaves_nothing),
        cmocka_unit_test(machine_is_plausible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
