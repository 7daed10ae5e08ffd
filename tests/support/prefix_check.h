/* Whether a cache of prefixes is whole. */
#ifndef PL_TESTS_PREFIX_CHECK_H
#define PL_TESTS_PREFIX_CHECK_H

#include "cache/prefix.h"

/* Fails unless every slot is in use or free, once; lists, buckets and counts agree; parents stand before their
 * children. */
void check_prefix(pl_prefix *p);

#endif
