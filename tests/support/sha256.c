/* SHA-256, straight from the standard; the constants are the fractional parts of the square roots of the
 * first 8 primes and the cube roots of the first 64. */
#include "support/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"

/* clang-format off */
static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};
/* clang-format on */

static uint32_t turn(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t load(const uint8_t *p)
{
    uint32_t x;

    memcpy(&x, p, 4);
    return __builtin_bswap32(x);
}

static void add_block(sha256 *s, const uint8_t *p)
{
    uint32_t a = s->h[0], b = s->h[1], c = s->h[2], d = s->h[3];
    uint32_t e = s->h[4], f = s->h[5], g = s->h[6], h = s->h[7], w[64];

    for (int i = 0; i < 16; i++)
        w[i] = load(p + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25);
        uint32_t s0 = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22);
        uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + k[i] + w[i];
        uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));

        h = g, g = f, f = e, e = d + t1;
        d = c, c = b, b = a, a = t1 + t2;
    }
    s->h[0] += a, s->h[1] += b, s->h[2] += c, s->h[3] += d;
    s->h[4] += e, s->h[5] += f, s->h[6] += g, s->h[7] += h;
}

void sha256_init(sha256 *s)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memcpy(s->h, start, sizeof start);
    s->n = 0;
}

void sha256_add(sha256 *s, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    while (n) {
        size_t at = s->n % 64, m = 64 - at < n ? 64 - at : n;

        if (m == 64) {
            add_block(s, p);
        } else {
            memcpy(s->block + at, p, m);
            if (at + m == 64)
                add_block(s, s->block);
        }
        s->n += m;
        p += m;
        n -= m;
    }
}

void sha256_end(sha256 *s, char hex[SHA256_HEX_BYTES])
{
    static const uint8_t padding[64] = {0x80};
    uint64_t bits = __builtin_bswap64(8 * s->n);

    sha256_add(s, padding, 1 + (119 - s->n % 64) % 64);
    sha256_add(s, &bits, 8);
    for (int i = 0; i < 8; i++)
        snprintf(hex + 8 * i, 9, "%08x", s->h[i]);
}

void sha256_add_file(sha256 *s, const char *path)
{
    enum { BLOCK = 1 << 16 };
    uint8_t *block = malloc(BLOCK);
    FILE *f = fopen(path, "rb");
    size_t n;

    if (!f)
        fail_msg("%s: cannot open", path);
    while ((n = fread(block, 1, BLOCK, f)) > 0)
        sha256_add(s, block, n);
    assert_false(ferror(f));
    fclose(f);
    free(block);
}
