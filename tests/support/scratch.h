/* A folder for one test's files. */
#ifndef PL_TESTS_SCRATCH_H
#define PL_TESTS_SCRATCH_H

#include <stddef.h>

enum { SCRATCH_PATH_BYTES = 512 };

/* Creates an empty folder under TMPDIR (default /tmp) and gives its path. */
void scratch_create(char path[SCRATCH_PATH_BYTES]);

/* Removes it with everything in it. */
void scratch_remove(const char *path);

/* Writes a small file; fails the test when it cannot. */
void scratch_put(const char *folder, const char *name, const char *text);

/* The same for any bytes. */
void scratch_write(const char *folder, const char *name, const void *bytes, size_t n);

#endif
