/* Gathering the report of a checkpoint that was opened. */
#include "cli/inspect_report.h"

#include <inttypes.h>
#include <string.h>

/* Named after what is stored, since any library may have written it. */
static const char *variant_of(const pl_storage *s)
{
    if (!s->experts_fp8)
        return s->scale == PL_DTYPE_F8_E8M0 ? "instruct" : "mixed";
    if (s->scale != s->expert_scale)
        return "mixed";
    return s->scale == PL_DTYPE_F32 ? "base" : "fp8-e8m0";
}

const char *pl_inspect_drafter_name(pl_drafter drafter)
{
    static const char *const names[] = {
        [PL_DRAFTER_NONE] = "none", [PL_DRAFTER_MTP] = "mtp", [PL_DRAFTER_DSPARK] = "dspark"};

    return names[drafter];
}

const char *pl_inspect_role_name(pl_tensor_role role)
{
    static const char *const names[] = {
        [PL_ROLE_MODEL] = "model", [PL_ROLE_COPY] = "copy", [PL_ROLE_DRAFTER] = "drafter"};

    return names[role];
}

pl_status pl_inspect_report_init(pl_inspect_report *r, const pl_checkpoint *checkpoint, bool digest,
                                 pl_error *err)
{
    uint64_t total = 0;
    pl_status s;

    memset(r, 0, sizeof *r);
    r->checkpoint = checkpoint;
    r->census = pl_census_checkpoint(checkpoint);
    r->variant = variant_of(pl_checkpoint_storage(checkpoint));
    r->experts = pl_checkpoint_storage(checkpoint)->experts_fp8 ? "FP8" : "FP4";
    s = pl_checkpoint_header_digest(checkpoint, &r->header_digest, err);
    for (int i = 0; i < PL_DTYPE_COUNT; i++)
        total += r->census.by_dtype[i].bytes;
    if (!digest && !pl_checkpoint_has_data(checkpoint)) {
        snprintf(r->no_digest, sizeof r->no_digest, "the files hold no data");
    } else if (s == PL_OK && (digest || total <= PL_INSPECT_DIGEST_BYTES)) {
        s = pl_checkpoint_digest(checkpoint, &r->digest, err);
        r->has_digest = s == PL_OK;
    } else {
        snprintf(r->no_digest, sizeof r->no_digest,
                 "%" PRIu64 " bytes would have to be read; --digest reads them", total);
    }
    return s;
}
