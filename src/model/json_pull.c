/* The pull parser: one cursor over bounded text, every read checked against its end. */
#include "model/json_pull.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

pl_status pl__json_fail(const pl_json *j, pl_status status, size_t at, const char *format, ...)
{
    char what[PL_ERROR_MSG_BYTES / 2];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return pl_error_set_at(j->err, status, j->base + at, "%s at byte %" PRIu64, what, j->base + at);
}

int pl__json_peek(pl_json *j)
{
    while (j->at < j->length) {
        char c = j->text[j->at];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
            return (unsigned char)c;
        j->at++;
    }
    return -1;
}

size_t pl__json_here(pl_json *j)
{
    (void)pl__json_peek(j);
    return j->at;
}

/* "want X" with what stands there instead. */
static pl_status unexpected(const pl_json *j, const char *want)
{
    if (j->at >= j->length)
        return pl__json_fail(j, PL_ERR_CORRUPT, j->at, "text is cut off (want %s)", want);
    unsigned char c = (unsigned char)j->text[j->at];
    if (c > 0x20 && c < 0x7F)
        return pl__json_fail(j, PL_ERR_CORRUPT, j->at, "not valid JSON (got '%c', want %s)", c,
                             want);
    return pl__json_fail(j, PL_ERR_CORRUPT, j->at, "not valid JSON (got byte 0x%02x, want %s)", c,
                         want);
}

pl_status pl__json_take(pl_json *j, char c)
{
    char want[] = "'?'";

    want[1] = c;
    if (pl__json_peek(j) != (unsigned char)c)
        return unexpected(j, want);
    j->at++;
    return PL_OK;
}

pl_status pl__json_next(pl_json *j, char close, uint64_t *n, bool *more)
{
    int c = pl__json_peek(j);

    *more = c != (unsigned char)close;
    if (!*more) {
        j->at++;
        return PL_OK;
    }
    if (*n > 0) {
        if (c != ',')
            return unexpected(j, close == '}' ? "',' or '}'" : "',' or ']'");
        j->at++;
    }
    ++*n;
    return PL_OK;
}

/* ---- strings */

static size_t put_utf8(char *out, uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

/* Four hex digits at j->at. */
static bool take_hex4(pl_json *j, uint32_t *code)
{
    if (j->length - j->at < 4)
        return false;
    *code = 0;
    for (int i = 0; i < 4; i++) {
        char c = j->text[j->at + (size_t)i];
        if (c >= '0' && c <= '9')
            *code = *code << 4 | (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            *code = *code << 4 | (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            *code = *code << 4 | (uint32_t)(c - 'A' + 10);
        else
            return false;
    }
    j->at += 4;
    return true;
}

/* The escape behind a backslash, as UTF-8 in `out` (4 bytes). */
static pl_status take_escape(pl_json *j, char *out, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t start = j->at - 1;
    char c = j->at < j->length ? j->text[j->at++] : 0;
    const char *simple = c ? strchr(from, c) : NULL;
    uint32_t code, low;

    if (simple) {
        out[0] = to[simple - from];
        *n = 1;
        return PL_OK;
    }
    if (c != 'u' || !take_hex4(j, &code))
        return pl__json_fail(j, PL_ERR_CORRUPT, start, "string has an invalid escape");
    if (code >= 0xD800 && code <= 0xDBFF) {
        if (j->length - j->at < 6 || j->text[j->at] != '\\' || j->text[j->at + 1] != 'u')
            return pl__json_fail(j, PL_ERR_CORRUPT, start, "string has half a surrogate pair");
        j->at += 2;
        if (!take_hex4(j, &low) || low < 0xDC00 || low > 0xDFFF)
            return pl__json_fail(j, PL_ERR_CORRUPT, start, "string has half a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
        return pl__json_fail(j, PL_ERR_CORRUPT, start, "string has half a surrogate pair");
    }
    if (code == 0)
        return pl__json_fail(j, PL_ERR_CORRUPT, start, "string has a zero byte");
    *n = put_utf8(out, code);
    return PL_OK;
}

/* Bytes from `at` that stand for themselves: printable ASCII, neither quote nor backslash. */
static size_t plain_run(const pl_json *j, size_t at)
{
    size_t i = at;

    while (i < j->length && j->text[i] >= 0x20 && j->text[i] != '"' && j->text[i] != '\\')
        i++;
    return i - at;
}

/* The next piece of a string that is not its closing quote: *piece points at *n bytes, in the text itself
 * or, of an escape, in `buffer`. */
static pl_status take_piece(pl_json *j, char *buffer, const char **piece, size_t *n)
{
    const unsigned char *s = (const unsigned char *)j->text + j->at;

    if (*s == '\\') {
        j->at++;
        *piece = buffer;
        return take_escape(j, buffer, n);
    }
    if (*s < 0x20)
        return pl__json_fail(j, PL_ERR_CORRUPT, j->at, "string has a control byte (got 0x%02x)",
                             *s);
    *piece = j->text + j->at;
    *n = plain_run(j, j->at);
    if (*n == 0)
        *n = pl_utf8_length(*piece, j->length - j->at);
    if (*n == 0)
        return pl__json_fail(j, PL_ERR_CORRUPT, j->at, "string is not UTF-8 (got byte 0x%02x)", *s);
    j->at += *n;
    return PL_OK;
}

pl_status pl__json_text(pl_json *j, char *out, size_t capacity, size_t *length)
{
    size_t start, used = 0;

    PL_TRY(pl__json_take(j, '"'));
    start = j->at;
    for (;;) {
        char buffer[4];
        const char *piece = NULL;
        size_t n = 0;

        if (j->at >= j->length)
            return pl__json_fail(j, PL_ERR_CORRUPT, start - 1, "string is not ended");
        if (j->text[j->at] == '"')
            break;
        PL_TRY(take_piece(j, buffer, &piece, &n));
        if (!out)
            continue;
        if (n >= capacity - used)
            return pl__json_fail(j, PL_ERR_CORRUPT, start - 1,
                                 "string is too long (want at most %zu)", capacity - 1);
        memcpy(out + used, piece, n);
        used += n;
    }
    j->at++;
    if (out)
        out[used] = 0;
    if (length)
        *length = used;
    return PL_OK;
}

pl_status pl__json_key(pl_json *j, char *out, size_t capacity, size_t *length)
{
    PL_TRY(pl__json_text(j, out, capacity, length));
    return pl__json_take(j, ':');
}

/* ---- numbers and the rest */

static bool is_digit(const pl_json *j, size_t at)
{
    return at < j->length && j->text[at] >= '0' && j->text[at] <= '9';
}

pl_status pl__json_whole(pl_json *j, uint64_t *out)
{
    const size_t start = pl__json_here(j);
    uint64_t v = 0;

    if (!is_digit(j, start))
        return unexpected(j, "a whole number");
    if (j->text[start] == '0' && is_digit(j, start + 1))
        return pl__json_fail(j, PL_ERR_CORRUPT, start, "number has a leading zero");
    for (; is_digit(j, j->at); j->at++) {
        uint64_t digit = (uint64_t)(j->text[j->at] - '0');
        if (v > ((uint64_t)INT64_MAX - digit) / 10)
            return pl__json_fail(j, PL_ERR_CORRUPT, start, "number is too large (want below 2^63)");
        v = v * 10 + digit;
    }
    if (j->at < j->length &&
        (j->text[j->at] == '.' || j->text[j->at] == 'e' || j->text[j->at] == 'E'))
        return pl__json_fail(j, PL_ERR_CORRUPT, start, "number is not a whole number");
    *out = v;
    return PL_OK;
}

/* A number of JSON's grammar, value ignored. */
static pl_status skip_number(pl_json *j)
{
    if (j->text[j->at] == '-')
        j->at++;
    if (!is_digit(j, j->at))
        return unexpected(j, "a digit");
    if (j->text[j->at] == '0' && is_digit(j, j->at + 1))
        return pl__json_fail(j, PL_ERR_CORRUPT, j->at, "number has a leading zero");
    while (is_digit(j, j->at))
        j->at++;
    if (j->at < j->length && j->text[j->at] == '.') {
        j->at++;
        if (!is_digit(j, j->at))
            return unexpected(j, "a digit");
        while (is_digit(j, j->at))
            j->at++;
    }
    if (j->at < j->length && (j->text[j->at] == 'e' || j->text[j->at] == 'E')) {
        j->at++;
        if (j->at < j->length && (j->text[j->at] == '+' || j->text[j->at] == '-'))
            j->at++;
        if (!is_digit(j, j->at))
            return unexpected(j, "a digit");
        while (is_digit(j, j->at))
            j->at++;
    }
    return PL_OK;
}

static pl_status skip_scalar(pl_json *j, int first)
{
    static const char *const words[] = {"true", "false", "null"};

    if (first == '"')
        return pl__json_text(j, NULL, 0, NULL);
    if (first == '-' || (first >= '0' && first <= '9'))
        return skip_number(j);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t n = strlen(words[i]);
        if (j->length - j->at >= n && memcmp(j->text + j->at, words[i], n) == 0) {
            j->at += n;
            return PL_OK;
        }
    }
    return unexpected(j, "a value");
}

/* Arrays and objects still open, with the members seen in each. */
struct open {
    char close;
    uint64_t n;
};

pl_status pl__json_skip(pl_json *j)
{
    struct open open[PL_JSON_MAX_DEPTH];
    int depth = 0;

    do {
        int c = pl__json_peek(j);
        bool more = false;

        if (c == '{' || c == '[') {
            if (depth == PL_JSON_MAX_DEPTH)
                return pl__json_fail(j, PL_ERR_CORRUPT, j->at, "nested too deep (want at most %d)",
                                     PL_JSON_MAX_DEPTH);
            j->at++;
            open[depth++] = (struct open){c == '{' ? '}' : ']', 0};
        } else {
            PL_TRY(skip_scalar(j, c));
        }
        while (depth > 0 && !more) {
            struct open *o = &open[depth - 1];
            PL_TRY(pl__json_next(j, o->close, &o->n, &more));
            if (!more)
                depth--;
            else if (o->close == '}')
                PL_TRY(pl__json_key(j, NULL, 0, NULL));
        }
    } while (depth > 0);
    return PL_OK;
}

pl_status pl__json_end(pl_json *j)
{
    if (pl__json_peek(j) >= 0)
        return unexpected(j, "the end");
    return PL_OK;
}
