/* The chat encoder against the golden encodings, byte for byte, and rule by rule. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plimsoll/chat.h"
#include "support/check.h"
#include "support/textfile.h"
#include "text/chat_revision.h"

#define BOS  "<｜begin▁of▁sentence｜>"
#define EOS  "<｜end▁of▁sentence｜>"
#define USER "<｜User｜>"
#define BOT  "<｜Assistant｜>"

static pl_prompt *encode(const char *json, size_t n, const pl_chat_options *options)
{
    pl_prompt *p = NULL;
    pl_error err = {0};

    check_ok(pl_chat_encode(json, n, options, &p, &err), &err);
    return p;
}

/* The ranges are the segments that are no markup, in order. */
static void check_plain_ranges(const pl_prompt *p, const char *text)
{
    pl_text_range *ranges = calloc(pl_prompt_n_segments(p) + 1, sizeof *ranges);
    size_t n = 0, n_ranges;

    assert_non_null(ranges);
    n_ranges = pl_prompt_plain_ranges(p, ranges);
    for (size_t i = 0; i < pl_prompt_n_segments(p); i++) {
        const pl_prompt_segment s = pl_prompt_get_segment(p, i);

        if (s.markup)
            continue;
        assert_ptr_equal(text + ranges[n].begin, s.text);
        assert_int_equal(ranges[n].end - ranges[n].begin, s.n_bytes);
        n++;
    }
    assert_int_equal(n_ranges, n);
    free(ranges);
}

/* The segments are not empty, alternate and make up the text. */
static void check_segments(const pl_prompt *p)
{
    size_t n, at = 0;
    const char *text = pl_prompt_text(p, &n);

    for (size_t i = 0; i < pl_prompt_n_segments(p); i++) {
        pl_prompt_segment s = pl_prompt_get_segment(p, i);
        assert_ptr_equal(s.text, text + at);
        assert_true(s.n_bytes > 0);
        if (i)
            assert_true(s.markup != pl_prompt_get_segment(p, i - 1).markup);
        at += s.n_bytes;
    }
    assert_int_equal(at, n);
    assert_int_equal(text[n], 0);
    check_plain_ranges(p, text);
}

static void check_prompt(const char *name, const pl_prompt *p, const char *want, size_t n_want)
{
    size_t n;
    const char *text = pl_prompt_text(p, &n);

    if (n != n_want)
        fail_msg("%s: %zu bytes, want %zu: %s", name, n, n_want, text);
    check_same_bytes(name, text, want, n);
    check_segments(p);
}

/* ---- golden encodings ---- */

static const char *const golden_names[] = {
    "chat_single",
    "chat_system_multi",
    "effort0731_default",
    "effort0731_high",
    "effort0731_low",
    "effort0731_max",
    "effort0731_max_chat",
    "effort_high",
    "effort_max",
    "effort_max_chat",
    "latest_reminder",
    "prefix_continue",
    "response_format",
    "task_title",
    "think_history_drop",
    "think_history_keep",
    "think_single",
    "tools_arg_types",
    "tools_bad_args",
    "tools_call_result",
    "tools_empty_system",
    "tools_system",
    "tools_two_calls_reordered",
    "unicode_mix",
    "user_only_no_system_tools_on_dev",
};

static void test_golden(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden_names / sizeof golden_names[0]; i++) {
        pl_chat_options options = pl_chat_options_default();
        char file[128];
        pl_error err = {0};
        size_t n;
        char *text;
        json_t *json, *want;
        pl_prompt *p;
        snprintf(file, sizeof file, "encoding/%s.json", golden_names[i]);
        text = textfile_read(file, &n);
        json = textfile_json(file);
        want = json_object_get(json, "prompt");
        check_ok(pl_chat_options_read(text, n, &options, &err), &err);
        p = encode(text, n, &options);
        check_prompt(file, p, json_string_value(want), json_string_length(want));
        pl_prompt_destroy(p);
        json_decref(json);
        free(text);
    }
}

static void test_golden_vendor(void **state)
{
    (void)state;
    for (int i = 1; i <= 4; i++) {
        pl_chat_options options = pl_chat_options_default();
        char in[64], out[64];
        size_t n, n_want;
        char *text, *want;
        pl_prompt *p;
        snprintf(in, sizeof in, "encoding/input_%d.json", i);
        snprintf(out, sizeof out, "encoding/output_%d.txt", i);
        text = textfile_read(in, &n);
        want = textfile_read(out, &n_want);
        options.mode = i == 4 ? PL_CHAT_MODE_CHAT : PL_CHAT_MODE_THINKING;
        p = encode(text, n, &options);
        check_prompt(out, p, want, n_want);
        pl_prompt_destroy(p);
        free(text);
        free(want);
    }
}

/* ---- rules the golden files do not reach ---- */

#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"
#define CALL(id, name, arguments) \
    "{\"id\":\"" id "\",\"function\":{\"name\":\"" name "\",\"arguments\":" arguments "}}"
#define USER_MESSAGE(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define RESULT(id, text)   "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define CALLING(calls)     "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" calls "]}"
#define INVOKE(name, parameters) \
    "<｜DSML｜invoke name=\"" name "\">\n" parameters "\n</｜DSML｜invoke>\n"
#define CALLS(invokes) "\n\n<｜DSML｜tool_calls>\n" invokes "</｜DSML｜tool_calls>"
#define STRING(key, value) \
    "<｜DSML｜parameter name=\"" key "\" string=\"true\">" value "</｜DSML｜parameter>"
#define OTHER(key, value) \
    "<｜DSML｜parameter name=\"" key "\" string=\"false\">" value "</｜DSML｜parameter>"

static const struct rule {
    const char *name;
    pl_chat_mode mode;
    const char *json, *want;
} rules[] = {
    {"users are joined", PL_CHAT_MODE_CHAT, "[" USER_MESSAGE("a") "," USER_MESSAGE("b") "]",
     BOS USER "a\n\nb" BOT "</think>"},
    {"users may say nothing", PL_CHAT_MODE_CHAT, "[{\"role\":\"user\"}]", BOS USER BOT "</think>"},
    {"parts are joined", PL_CHAT_MODE_CHAT,
     "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
     "\"text\":\"b\"}]}]",
     BOS USER "a\n\nb" BOT "</think>"},
    {"results know other parts", PL_CHAT_MODE_CHAT,
     "[{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image\"}]}]",
     BOS USER "<tool_result>a\n\n[Unsupported image]</tool_result>" BOT "</think>"},
    {"task: action", PL_CHAT_MODE_THINKING,
     "[{\"role\":\"user\",\"content\":\"a\",\"task\":\"action\"},{\"role\":\"assistant\","
     "\"content\":\"s\"}," USER_MESSAGE("b") "]",
     BOS USER "a" BOT "<think><｜action｜>s" EOS USER "b" BOT "<think>"},
    {"task: its answer has no reasoning part", PL_CHAT_MODE_THINKING,
     "[{\"role\":\"user\",\"content\":\"a\",\"task\":\"action\"},{\"role\":\"assistant\","
     "\"content\":\"s\","
     "\"reasoning_content\":\"r\"}]",
     BOS USER "a" BOT "<think><｜action｜>s" EOS},
    {"dropped: not a developer who speaks last", PL_CHAT_MODE_THINKING,
     "[" USER_MESSAGE("u") ",{\"role\":\"assistant\",\"content\":\"x\"},{\"role\":\"developer\","
                           "\"content\":\"d\"}]",
     BOS USER "u" BOT "</think>x" EOS USER "d" BOT "<think>"},
    {"task: text does not join, a result does", PL_CHAT_MODE_CHAT,
     "[{\"role\":\"user\",\"content\":\"a\",\"task\":\"query\"}," RESULT("x", "r") "," USER_MESSAGE(
         "b") "]",
     BOS USER "a\n\n<tool_result>r</tool_result>" USER "b" BOT "</think>"},
    {"task: the last of joined users loses it", PL_CHAT_MODE_CHAT,
     "[" USER_MESSAGE("a") ",{\"role\":\"user\",\"content\":\"b\",\"task\":\"domain\"}]",
     BOS USER "a\n\nb" BOT "</think>"},
    {"task: other tokens stand alone", PL_CHAT_MODE_THINKING,
     "[{\"role\":\"user\",\"content\":\"a\",\"task\":\"read_url\"}]", BOS USER "a<｜read_url｜>"},
    {"dropped: developers and reasoning before the last user", PL_CHAT_MODE_THINKING,
     "[{\"role\":\"developer\",\"content\":\"d\"},{\"role\":\"assistant\",\"content\":\"x\","
     "\"reasoning_content\":\"r\"}," USER_MESSAGE(
         "u") ",{\"role\":\"assistant\",\"content\":\"y\",\"reasoning\":\"q\"}]",
     BOS "x" EOS USER "u" BOT "<think>q</think>y" EOS},
    {"chat drops nothing but reasoning", PL_CHAT_MODE_CHAT,
     "[{\"role\":\"developer\",\"content\":\"d\"},{\"role\":\"assistant\",\"content\":\"x\","
     "\"reasoning_content\":\"r\"}," USER_MESSAGE("u") "]",
     BOS USER "d" BOT "</think>x" EOS USER "u" BOT "</think>"},
    {"prefix", PL_CHAT_MODE_THINKING,
     "[" USER_MESSAGE("u") ",{\"role\":\"assistant\",\"content\":\"y\",\"prefix\":true}]",
     BOS USER "u" BOT "<think></think>y"},
    {"results in the order of the calls; unknown ones first", PL_CHAT_MODE_CHAT,
     "[" USER_MESSAGE("u") "," CALLING(CALL("a", "f", "\"{}\"") "," CALL("b", "g", "{}") "," CALL(
         "c", "h",
         "\"{}\"")) "," RESULT("c",
                               "3") "," RESULT("b",
                                               "2") "," USER_MESSAGE("t") "," RESULT("a",
                                                                                     "1") "," RESULT("z",
                                                                                                     "0") "]",
     BOS USER "u" BOT "</think>" CALLS(INVOKE("f", "") INVOKE("g", "") INVOKE("h", "")) EOS USER
     "<tool_result>1</tool_result>\n\n<tool_result>0</tool_result>\n\nt\n\n<tool_result>2</"
     "tool_result>\n\n"
     "<tool_result>3</tool_result>" BOT "</think>"},
    {"arguments: an object, numbers as Python writes them", PL_CHAT_MODE_CHAT,
     "[" CALLING(CALL(
         "", "f", "{\"n\":18446744073709551616,\"x\":1e5,\"s\":\"1\",\"o\":{\"é\":[1,2]}}")) "]",
     BOS CALLS(
         INVOKE("f", OTHER("n", "18446744073709551616") "\n" OTHER("x", "100000.0") "\n" STRING(
                         "s", "1") "\n" OTHER("o", "{\"é\": [1, 2]}"))) EOS},
    {"arguments: repeated keys", PL_CHAT_MODE_CHAT,
     "[" CALLING(CALL("", "f", "\"{\\\"a\\\":1,\\\"b\\\":2,\\\"a\\\":\\\"x\\\"}\"")) "]",
     BOS CALLS(INVOKE("f", STRING("a", "x") "\n" OTHER("b", "2"))) EOS},
    {"arguments: JSON but no object", PL_CHAT_MODE_CHAT,
     "[" CALLING(CALL("", "f", "\"[1,2]\"")) "]",
     BOS CALLS(INVOKE("f", STRING("arguments", "[1,2]"))) EOS},
    {"arguments: half a surrogate pair stays as it is written", PL_CHAT_MODE_CHAT,
     "[" CALLING(CALL("", "f", "\"{\\\"a\\\":\\\"\\\\ud800\\\"}\"")) "]",
     BOS CALLS(INVOKE("f", STRING("arguments", "{\"a\":\"\\ud800\"}"))) EOS},
    {"calls: an empty list is none", PL_CHAT_MODE_CHAT,
     "[{\"role\":\"assistant\",\"content\":\"x\",\"tool_calls\":[]}]", BOS "x" EOS},
    {"format of a request: text is none", PL_CHAT_MODE_CHAT,
     "{\"messages\":[" USER_MESSAGE("u") "],\"response_format\":{\"type\":\"text\"},\"tools\":[]}",
     BOS USER "u" BOT "</think>"},
    {"format of a request goes to the system message", PL_CHAT_MODE_CHAT,
     "{\"response_format\":{\"type\":\"json_object\"},\"messages\":[{\"role\":\"system\","
     "\"content\":\"s\"}," USER_MESSAGE("u") "]}",
     BOS "s\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
         "{\"type\": \"json_object\"}" USER "u" BOT "</think>"},
};

static void test_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        pl_chat_options options = pl_chat_options_default();
        pl_prompt *p;
        options.mode = rules[i].mode;
        p = encode(rules[i].json, strlen(rules[i].json), &options);
        check_prompt(rules[i].name, p, rules[i].want, strlen(rules[i].want));
        pl_prompt_destroy(p);
    }
}

/* A request's tools make a system message where there is none, and keep all reasoning. */
static void test_request_tools(void **state)
{
    static const char above[] =
        "{\"tools\":[" TOOL
        "],\"messages\":[" USER_MESSAGE("a") ",{\"role\":\"assistant\",\"content\":\"b\","
                                             "\"reasoning_content\":\"r\"}," USER_MESSAGE("c") "]}";
    static const char inside[] =
        "[{\"role\":\"system\",\"content\":\"\",\"tools\":[" TOOL
        "]}," USER_MESSAGE("a") ",{\"role\":\"assistant\",\"content\":\"b\",\"reasoning_content\":"
                                "\"r\"}," USER_MESSAGE("c") "]";
    pl_chat_options options = pl_chat_options_default();
    pl_prompt *p = encode(above, strlen(above), &options),
              *q = encode(inside, strlen(inside), &options);
    size_t n, n_want;
    const char *text = pl_prompt_text(p, &n), *want = pl_prompt_text(q, &n_want);

    (void)state;
    assert_int_equal(n, n_want);
    assert_memory_equal(text, want, n);
    assert_non_null(strstr(text, "\n{\"name\": \"f\"}\n"));
    assert_non_null(strstr(text, USER "a" BOT "<think>r</think>b" EOS USER "c" BOT "<think>"));
    pl_prompt_destroy(p);
    pl_prompt_destroy(q);
}

static void test_options(void **state)
{
    static const char json[] = "[" USER_MESSAGE("u") "]";
    pl_chat_options o = pl_chat_options_default();
    pl_error err = {0};
    pl_prompt *p;
    size_t n;

    (void)state;
    o.add_bos = false;
    p = encode(json, strlen(json), &o);
    assert_string_equal(pl_prompt_text(p, &n), USER "u" BOT "<think>");
    pl_prompt_destroy(p);

    /* the limit is the prompt's, to the byte */
    o.max_prompt_bytes = n;
    p = encode(json, strlen(json), &o);
    pl_prompt_destroy(p);
    o.max_prompt_bytes = n - 1;
    check_error(pl_chat_encode(json, strlen(json), &o, &p, &err), PL_ERR_LIMIT, &err,
                "prompt: too long", NULL);
    assert_null(p);

    check_ok(pl_chat_options_set_effort(&o, "medium", &err), &err);
    assert_int_equal(o.effort, PL_CHAT_EFFORT_LOW);
    check_ok(pl_chat_options_set_effort(&o, "xhigh", &err), &err);
    assert_int_equal(o.effort, PL_CHAT_EFFORT_HIGH);
    check_ok(pl_chat_options_set_effort(&o, "max", &err), &err);
    assert_int_equal(o.effort, PL_CHAT_EFFORT_MAX);
    assert_int_equal(o.mode, PL_CHAT_MODE_THINKING);
    check_ok(pl_chat_options_set_effort(&o, "none", &err), &err);
    assert_int_equal(o.mode, PL_CHAT_MODE_CHAT);
    check_error(pl_chat_options_set_effort(&o, "extreme", &err), PL_ERR_INVALID, &err,
                "reasoning_effort", "'extreme'", NULL);
}

/* Where the model goes on decides how its output begins. */
static void test_output_mode(void **state)
{
    static const struct {
        pl_chat_mode mode;
        const char *json;
        pl_chat_mode want;
    } cases[] = {
        {PL_CHAT_MODE_THINKING, "[" USER_MESSAGE("u") "]", PL_CHAT_MODE_THINKING},
        {PL_CHAT_MODE_CHAT, "[" USER_MESSAGE("u") "]", PL_CHAT_MODE_CHAT},
        {PL_CHAT_MODE_THINKING, "[{\"role\":\"user\",\"content\":\"a\",\"task\":\"action\"}]",
         PL_CHAT_MODE_CHAT},
        {PL_CHAT_MODE_THINKING,
         "[" USER_MESSAGE("u") ",{\"role\":\"assistant\",\"content\":\"<think>\",\"prefix\":true}]",
         PL_CHAT_MODE_CHAT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int trust = 0; trust < 2; trust++) {
            pl_chat_options o = pl_chat_options_default();
            pl_prompt *p;
            o.mode = cases[i].mode;
            o.trust_special_tokens = trust;
            p = encode(cases[i].json, strlen(cases[i].json), &o);
            assert_int_equal(pl_prompt_output_mode(p), cases[i].want);
            pl_prompt_destroy(p);
        }
    }
}

static void test_continue_last(void **state)
{
    static const char json[] =
        "[" USER_MESSAGE("u") ",{\"role\":\"assistant\",\"content\":\"a\"}," USER_MESSAGE(
            "v") ",{\"role\":\"assistant\",\"content\":\"b\"}]";
    static const char user[] = "[" USER_MESSAGE("u") "]";
    pl_chat_options o = pl_chat_options_default();
    pl_error err = {0};
    pl_prompt *p;
    size_t n;

    (void)state;
    o.mode = PL_CHAT_MODE_CHAT;
    o.continue_last = true;
    p = encode(json, strlen(json), &o);
    assert_string_equal(pl_prompt_text(p, &n),
                        BOS USER "u" BOT "</think>a" EOS USER "v" BOT "</think>b");
    pl_prompt_destroy(p);
    check_error(pl_chat_encode(user, strlen(user), &o, &p, &err), PL_ERR_INVALID, &err,
                "messages: the last one cannot be continued", NULL);
}

static void test_options_read(void **state)
{
    static const char all[] = "{\"options\":{\"thinking_mode\":\"chat\",\"revision\":\"0731\","
                              "\"reasoning_effort\":\"max\","
                              "\"drop_thinking\":false,\"add_default_bos_token\":false}}";
    static const struct {
        const char *json, *what;
    } bad[] = {
        {"{\"options\":[]}", "options: are no options (got an array"},
        {"{\"options\":{\"mode\":1}}", "options: unknown key (got 'mode', want thinking_mode"},
        {"{\"options\":{\"thinking_mode\":\"fast\"}}",
         "options.thinking_mode: unknown value (got 'fast', want chat"},
        {"{\"options\":{\"revision\":731}}",
         "options.revision: unknown value (got 731, want v4, 0731)"},
        {"{\"options\":{\"reasoning_effort\":\"none\"}}",
         "options.reasoning_effort: unknown value (got 'none'"},
        {"{\"options\":{\"drop_thinking\":\"no\"}}",
         "options.drop_thinking: is no truth value (got 'no'"},
    };
    pl_chat_options o = pl_chat_options_default();
    pl_error err = {0};

    (void)state;
    check_ok(pl_chat_options_read(all, strlen(all), &o, &err), &err);
    assert_int_equal(o.mode, PL_CHAT_MODE_CHAT);
    assert_int_equal(o.revision, PL_CHAT_0731);
    assert_int_equal(o.effort, PL_CHAT_EFFORT_MAX);
    assert_false(o.drop_thinking);
    assert_false(o.add_bos);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        o = pl_chat_options_default();
        check_error(pl_chat_options_read(bad[i].json, strlen(bad[i].json), &o, &err),
                    PL_ERR_INVALID, &err, bad[i].what, NULL);
        assert_int_equal(o.mode, PL_CHAT_MODE_THINKING);
    }
}

static void test_revision_of_a_checkpoint(void **state)
{
    pl_config config = {.has_dspark_keys = false};

    (void)state;
    assert_int_equal(pl_chat_revision_for(&config), PL_CHAT_V4);
    config.has_dspark_keys = true;
    assert_int_equal(pl_chat_revision_for(&config), PL_CHAT_0731);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_golden_vendor),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_request_tools),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_options_read),
        cmocka_unit_test(test_output_mode),
        cmocka_unit_test(test_continue_last),
        cmocka_unit_test(test_revision_of_a_checkpoint),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
