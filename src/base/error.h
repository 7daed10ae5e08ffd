/* Filling pl_error, and the two macros that forward failures. */
#ifndef PL_BASE_ERROR_H
#define PL_BASE_ERROR_H

#include "plimsoll/status.h"

/* Fills *err (when not NULL) and returns `status`, so that a failure is one statement:
 *
 *     return pl_error_set(err, PL_ERR_CORRUPT, "%s: header is cut off (got %zu bytes, want %zu)", ...);
 *
 * The text has the form "WHERE: WHAT (got X, want Y)". What does not print (names from hostile
 * files, half a character at a cut) becomes '?', so that the result is always one line of UTF-8. `pos` becomes 0. */
pl_status pl_error_set(pl_error *err, pl_status status, const char *format, ...) PL_PRINTF(3, 4);

/* The same, with the byte position at which a parser stopped. */
pl_status pl_error_set_at(pl_error *err, pl_status status, uint64_t pos, const char *format, ...)
    PL_PRINTF(4, 5);

#ifdef __clang_analyzer__
/* The analyser does not see the body and would follow paths on which a failure returns PL_OK. */
#define pl_error_set(err, status, ...) ((void)pl_error_set(err, status, __VA_ARGS__), (status))
#define pl_error_set_at(err, status, pos, ...) \
    ((void)pl_error_set_at(err, status, pos, __VA_ARGS__), (status))
#endif

/* Puts "WHERE: " before the text already in *err; for callers that know the file or the field. */
void pl_error_prefix(pl_error *err, const char *format, ...) PL_PRINTF(2, 3);

/* Forwards a failing status. */
#define PL_TRY(expr)                       \
    do {                                   \
        pl_status pl_try_status_ = (expr); \
        if (pl_try_status_ != PL_OK)       \
            return pl_try_status_;         \
    } while (0)

/* Argument check at a public boundary, in every build. */
#define PL_CHECK(cond, err, ...)                                     \
    do {                                                             \
        if (!(cond))                                                 \
            return pl_error_set((err), PL_ERR_INVALID, __VA_ARGS__); \
    } while (0)

#endif
