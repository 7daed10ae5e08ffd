/* plimsoll synth as a command: exit statuses, what goes to which stream, stopping by a signal. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/commands.h"
#include "support/check.h"
#include "support/scratch.h"

struct result {
    int status;
    char out[8192], err[1024];
};

static void begin_capture(int fd, FILE **to, int *saved)
{
    *saved = dup(fd);
    *to = tmpfile();
    dup2(fileno(*to), fd);
}

static void end_capture(int fd, FILE *to, int saved, char *text, size_t size)
{
    size_t n;

    dup2(saved, fd);
    close(saved);
    rewind(to);
    n = fread(text, 1, size - 1, to);
    text[n] = 0;
    fclose(to);
}

static struct result run(const char *const *argv)
{
    struct result r;
    int argc = 0, out, err;
    FILE *to_out, *to_err;

    while (argv[argc])
        argc++;
    fflush(stdout);
    begin_capture(1, &to_out, &out);
    begin_capture(2, &to_err, &err);
    r.status = pl_command_synth.run(argc, (char **)argv);
    fflush(stdout);
    end_capture(1, to_out, out, r.out, sizeof r.out);
    end_capture(2, to_err, err, r.err, sizeof r.err);
    return r;
}

#define RUN(...) run((const char *[]){"synth", __VA_ARGS__, NULL})

static void check_failure(struct result r, int status, const char *message)
{
    assert_int_equal(r.status, status);
    assert_string_equal(r.out, "");
    assert_non_null(strstr(r.err, message));
    assert_ptr_equal(strchr(r.err, '\n'), r.err + strlen(r.err) - 1);
}

static void a_checkpoint_is_one_line(void **state)
{
    char folder[SCRATCH_PATH_BYTES], want[2 * SCRATCH_PATH_BYTES];
    struct result r;

    scratch_create(folder);
    r = RUN(folder, "--preset", "nano", "--headers-only");
    assert_int_equal(r.status, 0);
    snprintf(want, sizeof want,
             "%s: 508 tensors in 8 shards, 8863518 bytes of data (headers only)\n", folder);
    assert_string_equal(r.out, want);
    assert_string_equal(r.err, ""); /* no progress in a pipe */
    r = RUN(folder);
    assert_int_equal(r.status, 0);
    assert_string_equal(r.err, "");
    scratch_remove(folder);
}

static void wrong_use_is_status_2(void **state)
{
    char folder[SCRATCH_PATH_BYTES], file[2 * SCRATCH_PATH_BYTES];

    scratch_create(folder);
    scratch_put(folder, "o.json", "{\"vocab_size\": -1}");
    snprintf(file, sizeof file, "%s/o.json", folder);
    check_failure(run((const char *[]){"synth", NULL}), 2, "too few arguments");
    check_failure(RUN("x", "--preset", "big"), 2, "--preset: unknown value (got 'big'");
    check_failure(RUN("x", "--seed", "-1"), 2, "--seed: not a whole number in range");
    check_failure(RUN("x", "--ratios", "3"), 2, "--ratios: not a list");
    check_failure(RUN("x", "--layers", "6"), 2, "--layers: more than nano has");
    check_failure(RUN("x", "--config", "/nonexistent/o"), 2,
                  "--config: /nonexistent/o: cannot open");
    check_failure(RUN("x", "--config", "/"), 2, "--config: /: is a folder");
    check_failure(RUN("x", "--config", "/dev/zero"), 2, "--config: /dev/zero: too long");
    check_failure(RUN("x", "--config", file), 2, "vocab_size");
    check_failure(RUN(folder), 2, "folder is not empty");
    assert_int_equal(access("x", F_OK), -1);
    scratch_remove(folder);
}

static void a_refusing_system_is_status_3(void **state)
{
    check_failure(RUN("/proc/plimsoll-synth/a"), 3, "/proc/plimsoll-synth");
    check_failure(RUN("/proc/self/fd"), 2, "not empty");
}

static void a_signal_stops_and_cleans_up(void **state)
{
    char folder[SCRATCH_PATH_BYTES], path[2 * SCRATCH_PATH_BYTES];
    sigset_t set;

    scratch_create(folder);
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGINT);
    check_failure(RUN(folder, "--preset", "nano"), 3,
                  "interrupted, the checkpoint is not complete");
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/.plimsoll-synth.partial", folder);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    assert_int_equal(access(path, F_OK), -1);
    scratch_remove(folder);
}

/* Stands for every write that the system refuses in the middle. */
static void a_size_limit_is_status_3_and_cleaned_up(void **state)
{
    char folder[SCRATCH_PATH_BYTES], path[2 * SCRATCH_PATH_BYTES];
    struct rlimit old, low;

    scratch_create(folder);
    getrlimit(RLIMIT_FSIZE, &old);
    low = old;
    low.rlim_cur = 1 << 20;
    setrlimit(RLIMIT_FSIZE, &low);
    check_failure(RUN(folder), 3, "File too large");
    setrlimit(RLIMIT_FSIZE, &old);
    snprintf(path, sizeof path, "%s/model-00001-of-00008.safetensors", folder);
    assert_int_equal(access(path, F_OK), 0); /* 128 KiB */
    snprintf(path, sizeof path, "%s/.plimsoll-synth.partial", folder);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    assert_int_equal(access(path, F_OK), -1);
    scratch_remove(folder);
}

static void help_names_every_option(void **state)
{
    struct result r = RUN("--help");

    assert_int_equal(r.status, 0);
    for (const pl_option *o = pl_command_synth.options; o->name; o++)
        assert_non_null(strstr(r.out, o->name));
    assert_non_null(strstr(r.out, "examples:"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_is_one_line),
        cmocka_unit_test(wrong_use_is_status_2),
        cmocka_unit_test(a_refusing_system_is_status_3),
        cmocka_unit_test(a_signal_stops_and_cleans_up),
        cmocka_unit_test(a_size_limit_is_status_3_and_cleaned_up),
        cmocka_unit_test(help_names_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
