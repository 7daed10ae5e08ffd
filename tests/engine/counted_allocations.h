/* Calls of malloc, calloc, realloc, aligned_alloc and mmap, in executables that link counted_allocations.c. */
#ifndef PL_TESTS_COUNTED_ALLOCATIONS_H
#define PL_TESTS_COUNTED_ALLOCATIONS_H

extern _Atomic long n_allocations;

#endif
