/* Names and values of taps. */
#include "model/trace.h"

const char *pl_tap_name(pl_tap tap)
{
    static const char *const names[] = {
#define PL_TAP_NAME(name, kind, text) text,
        PL_TAP_MAP(PL_TAP_NAME)
#undef PL_TAP_NAME
    };

    return names[tap];
}

pl_tap_kind pl_tap_kind_of(pl_tap tap)
{
    static const pl_tap_kind kinds[] = {
#define PL_TAP_KIND(name, kind, text) PL_TAP_KIND_##kind,
        PL_TAP_MAP(PL_TAP_KIND)
#undef PL_TAP_KIND
    };

    return kinds[tap];
}

void pl_tap_get(const pl_tap_view *view, int64_t row, int64_t n_rows, float *out)
{
    int64_t first = row * view->cols, n = n_rows * view->cols;
    const uint8_t *data = view->data;

    switch (view->kind) {
    case PL_TAP_KIND_ACT:
        view->ops->act_get(data + first * view->ops->act_bytes, n, out);
        break;
    case PL_TAP_KIND_ACC:
        view->ops->acc_get(data + first * view->ops->acc_bytes, n, out);
        break;
    case PL_TAP_KIND_I32:
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)((const int32_t *)view->data)[first + i];
        break;
    case PL_TAP_KIND_ROWS:
        for (int64_t r = 0; r < n_rows; r++)
            view->ops->kv_get(view->kv, row + r, out + r * view->cols);
        break;
    }
}
