/* Token ids from text: separators, limits, and where it says a text is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/tokens_file.h"
#include "support/check.h"
#include "support/scratch.h"

static void good(const char *text, int32_t n_want, const int32_t *want)
{
    int32_t *tokens, n;
    pl_error err;

    check_ok(pl_tokens_parse("F", text, strlen(text), 100, &tokens, &n, &err), &err);
    assert_int_equal(n, n_want);
    assert_memory_equal(tokens, want, (size_t)n * sizeof *tokens);
    free(tokens);
}

static void bad(const char *text, int32_t max_tokens, uint64_t pos, const char *fragment)
{
    int32_t *tokens, n;
    pl_error err;

    check_error(pl_tokens_parse("F", text, strlen(text), max_tokens, &tokens, &n, &err),
                PL_ERR_INVALID, &err, "F: ", fragment, NULL);
    assert_int_equal(err.pos, pos);
    assert_null(tokens);
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
    bad("1,,2", 9, 2, "no token id");
    bad(",1", 9, 0, "no token id");
    bad("1;2", 9, 1, "no separator");
    bad("1 -2", 9, 2, "no token id");
    bad("1 x", 9, 2, "byte 2");
    bad("1 2147483648", 9, 2, "too large");
    bad("1 99999999999999999999999999", 9, 2, "too large");
    bad("1 2 3", 2, 4, "too many tokens");
}

static void files(void **state)
{
    char folder[SCRATCH_PATH_BYTES], path[SCRATCH_PATH_BYTES + 16];
    int32_t *tokens, n;
    pl_error err;

    scratch_create(folder);
    scratch_put(folder, "ids", "5 6\n7\n");
    snprintf(path, sizeof path, "%s/ids", folder);
    check_ok(pl_tokens_read(path, 3, &tokens, &n, &err), &err);
    assert_int_equal(n, 3);
    assert_int_equal(tokens[2], 7);
    free(tokens);
    snprintf(path, sizeof path, "%s/none", folder);
    check_error(pl_tokens_read(path, 3, &tokens, &n, &err), PL_ERR_NOT_FOUND, &err, "none",
                "cannot open", NULL);
    check_error(pl_tokens_read(folder, 3, &tokens, &n, &err), PL_ERR_IO, &err, "cannot read", NULL);
    scratch_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(separators),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
