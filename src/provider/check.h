/* What the claims of the conformance check are found with. */
#ifndef PL_PROVIDER_CHECK_H
#define PL_PROVIDER_CHECK_H

#include "provider/check_call.h"

typedef struct pl_checker {
    pl_providers *set;
    int index;
    const pl_provider_entry *e;
    pl_provider_finding *findings;
    int *n;
} pl_checker;

/* A new finding, which holds until something is broken: the first text counts. `op` may be "". */
pl_provider_finding *pl__check_begin(pl_checker *c, const char *op, const char *claim);
void pl__check_broken(pl_provider_finding *f, const char *format, ...) PL_PRINTF(2, 3);

/* The call through the provider alone; false with a broken finding. */
bool pl__check_launch(pl_checker *c, pl_provider_finding *f, pl_check_call *k, uint32_t flags);

/* A call of this shape, launched and judged by the reference in double. NOMEM, LIMIT. */
pl_status pl__check_one(pl_checker *c, pl_provider_finding *f, const pl_check_shape *s,
                        uint32_t flags, pl_error *err) PL_MUST_CHECK;

/* Forms of keys that the operator claims: pages, caches, a second set, sequences of several tokens. `plain` is a shape that it
 * takes. */
pl_status pl__check_forms(pl_checker *c, const pl_check_shape *plain, pl_error *err) PL_MUST_CHECK;

#endif
