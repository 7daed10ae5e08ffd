/* plimsoll bench serve --compare: saved results side by side, as A-R-A runs want them: the first run is the base, and
 * acceptance stands beside the time of a token, since drafts change both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/bench_serve.h"

enum { MAX_RUNS = 64 };

static const char *const columns[] = {"mean_tpot_ms",
                                      "spec_decode_acceptance_rate",
                                      "spec_decode_acceptance_length",
                                      "mean_itl_ms",
                                      "mean_ttft_ms",
                                      "mean_e2el_ms",
                                      "output_throughput"};

static bool same(const json_t *a, const json_t *b, const char *part, const char *key)
{
    return json_equal(json_object_get(json_object_get(a, part), key),
                      json_object_get(json_object_get(b, part), key));
}

/* The commit and the command may differ: they are what is compared. */
static pl_status check(const json_t *a, const json_t *b, const char *name, pl_error *err)
{
    static const char *const keys[] = {"machine", "kernel", "compiler", "fingerprint"};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        PL_CHECK(same(a, b, "environment", keys[i]), err,
                 "%s: another %s than the first (--allow-different compares all the same)", name,
                 keys[i]);
    PL_CHECK(json_equal(json_object_get(a, "load"), json_object_get(b, "load")), err,
             "%s: another load than the first (--allow-different compares all the same)", name);
    return PL_OK;
}

static void print(json_t *const *run, const char *const *path, int n)
{
    printf("%-24s %10s %10s %8s %10s %10s %10s %12s\n", "run", "TPOT ms", "accepted", "length",
           "ITL ms", "TTFT ms", "E2EL ms", "out tok/s");
    for (int i = 0; i < n; i++) {
        double v[sizeof columns / sizeof columns[0]];

        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
            v[c] = json_number_value(json_object_get(run[i], columns[c]));
        printf("%-24s %10.3f", path[i], v[0]);
        if (json_is_number(json_object_get(run[i], columns[1])))
            printf(" %9.2f%% %8.3f", v[1], v[2]);
        else
            printf(" %10s %8s", "-", "-");
        printf(" %10.3f %10.3f %10.3f %12.3f", v[3], v[4], v[5], v[6]);
        if (i > 0) {
            const double base = json_number_value(json_object_get(run[0], columns[0]));

            printf("  TPOT %+.2f%%", base > 0 ? 100 * (v[0] / base - 1) : 0);
        }
        printf("\n");
    }
}

static void print_json(json_t *const *run, const char *const *path, int n)
{
    json_t *rows = json_array(), *root;

    for (int i = 0; i < n; i++) {
        json_t *row = json_pack("{s:s}", "file", path[i]);
        const double base = json_number_value(json_object_get(run[0], columns[0])),
                     own = json_number_value(json_object_get(run[i], columns[0]));

        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++) {
            json_t *v = json_object_get(run[i], columns[c]);

            json_object_set_new(row, columns[c], v ? json_incref(v) : json_null());
        }
        json_object_set_new(row, "tpot_ratio", base > 0 ? json_real(own / base) : json_null());
        json_array_append_new(rows, row);
    }
    root = json_pack("{s:o}", "runs", rows);
    (void)json_dumpf(root, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(root);
}

pl_status pl_bench_compare(const char *const *path, int n, bool any, bool as_json, pl_error *err)
{
    json_t *run[MAX_RUNS] = {NULL};
    pl_status s = PL_OK;

    PL_CHECK(n >= 2 && n <= MAX_RUNS, err, "--compare: number of files (got %d, want 2 to %d)", n,
             MAX_RUNS);
    for (int i = 0; i < n && s == PL_OK; i++) {
        json_error_t where;

        run[i] = json_load_file(path[i], 0, &where);
        if (!json_is_number(json_object_get(run[i], columns[0])))
            s = pl_error_set(err, PL_ERR_INVALID, "%s: no result of bench serve (got %s)", path[i],
                             run[i] ? "no mean_tpot_ms" : where.text);
        else if (i > 0 && !any)
            s = check(run[0], run[i], path[i], err);
    }
    if (s == PL_OK && as_json)
        print_json(run, path, n);
    else if (s == PL_OK)
        print(run, path, n);
    for (int i = 0; i < n; i++)
        json_decref(run[i]);
    return s;
}
