/* Name table: one pool of text, one array of offsets, one array of hash slots. */
#include "model/name_table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <xxhash.h>

struct pl_name_slot {
    uint32_t tag;    /* upper half of the hash */
    uint32_t number; /* PL_NO_NAME: free */
};

void pl__names_init(pl_name_table *t)
{
    memset(t, 0, sizeof *t);
    if (getrandom(&t->seed, sizeof t->seed, GRND_NONBLOCK) != sizeof t->seed)
        t->seed = (uint64_t)time(NULL);
}

void pl__names_fini(pl_name_table *t)
{
    free(t->pool);
    free(t->offset);
    free(t->slots);
    memset(t, 0, sizeof *t);
}

const char *pl__names_get(const pl_name_table *t, uint32_t number)
{
    return t->pool + t->offset[number];
}

/* The slot that holds the name, or the free one where it belongs. */
static struct pl_name_slot *probe(const pl_name_table *t, uint64_t hash, const char *name,
                                  size_t length)
{
    const uint32_t mask = t->n_slots - 1, tag = (uint32_t)(hash >> 32);

    for (uint32_t i = (uint32_t)hash & mask;; i = (i + 1) & mask) {
        struct pl_name_slot *s = &t->slots[i];
        const char *have;

        if (s->number == PL_NO_NAME)
            return s;
        have = pl__names_get(t, s->number);
        if (s->tag == tag && strncmp(have, name, length) == 0 && have[length] == 0)
            return s;
    }
}

uint32_t pl__names_find(const pl_name_table *t, const char *name, size_t length)
{
    if (t->n == 0)
        return PL_NO_NAME;
    return probe(t, XXH3_64bits_withSeed(name, length, t->seed), name, length)->number;
}

/* At most half full, so that probing stays short. */
static bool grow_slots(pl_name_table *t)
{
    uint32_t n = t->n_slots ? 2 * t->n_slots : 256;
    struct pl_name_slot *slots;

    if (t->n < t->n_slots / 2)
        return true;
    if (n == 0 || !(slots = malloc(n * sizeof *slots)))
        return false;
    free(t->slots);
    t->slots = slots;
    t->n_slots = n;
    memset(slots, 0xFF, n * sizeof *slots);
    for (uint32_t i = 0; i < t->n; i++) {
        const char *name = pl__names_get(t, i);
        size_t length = strlen(name);
        uint64_t hash = XXH3_64bits_withSeed(name, length, t->seed);
        *probe(t, hash, name, length) = (struct pl_name_slot){(uint32_t)(hash >> 32), i};
    }
    return true;
}

static bool grow_text(pl_name_table *t, size_t length)
{
    if (t->n == t->max_n) {
        uint32_t max = t->max_n ? 2 * t->max_n : 128;
        uint32_t *offset = realloc(t->offset, max * sizeof *offset);
        if (!offset)
            return false;
        t->offset = offset;
        t->max_n = max;
    }
    if (t->max_pool_bytes - t->pool_bytes < length + 1) {
        size_t max = 2 * t->max_pool_bytes + length + 4096;
        char *pool = max <= UINT32_MAX ? realloc(t->pool, max) : NULL;
        if (!pool)
            return false;
        t->pool = pool;
        t->max_pool_bytes = max;
    }
    return true;
}

pl_status pl__names_add(pl_name_table *t, const char *name, size_t length, uint32_t *number,
                        bool *added)
{
    const uint64_t hash = XXH3_64bits_withSeed(name, length, t->seed);
    struct pl_name_slot *slot;

    if (!grow_slots(t))
        return PL_ERR_NOMEM;
    slot = probe(t, hash, name, length);
    *added = slot->number == PL_NO_NAME;
    if (*added) {
        if (!grow_text(t, length))
            return PL_ERR_NOMEM;
        memcpy(t->pool + t->pool_bytes, name, length);
        t->pool[t->pool_bytes + length] = 0;
        t->offset[t->n] = (uint32_t)t->pool_bytes;
        t->pool_bytes += length + 1;
        *slot = (struct pl_name_slot){(uint32_t)(hash >> 32), t->n++};
    }
    *number = slot->number;
    return PL_OK;
}
