#include "support/contexts.h"

#include <stdlib.h>
#include <string.h>

#include "base/numfmt.h"
#include "support/fpmode.h"

static void backwards(void *user, int64_t n, void (*fn)(void *arg, int64_t i, int worker),
                      void *arg)
{
    for (int64_t i = n - 1; i >= 0; i--)
        fn(arg, i, (int)(i % *(const int *)user));
}

static unsigned fp_control(void)
{
#if defined(__SSE__)
    return _mm_getcsr();
#else
    return 0;
#endif
}

void contexts_run(pl_status (*call)(pl_ops_context *context, void *user, pl_error *err), void *user,
                  void *out, size_t bytes)
{
    enum { ODD = 0x1F80 | 0x6000 }; /* round to zero, denormals alive */
    int three = 3;
    const pl_ops_params all[] = {{.n_workers = 1, .level = "scalar"},
                                 {.n_workers = 1},
                                 {.n_workers = 3, .no_pin = 1},
                                 {.n_workers = 3, .parallel_for = backwards, .user = &three}};
    void *first = malloc(bytes + 1);

    assert_non_null(first);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const unsigned before = fp_control();
        pl_ops_context *context;
        pl_status status;
        unsigned after;
        pl_error err;

        check_ok(pl_ops_context_create(&all[i], &context, &err), &err);
        memset(out, 0xA5, bytes);
        fpmode_set(ODD);
        status = call(context, user, &err);
        after = fp_control();
        fpmode_set(before);
        check_ok(status, &err);
        assert_true(before == 0 || (after & ~0x3Fu) == ODD);
        if (i == 0)
            memcpy(first, out, bytes);
        check_same_bytes("a context's result", out, first, bytes);
        pl_ops_context_destroy(context);
    }
    free(first);
}

pl_ops_context *contexts_scalar(void)
{
    pl_ops_context *context;
    pl_error err;

    check_ok(
        pl_ops_context_create(&(pl_ops_params){.n_workers = 1, .level = "scalar"}, &context, &err),
        &err);
    return context;
}

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

void contexts_bf16(uint32_t *state, uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (uint16_t)((next(state) & 0x807F) | (122 + next(state) % 6) << 7);
}

void contexts_f32(uint32_t *state, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = pl_f32_from_bits((next(state) << 8 & 0x807FFF00) | (122 + next(state) % 6) << 23);
}
