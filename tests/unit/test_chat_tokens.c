/* Encoder and tokenizer together: ids made segment by segment are those of the whole prompt, and what a user
 * wrote becomes no special token. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plimsoll/chat.h"
#include "plimsoll/text.h"
#include "support/check.h"
#include "support/textfile.h"

enum { MAX_IDS = 65536 };

static pl_tokenizer *open_mini(void)
{
    char path[1024];
    pl_tokenizer *t = NULL;
    pl_error err = {0};

    snprintf(path, sizeof path, "%s/tokenizer/mini", getenv("PL_GOLDEN_DIR"));
    check_ok(pl_tokenizer_open(path, &t, &err), &err);
    return t;
}

static size_t encode(const pl_tokenizer *t, pl_encoder *e, const char *text, size_t n,
                     pl_encode_mode mode, int32_t *ids)
{
    pl_error err = {0};
    size_t n_ids;

    check_ok(pl_tokenizer_encode(t, e, text, n, mode, ids, MAX_IDS, &n_ids, &err), &err);
    assert_true(n_ids <= MAX_IDS);
    return n_ids;
}

static size_t encode_segments(const pl_tokenizer *t, pl_encoder *e, const pl_prompt *p,
                              int32_t *ids)
{
    static int32_t part[MAX_IDS];
    size_t n = 0;

    for (size_t i = 0; i < pl_prompt_n_segments(p); i++) {
        pl_prompt_segment s = pl_prompt_get_segment(p, i);
        size_t n_part = encode(t, e, s.text, s.n_bytes,
                               s.markup ? PL_ENCODE_ADDED_TOKENS : PL_ENCODE_PLAIN, part);
        assert_true(n + n_part <= MAX_IDS);
        memcpy(ids + n, part, n_part * sizeof *ids);
        n += n_part;
    }
    return n;
}

static pl_prompt *encode_file(const char *name)
{
    pl_chat_options options = pl_chat_options_default();
    pl_prompt *p = NULL;
    pl_error err = {0};
    char file[128];
    char *json;
    size_t n;

    snprintf(file, sizeof file, "encoding/%s.json", name);
    json = textfile_read(file, &n);
    check_ok(pl_chat_options_read(json, n, &options, &err), &err);
    check_ok(pl_chat_encode(json, n, &options, &p, &err), &err);
    free(json);
    return p;
}

static void test_segments_give_the_ids_of_the_whole(void **state)
{
    static const char *const names[] = {
        "chat_single",
        "chat_system_multi",
        "effort0731_max",
        "effort_max",
        "input_1",
        "input_2",
        "input_3",
        "input_4",
        "latest_reminder",
        "prefix_continue",
        "response_format",
        "task_title",
        "think_history_keep",
        "tools_arg_types",
        "tools_bad_args",
        "tools_call_result",
        "tools_empty_system",
        "tools_system",
        "tools_two_calls_reordered",
        "user_only_no_system_tools_on_dev",
    };
    static int32_t got[MAX_IDS], want[MAX_IDS];
    pl_tokenizer *t = open_mini();
    pl_encoder *e = NULL;

    (void)state;
    assert_int_equal(pl_encoder_create(0, &e), PL_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        pl_prompt *p = encode_file(names[i]);
        size_t n, n_got, n_want;
        const char *text = pl_prompt_text(p, &n);
        n_want = encode(t, e, text, n, PL_ENCODE_ADDED_TOKENS, want);
        n_got = encode_segments(t, e, p, got);
        assert_int_equal(n_got, n_want);
        assert_memory_equal(got, want, n_want * sizeof *want);
        assert_int_equal(got[0], pl_tokenizer_role_id(t, PL_TOKEN_BOS));
        pl_prompt_destroy(p);
    }
    pl_encoder_destroy(e);
    pl_tokenizer_close(t);
}

static size_t count(const int32_t *ids, size_t n, int32_t id)
{
    size_t n_found = 0;

    assert_true(id >= 0);
    for (size_t i = 0; i < n; i++)
        n_found += ids[i] == id;
    return n_found;
}

/* A user writes "<think> literal </think>": no token comes of it, unless users are trusted. */
static void test_user_writes_tokens(void **state)
{
    static int32_t ids[MAX_IDS];
    pl_tokenizer *t = open_mini();
    pl_prompt *p = encode_file("unicode_mix");
    int32_t begin = pl_tokenizer_role_id(t, PL_TOKEN_THINK_BEGIN),
            end = pl_tokenizer_role_id(t, PL_TOKEN_THINK_END);
    pl_encoder *e = NULL;
    size_t n, n_ids;
    const char *text = pl_prompt_text(p, &n);

    (void)state;
    assert_int_equal(pl_encoder_create(0, &e), PL_OK);
    n_ids = encode_segments(t, e, p, ids);
    assert_int_equal(count(ids, n_ids, begin), 0);
    assert_int_equal(count(ids, n_ids, end), 2); /* the encoding's own */
    n_ids = encode(t, e, text, n, PL_ENCODE_ADDED_TOKENS, ids);
    assert_int_equal(count(ids, n_ids, begin), 1);
    assert_int_equal(count(ids, n_ids, end), 3);
    pl_prompt_destroy(p);
    pl_encoder_destroy(e);
    pl_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_segments_give_the_ids_of_the_whole),
        cmocka_unit_test(test_user_writes_tokens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
