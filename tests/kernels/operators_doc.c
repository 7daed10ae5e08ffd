/* operators_doc OPERATORS.md HEADER..: every operator of the table has its row, no row has none, and the last column
 * names the vector levels that have a kernel of their own. Every function of the public headers is named, too. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "ops/ops.h"

/* clang-format off */
#define OPERATORS(X) \
    X(embed) X(hc_dots) X(hc_pre) X(hc_post) X(hc_head) X(mtp_join) X(rms_norm) X(rope_angles) \
    X(q_norm_rope) X(unrope) X(rope) X(hadamard) X(quantise) X(linear_fp8) X(linear_fp8_a16) X(linear_fp4) X(linear_bf16) \
    X(kv_store) X(cache_put) X(cache_get) X(attention) X(attention_varlen) X(attention_sparse) X(compress) X(compress_reset) X(key_store) X(index_query) \
    X(index_topk) X(index_merge) X(route) X(route_weights) X(swiglu) X(swiglu7) X(moe_sum) \
    X(moe_parts) X(shard_sum) X(map)
/* clang-format on */

typedef struct operator_of {
    const char *name;
    bool own[PL_LEVEL_COUNT]; /* differs from that of the level below */
    int rows;
} operator_of;

static operator_of all[] = {
#define NAME(op) {.name = #op},
    OPERATORS(NAME)
#undef NAME
};
enum { N = sizeof all / sizeof all[0] };

static void look_at_tables(void)
{
    const pl_ops *below = pl_ops_scalar();

    for (pl_level l = PL_LEVEL_AVX2; l <= PL_LEVEL_AVX512BF16; l++) {
        const pl_ops *ops = pl_ops_at(l, PL_MODE_REC);
        operator_of *o = all;
        if (!ops)
            continue;
#define OWN(op) o++->own[l] = ops->op != below->op;
        OPERATORS(OWN)
#undef OWN
        below = ops;
    }
}

/* The last cell but one: "`row` N % of what binds it", row being one of `bench ops`, or "none: reason". */
static bool judge_speed(const char *name, const char *line)
{
    char cell[256] = "", row[64], unit[16];
    const char *end = strrchr(line, '|'), *begin;
    double percent;

    for (int i = 0; i < 2 && end; i++) {
        begin = end - 1;
        while (begin > line && *begin != '|')
            begin--;
        if (i == 1 && end - begin - 1 < (ptrdiff_t)sizeof cell)
            snprintf(cell, sizeof cell, "%.*s", (int)(end - begin - 1), begin + 1);
        end = begin;
    }
    if (strncmp(cell, " none: ", 7) == 0 && strlen(cell) > 12)
        return true;
    if (sscanf(cell, " `%63[a-z0-9_]` %lf %% of %15[a-z0-9]", row, &percent, unit) == 3 &&
        percent > 0)
        for (const pl_bench_op *const *op = pl_bench_ops; *op; op++)
            if (strcmp((*op)->name, row) == 0)
                return true;
    printf("%s: its speed (got '%s', want ' `row of bench ops` N %% of limit ', or ' none: reason "
           "')\n",
           name, cell);
    return false;
}

/* The row of a table whose first cell is `name`. */
static int judge_row(const char *name, const char *line)
{
    const char *last = NULL;

    for (const char *p = line; (p = strchr(p, '|')) && p[1] != '\n' && p[1]; p++)
        last = p;
    for (int i = 0; i < N; i++) {
        if (strcmp(all[i].name, name) != 0)
            continue;
        all[i].rows++;
        if (!judge_speed(name, line))
            return 1;
        for (pl_level l = PL_LEVEL_AVX2; last && l <= PL_LEVEL_AVX512BF16; l++) {
            char word[32];
            bool told;
            snprintf(word, sizeof word, " %s ", pl_level_name(l));
            told = strstr(last, word) != NULL;
            if (pl_ops_at(l, PL_MODE_REC) && told != all[i].own[l]) {
                printf("%s: level%swritten (got %d, want %d)\n", name, word, told, all[i].own[l]);
                return 1;
            }
        }
        return 0;
    }
    printf("%s: a row, but no such operator\n", name);
    return 1;
}

static bool contains(FILE *page, const char *what)
{
    char line[1024];

    rewind(page);
    while (fgets(line, sizeof line, page))
        if (strstr(line, what))
            return true;
    return false;
}

/* Names that a line ends its type with: "PL_API .. pl_name(" of a header; the number that the page does not name. */
static int judge_header(FILE *page, FILE *header, int *n)
{
    char line[1024], name[128], quoted[160];
    int failed = 0;

    while (fgets(line, sizeof line, header)) {
        const char *at = strncmp(line, "PL_API", 6) == 0 ? strchr(line, '(') : NULL;
        size_t length = 0;

        while (at && at - length > line &&
               strchr("_abcdefghijklmnopqrstuvwxyz0123456789", at[-1 - (ptrdiff_t)length]))
            length++;
        if (length == 0 || length >= sizeof name)
            continue;
        memcpy(name, at - length, length);
        name[length] = 0;
        ++*n;
        snprintf(quoted, sizeof quoted, "`%s`", name);
        if (!contains(page, quoted)) {
            printf("%s: a public function that the page does not name\n", name);
            failed++;
        }
    }
    return failed;
}

static int judge_headers(FILE *page, int argc, char **argv)
{
    int failed = 0, n = 0;

    for (int i = 2; i < argc; i++) {
        FILE *header = fopen(argv[i], "r");
        int before = n;

        if (!header || (failed += judge_header(page, header, &n), n == before)) {
            printf("%s: no function found\n", argv[i]);
            failed++;
        }
        if (header)
            fclose(header);
    }
    return failed;
}

int main(int argc, char **argv)
{
    FILE *f = argc >= 3 ? fopen(argv[1], "r") : NULL;
    size_t listed = (sizeof(pl_ops) - offsetof(pl_ops, embed)) / sizeof(void (*)(void));
    char line[1024], name[64];
    bool inside = false;
    int failed = 0;

    if (!f) {
        fprintf(stderr, "usage: operators_doc OPERATORS.md HEADER..\n");
        return 2;
    }
    look_at_tables();
    while (fgets(line, sizeof line, f)) {
        inside |= strncmp(line, "## Every operator", 17) == 0;
        if (inside && sscanf(line, "| `%63[a-z0-9_]` |", name) == 1)
            failed += judge_row(name, line);
    }
    failed += judge_headers(f, argc, argv);
    fclose(f);
    for (int i = 0; i < N; i++)
        if (all[i].rows != 1) {
            printf("%s: rows (got %d, want 1)\n", all[i].name, all[i].rows);
            failed++;
        }
    if (listed != N) {
        printf("operators of the table (got %zu, want the %d that this test lists)\n", listed, N);
        failed++;
    }
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
