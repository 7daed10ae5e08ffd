/* Checks shared by the unit tests. */
#include "support/check.h"

#include <math.h>
#include <string.h>

void check_ok(pl_status status, const pl_error *err)
{
    if (status != PL_OK)
        fail_msg("%s: %s", pl_status_name(status), err ? err->msg : "no text");
}

void check_error(pl_status status, pl_status want, const pl_error *err, ...)
{
    va_list args;
    const char *fragment;

    if (status != want)
        fail_msg("status %s, want %s: %s", pl_status_name(status), pl_status_name(want), err->msg);
    if (err->status != want)
        fail_msg("err->status is %s, want %s", pl_status_name(err->status), pl_status_name(want));
    va_start(args, err);
    while ((fragment = va_arg(args, const char *)))
        if (!strstr(err->msg, fragment))
            fail_msg("'%s' is not in the message '%s'", fragment, err->msg);
    va_end(args);
}

void check_same_f32(const char *what, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t a, b;
        memcpy(&a, &got[i], 4);
        memcpy(&b, &want[i], 4);
        if (a != b && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s[%zu]: got %.9g (0x%08x), want %.9g (0x%08x)", what, i, (double)got[i], a,
                     (double)want[i], b);
    }
}

void check_same_bytes(const char *what, const void *got, const void *want, size_t n)
{
    const uint8_t *g = got, *w = want;

    for (size_t i = 0; i < n; i++)
        if (g[i] != w[i])
            fail_msg("%s: byte %zu of %zu: got 0x%02x, want 0x%02x", what, i, n, g[i], w[i]);
}
