/* Checks that every entry needs. Those of an operator's own arguments are in its file. */
#include "attention/check.h"

#include <inttypes.h>

#include "base/error.h"

bool pl__reach(int64_t n, int64_t stride, int64_t *size)
{
    int64_t more;

    return n < 1 || (!__builtin_mul_overflow(n - 1, stride, &more) &&
                     !__builtin_add_overflow(*size, more, size));
}

pl_extent pl__extent_of(const char *name, const void *data, int64_t n, int64_t size)
{
    uintptr_t at = data ? (uintptr_t)data : 0;

    return (pl_extent){name, at, at + (data && n > 0 ? (uintptr_t)n * (uintptr_t)size : 0)};
}

pl_status pl__check_apart(const pl_extent *out, const pl_extent *in, pl_error *err)
{
    PL_CHECK(out->begin == out->end || in->begin == in->end || out->begin >= in->end ||
                 in->begin >= out->end,
             err,
             "%s: overlaps %s (got bytes 0x%" PRIxPTR " .. 0x%" PRIxPTR ", want none of 0x%" PRIxPTR
             " .. 0x%" PRIxPTR ")",
             out->name, in->name, out->begin, out->end, in->begin, in->end);
    return PL_OK;
}

pl_status pl__check_workspace(const pl_ops_context *context, const void *workspace,
                              uint64_t workspace_bytes, pl_extent *space, pl_error *err)
{
    uint64_t want;

    PL_CHECK(context != NULL, err, "context: missing (got NULL, want one that was created)");
    want = pl_ops_workspace_bytes(context);
    PL_CHECK(workspace != NULL && (uintptr_t)workspace % 64 == 0, err,
             "workspace: missing or not aligned (got %p, want a multiple of 64)", workspace);
    PL_CHECK(workspace_bytes >= want, err,
             "workspace_bytes: too few (got %" PRIu64 ", want %" PRIu64 " or more)",
             workspace_bytes, want);
    *space = pl__extent_of("workspace", workspace, (int64_t)want, 1);
    return PL_OK;
}
