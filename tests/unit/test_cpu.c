/* Levels found on recorded processors. A level too high dies with an illegal instruction, one too low is
 * slow and nobody notices, so each case states the features as well. */
#include <string.h>

#include "base/cpu.h"
#include "base/error.h"
#include "base/log.h"
#include "base/selftest.h"
#include "support/check.h"

struct leaf {
    uint32_t leaf, subleaf;
    pl_cpuid_words words;
};

struct recorded {
    const struct leaf *leaves; /* ends with a leaf of all ones */
    uint64_t xcr0;
    bool highest_leaf_beyond; /* as Intel: a leaf above the highest answers as the highest */
    bool xcr0_was_read;
};

#define END                     \
    {                           \
        UINT32_MAX, UINT32_MAX, \
        {                       \
            {                   \
                0               \
            }                   \
        }                       \
    }

static pl_cpuid_words recorded_cpuid(void *user, uint32_t leaf, uint32_t subleaf)
{
    struct recorded *r = user;
    uint32_t max = r->leaves[0].words.r[0];

    if (r->highest_leaf_beyond && leaf < 0x80000000u && leaf > max)
        leaf = max;
    for (const struct leaf *l = r->leaves; l->leaf != UINT32_MAX; l++)
        if (l->leaf == leaf && l->subleaf == subleaf)
            return l->words;
    return (pl_cpuid_words){{0, 0, 0, 0}};
}

static uint64_t recorded_xcr0(void *user)
{
    struct recorded *r = user;

    r->xcr0_was_read = true;
    return r->xcr0;
}

static pl_cpu detect(struct recorded *r)
{
    pl_cpu_source source = {recorded_cpuid, recorded_xcr0, r};
    pl_cpu cpu;

    pl_cpu_detect(&cpu, &source);
    return cpu;
}

/* An EPYC 7001 as a virtual machine shows it. */
static const struct leaf zen1[] = {
    {0, 0, {{0x0000000D, 0x68747541, 0x444D4163, 0x69746E65}}},
    {1, 0, {{0x00800F12, 0x01020800, 0xFFF83203, 0x178BFBFF}}},
    {7, 0, {{0x00000000, 0x209C01AB, 0x00000000, 0x00000000}}},
    {0x80000000, 0, {{0x80000021, 0x68747541, 0x444D4163, 0x69746E65}}},
    {0x80000001, 0, {{0x00800F12, 0x40000000, 0x004003F3, 0x2FD3FBFF}}},
    {0x80000002, 0, {{0x20444D41, 0x43595045, 0x00000000, 0x00000000}}},
    END,
};

/* Core i7-4770. */
static const struct leaf haswell[] = {
    {0, 0, {{0x0000000D, 0x756E6547, 0x6C65746E, 0x49656E69}}},
    {1, 0, {{0x000306C3, 0x00100800, 0x7FFAFBFF, 0xBFEBFBFF}}},
    {7, 0, {{0x00000000, 0x000027AB, 0x00000000, 0x00000000}}},
    {0xD, 0, {{0x00000007, 0x00000340, 0x00000340, 0x00000000}}},
    {0x80000000, 0, {{0x80000008, 0x00000000, 0x00000000, 0x00000000}}},
    {0x80000001, 0, {{0x00000000, 0x00000000, 0x00000021, 0x2C100000}}},
    {0x80000002, 0, {{0x65746E49, 0x2952286C, 0x726F4320, 0x4D542865}}},
    {0x80000003, 0, {{0x37692029, 0x3737342D, 0x50432030, 0x20402055}}},
    {0x80000004, 0, {{0x30342E33, 0x007A4847, 0x00000000, 0x00000000}}},
    END,
};

/* Signature 50654, the die of Skylake-SP. */
static const struct leaf skylake_sp[] = {
    {0, 0, {{0x00000016, 0x756E6547, 0x6C65746E, 0x49656E69}}},
    {1, 0, {{0x00050654, 0x00200800, 0x7FFEFBBF, 0xBFEBFBFF}}},
    {7, 0, {{0x00000000, 0xD39FFFFB, 0x00000000, 0x00000000}}},
    {0x16, 0, {{0x00000CE4, 0x00000FA0, 0x00000064, 0x00000000}}},
    {0x80000000, 0, {{0x80000008, 0x00000000, 0x00000000, 0x00000000}}},
    {0x80000001, 0, {{0x00000000, 0x00000000, 0x00000121, 0x2C100000}}},
    END,
};

/* The same under a hypervisor that masks XSAVE and OSXSAVE but forgets the features that depend on them. */
static const struct leaf no_xsave[] = {
    {0, 0, {{0x00000016, 0x756E6547, 0x6C65746E, 0x49656E69}}},
    {1, 0, {{0x00050654, 0x00200800, 0xF3FEFBBF, 0xBFEBFBFF}}},
    {7, 0, {{0x00000000, 0xD39FFFFB, 0x00000000, 0x00000000}}},
    {0x80000000, 0, {{0x80000008, 0x00000000, 0x00000000, 0x00000000}}},
    {0x80000001, 0, {{0x00000000, 0x00000000, 0x00000121, 0x2C100000}}},
    END,
};

/* Family 1Ah; the feature bits that the manufacturer's manual gives for Zen 5. */
static const struct leaf zen5[] = {
    {0, 0, {{0x00000010, 0x68747541, 0x444D4163, 0x69746E65}}},
    {1, 0, {{0x00B00F21, 0x00200800, 0x7EF8320B, 0x178BFBFF}}},
    {7, 0, {{0x00000001, 0xF1BF97A9, 0x00405FCE, 0x00000010}}},
    {7, 1, {{0x00000030, 0x00000000, 0x00000000, 0x00000000}}},
    {0x80000000, 0, {{0x80000028, 0x68747541, 0x444D4163, 0x69746E65}}},
    {0x80000001, 0, {{0x00B00F21, 0x40000000, 0x75C237FF, 0x2FD3FBFF}}},
    END,
};

/* As qemu models it. The highest leaf is 0xB, whose words look like features where 7 is asked for. */
static const struct leaf nehalem[] = {
    {0, 0, {{0x00000004, 0x756E6547, 0x6C65746E, 0x49656E69}}},
    {1, 0, {{0x000106A3, 0x00000800, 0x80982201, 0x078BFBFD}}},
    {4, 0, {{0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}}},
    {0x80000000, 0, {{0x80000008, 0x756E6547, 0x6C65746E, 0x49656E69}}},
    {0x80000001, 0, {{0x000106A3, 0x00000000, 0x00000001, 0x20100800}}},
    END,
};

static void levels_of_recorded_processors(void **state)
{
    struct {
        const char *what;
        struct recorded r;
        pl_level level;
        int family, model;
        bool reads_xcr0;
    } cases[] = {
        {"zen1", {zen1, 0x7}, PL_LEVEL_AVX2, 0x17, 1, true},
        {"haswell", {haswell, 0x7}, PL_LEVEL_AVX2, 6, 0x3C, true},
        {"haswell, no AVX in the kernel", {haswell, 0x3}, PL_LEVEL_SCALAR, 6, 0x3C, true},
        {"skylake-sp", {skylake_sp, 0x2E7}, PL_LEVEL_AVX512, 6, 0x55, true},
        {"skylake-sp, no ZMM", {skylake_sp, 0x207}, PL_LEVEL_AVX2, 6, 0x55, true},
        {"skylake-sp, no upper ZMM", {skylake_sp, 0x67}, PL_LEVEL_AVX2, 6, 0x55, true},
        {"skylake-sp, no opmask", {skylake_sp, 0xC7}, PL_LEVEL_AVX2, 6, 0x55, true},
        {"zen5", {zen5, 0x2E7}, PL_LEVEL_AVX512BF16, 0x1A, 2, true},
        {"zen5, no ZMM", {zen5, 0x7}, PL_LEVEL_AVX2, 0x1A, 2, true},
        {"nehalem", {nehalem, 0xFFFF, true}, PL_LEVEL_SCALAR, 6, 0x1A, false},
        {"hidden XSAVE", {no_xsave, 0xE7}, PL_LEVEL_SCALAR, 6, 0x55, false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pl_cpu cpu = detect(&cases[i].r);
        if (cpu.level != cases[i].level)
            fail_msg("%s: level %s, want %s", cases[i].what, pl_level_name(cpu.level),
                     pl_level_name(cases[i].level));
        if (cpu.family != cases[i].family || cpu.model != cases[i].model)
            fail_msg("%s: family %d model %d", cases[i].what, cpu.family, cpu.model);
        /* XGETBV without OSXSAVE is an illegal instruction. */
        if (cases[i].r.xcr0_was_read != cases[i].reads_xcr0)
            fail_msg("%s: XCR0 %s read", cases[i].what, cases[i].reads_xcr0 ? "not" : "was");
    }
}

static void names_and_single_features(void **state)
{
    struct recorded r = {haswell, 0x7};
    pl_cpu cpu = detect(&r);

    assert_string_equal(cpu.vendor, "GenuineIntel");
    assert_string_equal(cpu.name, "Intel(R) Core(TM) i7-4770 CPU @ 3.40GHz");
    assert_int_equal(cpu.stepping, 3);
    assert_true(pl_cpu_has(&cpu, PL_CPU_FMA));
    assert_true(pl_cpu_has(&cpu, PL_CPU_BMI2));
    assert_false(pl_cpu_has(&cpu, PL_CPU_AVX512F));

    r = (struct recorded){zen1, 0x7};
    cpu = detect(&r);
    assert_string_equal(cpu.vendor, "AuthenticAMD");
    assert_string_equal(cpu.name, "AMD EPYC");

    r = (struct recorded){zen5, 0xE7};
    cpu = detect(&r);
    assert_string_equal(cpu.name, "");
    assert_true(pl_cpu_has(&cpu, PL_CPU_AVX_VNNI));
    assert_true(pl_cpu_has(&cpu, PL_CPU_AVX512_BF16));
    assert_false(pl_cpu_has(&cpu, PL_CPU_AMX_TILE));

    r = (struct recorded){nehalem, 0, true};
    cpu = detect(&r);
    assert_int_equal(cpu.features, 1ull << PL_CPU_SSE2);
    assert_int_equal(cpu.unsaved, 0);
}

/* One feature removed at a time must lower the level to just below the one that needs it. */
static void each_feature_of_a_level_is_needed(void **state)
{
    static const struct {
        uint32_t leaf, subleaf;
        int reg, bit;
        pl_level level;
        const char *name;
    } cases[] = {
        {1, 0, 2, 12, PL_LEVEL_SCALAR, "fma"},
        {1, 0, 2, 22, PL_LEVEL_SCALAR, "movbe"},
        {1, 0, 2, 28, PL_LEVEL_SCALAR, "avx"},
        {1, 0, 2, 29, PL_LEVEL_SCALAR, "f16c"},
        {7, 0, 1, 3, PL_LEVEL_SCALAR, "bmi1"},
        {7, 0, 1, 5, PL_LEVEL_SCALAR, "avx2"},
        {7, 0, 1, 8, PL_LEVEL_SCALAR, "bmi2"},
        {0x80000001, 0, 2, 5, PL_LEVEL_SCALAR, "lzcnt"},
        {7, 0, 1, 16, PL_LEVEL_AVX2, "avx512f"},
        {7, 0, 1, 17, PL_LEVEL_AVX2, "avx512dq"},
        {7, 0, 1, 28, PL_LEVEL_AVX2, "avx512cd"},
        {7, 0, 1, 30, PL_LEVEL_AVX2, "avx512bw"},
        {7, 0, 1, 31, PL_LEVEL_AVX2, "avx512vl"},
        {7, 0, 2, 11, PL_LEVEL_AVX512, "avx512_vnni"},
        {7, 1, 0, 5, PL_LEVEL_AVX512, "avx512_bf16"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct leaf copy[sizeof zen5 / sizeof zen5[0]];
        struct recorded r = {copy, 0x2E7};
        char missing[256];
        pl_cpu cpu;

        memcpy(copy, zen5, sizeof zen5);
        for (struct leaf *l = copy; l->leaf != UINT32_MAX; l++)
            if (l->leaf == cases[i].leaf && l->subleaf == cases[i].subleaf)
                l->words.r[cases[i].reg] &= ~(1u << cases[i].bit);
        cpu = detect(&r);
        if (cpu.level != cases[i].level)
            fail_msg("without %s: %s", cases[i].name, pl_level_name(cpu.level));
        pl_level_missing(&cpu, PL_LEVEL_AVX512BF16, missing, sizeof missing);
        assert_string_equal(missing, cases[i].name);
    }
}

static void unsaved_registers_are_named(void **state)
{
    struct recorded r = {haswell, 0x3};
    pl_cpu cpu = detect(&r);
    char text[256];

    pl_level_missing(&cpu, PL_LEVEL_AVX2, text, sizeof text);
    assert_non_null(strstr(text, "avx2 (not saved by the system)"));
    assert_null(strstr(text, "bmi2"));
    pl_level_missing(&cpu, PL_LEVEL_SCALAR, text, sizeof text);
    assert_string_equal(text, "");
}

static void names_of_levels(void **state)
{
    pl_level l;
    pl_error err;

    for (int i = 0; i < PL_LEVEL_COUNT; i++) {
        check_ok(pl_level_parse(pl_level_name((pl_level)i), &l, &err), &err);
        assert_int_equal(l, i);
    }
    check_error(pl_level_parse("AVX2", &l, &err), PL_ERR_INVALID, &err, "got 'AVX2'",
                "scalar, avx2, avx512, avx512bf16 or f64", NULL);
}

static int n_logged;

static pl_status passes(pl_error *err)
{
    return PL_OK;
}

static pl_status fails(pl_error *err)
{
    return pl_error_set(err, PL_ERR_INTERNAL, "dot: case 3 is wrong (got 1, want 2)");
}

enum { ALL_BUILT = (1 << PL_LEVEL_COUNT) - 1, AVX2_BUILT = 1 << PL_LEVEL_F64 | 3 };

static const pl_selftest sound[] = {
    {PL_LEVEL_AVX2, "x", false, passes}, {PL_LEVEL_AVX512, "x", false, passes}, {0}};
static const pl_selftest broken512[] = {{PL_LEVEL_AVX512, "dot", false, fails}, {0}};
static const pl_selftest broken_scalar[] = {{PL_LEVEL_SCALAR, "dot", false, fails}, {0}};
static const pl_selftest *const sound_tests[] = {pl_base_selftests, sound, NULL};
static const pl_selftest *const broken512_tests[] = {pl_base_selftests, broken512, NULL};
static const pl_selftest *const broken_tests[] = {broken_scalar, NULL};

static void the_best_level_is_chosen(void **state)
{
    struct recorded r5 = {zen5, 0xE7}, r1 = {zen1, 7};
    pl_cpu z5 = detect(&r5), z1 = detect(&r1);
    pl_level_choice c;
    pl_error err;

    check_ok(pl_level_choose(&z5, ALL_BUILT, NULL, NULL, sound_tests, &c, &err), &err);
    assert_int_equal(c.level, PL_LEVEL_AVX512BF16);
    assert_int_equal(c.reason, PL_LEVEL_BEST);
    assert_string_equal(c.note, "");
    check_ok(pl_level_choose(&z5, AVX2_BUILT, NULL, "", sound_tests, &c, &err), &err);
    assert_int_equal(c.level, PL_LEVEL_AVX2);
    assert_string_equal(c.note, "this build has no kernels for avx512");
    check_ok(pl_level_choose(&z1, ALL_BUILT, NULL, NULL, sound_tests, &c, &err), &err);
    assert_int_equal(c.level, PL_LEVEL_AVX2);
    assert_string_equal(c.note,
                        "this processor lacks avx512f, avx512dq, avx512cd, avx512bw, avx512vl"
                        " for avx512");
}

static void requests_lower_and_never_raise(void **state)
{
    struct recorded r5 = {zen5, 0xE7}, r1 = {zen1, 7};
    pl_cpu z5 = detect(&r5), z1 = detect(&r1);
    pl_level_choice c;
    pl_error err;

    check_ok(pl_level_choose(&z5, ALL_BUILT, "avx2", "avx512", sound_tests, &c, &err), &err);
    assert_int_equal(c.level, PL_LEVEL_AVX2);
    assert_int_equal(c.reason, PL_LEVEL_OPTION);
    check_ok(pl_level_choose(&z5, ALL_BUILT, NULL, "scalar", sound_tests, &c, &err), &err);
    assert_int_equal(c.level, PL_LEVEL_SCALAR);
    assert_int_equal(c.reason, PL_LEVEL_ENVIRONMENT);
    check_ok(pl_level_choose(&z1, ALL_BUILT, "f64", NULL, sound_tests, &c, &err), &err);
    assert_int_equal(c.level, PL_LEVEL_F64);

    check_error(pl_level_choose(&z1, ALL_BUILT, "avx512", NULL, sound_tests, &c, &err),
                PL_ERR_UNSUPPORTED, &err, "--level: this processor lacks avx512f",
                "(got avx512, want scalar, avx2)", NULL);
    check_error(pl_level_choose(&z5, AVX2_BUILT, NULL, "avx512bf16", sound_tests, &c, &err),
                PL_ERR_UNSUPPORTED, &err, "PL_CPU: this build has no kernels",
                "(got avx512bf16, want scalar, avx2)", NULL);
    check_error(pl_level_choose(&z5, ALL_BUILT, NULL, "sse", sound_tests, &c, &err), PL_ERR_INVALID,
                &err, "PL_CPU: unknown level (got 'sse'", NULL);
}

static void a_failing_self_test_bars_its_level_and_those_above(void **state)
{
    struct recorded r5 = {zen5, 0xE7};
    pl_cpu z5 = detect(&r5);
    pl_level_choice c;
    pl_error err;

    check_ok(pl_level_choose(&z5, ALL_BUILT, NULL, NULL, broken512_tests, &c, &err), &err);
    assert_int_equal(c.level, PL_LEVEL_AVX2);
    assert_string_equal(c.note, "self-test of level avx512: dot: case 3 is wrong (got 1, want 2)");
    check_error(pl_level_choose(&z5, ALL_BUILT, "avx512bf16", NULL, broken512_tests, &c, &err),
                PL_ERR_INTERNAL, &err, "self-test of level avx512: dot", NULL);
    check_error(pl_level_choose(&z5, ALL_BUILT, NULL, NULL, broken_tests, &c, &err),
                PL_ERR_INTERNAL, &err, "self-test of level scalar: dot", NULL);
    check_error(pl_selftest_run(broken_tests, PL_LEVEL_F64, NULL, &err), PL_ERR_INTERNAL, &err,
                "scalar", NULL);
    check_ok(pl_selftest_run(broken512_tests, PL_LEVEL_AVX2, NULL, &err), &err);
}

static void a_warning_does_not_bar(void **state)
{
    static const pl_selftest warns[] = {
        {PL_LEVEL_SCALAR, "edge", true, fails}, {PL_LEVEL_SCALAR, "x", false, passes}, {0}};
    static const pl_selftest *const tests[] = {warns, NULL};
    struct recorded r = {zen1, 7};
    pl_cpu cpu = detect(&r);
    pl_level_choice c;
    pl_error err;

    check_ok(pl_level_choose(&cpu, ALL_BUILT, NULL, NULL, tests, &c, &err), &err);
    assert_int_equal(c.level, PL_LEVEL_AVX2);
    assert_string_equal(c.warning,
                        "self-test of level scalar: dot: case 3 is wrong (got 1, want 2)");
    check_ok(pl_level_choose(&cpu, ALL_BUILT, "scalar", NULL, tests, &c, &err), &err);
    assert_true(c.warning[0]);
    check_ok(pl_level_choose(&cpu, ALL_BUILT, NULL, NULL, sound_tests, &c, &err), &err);
    assert_string_equal(c.warning, "");
}

/* The arithmetic of the scalar level, here; and that its tests notice a wrong environment. */
static void base_tests_pass_here_and_can_fail(void **state)
{
    static const pl_selftest *const tests[] = {pl_base_selftests, NULL};
    bool chain_failed = false, elementwise_failed = false;
    pl_error err, warning;

    check_ok(pl_selftest_run(tests, PL_LEVEL_SCALAR, &warning, &err), &err);
    assert_string_equal(warning.msg, "");
    for (const pl_selftest *t = pl_base_selftests; t->name; t++) {
        if (strcmp(t->name, "chain") == 0) /* without FTZ and DAZ */
            chain_failed = t->run(&err) == PL_ERR_INTERNAL;
        if (strcmp(t->name, "elementwise") == 0)
            elementwise_failed = t->run(&err) == PL_ERR_INTERNAL;
    }
    assert_true(chain_failed && elementwise_failed);
}

static void this_processor_runs_this_test(void **state)
{
    pl_cpu cpu;

    pl_cpu_detect(&cpu, NULL);
    assert_true(pl_cpu_has(&cpu, PL_CPU_SSE2));
    assert_true(cpu.level == PL_LEVEL_SCALAR || pl_cpu_has(&cpu, PL_CPU_AVX2));
#if defined(__x86_64__)
    /* The compiler's own detection agrees where it has a name for the feature. */
    assert_int_equal(pl_cpu_has(&cpu, PL_CPU_AVX2), __builtin_cpu_supports("avx2") != 0);
    assert_int_equal(pl_cpu_has(&cpu, PL_CPU_FMA), __builtin_cpu_supports("fma") != 0);
    assert_int_equal(pl_cpu_has(&cpu, PL_CPU_AVX512F), __builtin_cpu_supports("avx512f") != 0);
    assert_int_equal(pl_cpu_has(&cpu, PL_CPU_AVX512_BF16),
                     __builtin_cpu_supports("avx512bf16") != 0);
#endif
}

static void drop_line(void *user, pl_log_level level, const char *line)
{
    ++*(int *)user;
}

/* Failing self-tests are logged, here on purpose; the log must have heard of them. */
static void failures_were_logged(void **state)
{
    assert_true(n_logged >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_of_recorded_processors),
        cmocka_unit_test(names_and_single_features),
        cmocka_unit_test(each_feature_of_a_level_is_needed),
        cmocka_unit_test(unsaved_registers_are_named),
        cmocka_unit_test(names_of_levels),
        cmocka_unit_test(the_best_level_is_chosen),
        cmocka_unit_test(requests_lower_and_never_raise),
        cmocka_unit_test(a_failing_self_test_bars_its_level_and_those_above),
        cmocka_unit_test(a_warning_does_not_bar),
        cmocka_unit_test(base_tests_pass_here_and_can_fail),
        cmocka_unit_test(this_processor_runs_this_test),
        cmocka_unit_test(failures_were_logged),
    };

    pl_log_set_sink(drop_line, &n_logged);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
