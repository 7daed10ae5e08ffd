/* What every fuzz target includes. A target is one function: it feeds the bytes to the code under test and
 * checks what must hold whatever they are. libFuzzer drives it under clang; replay.c does in every
 * other build, over the committed corpus. */
#ifndef PL_TESTS_FUZZ_H
#define PL_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "plimsoll/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Like assert, but in every build. */
#define FUZZ_CHECK(condition)                                                              \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                       \
        }                                                                                  \
    } while (0)

/* What is promised of the error of every refused input: the status, and one printable line. */
static inline void fuzz_check_error(pl_status status, const pl_error *err)
{
    size_t n = 0;

    FUZZ_CHECK(status < 0 && err->status == status);
    for (; n < sizeof err->msg && err->msg[n]; n++)
        FUZZ_CHECK((unsigned char)err->msg[n] >= 0x20 && err->msg[n] != 0x7f);
    FUZZ_CHECK(n > 0 && n < sizeof err->msg);
}

#endif
