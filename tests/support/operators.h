/* What the tests of single operators share: random data, buffers, and comparisons of fp32 and bf16
 * results with values known in double. */
#ifndef PL_TESTS_OPERATORS_H
#define PL_TESTS_OPERATORS_H

#include "base/fpenv.h"
#include "ops/ops.h"
#include "support/check.h"

/* The table under test and the environment of its only worker, whose scratch fits max_k 2048, topk 20,
 * 1024 keys and 16 experts. */
extern const pl_ops *ops;
extern pl_op_env env;

/* Runs the tests in the floating-point environment of results. */
#define RUN_OPERATOR_TESTS(table, tests) \
    run_operator_tests(table, #tests, tests, sizeof(tests) / sizeof((tests)[0]))
int run_operator_tests(const pl_ops *table, const char *name, const struct CMUnitTest *tests,
                       size_t n);

/* Reproducible; uniform in [-1, 1) as float and as bf16. */
uint32_t random_u32(void);
float random_float(void);
uint16_t random_bf16(void);

/* 64-byte aligned, filled with 0xA5; freed by the caller. */
void *take(size_t bytes);

/* A bf16 output whose value is known in double: at most `halves` half units in the last place away
 * (2^-8 relative, right above a power of two). */
void check_bf16(const char *what, int64_t i, uint16_t got, double want, double halves);
void check_close(const char *what, const float *got, const float *want, size_t n, double rel);

pl_weight_view view(pl_weight_format format, int64_t rows, int64_t cols, const void *data,
                    const void *scale);

#endif
