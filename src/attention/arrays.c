/* Checks of packed arrays, and rows over the workers. What an argument means is the operator's file's. */
#include "attention/arrays.h"

#include <inttypes.h>
#include <math.h>

#include "base/error.h"

enum { MAX_ARRAYS = 16, RANGES_PER_WORKER = 4, RANGE_STEPS = 32768 };

pl_status pl__check_start(const pl_ops_context *context, const void *args, pl_error *err)
{
    PL_CHECK(context != NULL, err, "context: missing (got NULL, want one that was created)");
    PL_CHECK(args != NULL, err, "args: missing (got NULL, want a pointer)");
    return PL_OK;
}

static pl_status check_array(const pl_array *a, pl_extent *e, pl_error *err)
{
    int64_t bytes = a->rows * a->row * a->size;

    *e = (pl_extent){a->name, 0, 0};
    if (bytes == 0 || (!a->data && a->kind & PL_ARRAY_OPTIONAL))
        return PL_OK;
    PL_CHECK(a->data != NULL && (uintptr_t)a->data % (unsigned)a->size == 0, err,
             "%s: missing or not aligned (got %p, want a multiple of %d)", a->name, a->data,
             a->size);
    PL_CHECK((uint64_t)bytes <= UINTPTR_MAX - (uintptr_t)a->data, err,
             "%s: reaches past the end of memory (got %" PRId64 " bytes at %p, want fewer)",
             a->name, bytes, a->data);
    *e = pl__extent_of(a->name, a->data, bytes, 1);
    return PL_OK;
}

pl_status pl__check_arrays(const pl_array *arrays, int n, pl_error *err)
{
    pl_extent e[MAX_ARRAYS];

    for (int i = 0; i < n; i++)
        PL_TRY(check_array(&arrays[i], &e[i], err));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n && arrays[i].kind & PL_ARRAY_OUT; k++) {
            bool same = arrays[i].may_be && arrays[i].may_be == arrays[k].data &&
                        e[i].begin == e[k].begin && e[i].end == e[k].end;

            /* Two outputs are compared once, and an output with what it may be never. */
            if (k == i || (k < i && arrays[k].kind & PL_ARRAY_OUT) || same)
                continue;
            PL_TRY(pl__check_apart(&e[i], &e[k], err));
        }
    return PL_OK;
}

pl_status pl__check_range(const char *name, int64_t v, int64_t lo, int64_t hi, pl_error *err)
{
    PL_CHECK(v >= lo && v <= hi, err,
             "%s: out of range (got %" PRId64 ", want %" PRId64 " .. %" PRId64 ")", name, v, lo,
             hi);
    return PL_OK;
}

pl_status pl__check_number(const char *name, float v, float lo, pl_error *err)
{
    PL_CHECK(isfinite(v) && v >= lo, err, "%s: out of range (got %g, want a number from %g on)",
             name, (double)v, (double)lo);
    return PL_OK;
}

pl_status pl__check_ids(const char *name, const int32_t *ids, int64_t n, int64_t lo, int64_t hi,
                        pl_error *err)
{
    for (int64_t i = 0; i < n; i++)
        PL_CHECK(ids[i] >= lo && ids[i] <= hi, err,
                 "%s[%" PRId64 "]: out of range (got %d, want %" PRId64 " .. %" PRId64 ")", name, i,
                 ids[i], lo, hi);
    return PL_OK;
}

typedef struct ranges {
    pl_rows_fn *fn;
    const void *args;
    int64_t n, grain;
} ranges;

static void run_range(void *user, int64_t unit, int worker)
{
    const ranges *r = user;
    int64_t begin = unit * r->grain, end = begin + r->grain;

    r->fn(r->args, begin, end < r->n ? end : r->n, worker);
}

void pl__context_rows(pl_ops_context *c, int64_t n, int64_t steps, pl_rows_fn *fn, const void *args)
{
    int64_t most = (int64_t)c->n_workers * RANGES_PER_WORKER;
    int64_t grain = (n + most - 1) / most, least = RANGE_STEPS / (steps > 0 ? steps : 1);
    ranges r = {fn, args, n, grain > least ? grain : least};

    r.grain = r.grain > 0 ? r.grain : 1;
    pl__context_run(c, (n + r.grain - 1) / r.grain, run_range, &r);
}
