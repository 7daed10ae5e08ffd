/* One call of the conformance check, and what is found of it: out and LSE within bounds that come from the data, rows without
 * keys exactly, the fences whole. Which calls are made is check.c's. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/math.h"
#include "provider/check.h"
#include "provider/oracle.h"

/* The last finding; `holds` becomes 0 with the first failure's text. */
pl_provider_finding *pl__check_begin(pl_checker *c, const char *op, const char *claim)
{
    pl_provider_finding *f = &c->findings[*c->n < PL_PROVIDER_MAX_FINDINGS ? (*c->n)++ : *c->n - 1];

    *f = (pl_provider_finding){.holds = 1, .max_abs_out = NAN, .max_abs_lse = NAN};
    (void)snprintf(f->claim, sizeof f->claim, "%s%s%s", op, op[0] ? "." : "", claim);
    return f;
}

void pl__check_broken(pl_provider_finding *f, const char *format, ...)
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
    x = isnan(x) ? INFINITY : x; /* NaN is for none yet */
    if (!(*max >= x))
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
            pl__check_broken(
                f, "out[%" PRId64 "][%" PRId64 "][%d]: too far off (got %.9g, want %.9g +- %.3g)",
                t, h, i, got, row->out[i], bound);
    }
}

static void judge_statistic(pl_provider_finding *f, const char *name, const float *got, int64_t at,
                            double want, double reach)
{
    double off = fabs((double)got[at] - want), bound = 4e-6 + 0x1p-21 * reach;

    if (want == -INFINITY) {
        if (got[at] != -INFINITY)
            pl__check_broken(f, "%s: row without keys (got %g, want -inf)", name, (double)got[at]);
        return;
    }
    take_max(&f->max_abs_lse, off);
    if (!(off <= bound))
        pl__check_broken(f, "%s[%" PRId64 "]: too far off (got %.9g, want %.9g +- %.3g)", name, at,
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
bool pl__check_launch(pl_checker *c, pl_provider_finding *f, pl_check_call *k, uint32_t flags)
{
    pl_provider_outcome outcome;
    pl_error err = {0};

    f->cases++;
    k->call.flags = PL_PROVIDER_REQUEST | PL_PROVIDER_NO_PUBLIC | flags;
    if (pl_provider_run(c->set, c->index, &k->call, &outcome, &err) != PL_OK) {
        pl__check_broken(f, "%s", err.msg);
        return false;
    }
    if (!pl__check_fences_stand(k))
        pl__check_broken(f, "wrote outside of its outputs");
    return true;
}

/* One call, judged. */
pl_status pl__check_one(pl_checker *c, pl_provider_finding *f, const pl_check_shape *s,
                        uint32_t flags, pl_error *err)
{
    pl_check_call k;

    PL_TRY(pl__check_call_make(c->set, c->index, s, &k, err));
    if (pl__check_launch(c, f, &k, flags))
        judge(f, &c->e->record.op[s->op], &k, s->sink != 0);
    pl__check_call_free(&k);
    return PL_OK;
}
