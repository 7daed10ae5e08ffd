/* The region table: a growing array of rows, each checked as it is made. */
#include "plan/region.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plan/formula.h"

void pl_regions_init(pl_regions *t)
{
    memset(t, 0, sizeof *t);
}

void pl_regions_fini(pl_regions *t)
{
    free(t->rows);
    memset(t, 0, sizeof *t);
}

/* Where the next failure goes; NULL once there is one, since only the first is kept. */
static pl_error *latch(pl_regions *t)
{
    return t->error.status == PL_OK ? &t->error : NULL;
}

static bool name_is_fine(const char *name, size_t size)
{
    size_t n = strlen(name);

    if (n == 0 || n >= size || name[0] == '.' || name[n - 1] == '.')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= '0' && name[i] <= '9') ||
              name[i] == '_' || (name[i] == '.' && name[i - 1] != '.')))
            return false;
    return true;
}

static bool start_row(pl_regions *t, pl_region *row, const char *name, const char *owner)
{
    *row = (pl_region){0};
    if (t->error.status != PL_OK)
        return false;
    if (!name_is_fine(name, sizeof row->name) || !name_is_fine(owner, sizeof row->owner)) {
        pl_error_set(latch(t), PL_ERR_INTERNAL, "plan: bad name of a region (got '%s' of '%s')",
                     name, owner);
        return false;
    }
    if (pl_regions_find(t, name) || t->open.name[0]) {
        pl_error_set(latch(t), PL_ERR_INTERNAL, "plan: region %s %s", name,
                     t->open.name[0] ? "begins inside another" : "exists already");
        return false;
    }
    memcpy(row->name, name, strlen(name) + 1); /* checked above to fit */
    memcpy(row->owner, owner, strlen(owner) + 1);
    return true;
}

static pl_status check_formula(const pl_region *row, pl_error *err)
{
    uint64_t value;
    pl_status s;

    if (row->part == PL_REGION_MEASURED)
        return PL_OK;
    s = pl_formula_eval(row->formula, &value, err);
    if (s != PL_OK) {
        pl_error_prefix(err, "plan: region %s", row->name);
        /* A bad formula is our fault, not the user's. */
        err->status = s == PL_ERR_INVALID ? PL_ERR_INTERNAL : s;
        return err->status;
    }
    if (value != row->bytes)
        return pl_error_set(err, PL_ERR_INTERNAL,
                            "plan: region %s: formula and carving differ (got %" PRIu64
                            " bytes carved, want %" PRIu64 " = %s)",
                            row->name, row->bytes, value, row->formula);
    return PL_OK;
}

static void append(pl_regions *t, const pl_region *row)
{
    uint64_t sum;

    if (t->error.status != PL_OK || check_formula(row, &t->error) != PL_OK)
        return;
    if (__builtin_add_overflow(pl_regions_bytes(t, PL_REGION_PART_COUNT), row->bytes, &sum)) {
        pl_error_set(&t->error, PL_ERR_OVERFLOW, "plan: sum of regions overflows at %s", row->name);
        return;
    }
    if (t->n == t->capacity) {
        int capacity = t->capacity ? 2 * t->capacity : 32;
        pl_region *rows = realloc(t->rows, (size_t)capacity * sizeof *rows);
        if (!rows) {
            pl_error_set(&t->error, PL_ERR_NOMEM, "plan: out of memory for the table of regions");
            return;
        }
        t->rows = rows;
        t->capacity = capacity;
    }
    t->rows[t->n++] = *row;
}

static void set_formula(pl_regions *t, pl_region *row, const char *format, va_list args)
{
    int n = vsnprintf(row->formula, sizeof row->formula, format, args);

    if (n < 0 || (size_t)n >= sizeof row->formula)
        pl_error_set(latch(t), PL_ERR_INTERNAL, "plan: region %s: formula is too long", row->name);
}

void pl_region_begin(pl_regions *t, pl_arena *arena, const char *name, const char *owner)
{
    pl_region row;

    if (!start_row(t, &row, name, owner))
        return;
    row.part = PL_REGION_EXACT;
    row.arena = arena;
    t->open = row;
    t->open_at = pl_arena_planned_bytes(arena);
}

void pl_region_end(pl_regions *t, const char *format, ...)
{
    pl_region row = t->open;
    uint64_t now;
    va_list args;

    if (!row.name[0]) {
        pl_error_set(latch(t), PL_ERR_INTERNAL, "plan: a region ends that has not begun");
        return;
    }
    t->open = (pl_region){0};
    va_start(args, format);
    set_formula(t, &row, format, args);
    va_end(args);
    /* The arena's own failure comes first: with pieces missing, every formula would look wrong. */
    if (pl_arena_check(row.arena, row.name, latch(t)) != PL_OK)
        return;
    now = pl_arena_planned_bytes(row.arena);
    if (now < t->open_at) {
        pl_error_set(latch(t), PL_ERR_INTERNAL, "plan: region %s gave back what it had not taken",
                     row.name);
        return;
    }
    row.bytes = now - t->open_at;
    append(t, &row);
}

void pl_region_add(pl_regions *t, const char *name, const char *owner, pl_region_part part,
                   uint64_t bytes, const char *format, ...)
{
    pl_region row;
    va_list args;

    if (!start_row(t, &row, name, owner))
        return;
    row.part = part;
    row.bytes = bytes;
    va_start(args, format);
    set_formula(t, &row, format, args);
    va_end(args);
    append(t, &row);
}

pl_status pl_regions_check(const pl_regions *t, const pl_arena *arena, pl_error *err)
{
    uint64_t sum = 0;

    if (t->error.status != PL_OK) {
        if (err)
            *err = t->error;
        return t->error.status;
    }
    if (t->open.name[0])
        return pl_error_set(err, PL_ERR_INTERNAL, "plan: region %s does not end", t->open.name);
    if (!arena)
        return PL_OK;
    for (int i = 0; i < t->n; i++)
        if (t->rows[i].arena == arena)
            sum += t->rows[i].bytes;
    if (sum != pl_arena_planned_peak_bytes(arena))
        return pl_error_set(
            err, PL_ERR_INTERNAL,
            "plan: pieces lie outside of regions (got %zu bytes carved, want %" PRIu64 ")",
            pl_arena_planned_peak_bytes(arena), sum);
    return PL_OK;
}

static bool rows_equal(const pl_region *a, const pl_region *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->owner, b->owner) == 0 && a->part == b->part &&
           strcmp(a->formula, b->formula) == 0 && a->bytes == b->bytes;
}

pl_status pl_regions_compare(const pl_regions *a, const pl_regions *b, pl_error *err)
{
    for (int i = 0; i < a->n && i < b->n; i++)
        if (!rows_equal(&a->rows[i], &b->rows[i]))
            return pl_error_set(err, PL_ERR_INTERNAL,
                                "plan: tables differ in row %d (got %s, %" PRIu64
                                " bytes = %s, want %s, "
                                "%" PRIu64 " bytes = %s)",
                                i, b->rows[i].name, b->rows[i].bytes, b->rows[i].formula,
                                a->rows[i].name, a->rows[i].bytes, a->rows[i].formula);
    if (a->n != b->n)
        return pl_error_set(err, PL_ERR_INTERNAL, "plan: tables differ in length (got %d, want %d)",
                            b->n, a->n);
    return PL_OK;
}

uint64_t pl_regions_bytes(const pl_regions *t, pl_region_part part)
{
    uint64_t sum = 0;

    for (int i = 0; i < t->n; i++)
        if (part == PL_REGION_PART_COUNT || t->rows[i].part == part)
            sum += t->rows[i].bytes;
    return sum;
}

uint64_t pl_regions_bytes_of(const pl_regions *t, const char *prefix)
{
    size_t n = strlen(prefix);
    uint64_t sum = 0;

    for (int i = 0; i < t->n; i++)
        if (strncmp(t->rows[i].name, prefix, n) == 0 &&
            (t->rows[i].name[n] == 0 || t->rows[i].name[n] == '.'))
            sum += t->rows[i].bytes;
    return sum;
}

const pl_region *pl_regions_find(const pl_regions *t, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->rows[i].name, name) == 0)
            return &t->rows[i];
    return NULL;
}

const char *pl_region_part_name(pl_region_part part)
{
    static const char *const names[PL_REGION_PART_COUNT] = {"exact", "capped", "measured"};

    return names[part];
}
