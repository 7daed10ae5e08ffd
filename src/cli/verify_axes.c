/* The axes of plimsoll verify: lists as they were given, or what this machine has.
 *
 * Values are checked here against what an engine could take at all; whether it fits the memory is for its plan to say. How
 * they are combined is verify_matrix.c. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/cpu_report.h"
#include "cli/token_list.h"
#include "cli/verify.h"

static pl_status parse_values(const char *option, const char *text, int low, int high,
                              pl_verify_values *v, pl_error *err)
{
    const pl_token_list_rules rules = {.max_ids = PL_VERIFY_MAX_VALUES};
    int32_t *values = NULL;
    size_t n = 0;
    pl_status s;

    PL_TRY(pl_token_list_parse(option, text, strlen(text), &rules, &values, &n, err));
    s = PL_OK;
    v->n = (int)n;
    for (size_t i = 0; i < n && s == PL_OK; i++) {
        v->value[i] = values[i];
        if (values[i] < low || values[i] > high)
            s = pl_error_set(err, PL_ERR_INVALID, "%s: out of range (got %d, want %d to %d)",
                             option, values[i], low, high);
        for (size_t before = 0; before < i && s == PL_OK; before++)
            if (values[before] == values[i])
                s = pl_error_set(err, PL_ERR_INVALID, "%s: given twice (got %d)", option,
                                 values[i]);
    }
    free(values);
    return s;
}

static pl_status parse_levels(const pl_verify_lists *o, char *text, pl_verify_axes *a,
                              pl_error *err)
{
    char *rest = NULL;

    for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        pl_level level;

        PL_TRY(pl_level_parse(word, &level, err));
        PL_CHECK(a->n_levels < PL_LEVEL_COUNT, err, "--level: too many (got '%s')", o->level);
        for (int i = 0; i < a->n_levels; i++)
            PL_CHECK(strcmp(a->level[i], word) != 0, err, "--level: given twice (got %s)", word);
        a->level[a->n_levels++] = pl_level_name(level);
    }
    PL_CHECK(a->n_levels > 0, err, "--level: empty (want names as of 'plimsoll cpu')");
    return PL_OK;
}

static void default_levels(const pl_cpu_report *r, pl_verify_axes *a)
{
    a->level[a->n_levels++] = pl_level_name(r->choice.level);
    for (int i = PL_LEVEL_SCALAR; i < PL_LEVEL_F64; i++)
        if (i != (int)r->choice.level && r->levels[i].built && r->levels[i].supported &&
            r->levels[i].test == PL_CPU_TEST_PASSED)
            a->level[a->n_levels++] = pl_level_name((pl_level)i);
}

static pl_status choose_machine_axes(const pl_verify_lists *o, pl_verify_axes *a, pl_error *err)
{
    pl_cpu_report r;
    pl_status s = pl_cpu_report_init(&r, NULL, getenv("PL_CPU"), err);

    if (s == PL_OK && o->level) {
        char *text = strdup(o->level);

        s = text ? parse_levels(o, text, a, err)
                 : pl_error_set(err, PL_ERR_NOMEM, "verify: out of memory");
        free(text);
    } else if (s == PL_OK) {
        default_levels(&r, a);
    }
    if (s == PL_OK && o->threads) {
        s = parse_values("--threads", o->threads, 1, 4096, &a->threads, err);
    } else if (s == PL_OK) {
        const int n = r.default_threads;

        a->threads =
            n > 1 ? (pl_verify_values){{n, 1, n + 1}, 3} : (pl_verify_values){{1, 2, 3}, 3};
    }
    pl_cpu_report_fini(&r);
    return s;
}

pl_status pl_verify_axes_choose(const pl_verify_lists *o, bool full, pl_verify_axes *a,
                                pl_error *err)
{
    PL_TRY(choose_machine_axes(o, a, err));
    PL_TRY(parse_values("--batch", o->batch ? o->batch : "1,2,4,8", 1, 4096, &a->batch, err));
    PL_TRY(parse_values("--max-num-batched-tokens",
                        o->chunk ? o->chunk
                        : full   ? "512,64,33,5,1"
                                 : "512,33,5",
                        1, 1 << 20, &a->chunk, err));
    return parse_values("--num-speculative-tokens",
                        o->k           ? o->k
                        : a->no_drafts ? "0"
                        : full         ? "0,1,2,3,4,8"
                                       : "0,1,2,4",
                        0, PL_MAX_SPECULATIVE, &a->k, err);
}
