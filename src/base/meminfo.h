/* What memory this process and this machine have and use, as the kernel counts it; and the anonymous
 * mappings that arenas carve. */
#ifndef PL_BASE_MEMINFO_H
#define PL_BASE_MEMINFO_H

#include <stdbool.h>

#include "plimsoll/status.h"

typedef struct pl_mem_usage {
    uint64_t resident_bytes;      /* VmRSS: anonymous, file and shared pages present */
    uint64_t peak_resident_bytes; /* VmHWM: its maximum since the last pl_mem_reset_peak */
    uint64_t anonymous_bytes;     /* RssAnon */
    uint64_t file_bytes;          /* RssFile: the program, libraries, mapped files */
    uint64_t data_bytes;          /* VmData: what RLIMIT_DATA limits */
    uint64_t page_table_bytes;    /* VmPTE */
} pl_mem_usage;

/* Of this process. IO where /proc cannot be read. On kernels that batch the counters per processor,
 * resident_bytes may be off by some pages for each processor; pl_mem_read_exact is not. */
PL_MUST_CHECK pl_status pl_mem_read_usage(pl_mem_usage *u, pl_error *err);

/* Bytes present now, by walking this process's page tables: exact, and slow (milliseconds per GiB of 4 KiB
 * pages). `anonymous_bytes`, the part of them that no file backs, may be NULL. */
PL_MUST_CHECK pl_status pl_mem_read_exact(uint64_t *resident_bytes, uint64_t *anonymous_bytes,
                                          pl_error *err);

/* Sets peak_resident_bytes to what is resident now. IO where the kernel has no clear_refs. */
PL_MUST_CHECK pl_status pl_mem_reset_peak(pl_error *err);

typedef struct pl_mem_machine {
    uint64_t total_bytes;     /* MemTotal */
    uint64_t available_bytes; /* MemAvailable: could be taken without swapping */
    uint64_t
        limit_bytes; /* min(total, limit of the control group): what --memory-utilization is of */
    uint64_t huge_page_bytes; /* of a transparent huge page; 0 where there are none or never used */
} pl_mem_machine;

PL_MUST_CHECK pl_status pl_mem_read_machine(pl_mem_machine *m, pl_error *err);

typedef enum pl_mem_flags {
    PL_MEM_HUGE = 1,  /* ask for huge pages; the kernel may still give small ones */
    PL_MEM_TOUCH = 2, /* make every page present now, by this thread */
} pl_mem_flags;

typedef struct pl_mem {
    uint8_t *base;  /* 2 MiB-aligned with PL_MEM_HUGE, else page-aligned; zeros */
    uint64_t bytes; /* mapped: whole pages */
} pl_mem;

/* Maps private anonymous memory. 0 bytes: an empty mapping with a NULL base. NOMEM where the system or
 * RLIMIT_DATA refuses; the text names which. On failure *m is empty. */
PL_MUST_CHECK pl_status pl_mem_map(uint64_t bytes, unsigned flags, pl_mem *m, pl_error *err);

/* Fine on an empty mapping; leaves one. */
void pl_mem_unmap(pl_mem *m);

/* Makes the pages of [begin, begin + bytes) of a mapping present, on the memory node of the calling thread;
 * workers call it on their shares. Contents stay. NOMEM where the kernel has no page to give. */
PL_MUST_CHECK pl_status pl_mem_touch(void *begin, uint64_t bytes, pl_error *err);

/* Bytes that pl_mem_map maps for a request: up(bytes, page). OVERFLOW gives UINT64_MAX. */
uint64_t pl_mem_mapped_bytes(uint64_t bytes);

/* The line: from now on the kernel refuses private writable memory beyond `data_bytes` (RLIMIT_DATA, compared
 * with pl_mem_usage.data_bytes). INVALID where the process has more already. UINT64_MAX takes the soft limit
 * away again. */
PL_MUST_CHECK pl_status pl_mem_set_line(uint64_t data_bytes, pl_error *err);

#endif
