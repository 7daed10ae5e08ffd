/* The table of memory regions: the plan, as rows that carving fills.
 *
 * The code that carves an arena brackets its pieces:
 *
 *     pl_region_begin(t, arena, "cache.keys", "cache");
 *     c->keys = pl_arena_array(arena, n_pages, page_bytes, 0);
 *     pl_region_end(t, "%d pages * %d", n_pages, page_bytes);
 *
 * It runs once over a dry arena, which makes the plan, and once over memory, which makes the pieces: one
 * function, so both tables are equal (pl_regions_compare). Each row's closed form is evaluated and must give
 * the bytes that were carved, in every build; red zones are left out (base/arena.h). Memory outside of arenas
 * is added as a number. Failures are latched: pl_regions_check tells the first. */
#ifndef PL_PLAN_REGION_H
#define PL_PLAN_REGION_H

#include <stdbool.h>

#include "base/arena.h"
#include "plimsoll/status.h"

typedef enum pl_region_part {
    PL_REGION_EXACT,    /* closed form, to the byte */
    PL_REGION_CAPPED,   /* a bound that the allocator behind it enforces */
    PL_REGION_MEASURED, /* from a fixed reference run, checked by a test */
    PL_REGION_PART_COUNT,
} pl_region_part;

enum {
    PL_REGION_NAME_BYTES = 48,
    PL_REGION_FORMULA_BYTES = 192,
};

typedef struct pl_region {
    char name[PL_REGION_NAME_BYTES]; /* "weights.experts": lower-case words joined by dots */
    pl_region_part part;
    char owner[24];                        /* the folder whose code holds it: "cache" */
    char formula[PL_REGION_FORMULA_BYTES]; /* plan/formula.h; free text where measured */
    uint64_t bytes;
    const pl_arena *arena; /* it lies in, only for comparing; NULL: none */
} pl_region;

typedef struct pl_regions {
    pl_region *rows; /* in the order of their beginnings */
    int n;
    int capacity;
    pl_region open; /* begun and not ended; open.name is "" where there is none */
    uint64_t open_at;
    pl_error error; /* the first failure; status PL_OK until then */
} pl_regions;

void pl_regions_init(pl_regions *t);
void pl_regions_fini(pl_regions *t);

/* Begins an exact region at the arena's position. `name` and `owner` are copied. Regions do not nest and
 * names do not repeat. */
void pl_region_begin(pl_regions *t, pl_arena *arena, const char *name, const char *owner);

/* Ends it: its bytes are what was carved since, and must be what the formula gives. */
void pl_region_end(pl_regions *t, const char *format, ...) PL_PRINTF(2, 3);

/* A region outside of arenas. Exact and capped ones state a formula that gives `bytes`. */
void pl_region_add(pl_regions *t, const char *name, const char *owner, pl_region_part part,
                   uint64_t bytes, const char *format, ...) PL_PRINTF(6, 7);

/* The first failure, if any. With `arena`, also that its regions add up to all that was ever carved from it:
 * a piece outside of a region is INTERNAL. */
PL_MUST_CHECK pl_status pl_regions_check(const pl_regions *t, const pl_arena *arena, pl_error *err);

/* PL_OK where both tables have the same rows, but for their arenas; else INTERNAL naming the first that
 * differs. */
PL_MUST_CHECK pl_status pl_regions_compare(const pl_regions *a, const pl_regions *b, pl_error *err);

/* Sum of one part, or of all for PL_REGION_PART_COUNT. OVERFLOW is latched when rows are added, so the sum
 * fits. */
uint64_t pl_regions_bytes(const pl_regions *t, pl_region_part part);

/* Sum of the rows whose name is `prefix` or starts with it and a dot. */
uint64_t pl_regions_bytes_of(const pl_regions *t, const char *prefix);

/* NULL where there is none; borrowed until the next row. */
const pl_region *pl_regions_find(const pl_regions *t, const char *name);

/* "exact", "capped", "measured". */
const char *pl_region_part_name(pl_region_part part);

#endif
