/* Token ids from text: separators, limits, and where it says a text is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/token_list.h"
#include "support/check.h"
#include "support/scratch.h"

static void good(const char *text, size_t n_want, const int32_t *want)
{
    const pl_token_list_rules rules = {.max_ids = 100};
    int32_t *tokens;
    size_t n;
    pl_error err;

    check_ok(pl_token_list_parse("F", text, strlen(text), &rules, &tokens, &n, &err), &err);
    assert_int_equal(n, n_want);
    assert_memory_equal(tokens, want, n * sizeof *tokens);
    free(tokens);
}

static void bad_by(pl_token_list_rules rules, const char *text, uint64_t pos, const char *fragment)
{
    int32_t *tokens;
    size_t n;
    pl_error err = {0};

    check_error(pl_token_list_parse("F", text, strlen(text), &rules, &tokens, &n, &err),
                PL_ERR_INVALID, &err, "F: ", fragment, NULL);
    assert_int_equal(err.pos, pos);
    assert_null(tokens);
}

static void bad(const char *text, size_t max_ids, uint64_t pos, const char *fragment)
{
    bad_by((pl_token_list_rules){.max_ids = max_ids}, text, pos, fragment);
}

static void separators(void **state)
{
    good("7", 1, (int32_t[]){7});
    good("1,2,3", 3, (int32_t[]){1, 2, 3});
    good(" 1 , 2\n3\t4\r\n5,\n", 5, (int32_t[]){1, 2, 3, 4, 5});
    good("007 2147483647", 2, (int32_t[]){7, INT32_MAX});
}

static void mistakes(void **state)
{
    bad("", 9, 0, "no token ids");
    bad(" \n", 9, 0, "no token ids");
    bad("1,,2", 9, 2, "not a token id at byte 2 (got ',',");
    bad(",1", 9, 0, "not a token id");
    bad("1 , , 2", 9, 4, "not a token id");
    bad("1;2", 9, 1, "not a token id at byte 1 (got ';'");
    bad("1 -2", 9, 2, "not a token id");
    bad("1 x", 9, 2, "byte 2");
    bad("1 2x", 9, 3, "byte 3");
    bad("1 2147483648", 9, 2, "token 1: no such id (got 2147483648, want at most 2147483647)");
    bad("1 99999999999999999999999999", 9, 2, "no such id (got 99999999999999999999999999,");
    bad("1 2 3", 2, 4, "too many tokens (want at most 2)");
    bad("[1]", 9, 0, "not a token id");
}

static void a_vocabulary_bounds_ids(void **state)
{
    pl_token_list_rules rules = {.vocab_size = 7};

    bad_by(rules, "6 7", 2, "token 1: no such id (got 7, want 0..6: the vocabulary has 7)");
    bad_by(rules, "4294967296", 0, "got 4294967296");
}

static void json(void **state)
{
    static const char *const forms[] = {"[5, 6]", " {\"tokens\": [5,6], \"more\": 1}", "5 6"};
    pl_token_list_rules rules = {.vocab_size = 7, .max_ids = 2, .json = true};
    int32_t *tokens;
    size_t n;
    pl_error err;

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        check_ok(pl_token_list_parse("F", forms[i], strlen(forms[i]), &rules, &tokens, &n, &err),
                 &err);
        assert_int_equal(n, 2);
        assert_int_equal(tokens[1], 6);
        free(tokens);
    }
    bad_by(rules, "[5,6,4]", 0, "too many tokens");
    bad_by(rules, "[7]", 0, "token 0: no such id (got 7");
    bad_by(rules, "[-1]", 0, "got -1");
    bad_by(rules, "[1.0]", 0, "not a whole number");
    bad_by(rules, "[]", 0, "no token ids");
    rules.may_be_empty = true;
    check_ok(pl_token_list_parse("F", "[]", 2, &rules, &tokens, &n, &err), &err);
    assert_int_equal(n, 0);
    free(tokens);
}

static void files(void **state)
{
    char folder[SCRATCH_PATH_BYTES], path[SCRATCH_PATH_BYTES + 16];
    const pl_token_list_rules rules = {.max_ids = 3};
    int32_t *tokens;
    size_t n;
    pl_error err;

    scratch_create(folder);
    scratch_put(folder, "ids", "5 6\n7\n");
    snprintf(path, sizeof path, "%s/ids", folder);
    check_ok(pl_token_list_read(path, 6, &rules, &tokens, &n, &err), &err);
    assert_int_equal(n, 3);
    assert_int_equal(tokens[2], 7);
    free(tokens);
    check_error(pl_token_list_read(path, 5, &rules, &tokens, &n, &err), PL_ERR_OVERFLOW, &err,
                "ids: too long", NULL);
    snprintf(path, sizeof path, "%s/none", folder);
    check_error(pl_token_list_read(path, 99, &rules, &tokens, &n, &err), PL_ERR_NOT_FOUND, &err,
                "none", "cannot open", NULL);
    assert_null(tokens);
    check_error(pl_token_list_read(folder, 99, &rules, &tokens, &n, &err), PL_ERR_INVALID, &err,
                "is a folder", NULL);
    scratch_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(separators),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(a_vocabulary_bounds_ids),
        cmocka_unit_test(json),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
