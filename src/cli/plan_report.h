/* What `plimsoll plan` prints: a table, a JSON document, a picture; and the plans of other parameters beside it. */
#ifndef PL_CLI_PLAN_REPORT_H
#define PL_CLI_PLAN_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "plimsoll/engine.h"

enum { PL_WHAT_IF_ROWS = 48, PL_WHAT_IF_VALUES = 16 };

typedef enum pl_what_if_parameter {
    PL_WHAT_IF_NUM_SEQS,
    PL_WHAT_IF_MODEL_LEN,
    PL_WHAT_IF_BATCHED_TOKENS,
    PL_WHAT_IF_COUNT,
} pl_what_if_parameter;

/* What was asked for: values of each parameter, or some around the plan's own. */
typedef struct pl_what_if_ask {
    bool asked[PL_WHAT_IF_COUNT];
    int n_values[PL_WHAT_IF_COUNT]; /* 0: choose some */
    int32_t values[PL_WHAT_IF_COUNT][PL_WHAT_IF_VALUES];
} pl_what_if_ask;

typedef struct pl_what_if_row {
    pl_what_if_parameter parameter;
    int32_t value;
    pl_plan_totals totals;
} pl_what_if_row;

/* The plan and all that was asked for with it. */
typedef struct pl_plan_report {
    const pl_plan *plan;
    pl_what_if_row what_if[PL_WHAT_IF_ROWS];
    int n_what_if;
    pl_reserve_row reserve[PL_RESERVE_MAX_ROWS]; /* other engines', and a provider's transient */
    int n_reserve;
} pl_plan_report;

/* Adds the transient of a library's attention to report->reserve, for the tokens of a step. NOT_FOUND, UNSUPPORTED for one
 * that cannot be used, OVERFLOW. */
pl_status pl_plan_add_provider(const char *library, pl_plan_report *report,
                               pl_error *err) PL_MUST_CHECK;

/* "max_num_seqs", .. */
const char *pl_what_if_name(pl_what_if_parameter parameter);

/* Adds to *ask what `text` says: NULL for all three, "max-num-seqs" for one, "max-num-seqs=1,2,4" for values of
 * it. INVALID with what would be right; `option` names where it stood. */
pl_status pl_what_if_parse(pl_what_if_ask *ask, const char *option, const char *text,
                           pl_error *err) PL_MUST_CHECK;

/* Fills report->what_if: one parameter changed at a time, all others as given in `params`; what they leave open is
 * chosen anew. Errors as of pl_plan_create. */
pl_status pl_what_if_run(const pl_what_if_ask *ask, const pl_engine_params *params,
                         pl_plan_report *report, pl_error *err) PL_MUST_CHECK;

void pl_plan_print_text(const pl_plan_report *report);
void pl_plan_print_json(const pl_plan_report *report);

/* The budget as an SVG picture with the line drawn in. IO where the file cannot be written. */
pl_status pl_plan_write_svg(const pl_plan *plan, const char *path, pl_error *err) PL_MUST_CHECK;

/* "12.3 GiB"; returns text. */
const char *pl_plan_short_bytes(uint64_t bytes, char *text, size_t size);

#endif
