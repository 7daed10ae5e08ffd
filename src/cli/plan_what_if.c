/* --what-if: the same plan with one parameter changed, for values that were asked for or for some around its own.
 *
 * Every row is a whole plan, made by the code that makes the first one. What was left open is chosen anew in each. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/plan_report.h"

static const char *const names[PL_WHAT_IF_COUNT] = {"max_num_seqs", "max_model_len",
                                                    "max_num_batched_tokens"};
static const char *const option_names[PL_WHAT_IF_COUNT] = {"max-num-seqs", "max-model-len",
                                                           "max-num-batched-tokens"};

const char *pl_what_if_name(pl_what_if_parameter parameter)
{
    return names[parameter];
}

/* "1,2,4" */
static pl_status parse_values(pl_what_if_ask *ask, int which, const char *option, const char *text,
                              pl_error *err)
{
    const char *p = text;

    for (;;) {
        long long v;
        char *end;

        PL_CHECK(ask->n_values[which] < PL_WHAT_IF_VALUES, err,
                 "%s: too many values of %s (want at most %d)", option, option_names[which],
                 PL_WHAT_IF_VALUES);
        v = *p >= '0' && *p <= '9' ? strtoll(p, &end, 10) : 0;
        if (v < 1 || v > INT32_MAX || (*end && *end != ','))
            return pl_error_set(err, PL_ERR_INVALID,
                                "%s: not whole numbers (got '%s', want e.g. 1,2,4)", option, text);
        ask->values[which][ask->n_values[which]++] = (int32_t)v;
        if (!*end)
            return PL_OK;
        p = end + 1;
    }
}

pl_status pl_what_if_parse(pl_what_if_ask *ask, const char *option, const char *text, pl_error *err)
{
    if (!text) {
        for (int w = 0; w < PL_WHAT_IF_COUNT; w++)
            ask->asked[w] = true;
        return PL_OK;
    }
    for (int w = 0; w < PL_WHAT_IF_COUNT; w++) {
        size_t n = strlen(option_names[w]);

        if (strncmp(text, option_names[w], n) != 0 || (text[n] && text[n] != '='))
            continue;
        ask->asked[w] = true;
        return text[n] ? parse_values(ask, w, option, text + n + 1, err) : PL_OK;
    }
    return pl_error_set(err, PL_ERR_INVALID,
                        "%s: unknown parameter (got '%s', want max-num-seqs, max-model-len or "
                        "max-num-batched-tokens, with =N,N.. behind it or without)",
                        option, text);
}

static int32_t value_in(const pl_plan_totals *t, int which)
{
    return which == PL_WHAT_IF_NUM_SEQS    ? t->max_num_seqs
           : which == PL_WHAT_IF_MODEL_LEN ? t->max_model_len
                                           : t->max_num_batched_tokens;
}

/* A quarter of the plan's own value to four times it, within what is legal, each once. */
static int choose_values(const pl_plan *plan, int which, int32_t *values)
{
    static const int64_t most[PL_WHAT_IF_COUNT] = {1 << 16, 0, 1 << 20};
    const pl_plan_totals t = pl_plan_totals_of(plan);
    const int64_t own = value_in(&t, which), low = which == PL_WHAT_IF_MODEL_LEN ? 2 : 1;
    const int64_t high = which == PL_WHAT_IF_MODEL_LEN
                             ? pl_plan_model_of(plan).max_position_embeddings
                             : most[which];
    int n = 0;

    for (int shift = -2; shift <= 2; shift++) {
        int64_t v = shift < 0 ? own >> -shift : own << shift;

        v = v < low ? low : v > high ? high : v;
        if (n == 0 || v != values[n - 1])
            values[n++] = (int32_t)v;
    }
    return n;
}

static pl_status add_row(pl_plan_report *report, const pl_engine_params *params, int which,
                         int32_t value, pl_error *err)
{
    pl_what_if_row *row = &report->what_if[report->n_what_if];
    pl_engine_params p = *params;
    pl_plan *plan;
    pl_status s;

    if (which == PL_WHAT_IF_NUM_SEQS)
        p.max_num_seqs = value;
    else if (which == PL_WHAT_IF_MODEL_LEN)
        p.max_model_len = value;
    else
        p.max_num_batched_tokens = value;
    s = pl_plan_create_like(report->plan, &p, &plan, err);
    if (s != PL_OK) {
        pl_error_prefix(err, "--what-if");
        return s;
    }
    *row = (pl_what_if_row){which, value, pl_plan_totals_of(plan)};
    report->n_what_if++;
    pl_plan_destroy(plan);
    return PL_OK;
}

pl_status pl_what_if_run(const pl_what_if_ask *ask, const pl_engine_params *params,
                         pl_plan_report *report, pl_error *err)
{
    _Static_assert((int)PL_WHAT_IF_ROWS >= (int)PL_WHAT_IF_COUNT * PL_WHAT_IF_VALUES, "room");
    for (int w = 0; w < PL_WHAT_IF_COUNT; w++) {
        int32_t some[PL_WHAT_IF_VALUES];
        const int32_t *values = ask->values[w];
        int n = ask->n_values[w];

        if (!ask->asked[w])
            continue;
        if (n == 0) {
            n = choose_values(report->plan, w, some);
            values = some;
        }
        for (int i = 0; i < n; i++)
            PL_TRY(add_row(report, params, w, values[i], err));
    }
    return PL_OK;
}
