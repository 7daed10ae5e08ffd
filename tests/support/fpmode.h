/* Running a group of tests under both floating-point modes: IEEE denormals, and flushing (FTZ, DAZ) as
 * the workers run. Where the processor has no such switch known here, the second run repeats the first. */
#ifndef PL_TESTS_FPMODE_H
#define PL_TESTS_FPMODE_H

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

/* The number of failures in both runs. */
#define RUN_IN_BOTH_FPMODES(tests)                      \
    (cmocka_run_group_tests(tests, fpmode_ieee, NULL) + \
     cmocka_run_group_tests(tests, fpmode_flush, fpmode_ieee))

#endif
