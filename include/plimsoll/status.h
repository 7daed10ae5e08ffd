/* Results and error texts, shared by every public header.
 *
 * A function that can fail returns pl_status: 0 is success, every failure is negative. Where text
 * helps a person, the last argument is a `pl_error *err`; it may be NULL, is owned by the caller and
 * is written only on failure. */
#ifndef PL_PLIMSOLL_STATUS_H
#define PL_PLIMSOLL_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PL_API          __attribute__((visibility("default")))
#define PL_MUST_CHECK   __attribute__((warn_unused_result))
#define PL_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define PL_API
#define PL_MUST_CHECK
#define PL_PRINTF(f, a)
#endif

/* One list makes the values, the names and the texts. Numbers are part of the ABI: append only. */
#define PL_STATUS_MAP(X)                           \
    X(NOMEM, -1, "out of memory")                  \
    X(INVALID, -2, "invalid argument or input")    \
    X(UNSUPPORTED, -3, "valid, but not supported") \
    X(CORRUPT, -4, "damaged or inconsistent data") \
    X(IO, -5, "input or output failed")            \
    X(NOT_FOUND, -6, "not found")                  \
    X(BUSY, -7, "in use")                          \
    X(AGAIN, -8, "try again later")                \
    X(CANCELLED, -9, "cancelled")                  \
    X(TIMEOUT, -10, "timed out")                   \
    X(LIMIT, -11, "does not fit the given limit")  \
    X(OVERFLOW, -12, "number too large")           \
    X(STATE, -13, "not possible in this state")    \
    X(INTERNAL, -14, "internal error")

typedef enum pl_status {
    PL_OK = 0,
#define PL_STATUS_ENUM(name, value, text) PL_ERR_##name = (value),
    PL_STATUS_MAP(PL_STATUS_ENUM)
#undef PL_STATUS_ENUM
} pl_status;

/* The longest text of an error, its final 0 included; longer ones end in "...". */
#define PL_ERROR_MSG_BYTES 512

/* What went wrong. `msg` is one printable line of the form "WHERE: WHAT (got X, want Y)", WHERE being
 * a file, a tensor, an option or an argument. `pos` is the byte at which a parser stopped, else 0. */
typedef struct pl_error {
    pl_status status;
    uint64_t pos;
    char msg[PL_ERROR_MSG_BYTES];
} pl_error;

/* "PL_OK", "PL_ERR_NOMEM", ...; "PL_ERR_UNKNOWN" for a number not in the list. Never NULL. */
PL_API const char *pl_status_name(pl_status status);

/* One English phrase for the status, such as "out of memory". Never NULL. */
PL_API const char *pl_status_text(pl_status status);

#ifdef __cplusplus
}
#endif
#endif
