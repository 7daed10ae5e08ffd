/* One rule for what may reach a terminal or a log: names from files and from the command line are UTF-8 at best, and
 * escape sequences at worst. Repairing and streaming text is text/utf8.h's. */
#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

size_t pl_utf8_length(const char *text, size_t n_bytes)
{
    const unsigned char *s = (const unsigned char *)text;
    uint32_t code;
    size_t n;

    if (s[0] < 0x80)
        return 1;
    n = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || n > n_bytes)
        return 0;
    code = s[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3Fu);
    }
    if ((n == 3 && code < 0x800) || (n == 4 && (code < 0x10000 || code > 0x10FFFF)) ||
        (code >= 0xD800 && code <= 0xDFFF))
        return 0;
    return n;
}

/* Bytes of the character at `text` that prints, 0 where its first byte is to be replaced. */
static size_t printable_length(const char *text, size_t n_bytes)
{
    const unsigned char *s = (const unsigned char *)text;
    const size_t n = pl_utf8_length(text, n_bytes);

    if (n == 1 && (s[0] < 0x20 || s[0] == 0x7F))
        return 0;
    /* Some terminals take U+009B for the start of an escape sequence. */
    return n == 2 && s[0] == 0xC2 && s[1] < 0xA0 ? 0 : n;
}

void pl_utf8_make_printable(char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        size_t n = printable_length(text, left);

        if (n == 0) {
            *text = '?';
            n = 1;
        }
        text += n;
        left -= n;
    }
}

void pl_utf8_print(FILE *to, const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        size_t n = printable_length(text, left);

        if (n > 0)
            (void)fwrite(text, 1, n, to);
        else
            (void)fputc('?', to);
        n += n == 0;
        text += n;
        left -= n;
    }
}
