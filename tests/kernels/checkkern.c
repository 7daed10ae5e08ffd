/* The program: which problems at which levels, signals, counting. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "kernels/harness.h"
#include "kernels/levels.h"
#include "kernels/run.h"
#include "ops/simd/selftest.h"

static const kern_op *const operators[] = {kern_linear_ops,   kern_attention_ops, kern_cache_ops,
                                           kern_compress_ops, kern_route_ops,     kern_sparse_ops,
                                           kern_streams_ops,  kern_varlen_ops};

typedef struct options {
    const char *op, *isa, *problem;
    uint64_t seed;
    bool list, tap, simde;
} options;

static struct {
    int64_t passed, failed, skipped;
} count;

/* ---- signals */

static sigjmp_buf on_signal;

static void catch_signal(int number)
{
    siglongjmp(on_signal, number);
}

static void install_handlers(void)
{
    static char stack[64 * 1024];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = catch_signal, .sa_flags = SA_ONSTACK | SA_NODEFER};
    const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

    sigaltstack(&alternate, NULL);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sigaction(numbers[i], &action, NULL);
}

/* One problem at one level, buffers in front of (0) or behind (1) an unreadable page. */
static bool check_round(const kern_op *op, const char *problem, const pl_ops *ops, int round,
                        char *why, int64_t *judged)
{
    volatile bool good = false;
    int number;

    kern_guard_before(round == 1);
    number = sigsetjmp(on_signal, 1);
    if (number == 0) {
        pl_fpenv saved = pl_fpenv_begin();
        good = op->check(op, problem, ops, why, judged);
        if (good && !pl_fpenv_is_set()) {
            snprintf(why, KERN_WHY_BYTES, "leaves another floating-point environment");
            good = false;
        }
        pl_fpenv_end(saved);
    } else {
        snprintf(why, KERN_WHY_BYTES, "%s (buffers %s an unreadable page)", strsignal(number),
                 round == 1 ? "behind" : "in front of");
    }
    kern_free_all();
    return good;
}

/* ---- problems */

static void tell(const options *o, bool good, const char *what, const char *level, const char *why)
{
    int64_t n = count.passed + count.failed + count.skipped;

    if (o->tap)
        printf("%sok %lld - %s @%s\n", good ? "" : "not ", (long long)n, what, level);
    if (!good)
        printf("%sFAILED %s @%s: %s\n", o->tap ? "# " : "", what, level, why);
}

static void check_problem(const options *o, const kern_op *op, const char *problem,
                          const kern_level *level, const pl_ops *ops)
{
    char why[KERN_WHY_BYTES] = "";
    int64_t judged = 0;
    bool good = true;

    for (int round = 0; round < 2 && good; round++)
        good = check_round(op, problem, ops, round, why, &judged);
    if (good && judged == 0 && kern_int(problem, "m", 1) > 0) {
        snprintf(why, sizeof why, "no value could be judged");
        good = false;
    }
    *(good ? &count.passed : &count.failed) += 1;
    tell(o, good, problem, level->name, why);
}

static bool wanted(const char *name, const char *pattern)
{
    return !pattern || strstr(name, pattern);
}

/* `ops` is NULL where the level cannot run. */
static void check_op(const options *o, const kern_op *op, const kern_level *level,
                     const pl_ops *ops)
{
    char problem[KERN_PROBLEM_BYTES];

    if (o->problem) {
        if (strncmp(o->problem, op->name, strcspn(o->problem, " ")) == 0 &&
            op->name[strcspn(o->problem, " ")] == 0 && ops)
            check_problem(o, op, o->problem, level, ops);
        return;
    }
    if (!wanted(op->name, o->op))
        return;
    for (int i = 0; op->problem(op, i, o->seed, problem); i++) {
        if (o->list) {
            printf("%s\n", problem);
        } else if (ops) {
            check_problem(o, op, problem, level, ops);
        } else {
            count.skipped++;
            if (o->tap)
                printf("ok %lld - %s # SKIP this processor lacks %s\n",
                       (long long)(count.passed + count.failed + count.skipped), problem,
                       level->name);
        }
    }
}

/* The start-up test of the level's linear layers has to let right kernels pass, emulated ones too: otherwise a
 * machine that has them would refuse them. */
static void check_selftest(const options *o, const kern_level *level, const pl_ops *ops)
{
    static const pl_weight_format formats[] = {PL_WEIGHT_FP8_E8M0, PL_WEIGHT_FP8_F32,
                                               PL_WEIGHT_FP8_E8M0, PL_WEIGHT_FP4, PL_WEIGHT_BF16};
    pl_fpenv saved = pl_fpenv_begin();
    pl_error err = {0};
    bool good = true;

    for (int i = 0; i < 5 && good; i++)
        good = pl__simd_linear_selftest(ops, formats[i], i == 2, &err) == PL_OK;
    pl_fpenv_end(saved);
    *(good ? &count.passed : &count.failed) += 1;
    tell(o, good, "self-test of linear layers", level->name, err.msg);
}

static void check_level(const options *o, const kern_level *level)
{
    pl_cpu cpu;
    char missing[256];
    const pl_ops *ops = NULL;
    const char *how = "run";

    pl_cpu_detect(&cpu, NULL);
    pl_level_missing(&cpu, level->needs, missing, sizeof missing);
    if (level->simde && (missing[0] || o->simde)) {
        ops = level->simde();
        how = missing[0] ? "run through SIMDe, this processor lacks " : "run through SIMDe";
    } else if (missing[0]) {
        how = "skipped, this processor lacks ";
    } else {
        ops = level->ops();
    }
    if (!o->list)
        printf("%slevel %s: %s%s\n", o->tap ? "# " : "", level->name, how, missing);
    if (ops && !o->list && !o->problem && wanted("linear_selftest", o->op))
        check_selftest(o, level, ops);
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++)
        for (const kern_op *op = operators[i]; op->name; op++)
            check_op(o, op, level, ops);
}

/* ---- main */

static int usage(FILE *to, int status)
{
    fprintf(to,
            "usage: checkkern [--list] [--op PART] [--isa LEVEL] [--seed N] [--problem TEXT] "
            "[--simde] [--tap]\n\n"
            "Runs every kernel on generated problems: scalar against sums in double, all other\n"
            "levels bit for bit against scalar.\n\n"
            "  --list          print the problems\n"
            "  --op PART       only operators whose name contains PART\n"
            "  --isa LEVEL     only this level\n"
            "  --seed N        other problems (default 1)\n"
            "  --problem TEXT  this one, as printed\n"
            "  --simde         AVX-512 through SIMDe even where this processor has it\n"
            "  --tap           a line for every problem, in TAP\n");
    return status;
}

static bool read_option(options *o, const char *name, const char *value)
{
    char *end = NULL;

    if (strcmp(name, "--op") == 0)
        o->op = value;
    else if (strcmp(name, "--isa") == 0)
        o->isa = value;
    else if (strcmp(name, "--problem") == 0)
        o->problem = value;
    else if (strcmp(name, "--seed") == 0)
        o->seed = strtoull(value, &end, 0);
    else
        return false;
    return !end || (end > value && *end == 0);
}

static bool read_options(options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0)
            o->list = true;
        else if (strcmp(argv[i], "--tap") == 0)
            o->tap = true;
        else if (strcmp(argv[i], "--simde") == 0)
            o->simde = true;
        else if (i + 1 == argc || !read_option(o, argv[i], argv[i + 1]))
            return false;
        else
            i++;
    }
    return true;
}

int main(int argc, char **argv)
{
    options o = {.seed = 1};
    int n_levels = 0;

    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return usage(stdout, 0);
    if (!read_options(&o, argc, argv))
        return usage(stderr, 2);
    install_handlers();
    for (const kern_level *l = kern_levels; l->name; l++) {
        if (o.isa && strcmp(l->name, o.isa) != 0)
            continue;
        if (n_levels++ > 0 && o.list)
            break;
        check_level(&o, l);
    }
    if (o.list)
        return n_levels > 0 ? 0 : 2;
    if (o.tap)
        printf("1..%lld\n# ", (long long)(count.passed + count.failed + count.skipped));
    printf("%lld passed, %lld failed, %lld skipped\n", (long long)count.passed,
           (long long)count.failed, (long long)count.skipped);
    if (count.failed > 0)
        return 1;
    return count.passed > 0 ? 0 : 77;
}
