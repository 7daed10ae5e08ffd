/* Running a group of tests under both floating-point modes: IEEE denormals, and flushing (FTZ, DAZ) as
 * the workers run. Where the processor has no such switch known here, the second run repeats the first. */
#ifndef PL_TESTS_FPMODE_H
#define PL_TESTS_FPMODE_H

#include <stdbool.h>

#if defined(__SSE__)
#include <immintrin.h>
#endif

static inline void fpmode_set(unsigned mxcsr)
{
#if defined(__SSE__)
    _mm_setcsr(mxcsr);
#else
    (void)mxcsr;
#endif
}

static inline int fpmode_ieee(void **state)
{
    fpmode_set(0x1F80); /* round to nearest, all exceptions masked */
    return 0;
}

static inline int fpmode_flush(void **state)
{
    fpmode_set(0x1F80 | 0x8040);
    return 0;
}

/* False under emulators (valgrind) and processors that ignore the switch. */
static inline bool fpmode_flush_works(void)
{
    volatile float smallest = 0x1p-126f, half = 0.5f, product;

    fpmode_flush(NULL);
    product = smallest * half;
    fpmode_ieee(NULL);
    return product == 0;
}

/* Whether long double can judge a double: not under valgrind, which computes it in 64 bits. */
static inline bool long_double_is_wide(void)
{
    volatile long double one = 1, sum = one + 0x1p-60L;

    return sum != one;
}

/* The number of failures in both runs. */
#define RUN_IN_BOTH_FPMODES(tests)                      \
    (cmocka_run_group_tests(tests, fpmode_ieee, NULL) + \
     cmocka_run_group_tests(tests, fpmode_flush, fpmode_ieee))

#endif
