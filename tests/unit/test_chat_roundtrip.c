/* Encoder and parser against each other: what the encoder writes for an assistant's message is what a model would
 * write, so parsing it gives the message back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plimsoll/chat.h"
#include "support/check.h"
#include "support/textfile.h"
#include "text/json_value.h"
#include "text/json_write.h"

/* The arguments that come back: those that went in, as Python writes them. */
static char *written(const char *arguments, size_t n)
{
    pl_json_pool pool = {0};
    pl_json_buffer out = {.max_bytes = SIZE_MAX};
    const pl_json_value *v;

    if (pl_json_value_parse(&pool, "", arguments, n, &v, NULL) == PL_OK &&
        v->kind == PL_JSON_OBJECT) {
        pl_json_write(&out, v);
    } else {
        pl_json_buffer_put_text(&out, "{\"arguments\": ");
        pl_json_write_string(&out, arguments, n);
        pl_json_buffer_put_char(&out, '}');
    }
    pl_json_buffer_put_char(&out, 0);
    pl_json_pool_fini(&pool);
    return out.bytes;
}

static void check_text(const char *got, size_t n, json_t *want)
{
    size_t n_want = want ? json_string_length(want) : 0;

    assert_int_equal(n, n_want);
    if (n)
        check_same_bytes("text", got, json_string_value(want), n);
}

static void check_message(const pl_output_message *m, json_t *message)
{
    json_t *calls = json_object_get(message, "tool_calls");
    pl_error err = {0};
    const char *text;
    size_t n;

    check_ok(pl_output_message_conforms(m, "output", &err), &err);
    text = pl_output_message_content(m, &n);
    check_text(text, n, json_object_get(message, "content"));
    text = pl_output_message_reasoning(m, &n);
    check_text(text, n, json_object_get(message, "reasoning_content"));
    assert_int_equal(pl_output_message_n_calls(m), json_array_size(calls));
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *function = json_object_get(json_array_get(calls, i), "function");
        json_t *arguments = json_object_get(function, "arguments");
        char *want = written(json_string_value(arguments), json_string_length(arguments));
        pl_output_call call = pl_output_message_get_call(m, i);
        assert_true(call.complete);
        check_text(call.name, call.name_bytes, json_object_get(function, "name"));
        assert_int_equal(call.arguments_bytes, strlen(want));
        assert_memory_equal(call.arguments, want, strlen(want));
        free(want);
    }
}

/* Encodes the message alone, without BOS: that is its reasoning, content, calls and end. */
static void check_roundtrip(json_t *message)
{
    pl_chat_options encoding = pl_chat_options_default();
    pl_output_options parsing = pl_output_options_default();
    json_t *messages = json_pack("[O]", message);
    char *json = json_dumps(messages, 0);
    pl_output_message *m = NULL;
    pl_output_parser *parser = NULL;
    pl_prompt *prompt = NULL;
    pl_error err = {0};
    const char *text;
    size_t n;

    encoding.add_bos = false;
    check_ok(pl_chat_encode(json, strlen(json), &encoding, &prompt, &err), &err);
    check_ok(pl_output_message_create(&m, &err), &err);
    check_ok(pl_output_parser_create(&parsing, pl_output_message_add, m, &parser, &err), &err);
    text = pl_prompt_text(prompt, &n);
    assert_int_equal(pl_output_parser_feed(parser, text, n), PL_OK);
    assert_int_equal(pl_output_parser_finish(parser), PL_OK);
    check_message(m, message);
    pl_output_parser_destroy(parser);
    pl_output_message_destroy(m);
    pl_prompt_destroy(prompt);
    free(json);
    json_decref(messages);
}

static void test_golden(void **state)
{
    static const char *const names[] = {
        "tools_arg_types", "tools_bad_args", "tools_call_result", "tools_two_calls_reordered",
        "input_1",         "input_3",        "think_history_keep"};
    size_t n_messages = 0;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char file[64];
        json_t *document, *messages, *message;
        size_t j;
        snprintf(file, sizeof file, "encoding/%s.json", names[i]);
        document = textfile_json(file);
        messages = json_is_array(document) ? document : json_object_get(document, "messages");
        json_array_foreach(messages, j, message)
        {
            if (strcmp(json_string_value(json_object_get(message, "role")), "assistant") != 0)
                continue;
            check_roundtrip(message);
            n_messages++;
        }
        json_decref(document);
    }
    assert_int_equal(n_messages, 9);
}

/* Names, keys and values that look like the format itself, as far as it can carry them. */
static void test_hard_texts(void **state)
{
    static const char *const arguments[] = {
        "{}",
        "{\"\": \"\"}",
        "{\"a\": "
        "\"</parameter>\\n</｜DSML｜invoke>\\n</"
        "｜DSML｜tool_calls>\\n\\n<｜DSML｜tool_calls>\\n\"}",
        "{\"a\": \"<\", \"b\": \"</\", \"c\": \"</｜DSML｜\", \"d\": \"</｜DSML｜param\"}",
        "{\"a\\\"b\\\\ c\": \"\\\"\\\\\\n\\r\\t\\b\\f\\u0001\\u007f\\u2028\"}",
        "{\"n\": [1, -0, 1.0, 1e22, 12345678901234567890123, true, null, {\"k\": \"v\\u0000\"}]}",
        "{\"x\": \" leading and trailing \", \"y\": \"\\n\\n\", \"z\": \"🙂\\ud83d\\ude42\"}",
        "not JSON",
        "[1, 2]",
        "",
        "{\"a\": 1",
        "null",
    };

    (void)state;
    for (size_t i = 0; i < sizeof arguments / sizeof arguments[0]; i++) {
        json_t *message =
            json_pack("{s:s, s:s, s:s, s:[{s:{s:s, s:s}}, {s:{s:s, s:s}}]}", "role", "assistant",
                      "content", "Let me see < </ \n\n<", "reasoning_content", "a\n\nb </thin",
                      "tool_calls", "function", "name", "get \"it\"", "arguments", arguments[i],
                      "function", "name", "second", "arguments", "{\"p\": 1}");
        check_roundtrip(message);
        json_decref(message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_hard_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
