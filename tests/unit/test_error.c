/* Texts for people, errors and the log: always one printable line, an error cut visibly when too long. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "support/check.h"

static void text_is_one_printable_line(void **state)
{
    pl_error err;
    pl_status s =
        pl_error_set_at(&err, PL_ERR_CORRUPT, 7, "%s: bad (got %d, want 1)", "a\nb\x1b[31m", 2);

    assert_int_equal(s, PL_ERR_CORRUPT);
    assert_int_equal(err.status, PL_ERR_CORRUPT);
    assert_int_equal(err.pos, 7);
    assert_string_equal(err.msg, "a?b?[31m: bad (got 2, want 1)");
}

static void text_is_utf8(void **state)
{
    char big[2 * PL_ERROR_MSG_BYTES];
    pl_error err;

    pl_error_set(&err, PL_ERR_IO, "%s",
                 "\u00e9\u20ac\U0001F6A2 \xc2\x9b \xff \xe2\x82 \xed\xa0\x80");
    assert_string_equal(err.msg, "\u00e9\u20ac\U0001F6A2 ?? ? ?? ???");
    /* A cut leaves no half of a character, wherever it falls. */
    for (size_t shift = 0; shift < 2; shift++) {
        memset(big, 0, sizeof big);
        big[0] = 'x';
        for (size_t i = shift; i + 2 < sizeof big; i += 2)
            memcpy(big + i, "\u00e9", 2);
        pl_error_set(&err, PL_ERR_IO, "%s", big);
        assert_string_equal(err.msg + PL_ERROR_MSG_BYTES - 6, shift ? "\xa9?..." : "\u00e9...");
    }
}

static void keep_line(void *user, pl_log_level level, const char *line)
{
    snprintf(user, 64, "%s", line);
}

static void log_line_is_printable(void **state)
{
    char line[64] = "";

    pl_log_set_sink(keep_line, line);
    pl_log(PL_LOG_WARN, "try", "name=%s", "a\nb\x7f\xc2\x9b\xff\u00e9");
    pl_log_set_sink(NULL, NULL);
    assert_string_equal(line, "level=warn event=try name=a?b????\u00e9");
}

static void long_text_is_cut_visibly(void **state)
{
    char big[2 * PL_ERROR_MSG_BYTES];
    pl_error err;

    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    pl_error_set(&err, PL_ERR_IO, "%s", big);
    assert_int_equal(strlen(err.msg), PL_ERROR_MSG_BYTES - 1);
    assert_string_equal(err.msg + PL_ERROR_MSG_BYTES - 4, "...");
    pl_error_prefix(&err, "%s", big);
    assert_string_equal(err.msg + PL_ERROR_MSG_BYTES - 4, "...");
}

static void prefix_goes_in_front(void **state)
{
    pl_error err;

    pl_error_set(&err, PL_ERR_IO, "cannot read");
    pl_error_prefix(&err, "%s", "file.bin");
    assert_string_equal(err.msg, "file.bin: cannot read");
    pl_error_prefix(NULL, "no one listens");
    assert_int_equal(pl_error_set(NULL, PL_ERR_IO, "no one listens"), PL_ERR_IO);
}

static void every_status_has_name_and_text(void **state)
{
    assert_string_equal(pl_status_name(PL_OK), "PL_OK");
    assert_string_equal(pl_status_name(PL_ERR_CORRUPT), "PL_ERR_CORRUPT");
    assert_string_equal(pl_status_text(PL_ERR_NOMEM), "out of memory");
    assert_string_equal(pl_status_name((pl_status)-99), "PL_ERR_UNKNOWN");
    assert_string_equal(pl_status_text((pl_status)-99), "unknown status");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_one_printable_line),
        cmocka_unit_test(text_is_utf8),
        cmocka_unit_test(log_line_is_printable),
        cmocka_unit_test(long_text_is_cut_visibly),
        cmocka_unit_test(prefix_goes_in_front),
        cmocka_unit_test(every_status_has_name_and_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
