/* Golden files for the tests: plain safetensors written by the oracle and trusted, unlike checkpoints.
 *
 * They lie in the folder named by PL_GOLDEN_DIR, unpacked from tests/oracle by the build. */
#ifndef PL_TESTS_GOLDEN_H
#define PL_TESTS_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct golden golden;

typedef struct golden_tensor {
    char dtype[16]; /* as in the file: "F32", "BF16", "I64", ... */
    int rank;
    int64_t shape[8];
    size_t n; /* elements */
    size_t bytes;
    const void *data; /* valid until golden_close; aligned for its type */
} golden_tensor;

/* Opens PL_GOLDEN_DIR/name ("ops.safetensors"); fails the test when it cannot. */
golden *golden_open(const char *name);
void golden_close(golden *g);

/* The tensor, failing the test when it is missing or, if `dtype` is not NULL, of another type. */
golden_tensor golden_get(const golden *g, const char *dtype, const char *name_format, ...)
    __attribute__((format(printf, 3, 4)));
bool golden_has(const golden *g, const char *name);

/* A value of the file's metadata, or NULL. */
const char *golden_metadata(const golden *g, const char *key);

/* Any tensor of a float type widened to float; the caller frees it. */
float *golden_floats(const golden_tensor *t);

#endif
