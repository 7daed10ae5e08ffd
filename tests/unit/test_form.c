/* Forms of answers: random walks stay JSON and calls, and the end is always as near as it is said to be. */
#include <string.h>

#include "plimsoll/chat.h"
#include "serve/form.h"
#include "support/check.h"
#include "text/json_value.h"

enum { MAX_BYTES = 4000 };

static uint32_t seed;

static uint32_t draw(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static bool may(const pl_form *f, const pl_form_state *s, unsigned char b, int32_t *distance)
{
    pl_form_state next = *s;

    if (!pl_form_push(f, &next, b))
        return false;
    *distance = pl_form_distance(f, &next);
    return true;
}

/* A byte that may come, of ASCII so that texts stay whole; with `ending` one that leads to the end. */
static unsigned char pick(const pl_form *f, const pl_form_state *s, bool ending)
{
    const int32_t now = pl_form_distance(f, s), growth = pl_form_max_growth(f);
    unsigned char found[256], n = 0;
    bool nearer = false;

    assert_true(now > 0);
    for (int b = 0; b < 256; b++) {
        int32_t then;

        if (!may(f, s, (unsigned char)b, &then))
            continue;
        assert_true(then >= 0 && then <= now + growth);
        nearer = nearer || then < now;
        if (ending ? then < now : b < 0x80 || then < now)
            found[n++] = (unsigned char)b;
    }
    assert_true(nearer);
    return found[draw(n)];
}

static size_t walk(const pl_form *f, char *text, uint32_t n_free)
{
    pl_form_state s = pl_form_begin(f);
    int32_t left = -1;
    size_t n = 0;

    while (pl_form_distance(f, &s) > 0) {
        const bool ending = n >= n_free;
        unsigned char b = pick(f, &s, ending);

        if (ending && left < 0)
            left = pl_form_distance(f, &s);
        assert_true(n < MAX_BYTES && left != 0);
        left -= ending;
        assert_true(pl_form_push(f, &s, b));
        text[n++] = (char)b;
    }
    for (int b = 0; b < 256; b++) {
        pl_form_state next = s;
        assert_false(pl_form_push(f, &next, (unsigned char)b));
    }
    return n;
}

static void check_json(const char *text, size_t n)
{
    pl_json_pool pool = {0};
    const pl_json_value *v;
    pl_error err = {0};

    if (pl_json_value_parse(&pool, "", text, n, &v, &err) != PL_OK)
        fail_msg("%s: %.*s", err.msg, (int)n, text);
    assert_int_equal(v->kind, PL_JSON_OBJECT);
    pl_json_pool_fini(&pool);
}

static void test_objects(void **state)
{
    const pl_form f = {.json = true};
    static char text[MAX_BYTES];

    for (uint32_t i = 0; i < 1500; i++) {
        seed = i;
        check_json(text, walk(&f, text, i % 300));
    }
}

static void test_calls(void **state)
{
    static const char tools[] =
        "[{\"function\": {\"name\": \"get\", \"parameters\": {\"properties\": {\"city\": "
        "{\"type\": "
        "\"string\"}, \"n\": {\"type\": \"integer\"}, \"any\": {}}, \"required\": [\"city\", "
        "\"n\"]}}}, {\"function\": {\"name\": \"get_all\"}}]";
    json_t *list = json_loads(tools, 0, NULL);
    static char text[MAX_BYTES];
    pl_fault fault;

    for (uint32_t i = 0; i < 800; i++) {
        const bool thinking = i % 3 == 0, json = i % 5 == 0;
        pl_calls *calls = pl_calls_create(list, i % 2 ? "get" : NULL, i % 7 == 0, &fault);
        const pl_form f = {.thinking = thinking, .json = json, .calls = calls};
        pl_output_options options = pl_output_options_default();
        pl_output_message *m;
        pl_output_parser *p;
        pl_error err = {0};
        size_t n;

        assert_non_null(calls);
        seed = i;
        n = walk(&f, text, i);
        options.mode = thinking ? PL_CHAT_MODE_THINKING : PL_CHAT_MODE_CHAT;
        assert_int_equal(pl_output_message_create(&m, NULL), PL_OK);
        assert_int_equal(pl_output_parser_create(&options, pl_output_message_add, m, &p, NULL),
                         PL_OK);
        assert_int_equal(pl_output_parser_feed(p, text, n), PL_OK);
        assert_int_equal(pl_output_parser_finish(p), PL_OK);
        check_ok(pl_output_message_conforms(m, "walk", &err), &err);
        if (!json)
            assert_true(pl_output_message_n_calls(m) >= 1);
        for (size_t c = 0; c < pl_output_message_n_calls(m); c++) {
            const pl_output_call call = pl_output_message_get_call(m, c);
            assert_true(call.complete && (i % 7 || c == 0));
            if (i % 2)
                assert_int_equal(call.name_bytes, 3);
            if (call.name_bytes == 3) {
                assert_non_null(memmem(call.arguments, call.arguments_bytes, "\"city\"", 6));
                assert_non_null(memmem(call.arguments, call.arguments_bytes, "\"n\"", 3));
            }
            check_json(call.arguments, call.arguments_bytes);
        }
        pl_output_parser_destroy(p);
        pl_output_message_destroy(m);
        pl_calls_destroy(calls);
    }
    json_decref(list);
}

static bool accepts(const char *text)
{
    const pl_form f = {.json = true};
    pl_form_state s = pl_form_begin(&f);

    for (size_t i = 0; text[i]; i++)
        if (!pl_form_push(&f, &s, (unsigned char)text[i]))
            return false;
    return pl_form_distance(&f, &s) == 0;
}

static void test_what_json_is(void **state)
{
    static const char *const good[] = {
        "{}", "{\"a\": [1, -0.5e-3, true, null, false, \"\\u00e9\\ud83d\\uDE00\"]}",
        "{\n\t\"a\" : { \"b\" : [ ] , \"\" : 0 }\r}", "{\"\xC3\xA9\": \"\xEF\xBC\x81\"}"};
    static const char *const bad[] = {"[]",
                                      " {}",
                                      "{} ",
                                      "{,}",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{\"a\":01}",
                                      "{\"a\":1.}",
                                      "{\"a\":-}",
                                      "{\"a\":+1}",
                                      "{\"a\":1,}",
                                      "{\"a\":[1,]}",
                                      "{\"a\":[1}",
                                      "{\"a\":nul}",
                                      "{\"a\":'b'}",
                                      "{\"a\":\"\n\"}",
                                      "{\"a\":\"\\x\"}",
                                      "{\"a\":\"\\ud800\"}",
                                      "{\"a\":\"\\udc00\"}",
                                      "{\"a\":\"\\ud800\\u0041\"}",
                                      "{\"a\":1e}",
                                      "{\"a\":1e999}",
                                      "{a:1}",
                                      "{\"a\":1234567890123456789}",
                                      "{\"a\":\"\xEF\xBD\x9C\"}",
                                      "{\"a\":1 2}"};

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!accepts(good[i]))
            fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (accepts(bad[i]))
            fail_msg("accepted: %s", bad[i]);
}

static void test_tools_that_cannot_be_enforced(void **state)
{
    static const char *const bad[] = {
        "[]",
        "[{}]",
        "[{\"function\": {\"name\": \"a b\"}}]",
        "[{\"function\": {\"name\": 3}}]",
        "[{\"function\": {\"name\": \"a\"}}, {\"function\": {\"name\": \"a\"}}]",
        "[{\"function\": {\"name\": \"a\", \"parameters\": {\"properties\": {\"<\": {}}}}}]"};
    pl_fault fault;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_t *list = json_loads(bad[i], 0, NULL);
        assert_non_null(list);
        assert_null(pl_calls_create(list, NULL, false, &fault));
        assert_int_equal(fault.http, 400);
        json_decref(list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_what_json_is),
        cmocka_unit_test(test_tools_that_cannot_be_enforced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
