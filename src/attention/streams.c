/* The checked entries of hyper-connections. The long products of a site are a run of their own, split over its outputs,
 * so that one token uses all workers; the caller keeps them between the two runs. */
#include "ops/simd/streams.h"
#include "attention/arrays.h"
#include "base/error.h"
#include "plimsoll/model_ops.h"

enum { S = PL_HC_MULT, MAX_DIM = 1 << 16, MAX_ITERS = 1000 };

typedef struct run {
    const pl_ops *ops;
    pl_hc_dots_args dots;
    pl_hc_pre_args pre;
    pl_hc_post_args post;
    pl_hc_head_args head;
} run;

static void dots_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const run *r = args;
    _Alignas(64) uint8_t panel[PL_SIMD_STREAMS_BYTES]; /* no level wants more */
    pl_op_env env = {.mode = PL_MODE_REC, .scratch = panel};

    r->ops->hc_dots(&env, &r->dots, begin, end);
}

static void pre_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const run *r = args;
    pl_op_env env = {.mode = PL_MODE_REC};

    r->ops->hc_pre(&env, &r->pre, begin, end);
}

static void post_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const run *r = args;
    pl_op_env env = {.mode = PL_MODE_REC};

    r->ops->hc_post(&env, &r->post, begin, end);
}

static void head_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const run *r = args;
    pl_op_env env = {.mode = PL_MODE_REC};

    r->ops->hc_head(&env, &r->head, begin, end);
}

static pl_weight_view floats(const float *data, int64_t rows, int64_t cols)
{
    return (pl_weight_view){.format = PL_WEIGHT_F32, .rows = rows, .cols = cols, .data = data};
}

static pl_status check_shape(int32_t n, int32_t dim, pl_error *err)
{
    PL_TRY(pl__check_range("n", n, 0, INT32_MAX, err));
    return pl__check_range("dim", dim, 1, MAX_DIM, err);
}

static pl_status check_eps(float rms_eps, float hc_eps, pl_error *err)
{
    PL_TRY(pl__check_number("rms_eps", rms_eps, 0, err));
    return pl__check_number("hc_eps", hc_eps, 0, err);
}

static void run_dots(pl_ops_context *context, run *r, int64_t n, int64_t k, const float *fn,
                     const uint16_t *x, float *m, int64_t dim)
{
    r->dots = (pl_hc_dots_args){.fn = floats(fn, k, S * dim), .x = x, .m = m};
    pl__context_rows(context, n * (k + 1), S * dim, dots_rows, r);
}

pl_status pl_op_hc_pre(pl_ops_context *context, const pl_op_hc_pre_args *args, pl_error *err)
{
    const pl_op_hc_pre_args *a = args;
    run r = {0};
    int any;

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(check_shape(a->n, a->dim, err));
    PL_TRY(check_eps(a->rms_eps, a->hc_eps, err));
    PL_TRY(pl__check_range("sinkhorn_iters", a->sinkhorn_iters, 1, MAX_ITERS, err));
    any = a->n > 0;
    {
        const pl_array arrays[] = {
            {"fn", a->fn, any, (int64_t)PL_HC_OUT * S * a->dim, 4, PL_ARRAY_IN, NULL},
            {"base", a->base, any, PL_HC_OUT, 4, PL_ARRAY_IN, NULL},
            {"scale", a->scale, any, 3, 4, PL_ARRAY_IN, NULL},
            {"x", a->x, a->n, (int64_t)S * a->dim, 2, PL_ARRAY_IN, NULL},
            {"dots", a->dots, a->n, PL_HC_OUT + 1, 4, PL_ARRAY_OUT, NULL},
            {"y", a->y, a->n, a->dim, 2, PL_ARRAY_OUT, NULL},
            {"post", a->post, a->n, S, 4, PL_ARRAY_OUT, NULL},
            {"comb", a->comb, a->n, S * S, 4, PL_ARRAY_OUT, NULL},
        };
        PL_TRY(pl__check_arrays(arrays, 8, err));
    }
    r.ops = context->ops;
    run_dots(context, &r, a->n, PL_HC_OUT, a->fn, a->x, a->dots, a->dim);
    r.pre = (pl_hc_pre_args){.base = floats(a->base, 1, PL_HC_OUT),
                             .scale = floats(a->scale, 1, 3),
                             .rms_eps = a->rms_eps,
                             .hc_eps = a->hc_eps,
                             .sinkhorn_iters = a->sinkhorn_iters,
                             .dim = a->dim,
                             .m = a->dots,
                             .x = a->x,
                             .y = a->y,
                             .post = a->post,
                             .comb = a->comb};
    pl__context_rows(context, a->n, 4 * (int64_t)a->dim + 4096, pre_rows, &r);
    return PL_OK;
}

pl_status pl_op_hc_post(pl_ops_context *context, const pl_op_hc_post_args *args, pl_error *err)
{
    const pl_op_hc_post_args *a = args;
    run r = {0};

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(check_shape(a->n, a->dim, err));
    {
        const pl_array arrays[] = {
            {"f", a->f, a->n, a->dim, 2, PL_ARRAY_IN, NULL},
            {"post", a->post, a->n, S, 4, PL_ARRAY_IN, NULL},
            {"comb", a->comb, a->n, S * S, 4, PL_ARRAY_IN, NULL},
            {"x", a->x, a->n, (int64_t)S * a->dim, 2, PL_ARRAY_OUT, NULL},
        };
        PL_TRY(pl__check_arrays(arrays, 4, err));
    }
    r.ops = context->ops;
    r.post = (pl_hc_post_args){a->dim, a->f, a->post, a->comb, a->x};
    pl__context_rows(context, a->n, 20 * (int64_t)a->dim, post_rows, &r);
    return PL_OK;
}

pl_status pl_op_hc_head(pl_ops_context *context, const pl_op_hc_head_args *args, pl_error *err)
{
    const pl_op_hc_head_args *a = args;
    run r = {0};
    int any;

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(check_shape(a->n, a->dim, err));
    PL_TRY(check_eps(a->rms_eps, a->hc_eps, err));
    any = a->n > 0;
    {
        const pl_array arrays[] = {
            {"fn", a->fn, any, (int64_t)S * S * a->dim, 4, PL_ARRAY_IN, NULL},
            {"base", a->base, any, S, 4, PL_ARRAY_IN, NULL},
            {"scale", a->scale, any, 1, 4, PL_ARRAY_IN, NULL},
            {"x", a->x, a->n, (int64_t)S * a->dim, 2, PL_ARRAY_IN, NULL},
            {"dots", a->dots, a->n, S + 1, 4, PL_ARRAY_OUT, NULL},
            {"y", a->y, a->n, a->dim, 2, PL_ARRAY_OUT, NULL},
        };
        PL_TRY(pl__check_arrays(arrays, 6, err));
    }
    r.ops = context->ops;
    run_dots(context, &r, a->n, S, a->fn, a->x, a->dots, a->dim);
    r.head = (pl_hc_head_args){.base = floats(a->base, 1, S),
                               .scale = floats(a->scale, 1, 1),
                               .rms_eps = a->rms_eps,
                               .hc_eps = a->hc_eps,
                               .dim = a->dim,
                               .m = a->dots,
                               .x = a->x,
                               .y = a->y};
    pl__context_rows(context, a->n, 4 * (int64_t)a->dim, head_rows, &r);
    return PL_OK;
}
