/* The region table: plan and carving cannot differ, and whatever makes them differ is noticed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/region.h"
#include "support/check.h"

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Random regions of random pieces; deterministic in `seed`. */
static void layout(pl_regions *t, pl_arena *a, uint32_t seed)
{
    int n_regions = 1 + (int)(next_random(&seed) % 12);

    for (int r = 0; r < n_regions; r++) {
        char name[32], formula[PL_REGION_FORMULA_BYTES] = "0";
        int n_pieces = (int)(next_random(&seed) % 5);

        snprintf(name, sizeof name, "part%d.rows", r);
        if (next_random(&seed) % 4 == 0) {
            pl_region_add(t, name, "base", PL_REGION_CAPPED, 4096 * (uint64_t)r, "%d pages * 4 KiB",
                          r);
            continue;
        }
        pl_region_begin(t, a, name, "base");
        for (int p = 0; p < n_pieces; p++) {
            uint32_t n = next_random(&seed) % 100, bytes = next_random(&seed) % 50;
            size_t end = strlen(formula);
            pl_arena_mark mark = pl_arena_begin(a);
            if (next_random(&seed) % 8 == 0) { /* taken and given back below the later pieces */
                pl_arena_alloc(a, 1, 0);
                pl_arena_end(a, mark);
            }
            pl_arena_array(a, n, bytes, next_random(&seed) % 2 ? 0 : 16);
            snprintf(formula + end, sizeof formula - end, " + up(%u rows * %u, 64)", n, bytes);
        }
        pl_arena_alloc(a, 64, 0);
        pl_region_end(t, "%s + 64", formula);
    }
}

static void dry_and_carved_tables_are_equal(void **state)
{
    for (uint32_t seed = 0; seed < 3000; seed++) {
        pl_regions plan, real;
        pl_arena dry, arena;
        pl_error err;
        size_t bytes;
        void *block;

        pl_regions_init(&plan);
        pl_regions_init(&real);
        pl_arena_init_dry(&dry);
        layout(&plan, &dry, seed);
        check_ok(pl_regions_check(&plan, &dry, &err), &err);
        bytes = pl_arena_peak_bytes(&dry);
        block = aligned_alloc(64, bytes + 64);
        pl_arena_init(&arena, block, bytes);
        layout(&real, &arena, seed);
        check_ok(pl_arena_check(&arena, "real", &err), &err);
        check_ok(pl_regions_check(&real, &arena, &err), &err);
        check_ok(pl_regions_compare(&plan, &real, &err), &err);
        assert_int_equal(pl_regions_bytes(&plan, PL_REGION_EXACT),
                         pl_arena_planned_peak_bytes(&dry));
        pl_arena_fini(&arena);
        free(block);
        pl_regions_fini(&plan);
        pl_regions_fini(&real);
    }
}

static void sums_by_part_and_prefix(void **state)
{
    pl_regions t;
    pl_arena a;
    pl_error err;

    pl_regions_init(&t);
    pl_arena_init_dry(&a);
    pl_region_begin(&t, &a, "weights.experts", "model");
    pl_arena_array(&a, 10, 64, 0);
    pl_region_end(&t, "10 rows * 64");
    pl_region_begin(&t, &a, "weights.head", "model");
    pl_arena_alloc(&a, 1, 0);
    pl_region_end(&t, "up(1, 64)");
    pl_region_add(&t, "weightsx", "model", PL_REGION_EXACT, 5, "5");
    pl_region_add(&t, "heap", "base", PL_REGION_CAPPED, 16 << 20, "16 MiB");
    pl_region_add(&t, "program", "base", PL_REGION_MEASURED, 1234, "reference run");
    check_ok(pl_regions_check(&t, &a, &err), &err);
    assert_int_equal(pl_regions_bytes(&t, PL_REGION_EXACT), 640 + 64 + 5);
    assert_int_equal(pl_regions_bytes(&t, PL_REGION_CAPPED), 16 << 20);
    assert_int_equal(pl_regions_bytes(&t, PL_REGION_MEASURED), 1234);
    assert_int_equal(pl_regions_bytes(&t, PL_REGION_PART_COUNT), 709 + (16 << 20) + 1234);
    assert_int_equal(pl_regions_bytes_of(&t, "weights"), 704);
    assert_int_equal(pl_regions_bytes_of(&t, "weights.head"), 64);
    assert_string_equal(pl_regions_find(&t, "heap")->formula, "16 MiB");
    assert_string_equal(pl_regions_find(&t, "heap")->owner, "base");
    assert_null(pl_regions_find(&t, "weights"));
    assert_string_equal(pl_region_part_name(PL_REGION_MEASURED), "measured");
    pl_regions_fini(&t);
}

/* What the layout in a case does wrong. */
enum mistake {
    WRONG_FORMULA,
    NO_FORMULA,
    WRONG_ADDED,
    OUTSIDE,
    NESTED,
    NOT_ENDED,
    NOT_BEGUN,
    TWICE,
    BAD_NAME,
    LONG_NAME,
    LONG_FORMULA,
    GIVEN_BACK,
    SUM_OVERFLOWS,
    ARENA_FAILS,
};

static void make_mistake(pl_regions *t, pl_arena *a, enum mistake m)
{
    char xs[300];
    pl_arena_mark mark;

    memset(xs, 'x', sizeof xs - 1);
    xs[sizeof xs - 1] = 0;
    pl_arena_alloc(a, m == OUTSIDE ? 64 : 0, 0);
    mark = pl_arena_begin(a);
    pl_region_begin(t, a, "first", "base");
    pl_arena_alloc(a, 128, 0);
    pl_region_end(t, "128");
    pl_region_begin(t, a,
                    m == TWICE       ? "first"
                    : m == BAD_NAME  ? "Bad name"
                    : m == LONG_NAME ? xs
                                     : "b.c",
                    "base");
    pl_arena_alloc(a, m == ARENA_FAILS ? SIZE_MAX : 100, 0);
    if (m == GIVEN_BACK)
        pl_arena_end(a, mark);
    if (m == NESTED)
        pl_region_begin(t, a, "inner", "base");
    if (m == NOT_ENDED)
        return;
    pl_region_end(t, "%s",
                  m == WRONG_FORMULA  ? "100"
                  : m == NO_FORMULA   ? "about 128"
                  : m == LONG_FORMULA ? xs
                                      : "up(100, 64)");
    if (m == NOT_BEGUN)
        pl_region_end(t, "0");
    if (m == WRONG_ADDED)
        pl_region_add(t, "heap", "base", PL_REGION_CAPPED, 17, "16");
    if (m == SUM_OVERFLOWS)
        pl_region_add(t, "huge", "base", PL_REGION_MEASURED, UINT64_MAX - 5, "x");
}

static void every_mistake_is_named(void **state)
{
    static const struct {
        enum mistake m;
        pl_status want;
        const char *text;
    } cases[] = {
        {WRONG_FORMULA, PL_ERR_INTERNAL,
         "region b.c: formula and carving differ (got 128 bytes carved, "
         "want 100 = 100)"},
        {NO_FORMULA, PL_ERR_INTERNAL, "region b.c: formula: a number is missing"},
        {WRONG_ADDED, PL_ERR_INTERNAL, "region heap: formula and carving differ"},
        {OUTSIDE, PL_ERR_INTERNAL, "outside of regions (got 320 bytes carved, want 256)"},
        {NESTED, PL_ERR_INTERNAL, "region inner begins inside another"},
        {NOT_ENDED, PL_ERR_INTERNAL, "region b.c does not end"},
        {NOT_BEGUN, PL_ERR_INTERNAL, "ends that has not begun"},
        {TWICE, PL_ERR_INTERNAL, "region first exists already"},
        {BAD_NAME, PL_ERR_INTERNAL, "bad name of a region (got 'Bad name'"},
        {LONG_NAME, PL_ERR_INTERNAL, "bad name of a region (got 'xxx"},
        {LONG_FORMULA, PL_ERR_INTERNAL, "formula is too long"},
        {GIVEN_BACK, PL_ERR_INTERNAL, "gave back"},
        {SUM_OVERFLOWS, PL_ERR_OVERFLOW, "overflows at huge"},
        {ARENA_FAILS, PL_ERR_OVERFLOW, "b.c: size overflows"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pl_regions t;
        pl_arena a;
        pl_error err = {0};

        pl_regions_init(&t);
        pl_arena_init_dry(&a);
        make_mistake(&t, &a, cases[i].m);
        check_error(pl_regions_check(&t, &a, &err), cases[i].want, &err, cases[i].text, NULL);
        if (cases[i].m == NOT_ENDED)
            goto done; /* only the check can know */
        /* Latched: a good row behind does not help, and the text stays. */
        pl_region_add(&t, "last", "base", PL_REGION_EXACT, 1, "1");
        check_error(pl_regions_check(&t, &a, &err), cases[i].want, &err, cases[i].text, NULL);
    done:
        pl_regions_fini(&t);
    }
}

static void tables_that_differ_are_told_apart(void **state)
{
    pl_regions a, b;
    pl_error err;

    pl_regions_init(&a);
    pl_regions_init(&b);
    pl_region_add(&a, "x", "base", PL_REGION_EXACT, 8, "8");
    pl_region_add(&b, "x", "base", PL_REGION_EXACT, 8, "4 + 4");
    check_error(pl_regions_compare(&a, &b, &err), PL_ERR_INTERNAL, &err, "row 0", "= 4 + 4", NULL);
    pl_regions_fini(&b);
    pl_region_add(&b, "x", "base", PL_REGION_EXACT, 8, "8");
    check_ok(pl_regions_compare(&a, &b, &err), &err);
    pl_region_add(&b, "y", "base", PL_REGION_EXACT, 8, "8");
    check_error(pl_regions_compare(&a, &b, &err), PL_ERR_INTERNAL, &err, "got 2, want 1", NULL);
    pl_regions_fini(&a);
    pl_regions_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dry_and_carved_tables_are_equal),
        cmocka_unit_test(sums_by_part_and_prefix),
        cmocka_unit_test(every_mistake_is_named),
        cmocka_unit_test(tables_that_differ_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
