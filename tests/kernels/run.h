/* Between the harness and main of checkkern. */
#ifndef PL_TESTS_KERNELS_RUN_H
#define PL_TESTS_KERNELS_RUN_H

#include <stdbool.h>

/* Where buffers of kern_alloc lie from now on: behind an unreadable page, or in front of one. */
void kern_guard_before(bool before);

void kern_free_all(void);

#endif
