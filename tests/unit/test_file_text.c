/* Whole files: what comes back, and what is refused before memory is taken for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_text.h"
#include "support/check.h"

static char dir[] = "/tmp/pl-file-text-XXXXXX", path[64];

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/file", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static void write_bytes(const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void reads_every_byte(void **state)
{
    static const char bytes[] = "a\0b\n\377";
    char *text;
    size_t n;
    pl_error err;

    (void)state;
    write_bytes(bytes, 5);
    check_ok(pl_file_text_read(path, 5, &text, &n, &err), &err);
    assert_int_equal(n, 5);
    assert_memory_equal(text, bytes, 6); /* a zero behind it */
    free(text);
    write_bytes("", 0);
    check_ok(pl_file_text_read(path, 0, &text, &n, &err), &err);
    assert_int_equal(n, 0);
    assert_string_equal(text, "");
    free(text);
}

static void refuses(void **state)
{
    char *text = dir;
    size_t n = 1;
    pl_error err;

    (void)state;
    write_bytes("123456", 6);
    check_error(pl_file_text_read(path, 5, &text, &n, &err), PL_ERR_CORRUPT, &err,
                "/file: too large (got 6 bytes, want at most 5)", NULL);
    assert_null(text);
    assert_int_equal(n, 0);
    unlink(path);
    check_error(pl_file_text_read(path, 5, &text, &n, &err), PL_ERR_NOT_FOUND, &err,
                "/file: cannot open (got No such file or directory)", NULL);
    /* A pipe that nobody writes to does not make it wait. */
    assert_int_equal(mkfifo(path, 0600), 0);
    check_error(pl_file_text_read(path, 5, &text, &n, &err), PL_ERR_INVALID, &err,
                "/file: not a regular file", NULL);
    check_error(pl_file_text_read(dir, 5, &text, &n, &err), PL_ERR_INVALID, &err,
                "not a regular file", NULL);
    check_error(pl_file_text_read("/dev/zero", 5, &text, &n, &err), PL_ERR_INVALID, &err,
                "/dev/zero: not a regular file", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_every_byte),
                                       cmocka_unit_test(refuses)};

    return cmocka_run_group_tests_name("file_text", tests, set_up, tear_down);
}
