/* One block of memory, carved front to back by the same code that plans it.
 *
 * Code that lays out memory takes an arena and asks it for pieces. Run over an arena without memory (a dry
 * run) it yields the bytes needed; run again over a block of that size it yields the pieces. One code path
 * makes both, so plan and carving cannot differ:
 *
 *     static void layout(pl_arena *a, cache *c)              pl_arena_init_dry(&a);
 *     {                                                      layout(&a, &c);
 *         c->keys = pl_arena_array(a, c->n, 64, 0);          PL_TRY(pl_arena_check(&a, "cache", err));
 *         c->scales = pl_arena_array(a, c->n, 4, 0);         mem = map(pl_arena_peak_bytes(&a));
 *     }                                                      pl_arena_init(&a, mem, ...); layout(&a, &c);
 *
 * In a dry run every piece is NULL: layout code stores pointers and never follows them. A failure (too
 * little memory, overflow) is latched, all further pieces are NULL, and pl_arena_check tells it once.
 *
 * Built with ASAN, each piece is followed by poisoned bytes and what is not handed out is poisoned. These
 * red zones are taken in dry runs too, and counted in _used_bytes and _peak_bytes, so that block and carving
 * agree; pl_arena_planned_bytes leaves them out and is the same number in every build. */
#ifndef PL_BASE_ARENA_H
#define PL_BASE_ARENA_H

#include <stdbool.h>

#include "plimsoll/status.h"

enum {
    PL_ARENA_ALIGN = 64,          /* default; also what a piece's size is rounded up to */
    PL_ARENA_MAX_ALIGN = 2 << 20, /* a huge page */
};

/* Positions count from the start of the block. Fields are read through the functions below. */
typedef struct pl_arena {
    uint8_t *base; /* NULL: dry run */
    size_t capacity;
    size_t used, peak;      /* with red zones */
    size_t planned, p_peak; /* without */
    bool failed;
    size_t failed_bytes; /* of the piece that failed; SIZE_MAX: its size overflowed */
} pl_arena;

/* A place to return to: everything carved since is given back at once. */
typedef struct pl_arena_mark {
    size_t used, planned;
} pl_arena_mark;

/* Carves `base`, which the caller owns, outlives the arena and is aligned to the largest alignment that will
 * be asked for. The contents are left as they are. */
void pl_arena_init(pl_arena *a, void *base, size_t capacity);

/* Counts without memory; SIZE_MAX is the capacity. */
void pl_arena_init_dry(pl_arena *a);

/* Ends the use of the block, which may then be used otherwise (under ASAN: unpoisons it). */
void pl_arena_fini(pl_arena *a);

bool pl_arena_is_dry(const pl_arena *a);

/* The next `bytes` bytes, not cleared. `align` is a power of two up to PL_ARENA_MAX_ALIGN; 0 means, and
 * smaller ones count as, PL_ARENA_ALIGN. Of 0 bytes: a valid address that must not be written. NULL in a dry
 * run and after a failure. */
void *pl_arena_alloc(pl_arena *a, size_t bytes, size_t align);

/* n elements; the product is checked. */
void *pl_arena_array(pl_arena *a, size_t n, size_t element_bytes, size_t align);

/* Steps of work take scratch between a mark and a reset to it. Marks nest. */
pl_arena_mark pl_arena_begin(const pl_arena *a);
void pl_arena_end(pl_arena *a, pl_arena_mark mark);

/* PL_OK where every piece was given; else NOMEM or OVERFLOW with `what` as the place. */
PL_MUST_CHECK pl_status pl_arena_check(const pl_arena *a, const char *what, pl_error *err);

/* Position now, and the highest so far: what a block for the same calls needs. */
size_t pl_arena_used_bytes(const pl_arena *a);
size_t pl_arena_peak_bytes(const pl_arena *a);

/* The same two without red zones: equal in every build, and equal to those above without ASAN. */
size_t pl_arena_planned_bytes(const pl_arena *a);
size_t pl_arena_planned_peak_bytes(const pl_arena *a);

#endif
