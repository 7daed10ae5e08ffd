/* The option table: every kind parsed, every kind of misuse named, exit statuses as promised. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/options.h"
#include "support/check.h"

struct opts {
    bool json;
    const char *out;
    int64_t n;
    double t;
    uint64_t memory;
    const char *mode;
    char calls[64];
};

static pl_status add_call(void *options, const char *name, const char *value, pl_error *err)
{
    struct opts *o = options;

    if (strcmp(value, "bad") == 0)
        return pl_error_set(err, PL_ERR_INVALID, "%s: refused (got '%s')", name, value);
    strcat(o->calls, value);
    return PL_OK;
}

static pl_status maybe_call(void *options, const char *name, const char *value, pl_error *err)
{
    return add_call(options, name, value ? value : "nothing", err);
}

static const char *const modes[] = {"ref", "rec", NULL};
static const pl_option table[] = {
    {"--json", PL_OPTION_FLAG, NULL, "json", offsetof(struct opts, json), 0, 0, NULL, NULL},
    {"-o", PL_OPTION_STRING, "FILE", "out", offsetof(struct opts, out), 0, 0, NULL, NULL},
    {"--n", PL_OPTION_INT, "N", "n", offsetof(struct opts, n), 1, 100, NULL, NULL},
    {"--t", PL_OPTION_FLOAT, "T", "t", offsetof(struct opts, t), 0, 2, NULL, NULL},
    {"--memory", PL_OPTION_BYTES, "BYTES", "m", offsetof(struct opts, memory), 0, 0, NULL, NULL},
    {"--mode", PL_OPTION_CHOICE, "M", "mode", offsetof(struct opts, mode), 0, 0, modes, NULL},
    {"--add", PL_OPTION_CALL, "X", "add", 0, 0, 0, NULL, add_call},
    {"--maybe", PL_OPTION_CALL_MAYBE, "[=X]", "maybe", 0, 0, 0, NULL, maybe_call},
    {NULL, 0, NULL, NULL, 0, 0, 0, NULL, NULL},
};
static const pl_command command = {.name = "try",
                                   .usage = "MODEL",
                                   .summary = "s",
                                   .options = table,
                                   .min_args = 1,
                                   .max_args = 2};

/* Runs the parser with standard error caught in `text`. */
static bool parse(struct opts *o, const char **args, int *status, char *text, size_t size,
                  const char *const *argv)
{
    int argc = 0, saved = dup(2);
    FILE *tmp = tmpfile();
    bool ok;
    size_t n;

    while (argv[argc])
        argc++;
    dup2(fileno(tmp), 2);
    ok = pl_options_parse(&command, argc, (char **)argv, o, args, status);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    rewind(tmp);
    n = fread(text, 1, size - 1, tmp);
    text[n] = 0;
    fclose(tmp);
    return ok;
}

#define ARGV(...) ((const char *[]){"try", __VA_ARGS__, NULL})

static void every_kind_is_parsed(void **state)
{
    struct opts o = {0};
    const char *args[2];
    char text[512];
    int status = -1;

    assert_true(parse(&o, args, &status, text, sizeof text,
                      ARGV("a", "--json", "-o", "f", "--n=7", "--t", "0.5", "--memory", "2GiB",
                           "--mode", "rec", "--add", "x", "--add=y", "--", "-b")));
    assert_true(o.json);
    assert_string_equal(o.out, "f");
    assert_int_equal(o.n, 7);
    assert_true(o.t == 0.5);
    assert_int_equal(o.memory, 2ull << 30);
    assert_string_equal(o.mode, "rec");
    assert_string_equal(o.calls, "xy");
    assert_string_equal(args[0], "a");
    assert_string_equal(args[1], "-b");
}

static void misuse_is_one_line_with_status_2(void **state)
{
    static const struct {
        const char *argv[5];
        const char *want;
    } cases[] = {
        {{"try", "a", "--nope", NULL}, "unknown option (got '--nope')"},
        {{"try", "a", "--n", "0", NULL}, "--n: not a whole number in range (got '0', want 1..100)"},
        {{"try", "a", "--n", "7x", NULL}, "--n: not a whole number in range (got '7x'"},
        {{"try", "a", "--n", " 7", NULL}, "--n: not a whole number in range (got ' 7'"},
        {{"try", "a", "--n", "+7", NULL}, "--n: not a whole number in range (got '+7'"},
        {{"try", "a", "--t", "\t1", NULL}, "--t: not a number in range (got '?1'"},
        {{"try", "a", "--t", "0x1", NULL}, "--t: not a number in range (got '0x1'"},
        {{"try", "a", "--n", NULL}, "--n: value is missing (want N)"},
        {{"try", "a", "--t", "nan", NULL}, "--t: not a number in range (got 'nan'"},
        {{"try", "a", "--memory", "7XB", NULL}, "--memory: unknown unit (got '7XB'"},
        {{"try", "a", "--memory", "-1", NULL}, "--memory: size is not a number (got '-1'"},
        {{"try", "a", "--memory", "99999999PiB", NULL}, "--memory: size is too large"},
        {{"try", "a", "--mode", "x", NULL}, "--mode: unknown value (got 'x', want ref, rec)"},
        {{"try", "a", "--json=1", NULL}, "--json: takes no value (got '1')"},
        {{"try", "a", "--add", "bad", NULL}, "--add: refused (got 'bad')"},
        {{"try", "a", "b", "c", NULL}, "too many arguments (got 'c', want at most 2)"},
        {{"try", NULL}, "too few arguments (got 0, want MODEL)"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct opts o = {0};
        const char *args[2];
        char text[512];
        int status = -1;

        assert_false(parse(&o, args, &status, text, sizeof text, cases[i].argv));
        assert_int_equal(status, PL_EXIT_USAGE);
        if (strncmp(text, "plimsoll: try: ", 15) != 0 || !strstr(text, cases[i].want))
            fail_msg("case %zu: '%s'", i, text);
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    }
}

static void sizes(void **state)
{
    uint64_t v;
    pl_error err;

    check_ok(pl_parse_bytes("0", &v, &err), &err);
    assert_int_equal(v, 0);
    check_ok(pl_parse_bytes("64gib", &v, &err), &err);
    assert_int_equal(v, 64ull << 30);
    check_ok(pl_parse_bytes("3TB", &v, &err), &err);
    assert_int_equal(v, 3000000000000ull);
    check_ok(pl_parse_bytes("18446744073709551615", &v, &err), &err);
    assert_int_equal(v, UINT64_MAX);
    check_error(pl_parse_bytes("18446744073709551616", &v, &err), PL_ERR_OVERFLOW, &err, "16 EiB",
                NULL);
    check_error(pl_parse_bytes("", &v, &err), PL_ERR_INVALID, &err, "not a number", NULL);
    check_error(pl_parse_bytes("1.5GiB", &v, &err), PL_ERR_INVALID, &err, "whole number", NULL);
}

static void exit_statuses(void **state)
{
    pl_error err = {PL_ERR_CORRUPT, 0, "file: bad"};

    assert_int_equal(pl_report_error(&err), PL_EXIT_USAGE);
    err.status = PL_ERR_LIMIT;
    assert_int_equal(pl_report_error(&err), PL_EXIT_NO);
    err.status = PL_ERR_IO;
    assert_int_equal(pl_report_error(&err), PL_EXIT_SYSTEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_parsed),
        cmocka_unit_test(misuse_is_one_line_with_status_2),
        cmocka_unit_test(sizes),
        cmocka_unit_test(exit_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
