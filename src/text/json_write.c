/* The writer. Reals are read without their point, so that the locale plays no part, and written by pyjson. */
#include "text/json_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/pyjson.h"

/* ---- strings ---- */

void pl_json_write_escaped(pl_json_buffer *out, const char *text, size_t n)
{
    size_t done = 0;

    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        const char *name = c && c < 0x20 ? strchr("\bb\ff\nn\rr\tt", c) : NULL;
        char escape[8];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        if (name)
            snprintf(escape, sizeof escape, "\\%c", name[1]);
        else if (c >= 0x20)
            snprintf(escape, sizeof escape, "\\%c", c);
        else
            snprintf(escape, sizeof escape, "\\u%04x", c);
        pl_json_buffer_put(out, text + done, i - done);
        pl_json_buffer_put_text(out, escape);
        done = i + 1;
    }
    pl_json_buffer_put(out, text + done, n - done);
}

void pl_json_write_string(pl_json_buffer *out, const char *text, size_t n)
{
    pl_json_buffer_put_char(out, '"');
    pl_json_write_escaped(out, text, n);
    pl_json_buffer_put_char(out, '"');
}

/* ---- reals ---- */

/* The number in the text of a JSON real. The point is moved into the exponent, whose size is bounded first:
 * digits and exponent may be longer than any number. */
static double read_real(const pl_json_value *v, pl_json_buffer *scratch)
{
    const char *s = v->text, *end = s + v->n;
    long shift = 0, exponent = 0, sign = 1;
    char tail[32];

    if (v->text[v->n - 1] == 'y')
        return *s == '-' ? -INFINITY : INFINITY;
    if (*s == 'N')
        return NAN;
    for (bool fraction = false; s < end && *s != 'e' && *s != 'E'; s++) {
        if (*s == '.') {
            fraction = true;
            continue;
        }
        shift -= fraction;
        pl_json_buffer_put_char(scratch, *s);
    }
    if (s < end) {
        s++;
        sign = *s == '-' ? -1 : 1;
        s += *s == '-' || *s == '+';
        for (; s < end; s++)
            if (exponent < 1000000000L)
                exponent = exponent * 10 + (*s - '0');
    }
    snprintf(tail, sizeof tail, "e%ld", sign * exponent + shift);
    pl_json_buffer_put(scratch, tail, strlen(tail) + 1);
    return scratch->failed == PL_OK ? strtod(scratch->bytes, NULL) : 0;
}

static void write_real(pl_json_buffer *out, const pl_json_value *v)
{
    pl_json_buffer scratch = {.max_bytes = SIZE_MAX};
    double value = read_real(v, &scratch);
    char text[PL_PYJSON_DOUBLE_BYTES];

    if (isfinite(value))
        pl_pyjson_format_double(value, text);
    else
        snprintf(text, sizeof text, "%s",
                 isnan(value) ? "NaN"
                 : value < 0  ? "-Infinity"
                              : "Infinity");
    if (scratch.failed != PL_OK)
        out->failed = scratch.failed;
    pl_json_buffer_fini(&scratch);
    pl_json_buffer_put_text(out, text);
}

/* ---- values ---- */

static void write_members(pl_json_buffer *out, const pl_json_value *v)
{
    bool keyed = v->kind == PL_JSON_OBJECT;

    pl_json_buffer_put_char(out, keyed ? '{' : '[');
    for (const pl_json_value *m = v->first; m; m = m->next) {
        if (m != v->first)
            pl_json_buffer_put_text(out, ", ");
        if (keyed) {
            pl_json_write_string(out, m->key, m->key_bytes);
            pl_json_buffer_put_text(out, ": ");
        }
        pl_json_write(out, m);
    }
    pl_json_buffer_put_char(out, keyed ? '}' : ']');
}

void pl_json_write(pl_json_buffer *out, const pl_json_value *value)
{
    switch (value->kind) {
    case PL_JSON_STRING:
        pl_json_write_string(out, value->text, value->n);
        return;
    case PL_JSON_REAL:
        write_real(out, value);
        return;
    case PL_JSON_INTEGER: /* as written, but Python's whole numbers have no negative zero */
        if (value->n == 2 && memcmp(value->text, "-0", 2) == 0)
            pl_json_buffer_put_char(out, '0');
        else
            pl_json_buffer_put(out, value->text, value->n);
        return;
    case PL_JSON_ARRAY:
    case PL_JSON_OBJECT:
        write_members(out, value);
        return;
    case PL_JSON_NULL:
    case PL_JSON_TRUE:
    case PL_JSON_FALSE:
        pl_json_buffer_put(out, value->text, value->n);
        return;
    }
}
