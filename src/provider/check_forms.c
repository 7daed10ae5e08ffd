/* Forms of keys in the conformance check: pages of keys and values, caches of other formats, two of them, sequences of several
 * tokens. Shapes are small, since the reference is slow. */
#include "base/error.h"
#include "plimsoll/ops.h"
#include "provider/check.h"

enum { PAGE = 16, GAP = 64 };

static pl_status form(pl_checker *c, const char *claim, bool claimed, const pl_check_shape *s,
                      pl_error *err)
{
    pl_provider_finding *f = pl__check_begin(c, pl_provider_op_name(s->op), claim);

    if (claimed)
        return pl__check_one(c, f, s, 0, err);
    f->holds = -1;
    return PL_OK;
}

static bool has_dim(const pl_provider_claims *claims, int32_t dim)
{
    return dim >= claims->dim_min && dim <= claims->dim_max && dim % claims->dim_step == 0;
}

/* One sequence of queries where their number is free. */
static pl_check_shape fewer(const pl_check_shape *plain)
{
    pl_check_shape s = *plain;

    if (s.op != PL_PROVIDER_DECODE && s.n_q[0] <= 37) {
        s.n_seqs = 1;
        s.n_q[0] = 12;
    }
    return s;
}

static pl_status caches(pl_checker *c, const pl_check_shape *plain, pl_error *err)
{
    static const char *const claim[] = {"cache.bf16.pages", "cache.v4", "cache.v32"};
    const pl_provider_claims *claims = &c->e->record.op[plain->op];
    pl_check_shape s = fewer(plain);

    s.page_size = PAGE;
    s.page_gap = claims->contiguous ? 0 : GAP;
    for (s.format = PL_KV_BF16; s.format <= (int)PL_KV_V32; s.format++) {
        bool claimed = claims->pages && claims->caches & 1u << s.format;
        s.dim = s.format == PL_KV_BF16 ? plain->dim : s.format == PL_KV_V4 ? 512 : 576;
        PL_TRY(form(c, claim[s.format], claimed && has_dim(claims, s.dim), &s, err));
    }
    return PL_OK;
}

pl_status pl__check_forms(pl_checker *c, const pl_check_shape *plain, pl_error *err)
{
    const pl_provider_claims *claims = &c->e->record.op[plain->op];
    pl_check_shape s = *plain;

    if (plain->op == PL_PROVIDER_VARLEN) {
        s.page_size = PAGE;
        s.page_gap = claims->contiguous ? 0 : GAP;
        return form(c, "pages", claims->pages, &s, err);
    }
    PL_TRY(caches(c, plain, err));
    s = fewer(plain);
    s.second_set = 1;
    PL_TRY(form(c, "second_set", claims->second_set, &s, err));
    if (plain->op != PL_PROVIDER_DECODE)
        return PL_OK;
    s = *plain;
    s.seq_tokens = s.seq_tokens ? s.seq_tokens : 5; /* of 45 */
    return form(c, "seq_tokens", true, &s, err);
}
