/* Memory as /proc tells it, and anonymous mappings.
 *
 * Mappings are private and anonymous because only those are what the plan promises: no file pages, no
 * sharing, counted by RLIMIT_DATA. Alignment is made by reserving more and cutting off the ends. */
#include "base/meminfo.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/error.h"

enum { HUGE_BYTES = 2 << 20 };

/* Linux 5.14; the C library's headers may be older than the kernel. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct field {
    const char *name; /* with its colon */
    uint64_t *bytes;
};

/* Fills fields from lines "Name:   123 kB"; missing ones stay. */
static pl_status read_fields(const char *path, const struct field *fields, size_t n, pl_error *err)
{
    char line[256];
    FILE *f = fopen(path, "re");

    if (!f)
        return pl_error_set(err, PL_ERR_IO, "%s: cannot open (got %s)", path, strerror(errno));
    while (fgets(line, sizeof line, f))
        for (size_t i = 0; i < n; i++)
            if (strncmp(line, fields[i].name, strlen(fields[i].name)) == 0)
                *fields[i].bytes = strtoull(line + strlen(fields[i].name), NULL, 10) * 1024;
    fclose(f);
    return PL_OK;
}

pl_status pl_mem_read_usage(pl_mem_usage *u, pl_error *err)
{
    const struct field fields[] = {
        {"VmRSS:", &u->resident_bytes},    {"VmHWM:", &u->peak_resident_bytes},
        {"RssAnon:", &u->anonymous_bytes}, {"RssFile:", &u->file_bytes},
        {"VmData:", &u->data_bytes},       {"VmPTE:", &u->page_table_bytes},
    };

    memset(u, 0, sizeof *u);
    PL_TRY(read_fields("/proc/self/status", fields, sizeof fields / sizeof fields[0], err));
    if (u->resident_bytes == 0 || u->peak_resident_bytes == 0)
        return pl_error_set(err, PL_ERR_IO, "/proc/self/status: no VmRSS or VmHWM");
    return PL_OK;
}

pl_status pl_mem_read_exact(uint64_t *resident_bytes, uint64_t *anonymous_bytes, pl_error *err)
{
    uint64_t anonymous = 0;
    const struct field fields[] = {{"Rss:", resident_bytes}, {"Anonymous:", &anonymous}};

    *resident_bytes = 0;
    PL_TRY(read_fields("/proc/self/smaps_rollup", fields, 2, err));
    if (*resident_bytes == 0)
        return pl_error_set(err, PL_ERR_IO, "/proc/self/smaps_rollup: no Rss");
    if (anonymous_bytes)
        *anonymous_bytes = anonymous;
    return PL_OK;
}

pl_status pl_mem_reset_peak(pl_error *err)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : write(fd, "5", 1);
    int e = errno;

    if (fd >= 0)
        close(fd);
    if (n != 1)
        return pl_error_set(err, PL_ERR_IO, "/proc/self/clear_refs: cannot reset the peak (got %s)",
                            strerror(e));
    return PL_OK;
}

static bool read_line(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(text, (int)size, f);

    if (f)
        fclose(f);
    return ok;
}

/* 0 where transparent huge pages are absent or "never". */
static uint64_t read_huge_page_bytes(void)
{
    char text[128];

    if (!read_line("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text) ||
        strstr(text, "[never]"))
        return 0;
    if (!read_line("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", text, sizeof text))
        return 0;
    return strtoull(text, NULL, 10);
}

pl_status pl_mem_read_machine(pl_mem_machine *m, pl_error *err)
{
    uint64_t free_bytes = 0;
    const struct field fields[] = {
        {"MemTotal:", &m->total_bytes},
        {"MemFree:", &free_bytes},
        {"MemAvailable:", &m->available_bytes},
    };
    pl_cgroup_limits group;

    memset(m, 0, sizeof *m);
    PL_TRY(read_fields("/proc/meminfo", fields, sizeof fields / sizeof fields[0], err));
    if (m->total_bytes == 0)
        return pl_error_set(err, PL_ERR_IO, "/proc/meminfo: no MemTotal");
    if (m->available_bytes == 0)
        m->available_bytes = free_bytes;
    pl_cgroup_read(&group);
    m->limit_bytes = group.memory_max < m->total_bytes ? group.memory_max : m->total_bytes;
    m->huge_page_bytes = read_huge_page_bytes();
    return PL_OK;
}

uint64_t pl_mem_mapped_bytes(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    return bytes > UINT64_MAX - (page - 1) ? UINT64_MAX : (bytes + page - 1) & ~(page - 1);
}

static pl_status refused(uint64_t bytes, int e, pl_error *err)
{
    struct rlimit line;
    pl_mem_usage u;

    if (getrlimit(RLIMIT_DATA, &line) == 0 && line.rlim_cur != RLIM_INFINITY &&
        pl_mem_read_usage(&u, NULL) == PL_OK) {
        /* A line drawn by others may be below what was there already. */
        uint64_t room = u.data_bytes < line.rlim_cur ? line.rlim_cur - u.data_bytes : 0;
        if (bytes > room)
            return pl_error_set(err, PL_ERR_NOMEM,
                                "memory: mapping goes over the line (got %" PRIu64
                                " bytes, want at most %" PRIu64 ")",
                                bytes, room);
    }
    return pl_error_set(err, PL_ERR_NOMEM,
                        "memory: the system refuses a mapping (got %" PRIu64 " bytes: %s)", bytes,
                        strerror(e));
}

/* Reserves address space of which `bytes` from a multiple of `align` remain; NULL with errno set. */
static uint8_t *reserve_aligned(uint64_t bytes, uint64_t align)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), total, head;
    uint8_t *p;

    if (__builtin_add_overflow(bytes, align - page, &total) || total > SIZE_MAX) {
        errno = ENOMEM;
        return NULL;
    }
    p = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    head = -(uintptr_t)p & (align - 1);
    if (head)
        munmap(p, head);
    if (total - head > bytes)
        munmap(p + head + bytes, total - head - bytes);
    return p + head;
}

pl_status pl_mem_map(uint64_t bytes, unsigned flags, pl_mem *m, pl_error *err)
{
    uint64_t mapped = pl_mem_mapped_bytes(bytes);
    uint64_t align = flags & PL_MEM_HUGE ? HUGE_BYTES : (uint64_t)sysconf(_SC_PAGESIZE);
    uint8_t *p;
    pl_status s;

    *m = (pl_mem){0};
    if (bytes == 0)
        return PL_OK;
    p = reserve_aligned(mapped, align);
    if (!p)
        return refused(bytes, errno, err);
    *m = (pl_mem){p, mapped};
    if (mprotect(p, mapped, PROT_READ | PROT_WRITE) != 0) {
        s = refused(bytes, errno, err);
        pl_mem_unmap(m);
        return s;
    }
    if (flags & PL_MEM_HUGE)
        madvise(p, mapped, MADV_HUGEPAGE); /* a wish: without it everything works, slower */
    s = flags & PL_MEM_TOUCH ? pl_mem_touch(p, mapped, err) : PL_OK;
    if (s != PL_OK)
        pl_mem_unmap(m);
    return s;
}

void pl_mem_unmap(pl_mem *m)
{
    if (m->base)
        munmap(m->base, m->bytes);
    *m = (pl_mem){0};
}

pl_status pl_mem_touch(void *begin, uint64_t bytes, pl_error *err)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)begin & ~(page - 1);
    uintptr_t end = ((uintptr_t)begin + bytes + page - 1) & ~(page - 1);

    if (bytes == 0 || madvise((void *)first, end - first, MADV_POPULATE_WRITE) == 0)
        return PL_OK;
    if (errno != EINVAL)
        return pl_error_set(err, PL_ERR_NOMEM,
                            "memory: no pages for a mapping (got %s, want %" PRIu64 " bytes)",
                            strerror(errno), bytes);
    /* An older kernel. The same byte is written back atomically: a neighbour may be using the page. */
    for (uintptr_t p = first; p < end; p += page)
        __atomic_fetch_or((uint8_t *)p, 0, __ATOMIC_RELAXED);
    return PL_OK;
}

pl_status pl_mem_set_line(uint64_t data_bytes, pl_error *err)
{
    struct rlimit line;
    pl_mem_usage u;

    if (getrlimit(RLIMIT_DATA, &line) != 0)
        return pl_error_set(err, PL_ERR_IO, "memory: cannot read RLIMIT_DATA (got %s)",
                            strerror(errno));
    PL_TRY(pl_mem_read_usage(&u, err));
    if (data_bytes == UINT64_MAX) {
        line.rlim_cur = line.rlim_max;
    } else {
        if (data_bytes < u.data_bytes)
            return pl_error_set(err, PL_ERR_INVALID,
                                "memory: the line is below what is in use (got %" PRIu64
                                " bytes, want at least %" PRIu64 ")",
                                data_bytes, u.data_bytes);
        if (line.rlim_max != RLIM_INFINITY && data_bytes > line.rlim_max)
            return pl_error_set(err, PL_ERR_INVALID,
                                "memory: the line is above this process's limit (got %" PRIu64
                                " bytes, want at most %" PRIu64 ")",
                                data_bytes, (uint64_t)line.rlim_max);
        line.rlim_cur = data_bytes;
    }
    if (setrlimit(RLIMIT_DATA, &line) != 0)
        return pl_error_set(err, PL_ERR_IO, "memory: cannot set RLIMIT_DATA (got %s)",
                            strerror(errno));
    return PL_OK;
}
