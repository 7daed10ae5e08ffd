/* The parser of model output at its limits: what is not UTF-8, calls and names that are too long, linear time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plimsoll/chat.h"
#include "support/check.h"
#include "support/output_log.h"
#include "text/output_parser.h"

/* What is not UTF-8: one U+FFFD for each maximal part, wherever the pieces are cut. */
static void test_utf8(void **state)
{
    static const char text[] =
        "a\xC3\xA9\xF0\x9F\x99\x82|\xF0\x9F|\xC0\xAF|\xED\xA0\x80|\xFF<\xE2\x96" CALLS INVOKE(
            "f") "<｜DSML｜parameter name=\"a\" "
                 "string=\"true\">\xF0\x9F</｜DSML｜parameter>\n" END_INVOKE "\xE4\xB8";
    static const size_t whole[] = {SIZE_MAX, 0};
    output_log log = output_log_parse(PL_CHAT_MODE_CHAT, text, sizeof text - 1, whole);

    (void)state;
    assert_non_null(
        strstr(log.text, "C{aé🙂|\uFFFD|\uFFFD\uFFFD|\uFFFD\uFFFD\uFFFD|\uFFFD<\uFFFD}S0{id0:f}"
                         "A0{{\"a\": \"\uFFFD\"}}E0"));
    free(log.text);
    output_log_check_cuts(PL_CHAT_MODE_CHAT, text, sizeof text - 1, 0);
}

static void test_long_calls(void **state)
{
    pl_output_options options = pl_output_options_default();
    pl_output_parser *p = NULL;
    output_log log = {0};
    pl_error err = {0};
    char prefix[PL_OUTPUT_MAX_PREFIX + 2];

    (void)state;
    options.mode = PL_CHAT_MODE_CHAT;
    options.max_call_bytes = 200;
    check_ok(pl_output_parser_create(&options, output_log_add, &log, &p, &err), &err);
    output_log_feed(p, CALLS INVOKE("f"), strlen(CALLS INVOKE("f")));
    output_log_feed(p, "<｜DSML｜parameter name=\"a\" string=\"true\">",
                    strlen("<｜DSML｜parameter name=\"a\" string=\"true\">"));
    for (int i = 0; i < 30; i++)
        output_log_feed(p, "0123456789", 10);
    assert_int_equal(pl_output_parser_finish(p), PL_OK);
    assert_non_null(strstr(log.text, "S0{call_0:f}A0{{\"a\": \"01234"));
    assert_non_null(strstr(log.text, "N{malformed@201:call is too long}C{" CALLS INVOKE("f")));
    assert_int_equal(pl_output_parser_feed(p, "x", 1), PL_ERR_STATE);
    assert_int_equal(pl_output_parser_finish(p), PL_ERR_STATE);
    pl_output_parser_destroy(p);
    free(log.text);

    memset(prefix, 'x', sizeof prefix - 1);
    prefix[sizeof prefix - 1] = 0;
    options.id_prefix = prefix;
    check_error(pl_output_parser_create(&options, output_log_add, &log, &p, &err), PL_ERR_INVALID,
                &err, "id_prefix: too long (got 65 bytes, want at most 64)", NULL);
}

static void test_long_names(void **state)
{
    static const size_t whole[] = {SIZE_MAX, 0};
    char text[8192];

    (void)state;
    for (int extra = 0; extra < 2; extra++) {
        char *t = text;
        output_log log;
        t += sprintf(t, CALLS "<｜DSML｜invoke name=\"");
        memset(t, 'n', (size_t)PL_OUTPUT_MAX_NAME + (size_t)extra);
        t += PL_OUTPUT_MAX_NAME + extra;
        t += sprintf(t, "\">\n" END_INVOKE END_CALLS);
        log = output_log_parse(PL_CHAT_MODE_CHAT, text, (size_t)(t - text), whole);
        assert_int_equal(strstr(log.text, "name is longer than 1024 bytes") != NULL, extra);
        assert_int_equal(strstr(log.text, "E0") != NULL, !extra);
        free(log.text);
    }
}

static void test_many_parameters(void **state)
{
    static const size_t whole[] = {SIZE_MAX, 0};
    char *text = malloc(200000);

    (void)state;
    for (int extra = 0; extra < 2; extra++) {
        char *t = text + sprintf(text, CALLS INVOKE("f"));
        output_log log;
        for (int i = 0; i < PL_OUTPUT_MAX_PARAMETERS + extra; i++)
            t += sprintf(
                t, "<｜DSML｜parameter name=\"k%d\" string=\"false\">%d</｜DSML｜parameter>\n", i,
                i);
        t += sprintf(t, END_INVOKE END_CALLS);
        log = output_log_parse(PL_CHAT_MODE_CHAT, text, (size_t)(t - text), whole);
        assert_int_equal(strstr(log.text, "more than 1024 parameters") != NULL, extra);
        assert_int_equal(strstr(log.text, "\"k1023\": 1023}}E0") != NULL, !extra);
        free(log.text);
    }
    free(text);
}

/* Text made to be hard: comparisons per byte stay below a constant. */
static void test_linear_time(void **state)
{
    static const struct {
        const char *head, *unit;
    } cases[] = {
        {"", "\n"},
        {"", "<"},
        {"", "</think"},
        {"", "\n\n<｜DSML｜tool_call"},
        {"", "\n\n\n<｜DSML｜"},
        {"", CALLS "x"},
        {"", CALLS INVOKE("f") "x"},
        {"", CALLS INVOKE("f") STRING("a", "b") "x"},
        {"", CALLS CALLS},
        {CALLS, INVOKE("f") END_INVOKE},
        {CALLS INVOKE("f"), OTHER("a", "1")},
        {CALLS INVOKE("f") "<｜DSML｜parameter name=\"a\" string=\"true\">", "</｜DSML｜paramete"},
        {CALLS INVOKE("f") "<｜DSML｜parameter name=\"a\" string=\"false\">", "<"},
        {CALLS INVOKE("f") "<｜DSML｜parameter name=\"a\" string=\"true\">", CALLS},
        {CALLS "<｜DSML｜invoke name=\"", "\""},
        {CALLS INVOKE("f") "<｜DSML｜parameter name=\"", "\" string="},
        {CALLS, "\n"},
    };
    enum { N = 1 << 20 };
    char *text = malloc(N);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t at = strlen(cases[i].head), unit = strlen(cases[i].unit);
        output_log log = {0};
        pl_output_parser *p = output_log_parser(PL_CHAT_MODE_CHAT, output_log_add, &log);
        memcpy(text, cases[i].head, at);
        for (; at + unit <= N; at += unit)
            memcpy(text + at, cases[i].unit, unit);
        assert_int_equal(pl_output_parser_feed(p, text, at), PL_OK);
        assert_int_equal(pl_output_parser_finish(p), PL_OK);
        if (pl__output_parser_steps(p) > 32 * at)
            fail_msg("case %zu: %llu steps for %zu bytes", i,
                     (unsigned long long)pl__output_parser_steps(p), at);
        pl_output_parser_destroy(p);
        free(log.text);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8),        cmocka_unit_test(test_long_calls),
        cmocka_unit_test(test_long_names),  cmocka_unit_test(test_many_parameters),
        cmocka_unit_test(test_linear_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
