/* JSON as Python writes it. Expected texts are those of CPython 3.11: repr() and json.dumps(indent=1). */
#include "model/pyjson.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"

static const struct {
    double x;
    const char *repr;
} doubles[] = {
    {0.0, "0.0"},
    {-0.0, "-0.0"},
    {1.0, "1.0"},
    {-1.5, "-1.5"},
    {10.0, "10.0"},
    {1e-6, "1e-06"},
    {1e-4, "0.0001"},
    {1e-5, "1e-05"},
    {0.0001234, "0.0001234"},
    {0.00099, "0.00099"},
    {0.5, "0.5"},
    {1e15, "1000000000000000.0"},
    {1e16, "1e+16"},
    {1e17, "1e+17"},
    {123456789012345680.0, "1.2345678901234568e+17"},
    {9007199254740993.0, "9007199254740992.0"},
    {2.5, "2.5"},
    {0.1, "0.1"},
    {0.3333333333333333, "0.3333333333333333"},
    {5e-324, "5e-324"},
    {-5e-324, "-5e-324"},
    {2.2250738585072014e-308, "2.2250738585072014e-308"},
    {1.7976931348623157e308, "1.7976931348623157e+308"},
    {-1e22, "-1e+22"},
    {1e23, "1e+23"},
    {100.0, "100.0"},
    {123.456, "123.456"},
    {12345678.9, "12345678.9"},
    {1234567890123456.0, "1234567890123456.0"},
    {12345678901234567.0, "1.2345678901234568e+16"},
    {0.000123456789012345678, "0.00012345678901234567"},
    {99999.0, "99999.0"},
    {4294967296.5, "4294967296.5"},
    {5.684341886080801e-14, "5.684341886080801e-14"},
    {1.1754943508222875e-38, "1.1754943508222875e-38"},
    {1.2345e-7, "1.2345e-07"},
    {1e100, "1e+100"},
    /* powers of two whose shortest text is not their nearest one of that length */
    {0x1p-44, "5.684341886080802e-14"},
    {0x1p-24, "5.960464477539063e-08"},
    {0x1p89, "6.189700196426902e+26"},
    {0x1p122, "5.316911983139664e+36"},
    {0x1p481, "6.243497100631985e+144"},
    {0x1p-1017, "7.120236347223045e-307"},
    {0x1p976, "6.386688990511104e+293"},
};

static void doubles_are_shortest(void **state)
{
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++) {
        char text[PL_PYJSON_DOUBLE_BYTES];

        pl_pyjson_format_double(doubles[i].x, text);
        assert_string_equal(text, doubles[i].repr);
    }
}

/* Reads back as the same number, and no text with one digit less does. */
static void every_power_of_two_is_minimal(void **state)
{
    for (int e = -1074; e < 1024; e++) {
        const double x = ldexp(1.0, e);
        char text[PL_PYJSON_DOUBLE_BYTES], shorter[64];
        int n_digits = 0;

        pl_pyjson_format_double(x, text);
        assert_true(strtod(text, NULL) == x);
        for (const char *p = text; *p && *p != 'e'; p++)
            n_digits += *p >= '0' && *p <= '9';
        if (!strchr(text, 'e') || n_digits == 1)
            continue;
        snprintf(shorter, sizeof shorter, "%.*e", n_digits - 2, x);
        assert_false(strtod(shorter, NULL) == x);
    }
}

static void check_text(const char *json, const char *want)
{
    json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
    char *text;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    assert_non_null(value);
    pl_pyjson_write(f, value);
    assert_int_equal(fclose(f), 0);
    assert_string_equal(text, want);
    free(text);
    json_decref(value);
}

static void values_are_indented_by_one(void **state)
{
    check_text("{}", "{}");
    check_text("[]", "[]");
    check_text("{\"b\":1,\"a\":[1,-2.0,[],{}],\"c\":{\"d\":null,\"e\":[true,false]}}",
               "{\n \"b\": 1,\n \"a\": [\n  1,\n  -2.0,\n  [],\n  {}\n ],\n \"c\": {\n"
               "  \"d\": null,\n  \"e\": [\n   true,\n   false\n  ]\n }\n}");
    check_text("-9223372036854775808", "-9223372036854775808");
}

static void strings_are_ascii(void **state)
{
    check_text("\"a/b \\u0001\\u001f\\b\\t\\n\\f\\r\\\"\\\\\\/\"",
               "\"a/b \\u0001\\u001f\\b\\t\\n\\f\\r\\\"\\\\/\"");
    check_text("\"\x7f\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\"",
               "\"\\u007f\\u00e9\\u20ac\\ud83d\\ude00\\udbff\\udfff\"");
    check_text("{\"\xc3\xa9\": 1}", "{\n \"\\u00e9\": 1\n}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles_are_shortest),
        cmocka_unit_test(every_power_of_two_is_minimal),
        cmocka_unit_test(values_are_indented_by_one),
        cmocka_unit_test(strings_are_ascii),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
