/* Inside of the cache of prefixes: what prefix_size.c and prefix.c share. */
#ifndef PL_CACHE_PREFIX_IMPL_H
#define PL_CACHE_PREFIX_IMPL_H

#include "cache/prefix.h"

/* From one slot to the next: slots begin at cache lines. */
static inline uint64_t pl__prefix_slot_bytes(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

#endif
