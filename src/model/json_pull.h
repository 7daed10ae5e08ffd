/* A pull parser for the two large JSON texts of a checkpoint: safetensors headers and the shard index.
 *
 * The caller asks for what the format says comes next and gets that or an error; nothing is built in
 * memory, nothing recurses. The text is taken as hostile: strings are checked UTF-8, numbers are plain
 * whole numbers, nesting of skipped values is bounded. Everything here is in memory; the position in
 * an error counts from the start of the file. */
#ifndef PL_MODEL_JSON_PULL_H
#define PL_MODEL_JSON_PULL_H

#include <stdbool.h>

#include "plimsoll/status.h"

enum { PL_JSON_MAX_DEPTH = 64 };

typedef struct pl_json {
    const char *text; /* borrowed; need not end in 0 */
    size_t length, at;
    uint64_t base; /* position of text[0] in its file */
    pl_error *err; /* may be NULL */
} pl_json;

/* Fails at the position `at` of the text: "WHAT at byte N". */
pl_status pl__json_fail(const pl_json *j, pl_status status, size_t at, const char *format, ...)
    PL_PRINTF(4, 5);

/* The next byte that is not white space, without taking it; -1 at the end. */
int pl__json_peek(pl_json *j);

/* Where the next value starts in the text, for pl__json_fail. */
size_t pl__json_here(pl_json *j);

/* Takes `c`, or fails. */
pl_status pl__json_take(pl_json *j, char c) PL_MUST_CHECK;

/* Steps through an object or array after its opening byte: sets *more to whether another member
 * follows, taking the comma in front of it or the closing byte. *n counts members, start it at 0. */
pl_status pl__json_next(pl_json *j, char close, uint64_t *n, bool *more) PL_MUST_CHECK;

/* A string with escapes resolved, ended by 0. More than capacity - 1 bytes, a 0 byte inside, bad UTF-8
 * and lone surrogates are errors. `out` may be NULL to check and skip a string of any length. */
pl_status pl__json_text(pl_json *j, char *out, size_t capacity, size_t *length) PL_MUST_CHECK;

/* A key and its colon. */
pl_status pl__json_key(pl_json *j, char *out, size_t capacity, size_t *length) PL_MUST_CHECK;

/* A whole number below 2^63 in plain digits: no sign, fraction, exponent or leading zero. */
pl_status pl__json_whole(pl_json *j, uint64_t *out) PL_MUST_CHECK;

/* Any value, nested up to PL_JSON_MAX_DEPTH. */
pl_status pl__json_skip(pl_json *j) PL_MUST_CHECK;

/* Only white space is left. */
pl_status pl__json_end(pl_json *j) PL_MUST_CHECK;

#endif
