/* The JSON writer. stdio holds the only state that grows nowhere; errors are those of the stream, which main
 * looks at. */
#include "cli/json_out.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void pl_out_begin(pl_out *j, FILE *to)
{
    *j = (pl_out){.to = to, .first = true};
}

static void write_escaped(FILE *to, const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fprintf(to, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", to);
        else if (c == '\t')
            fputs("\\t", to);
        else if (c < 0x20 || c == 0x7F)
            fprintf(to, "\\u%04x", c);
        else
            putc(c, to);
    }
}

static void write_string(FILE *to, const char *text, size_t n_bytes)
{
    putc('"', to);
    write_escaped(to, text, n_bytes);
    putc('"', to);
}

static void new_line(pl_out *j)
{
    if (!j->inline_)
        fprintf(j->to, "\n%*s", 2 * j->depth, "");
}

/* What stands before every value. */
static void start(pl_out *j, const char *key)
{
    if (!j->first)
        fputs(j->inline_ ? ", " : ",", j->to);
    if (j->depth > 0)
        new_line(j);
    j->first = false;
    if (!key)
        return;
    write_string(j->to, key, strlen(key));
    fputs(": ", j->to);
}

void pl_out_open(pl_out *j, const char *key, char bracket)
{
    start(j, key);
    putc(bracket == '<' ? '[' : bracket, j->to);
    j->depth++;
    j->first = true;
    j->inline_ = bracket == '<';
}

void pl_out_close(pl_out *j, char bracket)
{
    j->depth--;
    if (!j->first)
        new_line(j);
    putc(bracket == '<' ? ']' : bracket == '[' ? ']' : '}', j->to);
    j->first = false;
    j->inline_ = false;
}

void pl_out_int(pl_out *j, const char *key, int64_t value)
{
    start(j, key);
    fprintf(j->to, "%" PRId64, value);
}

void pl_out_uint(pl_out *j, const char *key, uint64_t value)
{
    start(j, key);
    fprintf(j->to, "%" PRIu64, value);
}

void pl_out_bool(pl_out *j, const char *key, bool value)
{
    start(j, key);
    fputs(value ? "true" : "false", j->to);
}

void pl_out_null(pl_out *j, const char *key)
{
    start(j, key);
    fputs("null", j->to);
}

void pl_out_float(pl_out *j, const char *key, float value)
{
    char text[32];

    if (!isfinite(value)) {
        pl_out_null(j, key);
        return;
    }
    for (int digits = 6; digits <= 9; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    start(j, key);
    fputs(text, j->to);
}

void pl_out_fixed(pl_out *j, const char *key, double value, int digits)
{
    start(j, key);
    fprintf(j->to, "%.*f", digits, value);
}

void pl_out_text(pl_out *j, const char *key, const char *text, size_t n_bytes)
{
    start(j, key);
    write_string(j->to, text, n_bytes);
}

void pl_out_string(pl_out *j, const char *key, const char *text)
{
    pl_out_text(j, key, text, strlen(text));
}

void pl_out_string_begin(pl_out *j, const char *key)
{
    start(j, key);
    putc('"', j->to);
}

void pl_out_string_piece(pl_out *j, const char *text, size_t n_bytes)
{
    write_escaped(j->to, text, n_bytes);
}

void pl_out_string_end(pl_out *j)
{
    putc('"', j->to);
}

void pl_out_end(pl_out *j)
{
    putc('\n', j->to);
}
