/* The process's log. The level and the sink are the only mutable globals outside the kernel table:
 * a log that had to be passed to every function would not be used. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/utf8.h"

static _Atomic int max_level = PL_LOG_WARN;
static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static pl_log_sink *sink_fn; /* under sink_lock; NULL = standard error */
static void *sink_user;

static const char *const level_names[] = {"error", "warn", "info", "debug"};

void pl_log_set_level(pl_log_level level)
{
    atomic_store_explicit(&max_level, (int)level, memory_order_relaxed);
}

void pl_log_set_sink(pl_log_sink *sink, void *user)
{
    pthread_mutex_lock(&sink_lock);
    sink_fn = sink;
    sink_user = user;
    pthread_mutex_unlock(&sink_lock);
}

void pl_log(pl_log_level level, const char *event, const char *format, ...)
{
    char line[1024];
    size_t n;
    va_list args;

    if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed))
        return;
    n = (size_t)snprintf(line, sizeof line, "level=%s event=%s%s", level_names[level], event,
                         format[0] ? " " : "");
    if (n < sizeof line) {
        va_start(args, format);
        vsnprintf(line + n, sizeof line - n, format, args);
        va_end(args);
    }
    pl_utf8_make_printable(line);
    pthread_mutex_lock(&sink_lock);
    if (sink_fn)
        sink_fn(sink_user, level, line);
    else
        fprintf(stderr, "%s\n", line);
    pthread_mutex_unlock(&sink_lock);
}
