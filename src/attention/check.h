/* What the checked entries share: extents of the caller's arrays, which outputs must not touch. */
#ifndef PL_ATTENTION_CHECK_H
#define PL_ATTENTION_CHECK_H

#include "attention/context.h"

/* Bytes begin .. end - 1 of the argument `name`. */
typedef struct pl_extent {
    const char *name;
    uintptr_t begin, end;
} pl_extent;

/* Adds the way from the first to the last of n things `stride` apart to *size; false: past what an address can tell. */
bool pl__reach(int64_t n, int64_t stride, int64_t *size);

/* n things of `size` bytes; the product fits. Empty where data is NULL. */
pl_extent pl__extent_of(const char *name, const void *data, int64_t n, int64_t size);

/* INVALID where they overlap. */
pl_status pl__check_apart(const pl_extent *out, const pl_extent *in, pl_error *err) PL_MUST_CHECK;

/* The workspace of a context, and where it lies. */
pl_status pl__check_workspace(const pl_ops_context *context, const void *workspace,
                              uint64_t workspace_bytes, pl_extent *space,
                              pl_error *err) PL_MUST_CHECK;

#endif
