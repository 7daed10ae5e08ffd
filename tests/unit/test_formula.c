/* Closed forms: values, and every kind of text that is none. */
#include <string.h>

#include "plan/formula.h"
#include "support/check.h"

static void values(void **state)
{
    static const struct {
        const char *text;
        uint64_t want;
    } cases[] = {
        {"0", 0},
        {"18446744073709551615", UINT64_MAX},
        {"2 + 3 * 4", 14},
        {"(2 + 3) * 4", 20},
        {"20 - 3 - 4", 13},
        {"96 / 4 / 3", 8},
        {" 7 ", 7},
        {"7_168 * 2", 14336},
        {"3 GiB", 3ull << 30},
        {"2 KiB stacks * 3 threads", 6144},
        {"(1 + 1) MiB + 5 TiB", (2ull << 20) + (5ull << 40)},
        {"43 layers * 256 experts * 3 * 2048 * 4096 / 2", 43ull * 256 * 3 * 2048 * 4096 / 2},
        {"up(65, 64)", 128},
        {"up(64, 64)", 64},
        {"up(0, 64)", 0},
        {"4 * up(3 * 5 rows, 2 * 8) bytes", 64},
        {"up(up(3, 4), 10)", 10},
        {"1 page_size.of_kv * 2", 2},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t v = 1;
        pl_error err;
        check_ok(pl_formula_eval(cases[i].text, &v, &err), &err);
        if (v != cases[i].want)
            fail_msg("%s: got %llu, want %llu", cases[i].text, (unsigned long long)v,
                     (unsigned long long)cases[i].want);
    }
}

static void what_is_no_closed_form(void **state)
{
    static const struct {
        const char *text;
        pl_status want;
        const char *message;
    } cases[] = {
        {"", PL_ERR_INVALID, "number is missing"},
        {"layers", PL_ERR_INVALID, "number is missing"},
        {"2 +", PL_ERR_INVALID, "number is missing"},
        {"-3", PL_ERR_INVALID, "number is missing"},
        {"(2", PL_ERR_INVALID, "')' is missing"},
        {"2)", PL_ERR_INVALID, "text behind the end"},
        {"2 3", PL_ERR_INVALID, "text behind the end"},
        {"2,000", PL_ERR_INVALID, "text behind the end"},
        {"1.5", PL_ERR_INVALID, "text behind the end"},
        {"7 / 2", PL_ERR_INVALID, "remainder"},
        {"7 / 0", PL_ERR_INVALID, "remainder"},
        {"3 - 4", PL_ERR_INVALID, "negative"},
        {"up(3)", PL_ERR_INVALID, "',' is missing"},
        {"up(3, 4", PL_ERR_INVALID, "')' is missing"},
        {"up(3, 0)", PL_ERR_INVALID, "multiple of 0"},
        {"18446744073709551616", PL_ERR_OVERFLOW, "number is too large"},
        {"18446744073709551615 + 1", PL_ERR_OVERFLOW, "sum is too large"},
        {"4294967296 * 4294967296", PL_ERR_OVERFLOW, "product is too large"},
        {"18446744073709551615 KiB", PL_ERR_OVERFLOW, "product is too large"},
        {"up(18446744073709551615, 2)", PL_ERR_OVERFLOW, "sum is too large"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t v;
        pl_error err;
        check_error(pl_formula_eval(cases[i].text, &v, &err), cases[i].want, &err, cases[i].message,
                    NULL);
    }
}

static void nesting_is_bounded(void **state)
{
    char text[4096];
    uint64_t v;
    pl_error err;

    memset(text, '(', 4000);
    strcpy(text + 4000, "1");
    check_error(pl_formula_eval(text, &v, &err), PL_ERR_INVALID, &err, "nested too deep", NULL);
    memset(text, '(', 20);
    text[20] = '5';
    memset(text + 21, ')', 20);
    text[41] = 0;
    check_ok(pl_formula_eval(text, &v, &err), &err);
    assert_int_equal(v, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(what_is_no_closed_form),
        cmocka_unit_test(nesting_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
