/* The parser of model output: golden messages, the same events however the text is cut, nothing held back or lost
 * that should not be, linear time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plimsoll/chat.h"
#include "support/check.h"
#include "support/output_log.h"
#include "support/textfile.h"

static char *parse(pl_chat_mode mode, const char *text)
{
    static const size_t whole[] = {SIZE_MAX, 0};

    return output_log_parse(mode, text, strlen(text), whole).text;
}

/* ---- golden messages ---- */

static pl_output_message *message_of(pl_chat_mode mode, const char *text, size_t n)
{
    pl_output_message *m = NULL;
    pl_output_parser *p;
    pl_error err = {0};

    check_ok(pl_output_message_create(&m, &err), &err);
    p = output_log_parser(mode, pl_output_message_add, m);
    output_log_feed(p, text, n);
    assert_int_equal(pl_output_parser_finish(p), PL_OK);
    pl_output_parser_destroy(p);
    check_ok(pl_output_message_check(m, &err), &err);
    return m;
}

static void test_golden(void **state)
{
    json_t *cases = textfile_json("encoding/parse_completions.json"), *c;
    size_t i, n_messages = 0, n_errors = 0;

    (void)state;
    json_array_foreach(cases, i, c)
    {
        const char *mode = json_string_value(json_object_get(c, "mode"));
        json_t *text = json_object_get(c, "text"), *want = json_object_get(c, "message"), *got;
        pl_output_message *m =
            message_of(strcmp(mode, "chat") == 0 ? PL_CHAT_MODE_CHAT : PL_CHAT_MODE_THINKING,
                       json_string_value(text), json_string_length(text));
        pl_error err = {0};
        char *json;
        size_t n;
        if (want) {
            check_ok(pl_output_message_conforms(m, "output", &err), &err);
            check_ok(pl_output_message_json(m, false, &json, &n, &err), &err);
            got = json_loadb(json, n, 0, NULL);
            if (!json_equal(got, want))
                fail_msg("case %zu: got %s", i, json);
            assert_int_equal(json[n], 0);
            json_decref(got);
            free(json);
            n_messages++;
        } else {
            const char *error = json_string_value(json_object_get(c, "error"));
            check_error(
                pl_output_message_conforms(m, "output", &err), PL_ERR_CORRUPT, &err, "output: ",
                strstr(error, "Duplicate") ? "duplicate parameter name at byte 159 (got 'a')"
                                           : "missing </think> at byte 12",
                NULL);
            assert_int_equal(pl_output_message_n_calls(m), 0);
            n_errors++;
        }
        pl_output_message_destroy(m);
    }
    assert_int_equal(n_messages, 3);
    assert_int_equal(n_errors, 2);
    json_decref(cases);
}

/* ---- events ---- */

static const struct expected {
    pl_chat_mode mode;
    const char *text, *log;
} expected[] = {
    {PL_CHAT_MODE_THINKING, "", "N{unclosed_reasoning@0:}."},
    {PL_CHAT_MODE_CHAT, "", "."},
    {PL_CHAT_MODE_CHAT, "a" EOS, "C{a}."},
    {PL_CHAT_MODE_CHAT, "a", "C{a}."},
    {PL_CHAT_MODE_CHAT, "a" EOS EOS EOS, "C{a}N{text_after_end@55:}."},
    {PL_CHAT_MODE_THINKING, "r</think>c" EOS, "R{r}C{c}."},
    {PL_CHAT_MODE_THINKING, "</think>", "."},
    {PL_CHAT_MODE_THINKING, "a < b, </thin, </ think></think>", "R{a < b, </thin, </ think>}."},
    {PL_CHAT_MODE_THINKING, "r" EOS, "R{r}N{unclosed_reasoning@28:}."},
    {PL_CHAT_MODE_CHAT, "a\n\n\n<｜DSML｜x", "C{a\n\n\n<｜DSML｜}N{stray_token@16:｜DSML｜}C{x}."},
    {PL_CHAT_MODE_CHAT, "a</think>b<think>",
     "C{a</think>}N{stray_token@9:</think>}C{b<think>}N{stray_token@17:<think>}."},
    {PL_CHAT_MODE_CHAT, "a" EOS "b" EOS "c" CALLS,
     "C{a}N{text_after_end@29:}C{bc\n\n<｜DSML｜}N{stray_token@70:｜DSML｜}C{tool_calls>\n}."},
    {PL_CHAT_MODE_CHAT, "held to the end\n\n<｜DSML｜tool_call",
     "C{held to the end\n\n<｜DSML｜}N{stray_token@37:｜DSML｜}C{tool_call}."},
    /* calls */
    {PL_CHAT_MODE_CHAT,
     "x" CALLS INVOKE("f") STRING("a", "\"\\\n\x01é") OTHER("b", "[1]") END_INVOKE END_CALLS EOS,
     "C{x}S0{id0:f}A0{{\"a\": \"\\\"\\\\\\n\\u0001é\", \"b\": [1]}}E0."},
    {PL_CHAT_MODE_CHAT, CALLS INVOKE("f") "\n" END_INVOKE INVOKE("g") END_INVOKE END_CALLS,
     "S0{id0:f}A0{{}}E0S1{id1:g}A1{{}}E1."},
    {PL_CHAT_MODE_CHAT, CALLS END_CALLS EOS, "."},
    {PL_CHAT_MODE_CHAT, CALLS INVOKE("") OTHER("", "1") END_INVOKE END_CALLS,
     "S0{id0:}A0{{\"\": 1}}E0."},
    {PL_CHAT_MODE_CHAT, CALLS INVOKE("f") STRING("", "") END_INVOKE END_CALLS,
     "S0{id0:f}A0{{\"\": \"\"}}E0."},
    {PL_CHAT_MODE_CHAT,
     CALLS INVOKE("f") STRING("a", "<</｜DSML｜x</｜DSML｜param") END_INVOKE END_CALLS,
     "S0{id0:f}A0{{\"a\": \"<</｜DSML｜x</｜DSML｜param\"}}E0."},
    {PL_CHAT_MODE_CHAT,
     CALLS INVOKE("f") OTHER("n", "NaN") OTHER("x", " 1 ") OTHER("y", "nope") END_INVOKE END_CALLS,
     "S0{id0:f}A0{{\"n\": NaN, \"x\":  1 , \"y\": nope}N{not_json@265:y}A0{}}E0."},
    /* what follows calls */
    {PL_CHAT_MODE_CHAT, CALLS INVOKE("f") END_INVOKE END_CALLS "\nmore",
     "S0{id0:f}A0{{}}E0N{text_after_calls@98:}C{\nmore}."},
    {PL_CHAT_MODE_CHAT,
     CALLS INVOKE("f") END_INVOKE END_CALLS CALLS INVOKE("g") END_INVOKE END_CALLS,
     "S0{id0:f}A0{{}}E0N{text_after_calls@148:}S1{id1:g}A1{{}}E1."},
    /* a call inside the reasoning ends it */
    {PL_CHAT_MODE_THINKING, "r" CALLS INVOKE("f") END_INVOKE END_CALLS "</think>",
     "R{r}N{unclosed_reasoning@53:}S0{id0:f}A0{{}}E0N{text_after_calls@99:}C{</"
     "think>}N{stray_token@105:</think>}."},
    /* spacing is forgiven */
    {PL_CHAT_MODE_CHAT,
     "x<｜DSML｜tool_calls> \n\n<｜DSML｜invoke  name=\"f\"></｜DSML｜invoke></｜DSML｜tool_calls>",
     "C{x}N{loose_spacing@22:<｜DSML｜tool_calls}N{loose_spacing@43: \n\n}N{loose_spacing@51:  "
     "}S0{id0:f}"
     "N{loose_spacing@73:}A0{{}}E0N{loose_spacing@96:}."},
    /* malformed before the call begins: all of it is text */
    {PL_CHAT_MODE_CHAT, "x" CALLS "hm" CALLS INVOKE("f") END_INVOKE END_CALLS,
     "C{x}N{malformed@27:no tag that may stand here}C{" CALLS "hm}S0{id0:f}A0{{}}E0."},
    {PL_CHAT_MODE_CHAT, "`<｜DSML｜tool_calls>` is a tag",
     "C{`}N{loose_spacing@22:<｜DSML｜tool_calls}N{malformed@24:no tag that may stand here}"
     "C{<｜DSML｜tool_calls>` is a tag}."},
    {PL_CHAT_MODE_CHAT, CALLS CALLS INVOKE("f") END_INVOKE END_CALLS,
     "N{malformed@39:no tag that may stand here}C{" CALLS "\n\n}"
     "N{loose_spacing@48:<｜DSML｜tool_calls}S0{id0:f}A0{{}}E0."},
    {PL_CHAT_MODE_THINKING, "r" CALLS "hm</think>c",
     "R{r}N{malformed@27:no tag that may stand here}R{" CALLS "hm}C{c}."},
    {PL_CHAT_MODE_CHAT, CALLS "<｜DSML｜invoke name=\"" CALLS INVOKE("f") END_INVOKE END_CALLS,
     "N{malformed@62:tag inside a name}C{" CALLS
     "<｜DSML｜invoke name=\"\n\n}N{loose_spacing@72:<｜DSML｜tool_calls}"
     "S0{id0:f}A0{{}}E0."},
    /* malformed later: the call has no end, its text follows */
    {PL_CHAT_MODE_CHAT,
     CALLS INVOKE("f") END_INVOKE INVOKE("g") STRING("a", "1") STRING("a", "2")
         END_INVOKE END_CALLS EOS,
     "S0{id0:f}A0{{}}E0S1{id1:g}A1{{\"a\": \"1\"}N{duplicate@207:a}C{" INVOKE("g") STRING(
         "a",
         "1") "<｜DSML｜parameter name=\"a\" "
              "string=\"true\">2</｜DSML｜}N{stray_token@226:｜DSML｜}C{parameter>\n</｜DSML｜}"
              "N{stray_token@249:｜DSML｜}C{invoke>\n</"
              "｜DSML｜}N{stray_token@269:｜DSML｜}C{tool_calls>}."},
    {PL_CHAT_MODE_CHAT, CALLS INVOKE("f") END_INVOKE " junk",
     "S0{id0:f}A0{{}}E0N{malformed@75:no tag that may stand here}C{\n junk}."},
    {PL_CHAT_MODE_CHAT, CALLS INVOKE("f") "<｜DSML｜parameter name=\"a\" string=\"maybe\">",
     "S0{id0:f}N{malformed@92:bad attribute}C{" CALLS INVOKE(
         "f") "<｜DSML｜parameter name=\"a\" string=\"maybe\">}."},
    {PL_CHAT_MODE_CHAT, CALLS INVOKE("f") STRING("a", "b") "junk" END_INVOKE,
     "S0{id0:f}A0{{\"a\": \"b\"}N{malformed@122:no tag that may stand here}C{" CALLS INVOKE("f")
         STRING("a", "b") "junk</｜DSML｜}N{stray_token@137:｜DSML｜}C{invoke>\n}."},
    {PL_CHAT_MODE_CHAT,
     CALLS INVOKE("f") "<｜DSML｜parameter name=\"a\" string=\"true\">b/｜DSML｜parameter>",
     "S0{id0:f}A0{{\"a\": \"b}N{malformed@118:no '<' before the end of a value}C{" CALLS INVOKE(
         "f") "<｜DSML｜parameter name=\"a\" string=\"true\">b/｜DSML｜parameter>}."},
    /* the message ends inside a value */
    {PL_CHAT_MODE_CHAT, CALLS INVOKE("f") "<｜DSML｜parameter name=\"a\" string=\"true\">b" EOS "c",
     "S0{id0:f}A0{{\"a\": \"b}N{malformed@125:message ends in a value}C{" CALLS INVOKE(
         "f") "<｜DSML｜parameter name=\"a\" string=\"true\">b}N{text_after_end@126:}C{c}."},
    /* cut off */
    {PL_CHAT_MODE_CHAT, "x" CALLS "<｜DSML｜inv", "C{x}N{truncated@40:" CALLS "<｜DSML｜inv}."},
    {PL_CHAT_MODE_CHAT, CALLS INVOKE("f") "<｜DSML｜parameter name=\"a\" string=\"true\">bc</｜D",
     "S0{id0:f}A0{{\"a\": \"bc}N{truncated@105:" CALLS INVOKE(
         "f") "<｜DSML｜parameter name=\"a\" string=\"true\">bc</｜D}."},
};

static void test_events(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        char *got = parse(expected[i].mode, expected[i].text);
        if (strcmp(got, expected[i].log) != 0)
            fail_msg("case %zu:\n%s\ngives\n%s\nwant\n%s", i, expected[i].text, got,
                     expected[i].log);
        free(got);
    }
}

/* ---- pieces ---- */

static void test_cuts(void **state)
{
    json_t *cases = textfile_json("encoding/parse_completions.json"), *c;
    size_t i;

    (void)state;
    json_array_foreach(cases, i, c)
    {
        json_t *text = json_object_get(c, "text");
        output_log_check_cuts(PL_CHAT_MODE_CHAT, json_string_value(text), json_string_length(text),
                              i);
        output_log_check_cuts(PL_CHAT_MODE_THINKING, json_string_value(text),
                              json_string_length(text), i);
    }
    json_decref(cases);
    for (i = 0; i < sizeof expected / sizeof expected[0]; i++)
        output_log_check_cuts(expected[i].mode, expected[i].text, strlen(expected[i].text),
                              100 + i);
}

/* ---- holding back ---- */

/* The log after each piece: text goes out as soon as it cannot be a tag any more, calls as they come. */
static void test_nothing_waits_without_need(void **state)
{
    static const struct {
        const char *piece, *log;
    } steps[] = {
        {"think", "R{think"},
        {"ing <", "R{thinking "},
        {"/", "R{thinking "},
        {"x", "R{thinking </x"},
        {"</thin", "R{thinking </x"},
        {"k>Hel", "R{thinking </x}C{Hel"},
        {"lo\n", "R{thinking </x}C{Hello"},
        {"\n", "R{thinking </x}C{Hello"},
        {"\n",
         "R{thinking </x}C{Hello\n"}, /* two newlines may still precede a tag, three may not */
        {"w", "R{thinking </x}C{Hello\n\n\nw"},
        {"\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get\"", "R{thinking </x}C{Hello\n\n\nw"},
        {">", "R{thinking </x}C{Hello\n\n\nw}S0{id0:get}"},
        {"\n<｜DSML｜parameter name=\"k\" string=\"true\"",
         "R{thinking </x}C{Hello\n\n\nw}S0{id0:get}"},
        {">", "R{thinking </x}C{Hello\n\n\nw}S0{id0:get}A0{{\"k\": \""},
        {"va", "R{thinking </x}C{Hello\n\n\nw}S0{id0:get}A0{{\"k\": \"va"},
        {"l\n<", "R{thinking </x}C{Hello\n\n\nw}S0{id0:get}A0{{\"k\": \"val\\n"},
        {"/b", "R{thinking </x}C{Hello\n\n\nw}S0{id0:get}A0{{\"k\": \"val\\n</b"},
        {"</｜DSML｜parameter",
         "R{thinking </x}C{Hello\n\n\nw}S0{id0:get}A0{{\"k\": \"val\\n</b\""},
        {">\n</｜DSML｜invoke>",
         "R{thinking </x}C{Hello\n\n\nw}S0{id0:get}A0{{\"k\": \"val\\n</b\"}}E0"},
    };
    output_log log = {0};
    pl_output_parser *p = output_log_parser(PL_CHAT_MODE_THINKING, output_log_add, &log);

    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        output_log_feed(p, steps[i].piece, strlen(steps[i].piece));
        if (strcmp(log.text, steps[i].log) != 0)
            fail_msg("step %zu: got\n%s\nwant\n%s", i, log.text, steps[i].log);
    }
    pl_output_parser_destroy(p);
    free(log.text);
}

/* ---- what is lost: nothing ---- */

/* Every beginning of a message with calls: what was told so far is the beginning of the whole. */
static void test_cut_off_anywhere(void **state)
{
    static const char text[] = "r</think>Before" CALLS INVOKE("f") STRING("a", "x y\nz é")
        OTHER("b", "[1, {\"k\": null}]") END_INVOKE INVOKE("g") END_INVOKE END_CALLS EOS;
    pl_output_message *whole = message_of(PL_CHAT_MODE_THINKING, text, sizeof text - 1);

    (void)state;
    assert_int_equal(pl_output_message_n_calls(whole), 2);
    for (size_t n = 9; n < sizeof text - 1; n++) { /* behind </think> */
        if ((text[n] & 0xC0) == 0x80)
            continue; /* half a character becomes U+FFFD */
        pl_output_message *m = message_of(PL_CHAT_MODE_THINKING, text, n);
        assert_true(pl_output_message_n_calls(m) <= 2);
        for (size_t i = 0; i < pl_output_message_n_calls(m); i++) {
            pl_output_call got = pl_output_message_get_call(m, i),
                           want = pl_output_message_get_call(whole, i);
            assert_int_equal(got.name_bytes, want.name_bytes);
            assert_memory_equal(got.name, want.name, want.name_bytes);
            assert_true(got.arguments_bytes <= want.arguments_bytes);
            assert_memory_equal(got.arguments, want.arguments, got.arguments_bytes);
            assert_int_equal(got.complete, got.arguments_bytes == want.arguments_bytes);
        }
        pl_output_message_destroy(m);
    }
    pl_output_message_destroy(whole);
}

/* A malformed call is left out of the message and its text is in the content; the complete one before it stays. */
static void test_message_of_malformed(void **state)
{
    static const char bad[] =
        INVOKE("g") STRING("a", "1") "<｜DSML｜parameter name=\"b\">2</｜DSML｜parameter>\n";
    static const char text[] = "x" CALLS INVOKE("f") END_INVOKE INVOKE("g")
        STRING("a", "1") "<｜DSML｜parameter name=\"b\">2</｜DSML｜parameter>\n" CALLS INVOKE("h")
            END_INVOKE END_CALLS;
    pl_output_message *m = message_of(PL_CHAT_MODE_CHAT, text, sizeof text - 1);
    pl_error err = {0};
    size_t n;
    const char *content = pl_output_message_content(m, &n);

    (void)state;
    assert_int_equal(n, strlen("x") + strlen(bad));
    assert_memory_equal(content + 1, bad, strlen(bad));
    assert_int_equal(pl_output_message_n_calls(m), 2);
    assert_memory_equal(pl_output_message_get_call(m, 0).name, "f", 1);
    assert_memory_equal(pl_output_message_get_call(m, 1).name, "h", 1);
    assert_string_equal(pl_output_message_get_call(m, 1).id, "id2"); /* ids are not used twice */
    check_error(pl_output_message_conforms(m, "out", &err), PL_ERR_CORRUPT, &err,
                "out: tool call is malformed at byte", ": tag inside a name", NULL);
    pl_output_message_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_cuts),

        cmocka_unit_test(test_nothing_waits_without_need),
        cmocka_unit_test(test_cut_off_anywhere),
        cmocka_unit_test(test_message_of_malformed),

    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
