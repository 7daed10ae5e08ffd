/* `plimsoll cpu`: text and JSON say what was found, and requests that cannot be met say why. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/cpu_report.h"
#include "ops/level.h"
#include "support/check.h"

static const char *string_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    if (!s)
        fail_msg("no string '%s'", key);
    return s;
}

static void json_is_one_document_with_the_promised_keys(void **state)
{
    pl_cpu_report r;
    json_t *doc, *level, *limits;
    json_error_t e;
    pl_error err;
    FILE *f = tmpfile();

    check_ok(pl_cpu_report_init(&r, "scalar", "avx2", &err), &err);
    check_ok(pl_cpu_report_write_json(&r, f, &err), &err);
    rewind(f);
    doc = json_loadf(f, 0, &e); /* refuses anything behind the document */
    if (!doc)
        fail_msg("%s", e.text);
    assert_string_equal(string_of(json_object_get(doc, "chosen"), "level"), "scalar");
    assert_string_equal(string_of(json_object_get(doc, "chosen"), "reason"), "--level");
    assert_int_equal(json_array_size(json_object_get(doc, "levels")), PL_LEVEL_COUNT);
    level = json_array_get(json_object_get(doc, "levels"), 0);
    assert_string_equal(string_of(level, "level"), "scalar");
    assert_true(json_is_true(json_object_get(level, "built")));
    assert_true(json_is_true(json_object_get(level, "supported")));
    assert_int_equal(json_array_size(json_object_get(level, "missing")), 0);
    assert_string_equal(string_of(level, "self_test"), "passed");
    limits = json_object_get(doc, "limits");
    assert_int_equal(json_integer_value(json_object_get(limits, "default_threads")),
                     pl_cpu_default_threads());
    assert_int_equal(json_integer_value(json_object_get(limits, "memory_bytes")),
                     r.memory.total_bytes);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(doc, "topology"), "cores")),
                     r.topology.n_cores);
    assert_int_equal(json_array_size(json_object_get(json_object_get(doc, "topology"), "cpus")),
                     r.topology.n_cpus);
    assert_true(json_array_size(json_object_get(doc, "operators")) >= 8);
    json_decref(doc);
    fclose(f);
    pl_cpu_report_fini(&r);
}

static void levels_that_cannot_run_are_not_tested(void **state)
{
    pl_cpu_report r;
    pl_error err;

    check_ok(pl_cpu_report_init(&r, NULL, NULL, &err), &err);
    for (int l = 0; l < PL_LEVEL_COUNT; l++) {
        const pl_cpu_level_report *v = &r.levels[l];
        assert_int_equal(v->supported, !v->missing[0]);
        assert_int_equal(v->test != PL_CPU_TEST_NOT_RUN, v->built && v->supported);
    }
    assert_true(r.levels[r.choice.level].test == PL_CPU_TEST_PASSED);
    pl_cpu_report_fini(&r);
}

static void impossible_requests_are_errors(void **state)
{
    pl_cpu_report r;
    pl_error err;

    check_error(pl_cpu_report_init(&r, "mmx", NULL, &err), PL_ERR_INVALID, &err,
                "--level: unknown level (got 'mmx'", NULL);
    pl_cpu_report_fini(&r);
    check_error(pl_cpu_report_init(&r, NULL, "AVX", &err), PL_ERR_INVALID, &err, "PL_CPU:", NULL);
    pl_cpu_report_fini(&r);
}

static void text_names_the_choice(void **state)
{
    char text[8192] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    pl_cpu_report r;
    pl_error err;

    check_ok(pl_cpu_report_init(&r, NULL, "scalar", &err), &err);
    pl_cpu_report_print(&r, f);
    fclose(f);
    pl_cpu_report_fini(&r);
    assert_non_null(strstr(text, "chosen       scalar, asked for by PL_CPU\n"));
    assert_non_null(strstr(text, "  scalar       built      supported      self-test passed"));
    assert_non_null(strstr(text, " by default\n"));
}

static void an_operator_runs_at_its_highest_level_not_above_the_chosen(void **state)
{
    const pl_cpu_operators o = {"x",
                                1u << PL_LEVEL_F64 | 1u << PL_LEVEL_SCALAR | 1u << PL_LEVEL_AVX512};
    char why[64];

    assert_int_equal(pl_cpu_operators_level(&o, PL_LEVEL_SCALAR), PL_LEVEL_SCALAR);
    assert_int_equal(pl_cpu_operators_level(&o, PL_LEVEL_AVX2), PL_LEVEL_SCALAR);
    assert_int_equal(pl_cpu_operators_level(&o, PL_LEVEL_AVX512), PL_LEVEL_AVX512);
    assert_int_equal(pl_cpu_operators_level(&o, PL_LEVEL_AVX512BF16), PL_LEVEL_AVX512);
    assert_int_equal(pl_cpu_operators_level(&o, PL_LEVEL_F64), PL_LEVEL_F64);
    assert_string_equal(pl_cpu_operators_why(&o, PL_LEVEL_AVX2, why, sizeof why),
                        "has no avx2 kernels");
    assert_string_equal(pl_cpu_operators_why(&o, PL_LEVEL_AVX512, why, sizeof why),
                        "the level chosen");
}

/* The report's list is written by hand; the tables are what runs. */
static void operators_say_which_levels_have_kernels(void **state)
{
    const pl_ops *below = pl_ops_scalar();

    for (pl_level l = PL_LEVEL_AVX2; l <= PL_LEVEL_AVX512BF16; l++) {
        const pl_ops *ops = pl_ops_at(l, PL_MODE_REC);
        assert_int_equal(ops != NULL, pl_level_built() >> l & 1);
        if (!ops)
            continue;
        assert_string_equal(ops->name, pl_level_name(l));
        for (const pl_cpu_operators *o = pl_cpu_operator_groups; o->name; o++) {
            bool own = strcmp(o->name, "linear_fp8") == 0 ? ops->linear_fp8 != below->linear_fp8
                       : strcmp(o->name, "linear_fp8_a16") == 0
                           ? ops->linear_fp8_a16 != below->linear_fp8_a16
                       : strcmp(o->name, "linear_fp4") == 0 ? ops->linear_fp4 != below->linear_fp4
                       : strcmp(o->name, "linear_bf16") == 0
                           ? ops->linear_bf16 != below->linear_bf16
                       : strcmp(o->name, "attention") == 0 ? ops->attention != below->attention
                       : strcmp(o->name, "indexer") == 0   ? ops->index_topk != below->index_topk
                       : strcmp(o->name, "norm_rope") == 0 ? ops->rms_norm != below->rms_norm
                       : strcmp(o->name, "experts") == 0   ? ops->swiglu != below->swiglu
                       : strcmp(o->name, "hyper_connections") == 0 ? ops->hc_dots != below->hc_dots
                       : strcmp(o->name, "compressor") == 0 ? ops->compress != below->compress
                       : strcmp(o->name, "quantise") == 0   ? ops->quantise != below->quantise
                                                            : true;
            assert_int_equal(o->levels >> l & 1, own);
        }
        below = ops;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_one_document_with_the_promised_keys),
        cmocka_unit_test(levels_that_cannot_run_are_not_tested),
        cmocka_unit_test(impossible_requests_are_errors),
        cmocka_unit_test(text_names_the_choice),
        cmocka_unit_test(operators_say_which_levels_have_kernels),
        cmocka_unit_test(an_operator_runs_at_its_highest_level_not_above_the_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
