/* Everything `plimsoll inspect` tells, gathered first so that text and JSON say the same. */
#ifndef PL_CLI_INSPECT_REPORT_H
#define PL_CLI_INSPECT_REPORT_H

#include <stdio.h>

#include "model/census.h"
#include "model/digest.h"

/* The digest of all bytes is made unasked up to this many. */
#define PL_INSPECT_DIGEST_BYTES (1ull << 30)

typedef struct pl_inspect_report {
    const pl_checkpoint *checkpoint; /* borrowed */
    pl_census census;
    const char *variant; /* "instruct", "base", "fp8-e8m0" or "mixed" */
    const char *experts; /* "FP4", "FP8" */
    pl_digest header_digest;
    bool has_digest;
    pl_digest digest;
    char no_digest[128]; /* why there is none, or "" */
    bool list_tensors;
} pl_inspect_report;

/* Reads all data where `digest` is true or there is little of it. */
PL_MUST_CHECK pl_status pl_inspect_report_init(pl_inspect_report *r,
                                               const pl_checkpoint *checkpoint, bool digest,
                                               pl_error *err);

void pl_inspect_report_print(const pl_inspect_report *r, FILE *to);

/* One JSON document and a newline; NOMEM, or IO where writing fails. */
PL_MUST_CHECK pl_status pl_inspect_report_write_json(const pl_inspect_report *r, FILE *to,
                                                     pl_error *err);

/* "mtp", "dspark", "none". */
const char *pl_inspect_drafter_name(pl_drafter drafter);

/* "model", "copy", "drafter". */
const char *pl_inspect_role_name(pl_tensor_role role);

#endif
