/* SHA-256 (FIPS 180-4), for comparing files with digests that other tools computed. */
#ifndef PL_TESTS_SHA256_H
#define PL_TESTS_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_HEX_BYTES = 65 };

typedef struct sha256 {
    uint32_t h[8];
    uint64_t n; /* bytes so far */
    uint8_t block[64];
} sha256;

void sha256_init(sha256 *s);
void sha256_add(sha256 *s, const void *bytes, size_t n);
/* Lower-case hex, as sha256sum prints it. */
void sha256_end(sha256 *s, char hex[SHA256_HEX_BYTES]);

/* Adds a whole file; fails the test when it cannot be read. */
void sha256_add_file(sha256 *s, const char *path);

#endif
