/* Checks of an operator's packed arrays in one list: present, aligned, within the address space, outputs apart from all
 * else. And running over rows. */
#ifndef PL_ATTENTION_ARRAYS_H
#define PL_ATTENTION_ARRAYS_H

#include "attention/check.h"

typedef enum pl_array_kind {
    PL_ARRAY_IN,
    PL_ARRAY_OUT,
    PL_ARRAY_OPTIONAL = 2, /* may be NULL */
    PL_ARRAY_OUT_OPTIONAL = PL_ARRAY_OUT | PL_ARRAY_OPTIONAL,
} pl_array_kind;

enum { PL_ARRAY_MAX_ROW = 1 << 28 }; /* elements of a row, so that products fit */

typedef struct pl_array {
    const char *name;
    const void *data;
    int64_t rows, row; /* elements: rows >= 0 below 2^31, 0 <= row <= PL_ARRAY_MAX_ROW */
    int32_t size;      /* bytes of an element, and what it is aligned to */
    int kind;
    const void *may_be; /* an output may be this input, exactly */
} pl_array;

/* Both are there. */
pl_status pl__check_start(const pl_ops_context *context, const void *args,
                          pl_error *err) PL_MUST_CHECK;

/* INVALID names the first that is wrong. At most 16. */
pl_status pl__check_arrays(const pl_array *arrays, int n, pl_error *err) PL_MUST_CHECK;

/* "NAME: out of range (got V, want LO .. HI)". */
pl_status pl__check_range(const char *name, int64_t v, int64_t lo, int64_t hi,
                          pl_error *err) PL_MUST_CHECK;

/* "NAME: out of range (got V, want a number from LO on)": finite. */
pl_status pl__check_number(const char *name, float v, float lo, pl_error *err) PL_MUST_CHECK;

/* Every entry of ids[n] is in lo .. hi. */
pl_status pl__check_ids(const char *name, const int32_t *ids, int64_t n, int64_t lo, int64_t hi,
                        pl_error *err) PL_MUST_CHECK;

/* Rows begin .. end - 1 by a worker. */
typedef void pl_rows_fn(const void *args, int64_t begin, int64_t end, int worker);

/* All rows, in ranges of about equal work; `steps` is what a row costs, in multiply-adds or so. */
void pl__context_rows(pl_ops_context *c, int64_t n, int64_t steps, pl_rows_fn *fn,
                      const void *args);

#endif
