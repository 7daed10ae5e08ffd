/* Random strings, reproducible from the seed. */
#include "support/random_text.h"

uint64_t random_next(random_source *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint32_t random_below(random_source *r, uint32_t n)
{
    return (uint32_t)((random_next(r) >> 32) * n >> 32);
}

size_t put_utf8(uint32_t c, char *out)
{
    static const uint32_t limits[] = {0x80, 0x800, 0x10000, 0x110000};
    static const uint32_t leads[] = {0, 0xC0, 0xE0, 0xF0};
    size_t n = 0;

    while (c >= limits[n])
        n++;
    out[0] = (char)(leads[n] | c >> 6 * n);
    for (size_t i = 1; i <= n; i++)
        out[i] = (char)(0x80 | (c >> 6 * (n - i) & 0x3F));
    return n + 1;
}

size_t random_text(random_source *r, const code_block *blocks, uint32_t n_blocks, char *out)
{
    uint32_t n = 1 + random_below(r, 64), b = random_below(r, n_blocks);
    size_t n_bytes = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && random_below(r, 3) == 0)
            b = random_below(r, n_blocks);
        n_bytes += put_utf8(blocks[b].first + random_below(r, blocks[b].last - blocks[b].first + 1),
                            out + n_bytes);
    }
    return n_bytes;
}
