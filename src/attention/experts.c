/* The checked entries of the router, the gated units and elementary functions. */
#include <inttypes.h>

#include "attention/arrays.h"
#include "base/error.h"
#include "plimsoll/model_ops.h"

enum { MAX_EXPERTS = 1 << 16, MAX_TOP = 64, MAX_DIM = 1 << 20 };

/* ---- router */

typedef struct route_run {
    const pl_ops *ops;
    const float *logits;
    pl_route_args route;
    pl_route_weights_args weights;
} route_run;

static void route_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const route_run *r = args;
    _Alignas(64) uint8_t heap[MAX_TOP * (sizeof(double) + sizeof(int32_t))];
    pl_op_env env = {.mode = PL_MODE_REC, .scratch = heap};
    const int64_t n = r->route.n_experts;
    float *scores = r->route.score;

    for (int64_t i = begin * n; i < end * n && scores != r->logits; i++)
        scores[i] = r->logits[i];
    r->ops->route(&env, &r->route, begin, end);
    r->ops->route_weights(&env, &r->weights, begin, end);
}

/* Rows of the table that tokens name. */
static pl_status check_table(const pl_op_route_args *a, pl_error *err)
{
    PL_TRY(pl__check_ids("tokens", a->tokens, a->n, 0, (int64_t)a->n_vocab - 1, err));
    for (int64_t t = 0; t < a->n; t++)
        for (int32_t i = 0; i < a->top_k; i++) {
            int64_t id = a->table[a->tokens[t] * (int64_t)a->top_k + i];
            PL_CHECK(id >= 0 && id < a->n_experts, err,
                     "table[%d][%d]: no such expert (got %" PRId64 ", want 0 .. %d)", a->tokens[t],
                     i, id, a->n_experts - 1);
        }
    return PL_OK;
}

static pl_status check_route(const pl_op_route_args *a, pl_error *err)
{
    bool hash = a->table != NULL;
    int any = a->n > 0;

    PL_TRY(pl__check_range("n", a->n, 0, INT32_MAX, err));
    PL_TRY(pl__check_range("n_experts", a->n_experts, 1, MAX_EXPERTS, err));
    PL_TRY(pl__check_range("top_k", a->top_k, 1, a->n_experts < MAX_TOP ? a->n_experts : MAX_TOP,
                           err));
    PL_TRY(pl__check_number("scale", a->scale, 0, err));
    PL_CHECK(hash != (a->bias != NULL), err,
             "bias: with a table, or neither of them (got %p and %p, want one)",
             (const void *)a->bias, (const void *)a->table);
    PL_TRY(pl__check_range("n_vocab", a->n_vocab, 0, INT32_MAX, err));
    {
        const pl_array arrays[] = {
            {"logits", a->logits, a->n, a->n_experts, 4, PL_ARRAY_IN, NULL},
            {"bias", a->bias, any && !hash, a->n_experts, 4, PL_ARRAY_IN, NULL},
            {"table", a->table, hash ? a->n_vocab : 0, a->top_k, 8, PL_ARRAY_IN, NULL},
            {"tokens", a->tokens, hash ? a->n : 0, 1, 4, PL_ARRAY_IN, NULL},
            {"scores", a->scores, a->n, a->n_experts, 4, PL_ARRAY_OUT, a->logits},
            {"ids", a->ids, a->n, a->top_k, 4, PL_ARRAY_OUT, NULL},
            {"weights", a->weights, a->n, a->top_k, 4, PL_ARRAY_OUT, NULL},
        };
        PL_TRY(pl__check_arrays(arrays, 7, err));
    }
    return hash ? check_table(a, err) : PL_OK;
}

pl_status pl_op_route(pl_ops_context *context, const pl_op_route_args *args, pl_error *err)
{
    const pl_op_route_args *a = args;
    route_run r = {0};

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(check_route(a, err));
    r.ops = context->ops;
    r.logits = a->logits;
    r.route = (pl_route_args){
        .n_experts = a->n_experts,
        .top_k = a->top_k,
        .by_token = a->table != NULL,
        .table = {.format = PL_WEIGHT_I64, .rows = a->n_vocab, .cols = a->top_k, .data = a->table},
        .bias = {.format = PL_WEIGHT_F32, .rows = 1, .cols = a->n_experts, .data = a->bias},
        .tokens = a->tokens,
        .score = a->scores,
        .ids = a->ids};
    r.weights = (pl_route_weights_args){.n_experts = a->n_experts,
                                        .top_k = a->top_k,
                                        .scale = a->scale,
                                        .score = a->scores,
                                        .ids = a->ids,
                                        .weight = a->weights};
    pl__context_rows(context, a->n, 64 * (int64_t)a->n_experts, route_rows, &r);
    return PL_OK;
}

/* ---- gated units */

typedef struct unit_run {
    const pl_ops *ops;
    pl_swiglu_args args;
    bool weighted;
} unit_run;

static void swiglu_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const unit_run *r = args;
    const int64_t dim = r->args.dim;
    pl_op_env env = {.mode = PL_MODE_REC};

    for (int64_t row = begin; row < end; row++) {
        const int32_t at = r->weighted ? 0 : -1;
        pl_swiglu_args one = r->args;

        one.g = (const uint16_t *)one.g + row * dim;
        one.u = (const uint16_t *)one.u + row * dim;
        one.a = (uint16_t *)one.a + row * dim;
        one.weight = r->weighted ? (const float *)one.weight + row : NULL;
        one.weight_at = &at;
        r->ops->swiglu(&env, &one, 0, 1);
    }
}

pl_status pl_op_swiglu(pl_ops_context *context, const pl_op_swiglu_args *args, pl_error *err)
{
    const pl_op_swiglu_args *a = args;
    unit_run r;

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(pl__check_range("n", a->n, 0, INT32_MAX, err));
    PL_TRY(pl__check_range("dim", a->dim, 1, MAX_DIM, err));
    PL_TRY(pl__check_number("limit", a->limit, 0, err));
    {
        const pl_array arrays[] = {
            {"g", a->g, a->n, a->dim, 2, PL_ARRAY_IN, NULL},
            {"u", a->u, a->n, a->dim, 2, PL_ARRAY_IN, NULL},
            {"weight", a->weight, a->n, 1, 4, PL_ARRAY_OPTIONAL, NULL},
            {"a", a->a, a->n, a->dim, 2, PL_ARRAY_OUT, a->a == a->u ? a->u : a->g},
        };
        PL_TRY(pl__check_arrays(arrays, 4, err));
    }
    r = (unit_run){
        context->ops,
        {.dim = a->dim, .limit = a->limit, .g = a->g, .u = a->u, .weight = a->weight, .a = a->a},
        a->weight != NULL};
    pl__context_rows(context, a->n, 32 * (int64_t)a->dim, swiglu_rows, &r);
    return PL_OK;
}

typedef struct seven_run {
    const pl_ops *ops;
    pl_swiglu7_args args;
} seven_run;

static void swiglu7_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const seven_run *r = args;
    pl_op_env env = {.mode = PL_MODE_REC};

    r->ops->swiglu7(&env, &r->args, begin, end);
}

pl_status pl_op_swiglu7(pl_ops_context *context, const pl_op_swiglu7_args *args, pl_error *err)
{
    const pl_op_swiglu7_args *a = args;
    seven_run r;

    PL_TRY(pl__check_start(context, a, err));
    PL_TRY(pl__check_range("n", a->n, 0, INT32_MAX, err));
    PL_TRY(pl__check_range("dim", a->dim, 1, MAX_DIM, err));
    PL_CHECK(a->dtype == PL_DTYPE_BF16 || a->dtype == PL_DTYPE_FP32, err,
             "dtype: not supported (got %d, want %d or %d)", (int)a->dtype, (int)PL_DTYPE_BF16,
             (int)PL_DTYPE_FP32);
    {
        const int32_t size = a->dtype == PL_DTYPE_FP32 ? 4 : 2;
        const pl_array arrays[] = {
            {"g", a->g, a->n, (int64_t)a->dim * (a->l ? 1 : 2), size, PL_ARRAY_IN, NULL},
            {"l", a->l, a->n, a->dim, size, PL_ARRAY_OPTIONAL, NULL},
            {"a", a->a, a->n, a->dim, 2, PL_ARRAY_OUT, NULL},
        };
        PL_TRY(pl__check_arrays(arrays, 3, err));
    }
    r = (seven_run){context->ops,
                    {a->dim, a->dtype == PL_DTYPE_FP32, a->l == NULL, a->g, a->l, a->a}};
    pl__context_rows(context, a->n, 32 * (int64_t)a->dim, swiglu7_rows, &r);
    return PL_OK;
}

/* ---- elementary functions */

typedef struct map_run {
    const pl_ops *ops;
    pl_map_args args;
} map_run;

static void map_rows(const void *args, int64_t begin, int64_t end, int worker)
{
    const map_run *r = args;
    pl_op_env env = {.mode = PL_MODE_REC};

    r->ops->map(&env, &r->args, begin, end);
}

_Static_assert((int)PL_OP_EXP == (int)PL_MAP_EXP && (int)PL_OP_LOG == (int)PL_MAP_LOG &&
                   (int)PL_OP_SIGMOID == (int)PL_MAP_SIGMOID &&
                   (int)PL_OP_SOFTPLUS == (int)PL_MAP_SOFTPLUS &&
                   (int)PL_OP_TANH == (int)PL_MAP_TANH,
               "functions");

pl_status pl_op_map(pl_ops_context *context, pl_op_function function, int64_t n, const float *x,
                    float *y, pl_error *err)
{
    map_run r;

    PL_TRY(pl__check_start(context, context, err));
    PL_CHECK((unsigned)function < PL_MAP_COUNT, err, "function: unknown (got %d, want 0 .. %d)",
             (int)function, PL_MAP_COUNT - 1);
    PL_TRY(pl__check_range("n", n, 0, INT64_C(1) << 40, err));
    {
        const pl_array arrays[] = {
            {"x", x, n, 1, 4, PL_ARRAY_IN, NULL},
            {"y", y, n, 1, 4, PL_ARRAY_OUT, x},
        };
        PL_TRY(pl__check_arrays(arrays, 2, err));
    }
    r = (map_run){context->ops, {(pl_map_function)function, x, y}};
    pl__context_rows(context, n, 16, map_rows, &r);
    return PL_OK;
}
