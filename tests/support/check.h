/* What every unit test includes: cmocka with its prerequisites, and checks that print both values. */
#ifndef PL_TESTS_CHECK_H
#define PL_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plimsoll/status.h"

/* Fails unless `status` is PL_OK; prints the error's text. */
void check_ok(pl_status status, const pl_error *err);

/* Fails unless `status` is `want` and err->msg contains every fragment; the list ends with NULL. */
void check_error(pl_status status, pl_status want, const pl_error *err, ...);

/* Fails at the first element whose bits differ; prints `what`, its index and both bit patterns. NaN
 * equals NaN whatever its payload (docs/NUMERICS.md). */
void check_same_f32(const char *what, const float *got, const float *want, size_t n);
void check_same_bytes(const char *what, const void *got, const void *want, size_t n);

#endif
