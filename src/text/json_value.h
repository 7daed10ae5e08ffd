/* JSON as Python reads it: the prompt format is defined by Python's json module, whose output the model was
 * trained on. Hence a reader of our own: whole numbers of any length, the text of every number, NaN and
 * Infinity, key order, and the last value of a repeated key at the place of the first. */
#ifndef PL_TEXT_JSON_VALUE_H
#define PL_TEXT_JSON_VALUE_H

#include <stdbool.h>

#include "plimsoll/status.h"
#include "text/json_pool.h"

enum {
    PL_JSON_MAX_DEPTH = 128,   /* arrays and objects within each other */
    PL_JSON_MAX_DIGITS = 4300, /* of a whole number: where Python stops too */
};

typedef enum pl_json_kind {
    PL_JSON_NULL,
    PL_JSON_FALSE,
    PL_JSON_TRUE,
    PL_JSON_INTEGER,
    PL_JSON_REAL, /* has a fraction or an exponent, or is NaN, Infinity, -Infinity */
    PL_JSON_STRING,
    PL_JSON_ARRAY,
    PL_JSON_OBJECT,
} pl_json_kind;

typedef struct pl_json_value pl_json_value;
struct pl_json_value {
    pl_json_kind kind;
    uint32_t order;       /* position in the array or object, before repeated keys were joined */
    const char *text;     /* number: as written; string: unescaped UTF-8, may hold 0 */
    size_t n;             /* bytes of text, or elements */
    pl_json_value *first; /* of an array or object */
    pl_json_value *next;  /* in the enclosing array or object */
    const char *key;      /* member of an object: its key, unescaped */
    size_t key_bytes;
};

/* Reads one value and white space around it. `where` stands for the text in errors. The tree lies in
 * `pool` and points into `json`. PL_ERR_INVALID with err->pos for what is not JSON, not UTF-8, holds half a
 * surrogate pair or is nested too deep; PL_ERR_NOMEM. Time is linear but for sorting the keys of an object. */
pl_status pl_json_value_parse(pl_json_pool *pool, const char *where, const char *json,
                              size_t json_bytes, const pl_json_value **out,
                              pl_error *err) PL_MUST_CHECK;

/* The member, or NULL; also where `object` is NULL or no object. A null counts as a member. */
const pl_json_value *pl_json_value_get(const pl_json_value *object, const char *key);

/* Whether it is a string with exactly this text. */
bool pl_json_value_is(const pl_json_value *value, const char *text);

/* The value in words for an error message: 'text' (cut to fit), 12, true, an array; "nothing" for NULL.
 * Returns `words`, which holds PL_JSON_WORDS_BYTES. */
enum { PL_JSON_WORDS_BYTES = 80 };
const char *pl_json_value_words(const pl_json_value *value, char *words);

#endif
