/* One line per event on standard error: "level=info event=load key=value ...".
 *
 * Kernels never log. Values that hold spaces are quoted by the caller's format. */
#ifndef PL_BASE_LOG_H
#define PL_BASE_LOG_H

#include "plimsoll/status.h"

typedef enum pl_log_level {
    PL_LOG_ERROR,
    PL_LOG_WARN,
    PL_LOG_INFO,
    PL_LOG_DEBUG,
} pl_log_level;

/* Receives finished lines without their newline. Called from any thread, one call at a time. */
typedef void pl_log_sink(void *user, pl_log_level level, const char *line);

/* Lines above `level` are dropped; the start value is PL_LOG_WARN. */
void pl_log_set_level(pl_log_level level);

/* NULL restores standard error. `user` is borrowed until the next call. */
void pl_log_set_sink(pl_log_sink *sink, void *user);

/* `event` is one word; `format` gives "key=value key=value" and may be "". */
void pl_log(pl_log_level level, const char *event, const char *format, ...) PL_PRINTF(3, 4);

#endif
