/* JSON written as it is told, in fixed memory: for results whose size no plan should have to know.
 *
 * Commas, newlines and indents come by themselves. Whoever writes opens and closes in order. */
#ifndef PL_CLI_JSON_OUT_H
#define PL_CLI_JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct pl_out {
    FILE *to;
    int depth;
    bool first;   /* nothing stands in the open bracket yet */
    bool inline_; /* the open brackets from this depth on are on one line */
} pl_out;

void pl_out_begin(pl_out *j, FILE *to);

/* key may be NULL inside of an array. bracket: '{', '[', or '<' for an array on one line. */
void pl_out_open(pl_out *j, const char *key, char bracket);
void pl_out_close(pl_out *j, char bracket);

void pl_out_int(pl_out *j, const char *key, int64_t value);
void pl_out_uint(pl_out *j, const char *key, uint64_t value);
void pl_out_bool(pl_out *j, const char *key, bool value);
void pl_out_null(pl_out *j, const char *key);
/* As few digits as give the same value back; null where it is not finite. */
void pl_out_float(pl_out *j, const char *key, float value);
/* With `digits` decimals. */
void pl_out_fixed(pl_out *j, const char *key, double value, int digits);
/* UTF-8. */
void pl_out_text(pl_out *j, const char *key, const char *text, size_t n_bytes);
void pl_out_string(pl_out *j, const char *key, const char *text);

/* A string in pieces, each of whole characters. */
void pl_out_string_begin(pl_out *j, const char *key);
void pl_out_string_piece(pl_out *j, const char *text, size_t n_bytes);
void pl_out_string_end(pl_out *j);

/* Ends the document with a newline. */
void pl_out_end(pl_out *j);

#endif
