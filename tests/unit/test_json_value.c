/* JSON as Python reads and writes it: expected texts are those of Python 3.11's
 * json.dumps(json.loads(text), ensure_ascii=False); where the reader refuses, the position is checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "text/json_value.h"
#include "text/json_write.h"

/* Reads `text` and writes it again; the caller frees the result. */
static char *again(const char *text, size_t n)
{
    pl_json_pool pool = {0};
    pl_json_buffer out = {.max_bytes = SIZE_MAX};
    const pl_json_value *v;
    pl_error err = {0};

    check_ok(pl_json_value_parse(&pool, "t", text, n, &v, &err), &err);
    pl_json_write(&out, v);
    pl_json_buffer_put_char(&out, 0);
    assert_int_equal(out.failed, PL_OK);
    pl_json_pool_fini(&pool);
    return out.bytes;
}

static void test_same_as_python(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {" { } ", "{}"},
        {"[ ]", "[]"},
        {"[1,2 ,\t3\r\n]", "[1, 2, 3]"},
        {"{\"b\":1,\"a\":{\"d\":null,\"c\":true}}",
         "{\"b\": 1, \"a\": {\"d\": null, \"c\": true}}"},
        /* the last value at the first place */
        {"{\"a\":1,\"b\":2,\"a\":[3],\"\":0,\"a\":4}", "{\"a\": 4, \"b\": 2, \"\": 0}"},
        {"{\"a\":1,\"\\u0061\":2}", "{\"a\": 2}"},
        {"18446744073709551616", "18446744073709551616"},
        {"-123456789012345678901234567890", "-123456789012345678901234567890"},
        {"-0", "0"},
        {"-0.0", "-0.0"},
        {"0e5", "0.0"},
        {"1.0", "1.0"},
        {"1.50", "1.5"},
        {"2.5e0", "2.5"},
        {"1E5", "100000.0"},
        {"1e15", "1000000000000000.0"},
        {"1e16", "1e+16"},
        {"123456789012345678.0", "1.2345678901234568e+17"},
        {"0.0001", "0.0001"},
        {"0.00001", "1e-05"},
        {"0.1e-6", "1e-07"},
        {"0.1", "0.1"},
        {"3.14159265358979", "3.14159265358979"},
        {"5e-324", "5e-324"},
        {"1e-400", "0.0"},
        {"1e999", "Infinity"},
        {"-1e999", "-Infinity"},
        {"[NaN,Infinity,-Infinity]", "[NaN, Infinity, -Infinity]"},
        {"5.684341886080802e-14", "5.684341886080802e-14"}, /* 2^-44 */
        {"9007199254740993.0", "9007199254740992.0"},
        {"\"\\u4e2d\\ud83d\\ude42\\/\"", "\"中🙂/\""},
        {"\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\"",
         "\"\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\""},
        {"\"\\u0000x\"", "\"\\u0000x\""},
        {"\"é\\u00e9\\u2028\"", "\"éé\xE2\x80\xA8\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *got = again(cases[i].text, strlen(cases[i].text));
        assert_string_equal(got, cases[i].want);
        free(got);
    }
}

static void test_refused(void **state)
{
    static const struct {
        const char *text;
        size_t pos;
        const char *what;
    } cases[] = {
        {"", 0, "no JSON value"},
        {"  ", 2, "no JSON value"},
        {"nul", 0, "no JSON value"},
        {"1 2", 2, "after the JSON value"},
        {"01", 1, "after the JSON value"},
        {"1.", 1, "after the JSON value"},
        {"1e", 1, "after the JSON value"},
        {"-", 1, "bad number"},
        {"+1", 0, "no JSON value"},
        {".5", 0, "no JSON value"},
        {"[1,]", 3, "no JSON value"},
        {"[1 2]", 3, "broken"},
        {"[1", 2, "broken"},
        {"{\"a\" 1}", 5, "no value after a key"},
        {"{a:1}", 1, "no key"},
        {"{\"a\":1,}", 7, "no key"},
        {"'a'", 0, "no JSON value"},
        {"\"a", 2, "does not end"},
        {"\"a\\", 3, "does not end"},
        {"\"a\\\"", 4, "does not end"},
        {"\"\n\"", 1, "control character"},
        {"\"\\x\"", 2, "unknown escape"},
        {"\"\\u12g4\"", 5, "\\u escape"},
        {"\"\\u12\"", 5, "\\u escape"},
        {"\"\\ud800\"", 1, "surrogate"},
        {"\"\\udc00\"", 1, "surrogate"},
        {"\"\\ud800\\u0041\"", 1, "surrogate"},
        {"\"\\ud800\\udbff\"", 1, "surrogate"},
        {"\"\\ud800\\ue000\"", 1, "surrogate"},
        {"\"\xC3\"", 1, "UTF-8"},
        {"\"ab\xED\xA0\x80\"", 3, "UTF-8"},
        {"\xEF\xBB\xBF{}", 0, "no JSON value"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pl_json_pool pool = {0};
        const pl_json_value *v;
        pl_error err = {0};
        pl_status s =
            pl_json_value_parse(&pool, "here", cases[i].text, strlen(cases[i].text), &v, &err);
        check_error(s, PL_ERR_INVALID, &err, "here: ", cases[i].what, NULL);
        assert_int_equal(err.pos, cases[i].pos);
        assert_null(v);
        pl_json_pool_fini(&pool);
    }
}

/* `n` times `open`, then `close`. */
static char *nested(size_t n, char open, char close)
{
    char *text = malloc(2 * n + 1);

    memset(text, open, n);
    memset(text + n, close, n);
    text[2 * n] = 0;
    return text;
}

static void test_bounds(void **state)
{
    char *fits = nested(PL_JSON_MAX_DEPTH, '[', ']'),
         *deep = nested(PL_JSON_MAX_DEPTH + 1, '[', ']');
    char *digits = nested(PL_JSON_MAX_DIGITS / 2, '1', '2'),
         *more = nested(PL_JSON_MAX_DIGITS / 2 + 1, '1', '2');
    char *endless = nested(100000, '[', ']');
    pl_json_pool pool = {0};
    const pl_json_value *v;
    pl_error err = {0};
    char *got;

    (void)state;
    got = again(fits, strlen(fits));
    assert_string_equal(got, fits);
    free(got);
    got = again(digits, strlen(digits));
    assert_string_equal(got, digits);
    free(got);
    check_error(pl_json_value_parse(&pool, "t", deep, strlen(deep), &v, &err), PL_ERR_INVALID, &err,
                "too deep", "128", NULL);
    check_error(pl_json_value_parse(&pool, "t", endless, strlen(endless), &v, &err), PL_ERR_INVALID,
                &err, "too deep", NULL);
    check_error(pl_json_value_parse(&pool, "t", more, strlen(more), &v, &err), PL_ERR_INVALID, &err,
                "too long", "4300", NULL);
    pl_json_pool_fini(&pool);
    free(fits);
    free(deep);
    free(digits);
    free(more);
    free(endless);
}

/* Repeats `item` between brackets up to about `bytes`. */
static char *repeated(const char *open, const char *item, const char *close, size_t bytes)
{
    size_t n = strlen(item), at = strlen(open);
    char *text = malloc(bytes + n + 16);

    memcpy(text, open, at);
    while (at + n < bytes) {
        memcpy(text + at, item, n);
        at += n;
    }
    strcpy(text + at - 1, close); /* over the last comma */
    return text;
}

/* The promise of pl_chat_encode: at most 64 bytes of tree per byte of text. */
static void test_memory_is_bounded(void **state)
{
    static const char *const items[] = {"0,", "\"\",", "[],", "{},", "\"\\n\",", "[[[[[[0]]]]]],"};
    static const char *const members[] = {"\"\":0,", "\"\\n\":\"\\n\",", "\"a\":{},"};

    (void)state;
    for (size_t i = 0; i < 9; i++) {
        pl_json_pool pool = {0};
        const pl_json_value *v;
        pl_error err = {0};
        char *text = i < 6 ? repeated("[", items[i], "]", 1 << 20)
                           : repeated("{", members[i - 6], "}", 1 << 20);
        check_ok(pl_json_value_parse(&pool, "t", text, strlen(text), &v, &err), &err);
        if (pool.bytes > 64 * strlen(text))
            fail_msg("case %zu: %zu bytes of tree for %zu bytes of text", i, pool.bytes,
                     strlen(text));
        pl_json_pool_fini(&pool);
        free(text);
    }
}

/* A large object whose keys are all equal, or all different and in bad order, is no harder than others. */
static void test_many_keys(void **state)
{
    enum { N = 50000 };
    char *text = malloc(N * 16 + 16), *t = text;
    pl_json_pool pool = {0};
    const pl_json_value *v;
    pl_error err = {0};

    (void)state;
    *t++ = '{';
    for (int i = 0; i < N; i++)
        t += sprintf(t, "%s\"%d\":%d", i ? "," : "", i % 2 ? 7 : N - i, i);
    strcpy(t, "}");
    check_ok(pl_json_value_parse(&pool, "t", text, strlen(text), &v, &err), &err);
    assert_int_equal(v->n, N / 2 + 1);
    assert_memory_equal(v->first->key, "50000", 5);
    assert_memory_equal(pl_json_value_get(v, "7")->text, "49999", 5);
    assert_ptr_equal(v->first->next, pl_json_value_get(v, "7")); /* where the first of them stood */
    assert_null(pl_json_value_get(v, "3"));
    pl_json_pool_fini(&pool);
    free(text);
}

static void test_words(void **state)
{
    static const struct {
        const char *json, *want;
    } cases[] = {
        {"\"ab\"", "'ab'"}, {"12", "12"},       {"1.50", "1.50"},    {"null", "null"},
        {"true", "true"},   {"[]", "an array"}, {"{}", "an object"}, {"\"a\\u0000b\"", "'a?b'"},
    };
    char words[PL_JSON_WORDS_BYTES], text[512];
    pl_json_pool pool = {0};
    const pl_json_value *v;
    pl_error err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_ok(pl_json_value_parse(&pool, "t", cases[i].json, strlen(cases[i].json), &v, &err),
                 &err);
        assert_string_equal(pl_json_value_words(v, words), cases[i].want);
    }
    assert_string_equal(pl_json_value_words(NULL, words), "nothing");
    /* cut between characters */
    for (size_t lead = 0; lead < 3; lead++) {
        char *t = text;
        *t++ = '"';
        memset(t, 'x', lead);
        t += lead;
        for (int i = 0; i < 100; i++)
            t += sprintf(t, "中");
        strcpy(t, "\"");
        check_ok(pl_json_value_parse(&pool, "t", text, strlen(text), &v, &err), &err);
        pl_json_value_words(v, words);
        assert_true(strlen(words) < PL_JSON_WORDS_BYTES);
        assert_memory_equal(words + strlen(words) - 7, "中...'", 7);
    }
    pl_json_pool_fini(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_python), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bounds),         cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_many_keys),      cmocka_unit_test(test_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
