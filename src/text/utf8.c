/* UTF-8 checking and the state machine that repairs and streams it.
 *
 * One machine serves both: text given to the encoder and bytes of tokens given to the decoder are
 * replaced by the same rule. A sequence is described by what its next byte may be (`low`..`high`)
 * and how many bytes are missing; only the second byte of a sequence has a range of its own. */
#include "text/utf8.h"

#include <string.h>

static const uint8_t replacement[3] = {0xEF, 0xBF, 0xBD};

/* Sets what must follow lead byte `b`; false where none can. */
static bool begin_sequence(pl_text_stream *s, uint8_t b)
{
    if (b < 0xC2 || b > 0xF4)
        return false;
    s->n_missing = b < 0xE0 ? 1 : b < 0xF0 ? 2 : 3;
    s->low = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
    s->high = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
    return true;
}

size_t pl__utf8_valid_bytes(const uint8_t *text, size_t n_bytes)
{
    size_t at = 0;

    while (at < n_bytes) {
        pl_text_stream s = {0};
        uint64_t eight;
        size_t next;

        if (n_bytes - at >= 8) {
            memcpy(&eight, text + at, 8);
            if (!(eight & 0x8080808080808080u)) {
                at += 8;
                continue;
            }
        }
        if (text[at] < 0x80) {
            at++;
            continue;
        }
        if (!begin_sequence(&s, text[at]) || s.n_missing >= n_bytes - at)
            return at;
        next = at + 1 + s.n_missing;
        if (text[at + 1] < s.low || text[at + 1] > s.high)
            return at;
        for (size_t i = at + 2; i < next; i++)
            if ((text[i] & 0xC0) != 0x80)
                return at;
        at = next;
    }
    return at;
}

/* Where the machine writes; only counts where `out` is NULL. */
typedef struct byte_sink {
    uint8_t *out;
    size_t n;
} byte_sink;

static void put(byte_sink *sink, const uint8_t *bytes, size_t n)
{
    if (sink->out)
        memcpy(sink->out + sink->n, bytes, n);
    sink->n += n;
}

size_t pl__utf8_push(pl_text_stream *s, const uint8_t *bytes, size_t n_bytes, uint8_t *out)
{
    byte_sink sink = {out, 0};

    for (size_t i = 0; i < n_bytes; i++) {
        uint8_t b = bytes[i];

        if (s->n_held) {
            if (b >= s->low && b <= s->high) {
                s->n_missing--;
                s->low = 0x80;
                s->high = 0xBF;
                if (s->n_missing) {
                    s->held[s->n_held++] = b;
                } else {
                    put(&sink, s->held, s->n_held);
                    put(&sink, &b, 1);
                    s->n_held = 0;
                }
                continue;
            }
            put(&sink, replacement, 3); /* the held part is ill-formed; b begins anew */
            s->n_held = 0;
        }
        if (b < 0x80)
            put(&sink, &b, 1);
        else if (begin_sequence(s, b))
            s->held[s->n_held++] = b;
        else
            put(&sink, replacement, 3);
    }
    return sink.n;
}

size_t pl__utf8_flush(pl_text_stream *s, uint8_t *out)
{
    size_t n = s->n_held ? 3 : 0;

    if (n && out)
        memcpy(out, replacement, 3);
    *s = (pl_text_stream){0};
    return n;
}
