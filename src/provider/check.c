/* Conformance: does a provider do what its record claims? Each claim is some calls through the same gate and
 * normalisation as any other call, judged by the reference in double: out and LSE within bounds that come from the data,
 * rows without keys exactly, arrays with a fence behind them, keys that no list names NaN. What fails is a finding. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "ops/varlen.h"
#include "provider/check_call.h"
#include "provider/gate.h"
#include "provider/oracle.h"

typedef struct checker {
    pl_providers *set;
    int index;
    const pl_provider_entry *e;
    pl_provider_finding *findings;
    int *n;
} checker;

/* The last finding; `holds` becomes 0 with the first failure's text. */
static pl_provider_finding *begin(checker *c, const char *op, const char *claim)
{
    pl_provider_finding *f = &c->findings[*c->n < PL_PROVIDER_MAX_FINDINGS ? (*c->n)++ : *c->n - 1];

    *f = (pl_provider_finding){.holds = 1, .max_abs_out = NAN, .max_abs_lse = NAN};
    (void)snprintf(f->claim, sizeof f->claim, "%s%s%s", op, op[0] ? "." : "", claim);
    return f;
}

static void broken(pl_provider_finding *f, const char *format, ...) PL_PRINTF(2, 3);

static void broken(pl_provider_finding *f, const char *format, ...)
{
    char text[384];
    va_list list;

    if (f->holds != 1)
        return;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    f->holds = 0;
    (void)snprintf(f->detail, sizeof f->detail, "%s", text);
}

static void take_max(double *max, double x)
{
    if (!(*max >= x)) /* NaN is none yet; a difference that is NaN stays */
        *max = x;
}

/* The largest relative error of rounding, and half the smallest step (docs/OPERATORS.md). */
static double epsilon(pl_tensor_type type, double *least)
{
    *least = type == PL_TENSOR_FP16 ? 0x1p-25 : 0x1p-126;
    return type == PL_TENSOR_BF16 ? 0x1p-8 : type == PL_TENSOR_FP16 ? 0x1p-11 : 0x1p-21;
}

static void judge_out(pl_provider_finding *f, const pl_provider_claims *claims,
                      const pl_provider_call *call, int64_t t, int64_t h, const pl_oracle_row *row)
{
    /* Scores in fp32 are off by up to 2^-20 of their size, and so are the weights, above and below the line. */
    double least, eps = epsilon(call->out.type, &least), slack = 2 * 0x1p-20 * row->reach;

    for (int32_t i = 0; i < call->value_dim; i++) {
        double got =
            pl__oracle_number(&call->out, t * call->out.strides[0] + h * call->out.strides[1] + i);
        double off = fabs(got - row->out[i]);
        double bound = eps * fabs(row->out[i]) +
                       (claims->probabilities * eps + 0x1p-21 + slack) * row->weight[i] + least;
        take_max(&f->max_abs_out, off);
        if (!(off <= bound))
            broken(f,
                   "out[%" PRId64 "][%" PRId64 "][%d]: too far off (got %.9g, want %.9g +- %.3g)",
                   t, h, i, got, row->out[i], bound);
    }
}

static void judge_statistic(pl_provider_finding *f, const char *name, const float *got, int64_t at,
                            double want, double reach)
{
    double off = fabs((double)got[at] - want), bound = 4e-6 + 0x1p-21 * reach;

    if (want == -INFINITY) {
        if (got[at] != -INFINITY)
            broken(f, "%s: row without keys (got %g, want -inf)", name, (double)got[at]);
        return;
    }
    take_max(&f->max_abs_lse, off);
    if (!(off <= bound))
        broken(f, "%s[%" PRId64 "]: too far off (got %.9g, want %.9g +- %.3g)", name, at,
               (double)got[at], want, bound);
}

static void judge(pl_provider_finding *f, const pl_provider_claims *claims, const pl_check_call *c,
                  int with_sink)
{
    const pl_provider_call *call = &c->call;
    pl_oracle_row row;

    for (int64_t t = 0; t < call->q.shape[0]; t++)
        for (int64_t h = 0; h < call->q.shape[1]; h++) {
            int64_t at = h * call->q.shape[0] + t;
            pl__oracle_row(call, t, h, with_sink, &row);
            judge_out(f, claims, call, t, h, &row);
            if (call->lse.data)
                judge_statistic(f, "lse", call->lse.data, at, row.lse, row.reach);
            if (call->max_logits.data)
                judge_statistic(f, "max_logits", call->max_logits.data, at, row.max_logit,
                                row.reach);
        }
}

/* Through the provider alone; false with a broken finding. */
static bool launch(checker *c, pl_provider_finding *f, pl_check_call *k, uint32_t flags)
{
    pl_provider_outcome outcome;
    pl_error err = {0};

    f->cases++;
    k->call.flags = PL_PROVIDER_REQUEST | PL_PROVIDER_NO_PUBLIC | flags;
    if (pl_provider_run(c->set, c->index, &k->call, &outcome, &err) != PL_OK) {
        broken(f, "%s", err.msg);
        return false;
    }
    if (!pl__check_fences_stand(k))
        broken(f, "wrote outside of its outputs");
    return true;
}

/* One call, judged. */
static pl_status one(checker *c, pl_provider_finding *f, const pl_check_shape *s, uint32_t flags,
                     pl_error *err)
{
    pl_check_call k;

    PL_TRY(pl__check_call_make(c->set, c->index, s, &k, err));
    if (launch(c, f, &k, flags))
        judge(f, &c->e->record.op[s->op], &k, s->sink != 0);
    pl__check_call_free(&k);
    return PL_OK;
}

/* Corrected after the kernel: the formula over the provider's own (out, LSE), bit for bit. */
static pl_status corrected(checker *c, pl_provider_finding *f, pl_check_shape s, pl_error *err)
{
    pl_check_call with, without;
    pl_status status;

    s.sink = 1;
    PL_TRY(pl__check_call_make(c->set, c->index, &s, &with, err));
    s.sink = 0;
    status = pl__check_call_make(c->set, c->index, &s, &without, err);
    if (status == PL_OK) {
        if (launch(c, f, &with, 0) && launch(c, f, &without, 0)) {
            status = pl_sink_correct(&without.call.out, without.call.lse.data, with.call.sink.data,
                                     1, err);
            if (memcmp(without.call.out.data, with.call.out.data, with.out_bytes) != 0)
                broken(f, "out is not rn(fp32(out) * sigmoid(L - Z)) of the run without a sink");
        }
        pl__check_call_free(&without);
    }
    pl__check_call_free(&with);
    return status;
}

/* The same call twice, and with the other word for no cap: equal bits. */
static pl_status repeated(checker *c, pl_provider_finding *f, const pl_check_shape *s,
                          float softcap, pl_error *err)
{
    pl_check_call a, b;
    pl_status status;

    PL_TRY(pl__check_call_make(c->set, c->index, s, &a, err));
    status = pl__check_call_make(c->set, c->index, s, &b, err);
    if (status == PL_OK) {
        b.call.softcap = softcap;
        if (launch(c, f, &a, 0) && launch(c, f, &b, 0) &&
            (memcmp(a.call.out.data, b.call.out.data, a.out_bytes) != 0 ||
             memcmp(a.call.lse.data, b.call.lse.data, a.lse_bytes) != 0))
            broken(f, "two calls differ (want equal bits)");
        pl__check_call_free(&b);
    }
    pl__check_call_free(&a);
    return status;
}

static void skipped(checker *c, const char *op, const char *claim)
{
    begin(c, op, claim)->holds = -1;
}

static void check_workspace(checker *c, pl_provider_op op)
{
    const pl_provider_claims *claims = &c->e->record.op[op];
    pl_provider_finding *f = begin(c, pl__provider_op_name(op), "workspace");
    uint64_t want =
        claims->workspace_fixed + claims->workspace_per_worker * (uint64_t)c->e->n_workers;
    pl_ffi_any bytes = {0};

    f->cases = 1;
    if (c->e->library &&
        (c->e->workspace_size[op](NULL, &c->e->context, 1, &bytes) != 0 ||
         bytes.type_index != PL_FFI_INT || bytes.v.i < 0 || (uint64_t)bytes.v.i != want))
        broken(f,
               "%s_workspace_size: differs from its closed form (got %" PRId64 ", want %" PRIu64
               ")",
               claims->function, bytes.v.i, want);
}

static pl_status check_types(checker *c, pl_provider_op op, pl_check_shape s, pl_error *err)
{
    static const char *const names[] = {"types.bf16", "types.fp16", "types.fp32"};

    for (int i = 0; i < 3; i++) {
        s.type = (pl_tensor_type)(PL_TENSOR_BF16 + i);
        if (c->e->record.op[op].types & 1u << s.type)
            PL_TRY(one(c, begin(c, pl__provider_op_name(op), names[i]), &s, 0, err));
        else if (op == PL_PROVIDER_VARLEN)
            skipped(c, pl__provider_op_name(op), names[i]);
    }
    return PL_OK;
}

static pl_status check_sink(checker *c, pl_provider_op op, pl_check_shape s, pl_error *err)
{
    const pl_provider_claims *claims = &c->e->record.op[op];
    const char *name = pl__provider_op_name(op);

    s.sink = 1;
    if (claims->sink_native && !claims->sink_in_lse)
        PL_TRY(one(c, begin(c, name, "sink.native"), &s, PL_PROVIDER_NATIVE_SINK, err));
    else
        skipped(c, name, "sink.native");
    return corrected(c, begin(c, name, "sink.corrected"), s, err);
}

static pl_status check_options(checker *c, const pl_check_shape *plain, pl_error *err)
{
    const pl_provider_claims *claims = &c->e->record.op[PL_PROVIDER_VARLEN];
    const char *name = pl__provider_op_name(PL_PROVIDER_VARLEN);
    pl_check_shape s = *plain;

    s.causal = 1;
    if (claims->causal)
        PL_TRY(one(c, begin(c, name, "causal"), &s, 0, err));
    else
        skipped(c, name, "causal");
    s.causal = 0;
    s.window_left = 5;
    s.window_right = 2;
    if (claims->window)
        PL_TRY(one(c, begin(c, name, "window"), &s, 0, err));
    else
        skipped(c, name, "window");
    s = *plain;
    s.softcap = 1.5f;
    if (claims->softcap)
        PL_TRY(one(c, begin(c, name, "softcap"), &s, 0, err));
    else
        skipped(c, name, "softcap");
    return repeated(c, begin(c, name, "softcap_off"), plain, -1, err);
}

/* Every length below 32 that the claim of a least one allows. */
static pl_status check_short(checker *c, const pl_check_shape *plain, pl_error *err)
{
    pl_provider_finding *f = begin(c, pl__provider_op_name(PL_PROVIDER_VARLEN), "short");
    pl_check_shape s = *plain;
    int least = c->e->record.op[PL_PROVIDER_VARLEN].min_query;

    for (int n = least > 1 ? least : 1; n < 32; n++) {
        s.n_q[0] = s.n_k[0] = n;
        s.n_seqs = 1;
        PL_TRY(one(c, f, &s, 0, err));
    }
    if (f->cases == 0)
        f->holds = -1;
    return PL_OK;
}

/* MAGI-2: 24 heads of 128, two branches and one without keys, softcap -1. */
static pl_status check_magi2(checker *c, pl_error *err)
{
    const pl_provider_claims *claims = &c->e->record.op[PL_PROVIDER_VARLEN];
    pl_check_shape s = {.op = PL_PROVIDER_VARLEN,
                        .type = PL_TENSOR_BF16,
                        .n_heads = 24,
                        .n_kv_heads = 24,
                        .dim = 128,
                        .value_dim = 128,
                        .n_seqs = 3,
                        .n_q = {48, 2, 37},
                        .n_k = {48, 0, 37},
                        .softcap = -1,
                        .window_left = -1,
                        .window_right = -1,
                        .sink = 1};

    if ((claims->heads && claims->heads != 24) || claims->dim_min > 128 || claims->dim_max < 128 ||
        128 % claims->dim_step || claims->value_min > 128 || claims->value_max < 128 ||
        !(claims->types & 1u << PL_TENSOR_BF16)) {
        skipped(c, "attention_varlen", "magi2");
        return PL_OK;
    }
    if (claims->sink_native && !claims->sink_in_lse)
        PL_TRY(
            one(c, begin(c, "attention_varlen", "magi2.native"), &s, PL_PROVIDER_NATIVE_SINK, err));
    return corrected(c, begin(c, "attention_varlen", "magi2.corrected"), s, err);
}

static int32_t fit(int32_t want, int32_t min, int32_t max, int32_t step)
{
    int32_t x = want < min ? min : want > max ? max : want;

    return x - x % step >= min ? x - x % step : x;
}

static pl_check_shape plain_shape(const pl_provider_claims *claims, pl_provider_op op)
{
    pl_check_shape s = {.op = op,
                        .type = PL_TENSOR_BF16,
                        .n_seqs = 3,
                        .n_q = {37, 3, 5},
                        .n_k = {45, 0, 4},
                        .window_left = -1,
                        .window_right = -1};

    while (!(claims->types & 1u << s.type))
        s.type++;
    s.n_heads = claims->heads ? claims->heads : 6;
    s.n_kv_heads = op == PL_PROVIDER_SPARSE || s.n_heads % 2 ? 1 : s.n_heads / 2;
    s.dim = fit(64, claims->dim_min, claims->dim_max, claims->dim_step);
    s.value_dim = fit(48, claims->value_min, claims->value_max, claims->value_step);
    s.index_multiple = claims->index_multiple;
    if (s.n_q[0] < claims->min_query && claims->min_query <= 512)
        s.n_q[0] = s.n_k[0] = claims->min_query;
    return s;
}

static pl_status check_operator(checker *c, pl_provider_op op, pl_error *err)
{
    const char *name = pl__provider_op_name(op);
    pl_check_shape s = plain_shape(&c->e->record.op[op], op);

    check_workspace(c, op);
    PL_TRY(check_types(c, op, s, err));
    PL_TRY(repeated(c, begin(c, name, "deterministic"), &s, 0, err));
    PL_TRY(check_sink(c, op, s, err));
    if (op == PL_PROVIDER_SPARSE)
        return PL_OK;
    PL_TRY(check_options(c, &s, err));
    PL_TRY(check_short(c, &s, err));
    return check_magi2(c, err);
}

pl_status pl_provider_check(pl_providers *set, int index, const pl_provider_pin *pin,
                            pl_provider_finding *findings, int *n, pl_error *err)
{
    checker c = {.set = set, .index = index, .findings = findings, .n = n};
    pl_provider_record judged;
    pl_provider_finding *f;
    pl_error why = {0};

    *n = 0;
    PL_CHECK(index >= 0 && index < set->n, err, "provider: no such entry (got %d, want 0 .. %d)",
             index, set->n - 1);
    c.e = &set->entry[index];
    judged = c.e->record;
    f = begin(&c, "", "loads");
    f->cases = 1;
    if (judged.reason != PL_PROVIDER_DIRECT)
        broken(f, "%s: %s", pl_provider_reason_name(judged.reason), judged.problem);
    f = begin(&c, "", "abi");
    f->holds = pin ? 1 : -1;
    f->cases = pin != NULL;
    if (pin && judged.fingerprint[0] && !pl__provider_pin_holds(&judged, pin, &why))
        broken(f, "%s", why.msg);
    if (c.e->record.reason != PL_PROVIDER_DIRECT)
        return PL_OK;
    for (int op = 0; op < PL_PROVIDER_N_OPS; op++)
        if (c.e->record.op[op].present)
            PL_TRY(check_operator(&c, (pl_provider_op)op, err));
    return PL_OK;
}
