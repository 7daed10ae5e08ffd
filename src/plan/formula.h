/* Closed forms that a person reads and the program checks: "43 layers * 256 experts * 3 * 2048 * 4096 / 2".
 *
 *     sum     = product { ("+" | "-") product }
 *     product = factor { ("*" | "/") factor }
 *     factor  = (number | "(" sum ")" | "up(" sum "," sum ")") { word }
 *
 * Numbers are decimal and whole; "_" may group digits (7_168). A word behind a factor says what it counts and means nothing, except KiB, MiB, GiB and
 * TiB, which multiply it. up(x, a) is x rounded up to a multiple of a. A division must leave no remainder, a
 * difference must not be negative: what rounds is not a closed form. */
#ifndef PL_PLAN_FORMULA_H
#define PL_PLAN_FORMULA_H

#include "plimsoll/status.h"

/* INVALID for text that is not such a form, OVERFLOW above 2^64 - 1; the position is in err->pos. */
PL_MUST_CHECK pl_status pl_formula_eval(const char *text, uint64_t *value, pl_error *err);

#endif
