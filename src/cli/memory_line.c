/* Lines of memory. RLIMIT_DATA is what the kernel enforces. */
#include "cli/memory_line.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/meminfo.h"

/* ASAN maps terabytes for itself, which no line allows. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WITH_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WITH_SANITIZER 1
#endif
#endif
#ifdef WITH_SANITIZER
enum { DRAW_LINE = 0 };
#else
enum { DRAW_LINE = 1 };
#endif

pl_status pl_memory_line_choose(double utilization, pl_engine_params *p, pl_error *err)
{
    pl_mem_machine machine;

    PL_CHECK(utilization < 0 || p->memory_bytes == 0, err,
             "--memory-utilization: a second line beside --memory (want one of both)");
    if (utilization < 0)
        utilization = 0.9;
    PL_TRY(pl_mem_read_machine(&machine, err));
    if (p->memory_bytes == 0)
        p->memory_bytes = (uint64_t)(utilization * (double)machine.limit_bytes);
    PL_CHECK(p->memory_bytes > 0, err, "--memory-utilization: leaves no memory (got %g)",
             utilization);
    PL_CHECK(p->memory_bytes <= machine.limit_bytes, err,
             "--memory: more than this machine or its control group gives (got %" PRIu64
             " bytes, want at most %" PRIu64 ")",
             p->memory_bytes, machine.limit_bytes);
    return PL_OK;
}

/* RLIMIT_DATA counts addresses, resident or not, and parsing a tokenizer leaves many that are not: the heap has
 * given the pages back, but not the addresses. While the engine opens, the line leaves room for them; once it is
 * open, nothing may be added any more. */
pl_status pl_memory_line_draw(const pl_plan *plan, pl_error *err)
{
    enum { ADDRESSES_PER_ID = 512 };
    const uint64_t vocab = (uint64_t)pl_plan_model_of(plan).vocab_size;
    pl_mem_usage u;

    if (!DRAW_LINE)
        return PL_OK;
    PL_TRY(pl_mem_read_usage(&u, err));
    return pl_mem_set_line(
        pl_plan_totals_of(plan).total_bytes + u.data_bytes + vocab * ADDRESSES_PER_ID, err);
}

pl_status pl_memory_line_tighten(const pl_plan *plan, uint64_t growth_bytes, pl_error *err)
{
    const uint64_t total = pl_plan_totals_of(plan).total_bytes;
    pl_mem_usage u;

    if (!DRAW_LINE)
        return PL_OK;
    PL_TRY(pl_mem_read_usage(&u, err));
    u.data_bytes += growth_bytes;
    return pl_mem_set_line(u.data_bytes > total ? u.data_bytes : total, err);
}
