/* What the library says of its functions: test_ffi_metadata LIBRARY. Every exported function has a text, and takes as many
 * arguments as the text has names and types. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "ffi_host.h"
#include "plimsoll/version.h"
#include "support/check.h"

static const char *library;
static ffi_host host;

static const char *const functions[] = {
    "ops_context_create",
    "ops_context_destroy",
    "provider_describe",
    "attention_varlen",
    "attention_varlen_workspace_size",
    "attention_sparse_prefill",
    "attention_sparse_prefill_workspace_size",
    "attention_sparse_decode",
    "attention_sparse_decode_workspace_size",
    "kv_insert",
    "kv_insert_workspace_size",
    "kv_gather",
    "kv_gather_workspace_size",
    "kv_pack",
    "kv_pack_workspace_size",
    "kv_unpack",
    "kv_unpack_workspace_size",
    "rms_norm",
    "rms_norm_workspace_size",
    "quantise",
    "quantise_workspace_size",
    "rope_frequencies",
    "rope",
    "rope_workspace_size",
    "head_norm_rope",
    "head_norm_rope_workspace_size",
    "hadamard",
    "hadamard_workspace_size",
};

static json_t *metadata_of(const char *name)
{
    char symbol[128];
    pl_ffi_function *fn;
    pl_ffi_any result;
    json_t *parsed;
    json_error_t error;

    snprintf(symbol, sizeof symbol, "__tvm_ffi__metadata_%s", name);
    *(void **)&fn = ffi_host_symbol(&host, symbol);
    assert_int_equal(fn(NULL, NULL, 0, &result), 0);
    assert_int_equal(result.type_index, PL_FFI_STR);
    parsed = json_loads(ffi_host_text, 0, &error);
    if (!parsed)
        fprintf(stderr, "%s: %s\n", ffi_host_text, error.text);
    assert_non_null(parsed);
    return parsed;
}

static void every_function_has_its_arguments(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        json_t *of = metadata_of(functions[i]), *types, *args;
        char symbol[128], want[128];
        pl_ffi_function *fn;
        pl_ffi_any none[40] = {{0}}, result;

        args = json_object_get(of, "arguments");
        assert_string_equal(json_string_value(json_object_get(of, "version")), PL_VERSION);
        types = json_loads(json_string_value(json_object_get(of, "type_schema")), 0, NULL);
        assert_non_null(types);
        assert_string_equal(json_string_value(json_object_get(types, "type")), "ffi.Function");
        /* The first type is the result's. */
        assert_int_equal(json_array_size(json_object_get(types, "args")),
                         json_array_size(args) + 1);
        snprintf(symbol, sizeof symbol, "__tvm_ffi_%s", functions[i]);
        *(void **)&fn = ffi_host_symbol(&host, symbol);
        assert_int_equal(fn(NULL, none, 40, &result), -1);
        snprintf(want, sizeof want, "%s: number of arguments is wrong (got 40, want %zu)",
                 functions[i], json_array_size(args));
        assert_non_null(strstr(ffi_host_raised, want));
        json_decref(types);
        json_decref(of);
    }
}

static void arguments_have_names_and_types(void **state)
{
    static const char *const want[] = {"context",       "q",       "seq_tokens",    "cache",
                                       "indices",       "lengths", "extra_cache",   "extra_indices",
                                       "extra_lengths", "sink",    "softmax_scale", "out",
                                       "max_logits",    "lse",     "workspace"};
    json_t *of = metadata_of("attention_sparse_decode");

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_string_equal(json_string_value(json_array_get(json_object_get(of, "arguments"), i)),
                            want[i]);
    assert_non_null(strstr(
        json_string_value(json_object_get(of, "type_schema")),
        "{\"type\":\"None\"},{\"type\":\"void*\"},{\"type\":\"ffi.Tensor\"},{\"type\":\"int\"},"
        "{\"type\":\"ffi.Tensor\"},{\"type\":\"ffi.Tensor\"},"
        "{\"type\":\"Optional\",\"args\":[{\"type\":\"ffi.Tensor\"}]}"));
    json_decref(of);
}

/* What the library says of itself as a provider has the names and the order of its functions, and outputs where they lie. */
static void the_record_names_what_the_functions_take(void **state)
{
    static const char *const outputs[] = {"out", "max_logits", "lse"};
    static char text[16384];
    int64_t n_bytes = sizeof text;
    pl_ffi_function *describe;
    pl_ffi_any result;
    json_t *record, *operators, *operator;
    size_t i;

    *(void **)&describe = ffi_host_symbol(&host, "__tvm_ffi_provider_describe");
    ffi_host_put(&host, 0, text, PL_DL_UINT, 8, 1, &n_bytes);
    assert_int_equal(describe(NULL, host.args, 1, &result), 0);
    assert_true(result.v.i > 0 && result.v.i < (int64_t)sizeof text);
    record = json_loadb(text, (size_t)result.v.i, 0, NULL);
    operators = json_object_get(record, "operators");
    assert_int_equal(json_array_size(operators), 3);
    json_array_foreach(operators, i, operator)
    {
        json_t *of = metadata_of(json_string_value(json_object_get(operator, "function")));
        json_t *names = json_object_get(operator, "parameters"), *place;
        size_t k, n = 0;

        assert_true(json_equal(names, json_object_get(of, "arguments")));
        json_array_foreach(json_object_get(operator, "outputs"), k, place)
        {
            const char *name =
                json_string_value(json_array_get(names, (size_t)json_integer_value(place)));
            n += n == 1 && strcmp(name, "lse") == 0; /* varlen has no largest logits */
            assert_true(n < 3);
            assert_string_equal(name, outputs[n++]);
        }
        assert_int_equal(n, 3);
        json_decref(of);
    }
    json_decref(record);
    (void)state;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_has_its_arguments),
        cmocka_unit_test(arguments_have_names_and_types),
        cmocka_unit_test(the_record_names_what_the_functions_take),
    };

    if (argc != 2) {
        fprintf(stderr, "usage: test_ffi_metadata LIBRARY\n");
        return 2;
    }
    library = argv[1];
    ffi_host_open(&host, library);
    return cmocka_run_group_tests_name("ffi_metadata", tests, NULL, NULL);
}
