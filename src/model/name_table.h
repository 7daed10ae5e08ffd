/* Strings with numbers: the first one added is 0, the next 1, ... Found in constant time.
 *
 * Holds the tensor and shard names of a checkpoint. The hash is seeded at random, so that a file cannot be
 * made to collide; numbers and results do not depend on the seed. */
#ifndef PL_MODEL_NAME_TABLE_H
#define PL_MODEL_NAME_TABLE_H

#include <stdbool.h>

#include "plimsoll/status.h"

#define PL_NO_NAME UINT32_MAX

typedef struct pl_name_table {
    char *pool; /* all names, each ended by 0 */
    size_t pool_bytes, max_pool_bytes;
    uint32_t *offset; /* of each name in the pool */
    uint32_t n, max_n;
    struct pl_name_slot *slots; /* open addressing; a power of two */
    uint32_t n_slots;
    uint64_t seed;
} pl_name_table;

void pl__names_init(pl_name_table *t);
void pl__names_fini(pl_name_table *t);

/* The number of the name, PL_NO_NAME where it is not in the table. */
uint32_t pl__names_find(const pl_name_table *t, const char *name, size_t length);

/* Finds or adds; *added tells which. `name` is copied. NOMEM is the only failure. */
pl_status pl__names_add(pl_name_table *t, const char *name, size_t length, uint32_t *number,
                        bool *added) PL_MUST_CHECK;

/* Valid until the next add. */
const char *pl__names_get(const pl_name_table *t, uint32_t number);

#endif
