/* Status names and the one place where error texts are formatted and made safe to print. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#undef pl_error_set /* macros where the analyser looks, see the header */
#undef pl_error_set_at

const char *pl_status_name(pl_status status)
{
    switch (status) {
    case PL_OK:
        return "PL_OK";
#define PL_STATUS_CASE(name, value, text) \
    case PL_ERR_##name:                   \
        return "PL_ERR_" #name;
        PL_STATUS_MAP(PL_STATUS_CASE)
#undef PL_STATUS_CASE
    }
    return "PL_ERR_UNKNOWN";
}

const char *pl_status_text(pl_status status)
{
    switch (status) {
    case PL_OK:
        return "success";
#define PL_STATUS_CASE(name, value, text) \
    case PL_ERR_##name:                   \
        return text;
        PL_STATUS_MAP(PL_STATUS_CASE)
#undef PL_STATUS_CASE
    }
    return "unknown status";
}

static void mark_cut(char *msg, int wanted)
{
    if (wanted >= PL_ERROR_MSG_BYTES)
        memcpy(msg + PL_ERROR_MSG_BYTES - 4, "...", 4);
}

static void fill(pl_error *err, pl_status status, uint64_t pos, const char *format, va_list args)
{
    err->status = status;
    err->pos = pos;
    mark_cut(err->msg, vsnprintf(err->msg, sizeof err->msg, format, args));
    pl_utf8_make_printable(err->msg);
}

pl_status pl_error_set(pl_error *err, pl_status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        fill(err, status, 0, format, args);
        va_end(args);
    }
    return status;
}

pl_status pl_error_set_at(pl_error *err, pl_status status, uint64_t pos, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        fill(err, status, pos, format, args);
        va_end(args);
    }
    return status;
}

void pl_error_prefix(pl_error *err, const char *format, ...)
{
    char where[PL_ERROR_MSG_BYTES / 2], rest[PL_ERROR_MSG_BYTES];
    va_list args;

    if (!err)
        return;
    va_start(args, format);
    vsnprintf(where, sizeof where, format, args);
    va_end(args);
    memcpy(rest, err->msg, sizeof rest);
    mark_cut(err->msg, snprintf(err->msg, sizeof err->msg, "%s: %s", where, rest));
    pl_utf8_make_printable(err->msg);
}
