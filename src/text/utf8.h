/* UTF-8: checking, repairing, reading. Ill-formed means what the Unicode standard calls so (table
 * 3-7: no overlong forms, no surrogates, nothing above U+10FFFF); one U+FFFD stands for each
 * maximal part of an ill-formed sequence. */
#ifndef PL_TEXT_UTF8_H
#define PL_TEXT_UTF8_H

#include "plimsoll/text.h"

/* Length of the longest well-formed beginning. */
size_t pl__utf8_valid_bytes(const uint8_t *text, size_t n_bytes);

/* Feeds bytes to the stream and writes what they release to `out`; bytes that may still begin a
 * character are held back. Returns the bytes written: at most 3 n_bytes + 3. `out` must not overlap
 * `bytes`; NULL only counts. */
size_t pl__utf8_push(pl_text_stream *stream, const uint8_t *bytes, size_t n_bytes, uint8_t *out);

/* Ends the stream: writes a U+FFFD if bytes are held. Returns 0 or 3. */
size_t pl__utf8_flush(pl_text_stream *stream, uint8_t *out);

typedef struct pl_utf8_char {
    uint32_t code_point;
    uint32_t n_bytes;
} pl_utf8_char;

/* The character at `text`, which is well formed there. */
static inline pl_utf8_char pl__utf8_char_at(const uint8_t *text)
{
    uint32_t a = text[0];

    if (a < 0x80)
        return (pl_utf8_char){a, 1};
    if (a < 0xE0)
        return (pl_utf8_char){(a & 0x1F) << 6 | (text[1] & 0x3Fu), 2};
    if (a < 0xF0)
        return (pl_utf8_char){(a & 0x0F) << 12 | (text[1] & 0x3Fu) << 6 | (text[2] & 0x3Fu), 3};
    return (pl_utf8_char){
        (a & 0x07) << 18 | (text[1] & 0x3Fu) << 12 | (text[2] & 0x3Fu) << 6 | (text[3] & 0x3Fu), 4};
}

#endif
