/* Self-tests of the scalar level, and the choice of a level.
 *
 * The expected bits are from exact rational arithmetic, rounded once to 24 bits, with results below 2^-126
 * after that rounding becoming zero of their sign: what FTZ does on x86. Inputs pass through volatile memory
 * so that the compiler computes nothing itself. */
#include "base/selftest.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/fpenv.h"
#include "base/log.h"
#include "base/numfmt.h"

static pl_status check_bits(const char *what, size_t i, uint32_t got, uint32_t want, pl_error *err)
{
    if (got == want)
        return PL_OK;
    return pl_error_set(err, PL_ERR_INTERNAL, "%s: case %zu is wrong (got 0x%08x, want 0x%08x)",
                        what, i, got, want);
}

/* One step of a chain, a and b being bf16 values: their product is exact in double. */
static float chain_step(float a, float b, float c)
{
    return (float)((double)a * b + c);
}

/* clang-format off */
static const uint32_t chain_cases[][4] = { /* a, b, c, a b + c */
    {0x3fc00000, 0x40100000, 0x3e000000, 0x40600000}, /* exact */
    {0x3f800000, 0x33800000, 0x3f800000, 0x3f800000}, /* tie to even, down */
    {0x3f800000, 0x33800000, 0x3f800001, 0x3f800002}, /* tie to even, up */
    {0x3f810000, 0x33800000, 0x3f800000, 0x3f800001}, /* just above a tie: one rounding only */
    {0xbf810000, 0x3f810000, 0x3f820000, 0xb8800000}, /* cancels to the low bits of the product */
    {0x40400000, 0xc0000000, 0x40c00000, 0x00000000}, /* cancels to +0 */
    {0xbf800000, 0x00000000, 0x80000000, 0x80000000}, /* -0 stays */
    {0xbf800000, 0x0d800000, 0x3f800000, 0x3f800000}, /* the product is too small to matter */
    {0x8d800000, 0x0d800000, 0x00800000, 0x00800000}, /* the product underflows, c stays */
    {0x1c800000, 0xa1800000, 0x00000000, 0x80000000}, /* a tiny product alone flushes, sign kept */
    {0x00400000, 0x71800000, 0x3f000000, 0x3f000000}, /* a denormal factor is zero */
    {0x21800000, 0x21800000, 0x807fffff, 0x03800000}, /* a denormal summand is zero */
    {0x20000000, 0x20000000, 0x00000000, 0x00800000}, /* the smallest normal result stays */
    {0x20000000, 0x9f800000, 0x00000000, 0x80000000}, /* half of it flushes */
    {0x3f800000, 0x01000000, 0x80c00000, 0x00000000}, /* a difference below the normal range flushes */
    {0x5f800000, 0x5f7f0000, 0x7b7f0000, 0x7f7fff00}, /* near the largest */
    {0x5f800000, 0x5f800000, 0x00000000, 0x7f800000}, /* overflow */
    {0xdf800000, 0x5f000000, 0xff7fffff, 0xff800000}, /* overflow, negative */
    {0x39660000, 0xbd270000, 0xb123a450, 0xb716143a}, /* no particular ones */
    {0x3f8b0000, 0xb8bf0000, 0x3b9dc9f8, 0x3b9a8c50},
    {0x3f590000, 0xba620000, 0x349950d8, 0xba3f7ed6},
    {0x38030000, 0x3a8d0000, 0x35b8f7d9, 0x35bd7a49},
    {0x442d0000, 0x40210000, 0x42317c23, 0x44df25e1},
    {0xc0700000, 0xc61f0000, 0x49d630f1, 0x49dad971},
    {0xb7e60000, 0x3a8c0000, 0x356cd7b0, 0x3564fb30},
    {0xbbc40000, 0x3d970000, 0x3c6de6a4, 0x3c66ace4},
};

/* Where tininess is decided: x86 rounds first. Emulators that look at the exact value, or round to the
 * denormal's shorter fraction, fail here. */
static const uint32_t edge_cases[][4] = {
    {0x9a000000, 0x1a000000, 0x00800000, 0x00000000}, /* 2^-126 (1 - 2^-24): 24 bits hold it, so tiny */
    {0x99800000, 0x1a000000, 0x00800000, 0x00800000}, /* 2^-126 (1 - 2^-25): rounds up to normal */
};
/* clang-format on */

static pl_status check_chain(const char *what, const uint32_t (*cases)[4], size_t n, pl_error *err)
{
    for (size_t i = 0; i < n; i++) {
        volatile uint32_t in[3] = {cases[i][0], cases[i][1], cases[i][2]};
        float got =
            chain_step(pl_f32_from_bits(in[0]), pl_f32_from_bits(in[1]), pl_f32_from_bits(in[2]));
        PL_TRY(check_bits(what, i, pl_f32_bits(got), cases[i][3], err));
    }
    return PL_OK;
}

static pl_status test_chain(pl_error *err)
{
    return check_chain("chain", chain_cases, sizeof chain_cases / sizeof chain_cases[0], err);
}

static pl_status test_edge(pl_error *err)
{
    return check_chain("edge of the normal range", edge_cases,
                       sizeof edge_cases / sizeof edge_cases[0], err);
}

static float apply(char op, float a, float b)
{
    switch (op) {
    case '+':
        return a + b;
    case '*':
        return a * b;
    case '/':
        return a / b;
    default:
        return __builtin_sqrtf(a);
    }
}

static pl_status test_elementwise(pl_error *err)
{
    static const struct {
        char op;
        uint32_t a, b, want;
    } cases[] = {
        {'+', 0x3f800000, 0x33800000, 0x3f800000}, /* 1 + 2^-24: to even */
        {'+', 0x3f800001, 0x33800000, 0x3f800002},
        {'+', 0x00800000, 0x80800001, 0x80000000}, /* -2^-149 flushes to -0 */
        {'+', 0x00400000, 0x00400000, 0x00000000}, /* denormal operands are zeros */
        {'*', 0x3dcccccd, 0x3e4ccccd, 0x3ca3d70b}, /* 0.1f 0.2f, product not exact */
        {'*', 0x00800000, 0x3f000000, 0x00000000}, /* half the smallest normal */
        {'*', 0x80800000, 0x3f000000, 0x80000000},
        {'/', 0x3f800000, 0x40400000, 0x3eaaaaab}, /* 1/3 */
        {'/', 0x3f800000, 0x00400000, 0x7f800000}, /* 1/denormal = 1/0 */
        {'s', 0x40000000, 0, 0x3fb504f3},          /* sqrt(2) */
        {'s', 0x80400000, 0, 0x80000000},          /* sqrt(-0) */
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        volatile uint32_t in[2] = {cases[i].a, cases[i].b};
        float got = apply(cases[i].op, pl_f32_from_bits(in[0]), pl_f32_from_bits(in[1]));
        PL_TRY(check_bits("elementwise", i, pl_f32_bits(got), cases[i].want, err));
    }
    return PL_OK;
}

static pl_status test_bf16(pl_error *err)
{
    static const uint32_t cases[][2] = {
        {0x3f808000, 0x3f80}, /* tie to even, down */
        {0x3f818000, 0x3f82}, /* tie to even, up */
        {0x3f808001, 0x3f81}, {0x3f807fff, 0x3f80},
        {0xbf818000, 0xbf82}, {0x7f7fffff, 0x7f80}, /* rounds to infinity */
        {0xff800000, 0xff80}, {0x7f800001, 0x7fc0}, /* a NaN stays one */
        {0x807fffff, 0x8000},                       /* flushed, not rounded up to normal */
        {0x00800000, 0x0080}, {0x80000000, 0x8000},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        volatile uint32_t in = cases[i][0];
        PL_TRY(check_bits("bf16", i, pl_f32_to_bf16(pl_f32_from_bits(in)), cases[i][1], err));
    }
    return PL_OK;
}

static pl_status test_formats(pl_error *err)
{
    static const struct {
        float (*read)(uint8_t);
        uint8_t code;
        uint32_t want;
    } cases[] = {
        {pl_e4m3_to_f32, 0x7E, 0x43e00000}, /* 448 */
        {pl_e4m3_to_f32, 0x81, 0xbb000000}, /* -2^-9, its smallest */
        {pl_e2m1_to_f32, 0x0F, 0xc0c00000}, /* -6 */
        {pl_e8m0_to_f32, 1, 0x00800000},    {pl_e8m0_to_f32, 0, 0x00000000},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        PL_TRY(check_bits("formats", i, pl_f32_bits(cases[i].read(cases[i].code)), cases[i].want,
                          err));
    return PL_OK;
}

const pl_selftest pl_base_selftests[] = {
    {.level = PL_LEVEL_SCALAR, .name = "chain", .run = test_chain},
    {.level = PL_LEVEL_SCALAR, .name = "edge", .only_warns = true, .run = test_edge},
    {.level = PL_LEVEL_SCALAR, .name = "elementwise", .run = test_elementwise},
    {.level = PL_LEVEL_SCALAR, .name = "bf16", .run = test_bf16},
    {.level = PL_LEVEL_SCALAR, .name = "formats", .run = test_formats},
    {0},
};

/* Whether tests of `of` have to pass before `level` may be used. */
static bool counts_for(pl_level of, pl_level level)
{
    if (of == PL_LEVEL_F64 || level == PL_LEVEL_F64)
        return of == level || of == PL_LEVEL_SCALAR;
    return of <= level;
}

/* Runs one test; a failure that only warns goes to *warning, if it is the first. */
static pl_status run_test(const pl_selftest *t, pl_error *warning, pl_error *err)
{
    pl_error failure = {0};

    if (t->run(&failure) == PL_OK)
        return PL_OK;
    pl_error_prefix(&failure, "self-test of level %s", pl_level_name(t->level));
    if (!t->only_warns) {
        if (err)
            *err = failure;
        return failure.status;
    }
    if (warning && warning->status == PL_OK)
        *warning = failure;
    return PL_OK;
}

pl_status pl_selftest_run(pl_selftest_list tests, pl_level level, pl_error *warning, pl_error *err)
{
    pl_fpenv saved = pl_fpenv_begin();
    pl_status s = PL_OK;

    if (warning)
        *warning = (pl_error){0};
    for (; *tests && s == PL_OK; tests++)
        for (const pl_selftest *t = *tests; t->name && s == PL_OK; t++)
            if (counts_for(t->level, level))
                s = run_test(t, warning, err);
    pl_fpenv_end(saved);
    return s;
}

/* Runs the tests of the level chosen and keeps their warning. */
static pl_status test_choice(pl_selftest_list tests, pl_level_choice *choice, pl_error *err)
{
    pl_error warning;
    pl_status s = pl_selftest_run(tests, choice->level, &warning, err);

    memcpy(choice->warning, warning.msg, sizeof choice->warning);
    if (s == PL_OK && warning.status != PL_OK)
        pl_log(PL_LOG_WARN, "level", "level=%s text=\"%s\"", pl_level_name(choice->level),
               warning.msg);
    return s;
}

/* "scalar, avx2": what may be asked for here. */
static void list_possible(const pl_cpu *cpu, unsigned built, char *text, size_t size)
{
    size_t n = 0;

    for (pl_level l = PL_LEVEL_SCALAR; l <= PL_LEVEL_AVX512BF16 && n < size; l++)
        if (l <= cpu->level && built >> l & 1)
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "", pl_level_name(l));
}

static pl_status check_request(const pl_cpu *cpu, unsigned built, const char *where, pl_level l,
                               pl_error *err)
{
    char possible[64] = "", missing[256];

    list_possible(cpu, built, possible, sizeof possible);
    if (!(built >> l & 1))
        return pl_error_set(err, PL_ERR_UNSUPPORTED,
                            "%s: this build has no kernels for the level (got %s, want %s)", where,
                            pl_level_name(l), possible);
    if (l != PL_LEVEL_F64 && l > cpu->level)
        return pl_error_set(
            err, PL_ERR_UNSUPPORTED, "%s: this processor lacks %s (got %s, want %s)", where,
            pl_level_missing(cpu, l, missing, sizeof missing), pl_level_name(l), possible);
    return PL_OK;
}

static pl_status choose_requested(const pl_cpu *cpu, unsigned built, const char *where,
                                  const char *name, pl_selftest_list tests, pl_level_choice *choice,
                                  pl_error *err)
{
    pl_status s = pl_level_parse(name, &choice->level, err);

    if (s == PL_OK)
        s = check_request(cpu, built, where, choice->level, err);
    else
        pl_error_set(err, s,
                     "%s: unknown level (got '%s', want scalar, avx2, avx512, avx512bf16 or f64)",
                     where, name);
    return s == PL_OK ? test_choice(tests, choice, err) : s;
}

static pl_status choose_best(const pl_cpu *cpu, unsigned built, pl_selftest_list tests,
                             pl_level_choice *choice, pl_error *err)
{
    pl_error failure;

    for (int l = PL_LEVEL_AVX512BF16; l >= PL_LEVEL_SCALAR; l--) {
        if (!(built >> l & 1) || l > (int)cpu->level)
            continue;
        choice->level = (pl_level)l;
        if (test_choice(tests, choice, &failure) == PL_OK)
            return PL_OK;
        if (!choice->note[0])
            memcpy(choice->note, failure.msg, sizeof choice->note);
        pl_log(PL_LOG_WARN, "level", "level=%s self_test=failed text=\"%s\"",
               pl_level_name(choice->level), failure.msg);
    }
    return pl_error_set(err, PL_ERR_INTERNAL, "%s", failure.msg);
}

/* Why the choice is not the highest level there is. */
static void note_limits(const pl_cpu *cpu, pl_level_choice *choice)
{
    char missing[256];
    pl_level next = choice->level + 1;

    if (choice->note[0] || choice->level >= PL_LEVEL_AVX512BF16)
        return;
    if (next > cpu->level)
        snprintf(choice->note, sizeof choice->note, "this processor lacks %s for %s",
                 pl_level_missing(cpu, next, missing, sizeof missing), pl_level_name(next));
    else
        snprintf(choice->note, sizeof choice->note, "this build has no kernels for %s",
                 pl_level_name(next));
}

pl_status pl_level_choose(const pl_cpu *cpu, unsigned built, const char *option,
                          const char *environment, pl_selftest_list tests, pl_level_choice *choice,
                          pl_error *err)
{
    memset(choice, 0, sizeof *choice);
    if (option && option[0]) {
        choice->reason = PL_LEVEL_OPTION;
        return choose_requested(cpu, built, "--level", option, tests, choice, err);
    }
    if (environment && environment[0]) {
        choice->reason = PL_LEVEL_ENVIRONMENT;
        return choose_requested(cpu, built, "PL_CPU", environment, tests, choice, err);
    }
    choice->reason = PL_LEVEL_BEST;
    PL_TRY(choose_best(cpu, built, tests, choice, err));
    note_limits(cpu, choice);
    return PL_OK;
}
