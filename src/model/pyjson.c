/* Python's JSON text: indentation, escapes and shortest floats. jansson's own writer rounds differently,
 * escapes differently and indents differently. Reading is jansson's. */
#include "model/pyjson.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers */

enum { MAX_DIGITS = 17 };

/* d.ddde+XX -> digits without the point, and the power of ten of the first one. */
typedef struct decimal {
    char digits[MAX_DIGITS + 1];
    int n, exponent;
} decimal;

static decimal round_to_digits(double x, int n)
{
    char text[PL_PYJSON_DOUBLE_BYTES];
    decimal d = {.n = n};

    snprintf(text, sizeof text, "%.*e", n - 1, x);
    d.digits[0] = text[0];
    if (n > 1)
        memcpy(d.digits + 1, text + 2, (size_t)n - 1);
    d.exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    return d;
}

/* The next number of as many digits. */
static decimal next_up(decimal d)
{
    int i = d.n - 1;

    while (i >= 0 && d.digits[i] == '9')
        d.digits[i--] = '0';
    if (i >= 0) {
        d.digits[i]++;
    } else {
        d.digits[0] = '1';
        d.exponent++;
    }
    return d;
}

static bool reads_back(const decimal *d, double x)
{
    char text[PL_PYJSON_DOUBLE_BYTES];

    snprintf(text, sizeof text, "%.1s.%se%d", d->digits, d->digits + 1, d->exponent);
    return strtod(text, NULL) == x;
}

/* x > 0. Rounding to n digits finds the nearest such number, and it is the only one to try, except at
 * powers of two: there the doubles above are twice as far apart as those below, and the neighbour
 * above may read back where the nearest, lying below, does not. */
static decimal shortest(double x)
{
    decimal d;

    for (int n = 1; n < MAX_DIGITS; n++) {
        decimal up;

        d = round_to_digits(x, n);
        if (reads_back(&d, x))
            return d;
        up = next_up(d);
        if (reads_back(&up, x))
            return up;
    }
    return round_to_digits(x, MAX_DIGITS);
}

static int trim_zeros(const decimal *d)
{
    int n = d->n;

    while (n > 1 && d->digits[n - 1] == '0')
        n--;
    return n;
}

void pl_pyjson_format_double(double x, char text[PL_PYJSON_DOUBLE_BYTES])
{
    const bool negative = x < 0 || (x == 0 && 1 / x < 0);
    decimal d;
    int n;

    if (negative)
        *text++ = '-';
    if (x == 0) {
        memcpy(text, "0.0", 4);
        return;
    }
    d = shortest(negative ? -x : x);
    n = trim_zeros(&d);
    if (d.exponent < -4 || d.exponent >= 16) {
        snprintf(text, PL_PYJSON_DOUBLE_BYTES - 1, "%.1s%s%.*se%c%02d", d.digits, n > 1 ? "." : "",
                 n - 1, d.digits + 1, d.exponent < 0 ? '-' : '+', abs(d.exponent));
    } else if (d.exponent < 0) {
        snprintf(text, PL_PYJSON_DOUBLE_BYTES - 1, "0.%.*s%.*s", -d.exponent - 1, "000", n,
                 d.digits);
    } else {
        /* d.exponent + 1 digits before the point, zeros where the shortest form has fewer */
        int whole = d.exponent + 1, given = n < whole ? n : whole;

        snprintf(text, PL_PYJSON_DOUBLE_BYTES - 1, "%.*s%.*s.%s", given, d.digits, whole - given,
                 "0000000000000000", n > whole ? "" : "0");
        if (n > whole)
            strncat(text, d.digits + whole, (size_t)(n - whole));
    }
}

/* ---- strings */

/* One code point of valid UTF-8 (jansson lets nothing else through); advances *at. */
static uint32_t next_code_point(const unsigned char **at)
{
    const unsigned char *p = *at;
    int n_more = *p < 0x80 ? 0 : *p < 0xE0 ? 1 : *p < 0xF0 ? 2 : 3;
    uint32_t c = n_more == 0 ? *p : *p & (0x3Fu >> n_more);

    for (int i = 1; i <= n_more; i++)
        c = c << 6 | (p[i] & 0x3Fu);
    *at = p + 1 + n_more;
    return c;
}

static void write_escaped(FILE *to, uint32_t c)
{
    static const char plain[] = "\"\\\n\r\t\f\b", letter[] = "\"\\nrtfb";
    const char *known = c && c < 0x80 ? strchr(plain, (int)c) : NULL;

    if (known)
        fprintf(to, "\\%c", letter[known - plain]);
    else if (c >= 0x20 && c < 0x7F)
        fputc((int)c, to);
    else if (c < 0x10000)
        fprintf(to, "\\u%04x", c);
    else
        fprintf(to, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + (c & 0x3FF));
}

void pl_pyjson_write_string(FILE *to, const char *text)
{
    fputc('"', to);
    for (const unsigned char *p = (const unsigned char *)text; *p;)
        write_escaped(to, next_code_point(&p));
    fputc('"', to);
}

/* ---- values */

static void start_line(FILE *to, int depth)
{
    fputc('\n', to);
    for (int i = 0; i < depth; i++)
        fputc(' ', to);
}

static void write_value(FILE *to, const json_t *value, int depth);

static void write_object(FILE *to, const json_t *value, int depth)
{
    const char *key, *separator = "";
    json_t *item;

    fputc('{', to);
    json_object_foreach((json_t *)value, key, item)
    {
        fputs(separator, to);
        start_line(to, depth + 1);
        pl_pyjson_write_string(to, key);
        fputs(": ", to);
        write_value(to, item, depth + 1);
        separator = ",";
    }
    if (*separator)
        start_line(to, depth);
    fputc('}', to);
}

static void write_array(FILE *to, const json_t *value, int depth)
{
    const size_t n = json_array_size(value);

    fputc('[', to);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? "," : "", to);
        start_line(to, depth + 1);
        write_value(to, json_array_get(value, i), depth + 1);
    }
    if (n)
        start_line(to, depth);
    fputc(']', to);
}

static void write_value(FILE *to, const json_t *value, int depth)
{
    char text[PL_PYJSON_DOUBLE_BYTES];

    switch (json_typeof(value)) {
    case JSON_OBJECT:
        write_object(to, value, depth);
        break;
    case JSON_ARRAY:
        write_array(to, value, depth);
        break;
    case JSON_STRING:
        pl_pyjson_write_string(to, json_string_value(value));
        break;
    case JSON_INTEGER:
        fprintf(to, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        pl_pyjson_format_double(json_real_value(value), text);
        fputs(text, to);
        break;
    case JSON_TRUE:
        fputs("true", to);
        break;
    case JSON_FALSE:
        fputs("false", to);
        break;
    case JSON_NULL:
        fputs("null", to);
        break;
    }
}

void pl_pyjson_write(FILE *to, const json_t *value)
{
    write_value(to, value, 0);
}
