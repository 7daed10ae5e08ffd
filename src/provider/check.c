/* Conformance: does a provider do what its record claims? Each claim is some calls through the same gate and
 * normalisation as any other call, judged by the reference in double: out and LSE within bounds that come from the data,
 * rows without keys exactly, arrays with a fence behind them, keys that no list names NaN. What fails is a finding. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "plimsoll/ops.h"
#include "provider/check.h"

/* Corrected after the kernel: the formula over the provider's own (out, LSE), bit for bit. */
static pl_status corrected(pl_checker *c, pl_provider_finding *f, pl_check_shape s, pl_error *err)
{
    pl_check_call with, without;
    pl_status status;

    s.sink = 1;
    PL_TRY(pl__check_call_make(c->set, c->index, &s, &with, err));
    s.sink = 0;
    status = pl__check_call_make(c->set, c->index, &s, &without, err);
    if (status == PL_OK) {
        if (pl__check_launch(c, f, &with, 0) && pl__check_launch(c, f, &without, 0)) {
            status = pl_sink_correct(&without.call.out, without.call.lse.data, with.call.sink.data,
                                     1, err);
            if (memcmp(without.call.out.data, with.call.out.data, with.out_bytes) != 0)
                pl__check_broken(
                    f, "out is not rn(fp32(out) * sigmoid(L - Z)) of the run without a sink");
        }
        pl__check_call_free(&without);
    }
    pl__check_call_free(&with);
    return status;
}

/* The same call twice, and with the other word for no cap: equal bits. */
static pl_status repeated(pl_checker *c, pl_provider_finding *f, const pl_check_shape *s,
                          float softcap, pl_error *err)
{
    pl_check_call a, b;
    pl_status status;

    PL_TRY(pl__check_call_make(c->set, c->index, s, &a, err));
    status = pl__check_call_make(c->set, c->index, s, &b, err);
    if (status == PL_OK) {
        b.call.softcap = softcap;
        if (pl__check_launch(c, f, &a, 0) && pl__check_launch(c, f, &b, 0) &&
            (memcmp(a.call.out.data, b.call.out.data, a.out_bytes) != 0 ||
             memcmp(a.call.lse.data, b.call.lse.data, a.lse_bytes) != 0))
            pl__check_broken(f, "two calls differ (want equal bits)");
        pl__check_call_free(&b);
    }
    pl__check_call_free(&a);
    return status;
}

static void skipped(pl_checker *c, const char *op, const char *claim)
{
    pl__check_begin(c, op, claim)->holds = -1;
}

static void check_workspace(pl_checker *c, pl_provider_op op)
{
    const pl_provider_claims *claims = &c->e->record.op[op];
    pl_provider_finding *f = pl__check_begin(c, pl_provider_op_name(op), "workspace");
    uint64_t want =
        claims->workspace_fixed + claims->workspace_per_worker * (uint64_t)c->e->n_workers;
    pl_ffi_any bytes = {0};

    f->cases = 1;
    if (c->e->library &&
        (c->e->workspace_size[op](NULL, &c->e->context, 1, &bytes) != 0 ||
         bytes.type_index != PL_FFI_INT || bytes.v.i < 0 || (uint64_t)bytes.v.i != want))
        pl__check_broken(f,
                         "%s_workspace_size: differs from its closed form (got %" PRId64
                         ", want %" PRIu64 ")",
                         claims->function, bytes.v.i, want);
}

static pl_status check_types(pl_checker *c, pl_provider_op op, pl_check_shape s, pl_error *err)
{
    static const char *const names[] = {"types.bf16", "types.fp16", "types.fp32"};

    for (int i = 0; i < 3; i++) {
        s.type = (pl_tensor_type)(PL_TENSOR_BF16 + i);
        if (c->e->record.op[op].types & 1u << s.type)
            PL_TRY(pl__check_one(c, pl__check_begin(c, pl_provider_op_name(op), names[i]), &s, 0,
                                 err));
        else if (op == PL_PROVIDER_VARLEN)
            skipped(c, pl_provider_op_name(op), names[i]);
    }
    return PL_OK;
}

static pl_status check_sink(pl_checker *c, pl_provider_op op, pl_check_shape s, pl_error *err)
{
    const pl_provider_claims *claims = &c->e->record.op[op];
    const char *name = pl_provider_op_name(op);

    s.sink = 1;
    if (claims->sink_native && !claims->sink_in_lse)
        PL_TRY(pl__check_one(c, pl__check_begin(c, name, "sink.native"), &s,
                             PL_PROVIDER_NATIVE_SINK, err));
    else
        skipped(c, name, "sink.native");
    return corrected(c, pl__check_begin(c, name, "sink.corrected"), s, err);
}

static pl_status check_options(pl_checker *c, const pl_check_shape *plain, pl_error *err)
{
    const pl_provider_claims *claims = &c->e->record.op[PL_PROVIDER_VARLEN];
    const char *name = pl_provider_op_name(PL_PROVIDER_VARLEN);
    pl_check_shape s = *plain;

    s.causal = 1;
    if (claims->causal)
        PL_TRY(pl__check_one(c, pl__check_begin(c, name, "causal"), &s, 0, err));
    else
        skipped(c, name, "causal");
    s.causal = 0;
    s.window_left = 5;
    s.window_right = 2;
    if (claims->window)
        PL_TRY(pl__check_one(c, pl__check_begin(c, name, "window"), &s, 0, err));
    else
        skipped(c, name, "window");
    s = *plain;
    s.softcap = 1.5f;
    if (claims->softcap)
        PL_TRY(pl__check_one(c, pl__check_begin(c, name, "softcap"), &s, 0, err));
    else
        skipped(c, name, "softcap");
    return repeated(c, pl__check_begin(c, name, "softcap_off"), plain, -1, err);
}

/* Every length below 32 that the claim of a least one allows. */
static pl_status check_short(pl_checker *c, const pl_check_shape *plain, pl_error *err)
{
    pl_provider_finding *f = pl__check_begin(c, pl_provider_op_name(PL_PROVIDER_VARLEN), "short");
    pl_check_shape s = *plain;
    int least = c->e->record.op[PL_PROVIDER_VARLEN].min_query;

    for (int n = least > 1 ? least : 1; n < 32; n++) {
        s.n_q[0] = s.n_k[0] = n;
        s.n_seqs = 1;
        PL_TRY(pl__check_one(c, f, &s, 0, err));
    }
    if (f->cases == 0)
        f->holds = -1;
    return PL_OK;
}

/* MAGI-2: 24 heads of 128, two branches and one without keys, softcap -1. */
static pl_status check_magi2(pl_checker *c, pl_error *err)
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
        PL_TRY(pl__check_one(c, pl__check_begin(c, "attention_varlen", "magi2.native"), &s,
                             PL_PROVIDER_NATIVE_SINK, err));
    return corrected(c, pl__check_begin(c, "attention_varlen", "magi2.corrected"), s, err);
}

static int32_t fit(int32_t want, int32_t min, int32_t max, int32_t step)
{
    int32_t x = want < min ? min : want > max ? max : want;

    return x - x % step >= min ? x - x % step : x;
}

/* Rows of bf16 one behind the other, or else the first form that is claimed. */
static void plain_cache(const pl_provider_claims *claims, pl_check_shape *s)
{
    while (!(claims->caches & 1u << s->format))
        s->format++;
    if (s->format == PL_KV_BF16)
        return;
    s->page_size = 16;
    s->dim = s->format == PL_KV_V4 ? 512 : 576;
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
    s.n_kv_heads = op != PL_PROVIDER_VARLEN || s.n_heads % 2 ? 1 : s.n_heads / 2;
    s.dim = fit(64, claims->dim_min, claims->dim_max, claims->dim_step);
    s.value_dim = fit(48, claims->value_min, claims->value_max, claims->value_step);
    s.index_multiple = claims->index_multiple;
    if (op != PL_PROVIDER_VARLEN)
        plain_cache(claims, &s);
    if (op == PL_PROVIDER_DECODE && claims->min_query > 1 && claims->min_query <= 512) {
        s.seq_tokens = claims->min_query;
        s.n_q[0] = s.n_q[1] = s.n_q[2] = claims->min_query;
    } else if (s.n_q[0] < claims->min_query && claims->min_query <= 512) {
        s.n_q[0] = s.n_k[0] = claims->min_query;
    }
    return s;
}

static pl_status check_operator(pl_checker *c, pl_provider_op op, pl_error *err)
{
    const char *name = pl_provider_op_name(op);
    pl_check_shape s = plain_shape(&c->e->record.op[op], op);

    check_workspace(c, op);
    PL_TRY(check_types(c, op, s, err));
    PL_TRY(repeated(c, pl__check_begin(c, name, "deterministic"), &s, 0, err));
    PL_TRY(check_sink(c, op, s, err));
    PL_TRY(pl__check_forms(c, &s, err));
    if (op != PL_PROVIDER_VARLEN)
        return PL_OK;
    PL_TRY(check_options(c, &s, err));
    PL_TRY(check_short(c, &s, err));
    return check_magi2(c, err);
}

pl_status pl_provider_check(pl_providers *set, int index, const pl_provider_pin *pin,
                            pl_provider_finding *findings, int *n, pl_error *err)
{
    pl_checker c = {.set = set, .index = index, .findings = findings, .n = n};
    pl_provider_record judged;
    pl_provider_finding *f;
    pl_error why = {0};

    *n = 0;
    PL_CHECK(index >= 0 && index < set->n, err, "provider: no such entry (got %d, want 0 .. %d)",
             index, set->n - 1);
    c.e = &set->entry[index];
    judged = c.e->record;
    f = pl__check_begin(&c, "", "loads");
    f->cases = 1;
    if (judged.reason != PL_PROVIDER_DIRECT)
        pl__check_broken(f, "%s: %s", pl_provider_reason_name(judged.reason), judged.problem);
    f = pl__check_begin(&c, "", "abi");
    f->holds = pin ? 1 : -1;
    f->cases = pin != NULL;
    if (pin && judged.fingerprint[0] && !pl__provider_pin_holds(&judged, pin, &why))
        pl__check_broken(f, "%s", why.msg);
    if (c.e->record.reason != PL_PROVIDER_DIRECT)
        return PL_OK;
    for (int op = 0; op < PL_PROVIDER_N_OPS; op++)
        if (c.e->record.op[op].present)
            PL_TRY(check_operator(&c, (pl_provider_op)op, err));
    return PL_OK;
}
