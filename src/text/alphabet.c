/* Reading the byte alphabet. The 68 characters from U+0100 on are the bytes that are no printable
 * Latin-1 character, ascending. */
#include "text/alphabet.h"

#include "text/utf8.h"

/* Byte number n (0..67) of those that do not stand for themselves: 00-20, 7F-A0, AD. */
static int shifted_byte(uint32_t n)
{
    if (n <= 0x20)
        return (int)n;
    n -= 0x21;
    if (n <= 0xA0 - 0x7F)
        return (int)n + 0x7F;
    return n == 0xA0 - 0x7F + 1 ? 0xAD : -1;
}

static int byte_of(uint32_t c)
{
    if ((c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF))
        return (int)c;
    return c >= 0x100 ? shifted_byte(c - 0x100) : -1;
}

size_t pl__alphabet_bytes(const uint8_t *text, size_t n_bytes, uint8_t *out)
{
    size_t n = 0;

    for (size_t at = 0; at < n_bytes;) {
        pl_utf8_char c = pl__utf8_char_at(text + at);
        int byte = byte_of(c.code_point);

        if (byte < 0)
            return SIZE_MAX;
        out[n++] = (uint8_t)byte;
        at += c.n_bytes;
    }
    return n;
}
