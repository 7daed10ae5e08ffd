/* Errors of a provider with a runtime there: test_failure FOLDER. This program exports a stand-in for it, so that libraries raise
 * there, and whoever called them takes the error out again: once, and released. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"
#include "ffi/any.h"

typedef struct byte_array {
    const char *data;
    size_t size;
} byte_array;

/* As TVM-FFI lays an error out. */
typedef struct error_object {
    uint64_t references;
    int32_t type_index;
    uint32_t padding;
    void *deleter;
    byte_array kind, message, backtrace;
} error_object;

PL_FFI_EXPORT void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);
PL_FFI_EXPORT void TVMFFIErrorMoveFromRaised(error_object **result);
PL_FFI_EXPORT int TVMFFIObjectDecRef(void *object);

static const char *folder;
static pl_ops_context *context;
static pl_providers *set;

static error_object object;
static error_object *raised;
static char kind_text[64], message_text[512];
static int n_raised, n_taken, n_released;
static bool spoiled; /* objects that are no errors */

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message)
{
    int k = snprintf(kind_text, sizeof kind_text, "%sxyz", kind);
    int m = snprintf(message_text, sizeof message_text, "by the runtime: %sxyz", message);

    /* Not terminated where they end. */
    object = (error_object){.references = 1,
                            .type_index = 67,
                            .kind = {kind_text, (size_t)k - 3},
                            .message = {message_text, (size_t)m - 3}};
    if (spoiled) {
        memset(&object.kind, 0xa5, sizeof object.kind + sizeof object.message);
        object.type_index = 64;
    }
    raised = &object;
    n_raised++;
}

void TVMFFIErrorMoveFromRaised(error_object **result)
{
    *result = raised;
    n_taken += raised != NULL;
    raised = NULL;
}

int TVMFFIObjectDecRef(void *of)
{
    assert_ptr_equal(of, &object);
    n_released++;
    return 0;
}

static pl_status launch(int i, pl_error *err)
{
    case_call c = varlen_case((int32_t[]){5, -1}, (int32_t[]){7, -1}, 2, 2, 16, 16, false);
    pl_provider_outcome outcome;
    pl_status status = pl_provider_run(set, i, &c.call, &outcome, err);

    assert_int_equal(outcome.provider, i);
    assert_int_equal(outcome.reason, PL_PROVIDER_LAUNCH_FAILED);
    case_free(&c);
    return status;
}

static void the_error_of_the_runtime_is_returned_and_taken_out(void **state)
{
    int i = add_provider(set, folder, "failing", NULL);
    pl_error err = {0};

    check_error(launch(i, &err), PL_ERR_INTERNAL, &err, "test_attention: failed (got -1, want 0): ",
                "RuntimeError: by the runtime: test_attention: no tiles are left", NULL);
    assert_null(strchr(err.msg, '\n'));
    assert_null(strstr(err.msg, "xyz"));
    assert_int_equal(n_raised, 1);
    assert_int_equal(n_taken, 1);
    assert_int_equal(n_released, 1);
    assert_null(raised);
    (void)state;
}

/* What lies there is not an error: not read as one, but released. The library's own text is left. */
static void an_object_that_is_no_error_is_not_read(void **state)
{
    int i = add_provider(set, folder, "failing", NULL);
    pl_error err = {0};

    n_released = 0;
    spoiled = true;
    check_error(launch(i, &err), PL_ERR_INTERNAL, &err,
                "failed (got -1, want 0): RuntimeError: test_attention: no tiles are left", NULL);
    assert_int_equal(n_released, 1);
    spoiled = false;
    (void)state;
}

/* Nothing of ours is taken where nothing failed. */
static void a_call_that_works_leaves_the_runtime_alone(void **state)
{
    int i = add_provider(set, folder, "forms", NULL);
    case_call c = varlen_case((int32_t[]){5, -1}, (int32_t[]){7, -1}, 2, 2, 16, 16, false);
    pl_provider_outcome outcome;
    pl_error err = {0};

    raised = &object;
    check_ok(pl_provider_run(set, i, &c.call, &outcome, &err), &err);
    assert_ptr_equal(raised, &object);
    raised = NULL;
    case_free(&c);
    (void)state;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_error_of_the_runtime_is_returned_and_taken_out),
        cmocka_unit_test(an_object_that_is_no_error_is_not_read),
        cmocka_unit_test(a_call_that_works_leaves_the_runtime_alone),
    };
    pl_error err;
    int failed;

    if (argc != 2)
        return 2;
    folder = argv[1];
    context = case_context();
    if (pl_providers_create(context, &set, &err) != PL_OK)
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    pl_providers_destroy(set);
    pl_ops_context_destroy(context);
    return failed;
}
