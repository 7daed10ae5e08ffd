/* Row operators as a host of TVM-FFI calls them: test_ffi_rows LIBRARY. The library's own bits, and one wrong argument is
 * named and writes nothing. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "ffi_host.h"
#include "plimsoll/model_ops.h"
#include "support/check.h"

enum { N = 3, DIM = 256, HEADS = 2, WIDE = 600 };

static const char *library;
static ffi_host host;
static ffi_host_tensor *const tensors = host.tensors;
static pl_ffi_any *const args = host.args;
static pl_ffi_any context;
static pl_ops_context *own;

static uint16_t x[N][DIM], weight[DIM], y[N][DIM], q[N][HEADS][512], wide[N][HEADS][WIDE];
static uint8_t codes[N][DIM], scales[N][DIM / 128];
static float frequencies[32];
static int32_t positions[N] = {0, 7, 100000};

static pl_ffi_function *of(const char *name)
{
    pl_ffi_function *fn;

    *(void **)&fn = ffi_host_symbol(&host, name);
    return fn;
}

static int call(const char *name, int n)
{
    pl_ffi_any result = ffi_host_int(77);
    int rc;

    ffi_host_raised[0] = 0;
    rc = of(name)(NULL, args, n, &result);
    assert_int_equal(result.type_index, PL_FFI_NONE);
    return rc;
}

static void put(int i, void *data, uint8_t code, uint8_t bits, int n, const int64_t *shape)
{
    ffi_host_put(&host, i, data, code, bits, n, shape);
}

static int set_up(void **state)
{
    static const uint16_t numbers[] = {0x3F80, 0xBF00, 0x3E80, 0x4000, 0xBFC0, 0x3F20, 0x3DCC};
    pl_ops_params params = {.n_workers = 1};
    pl_error err;

    (void)state;
    ffi_host_open(&host, library);
    args[0] = ffi_host_int(1);
    assert_int_equal(of("__tvm_ffi_ops_context_create")(NULL, args, 1, &context), 0);
    check_ok(pl_ops_context_create(&params, &own, &err), &err);
    for (int i = 0; i < N * DIM; i++)
        x[i / DIM][i % DIM] = numbers[(i * 3 + i / 50) % 7];
    for (int i = 0; i < DIM; i++)
        weight[i] = numbers[i % 7];
    return 0;
}

static int tear_down(void **state)
{
    pl_ffi_any result;

    (void)state;
    pl_ops_context_destroy(own);
    assert_int_equal(of("__tvm_ffi_ops_context_destroy")(NULL, &context, 1, &result), 0);
    return dlclose(host.so);
}

static void prepare_norm(void)
{
    memset(args, 0, sizeof host.args);
    args[0] = context;
    put(1, x, PL_DL_BFLOAT, 16, 2, (const int64_t[]){N, DIM});
    put(2, weight, PL_DL_BFLOAT, 16, 1, (const int64_t[]){DIM});
    args[3] = ffi_host_real(1e-6);
    put(4, y, PL_DL_BFLOAT, 16, 2, (const int64_t[]){N, DIM});
    put(5, codes, PL_DL_E4M3, 8, 2, (const int64_t[]){N, DIM});
    put(6, scales, PL_DL_E8M0, 8, 2, (const int64_t[]){N, DIM / 128});
    memset(y, 0xA5, sizeof y);
    memset(codes, 0xA5, sizeof codes);
    memset(scales, 0xA5, sizeof scales);
}

static void norms_and_quantiser(void **state)
{
    static uint16_t want[N][DIM];
    static uint8_t want_codes[N][DIM], want_scales[N][DIM / 128];
    pl_op_rms_norm_args a = {N, DIM, 1e-6f, weight, x[0], want[0], want_codes[0], want_scales[0]};
    pl_error err;

    (void)state;
    check_ok(pl_op_rms_norm(own, &a, &err), &err);
    prepare_norm();
    ffi_host_objects(&host);
    assert_int_equal(call("__tvm_ffi_rms_norm", 7), 0);
    assert_memory_equal(y, want, sizeof y);
    assert_memory_equal(codes, want_codes, sizeof codes);
    assert_memory_equal(scales, want_scales, sizeof scales);
    prepare_norm();
    args[5].type_index = args[6].type_index = PL_FFI_NONE;
    assert_int_equal(call("__tvm_ffi_rms_norm", 7), 0);
    assert_memory_equal(y, want, sizeof y);
    /* The quantiser of the norm's result, from the same places of the call. */
    prepare_norm();
    put(1, want, PL_DL_BFLOAT, 16, 2, (const int64_t[]){N, DIM});
    put(2, codes, PL_DL_UINT, 8, 2, (const int64_t[]){N, DIM});
    put(3, scales, PL_DL_UINT, 8, 2, (const int64_t[]){N, DIM / 128});
    assert_int_equal(call("__tvm_ffi_quantise", 4), 0);
    assert_memory_equal(codes, want_codes, sizeof codes);
    assert_memory_equal(scales, want_scales, sizeof scales);
}

static void expect_refusal(const char *name, int n, const char *text)
{
    uint16_t filled[N][DIM];

    memset(filled, 0xA5, sizeof filled);
    assert_int_equal(call(name, n), -1);
    if (!strstr(ffi_host_raised, text))
        fprintf(stderr, "got '%s', want '%s' in it\n", ffi_host_raised, text);
    assert_non_null(strstr(ffi_host_raised, text));
    assert_memory_equal(y, filled, sizeof y);
}

#define REFUSED(change, text)                          \
    do {                                               \
        prepare_norm();                                \
        change;                                        \
        expect_refusal("__tvm_ffi_rms_norm", 7, text); \
    } while (0)

static void refuses_one_wrong_argument(void **state)
{
    int64_t gaps[] = {DIM + 8, 1};

    (void)state;
    REFUSED(args[0] = ffi_host_int(1), "TypeError: rms_norm: context: wrong type");
    REFUSED(tensors[1].t.type_code = PL_DL_FLOAT, "TypeError: rms_norm: x: wrong element type");
    REFUSED(tensors[1].t.strides = gaps, "ValueError: rms_norm: x: has gaps (got a stride of 264");
    REFUSED(tensors[2].shape[0] = DIM - 1,
            "weight: wrong length of dimension 0 (got 255, want 256");
    REFUSED(tensors[4].shape[0] = N - 1, "y: wrong length of dimension 0 (got 2, want 3)");
    REFUSED(tensors[5].t.type_code = PL_DL_INT, "codes: wrong element type");
    REFUSED(tensors[6].shape[1] = 1, "scales: wrong length of dimension 1 (got 1, want 2)");
    REFUSED(args[6].type_index = PL_FFI_NONE, "codes: without scales");
    REFUSED(args[3] = ffi_host_real(-1), "eps: out of range (got -1");
    REFUSED(tensors[4].t.data = codes, "overlaps");
}

static void prepare_rope(void)
{
    static int64_t strides[] = {WIDE * HEADS, WIDE, 1};

    memset(args, 0, sizeof host.args);
    args[0] = context;
    put(1, wide, PL_DL_BFLOAT, 16, 3, (const int64_t[]){N, HEADS, 512});
    tensors[1].t.strides = strides;
    put(2, frequencies, PL_DL_FLOAT, 32, 1, (const int64_t[]){32});
    put(3, positions, PL_DL_INT, 32, 1, (const int64_t[]){N});
    args[4] = ffi_host_int(0);
    for (int i = 0; i < N * HEADS * 512; i++)
        q[i / 512 / HEADS][i / 512 % HEADS][i % 512] =
            wide[i / 512 / HEADS][i / 512 % HEADS][i % 512] = x[i / DIM % N][i % DIM];
}

static void rotations(void **state)
{
    pl_op_rope_table table = {10000, 16, 65536, 32, 1};
    static int64_t none[] = {0, 512, 1};
    pl_op_rope_args a = {N, HEADS, 512, 0, frequencies, positions, q[0][0], 0, 0};
    pl_op_head_norm_rope_args b = {N, HEADS, 1e-6f, frequencies, positions, q[0][0]};
    float want[32];
    pl_error err;

    (void)state;
    check_ok(pl_op_rope_frequencies(&table, want, &err), &err);
    args[0] = ffi_host_real(table.base);
    args[1] = ffi_host_real(table.factor);
    args[2] = ffi_host_real(table.original_max_position);
    args[3] = ffi_host_real(table.beta_fast);
    args[4] = ffi_host_real(table.beta_slow);
    put(5, frequencies, PL_DL_FLOAT, 32, 1, (const int64_t[]){32});
    assert_int_equal(call("__tvm_ffi_rope_frequencies", 6), 0);
    assert_memory_equal(frequencies, want, sizeof want);
    prepare_rope();
    check_ok(pl_op_rope(own, &a, &err), &err);
    assert_int_equal(call("__tvm_ffi_rope", 5), 0);
    for (int i = 0; i < N * HEADS; i++)
        assert_memory_equal(wide[i / HEADS][i % HEADS], q[i / HEADS][i % HEADS], sizeof q[0][0]);
    prepare_rope();
    put(1, wide, PL_DL_BFLOAT, 16, 3, (const int64_t[]){N, HEADS, 512});
    memcpy(wide, q, sizeof q);
    check_ok(pl_op_head_norm_rope(own, &b, &err), &err);
    args[4] = ffi_host_real(1e-6);
    assert_int_equal(call("__tvm_ffi_head_norm_rope", 5), 0);
    assert_memory_equal(wide, q, sizeof q);
    memset(y, 0xA5, sizeof y);
    prepare_rope();
    tensors[1].t.strides = none; /* tokens that are all one token: not packed, refused */
    expect_refusal("__tvm_ffi_rope", 5, "x: heads or tokens overlap (got a stride of 0");
    prepare_rope();
    tensors[3].shape[0] = N - 1;
    expect_refusal("__tvm_ffi_rope", 5, "positions: wrong length of dimension 0 (got 2, want 3)");
}

static void hadamard(void **state)
{
    pl_op_hadamard_args a = {2 * N, x[0], q[0][0]};
    pl_error err;

    (void)state;
    check_ok(pl_op_hadamard(own, &a, &err), &err);
    memset(args, 0, sizeof host.args);
    args[0] = context;
    put(1, x, PL_DL_BFLOAT, 16, 2, (const int64_t[]){2 * N, 128});
    put(2, y, PL_DL_BFLOAT, 16, 2, (const int64_t[]){2 * N, 128});
    assert_int_equal(call("__tvm_ffi_hadamard", 3), 0);
    assert_memory_equal(y, q, sizeof y);
    tensors[1].shape[1] = 64;
    memset(y, 0xA5, sizeof y);
    expect_refusal("__tvm_ffi_hadamard", 3, "x: wrong length of dimension 1 (got 64, want 128)");
}

static void none_takes_a_workspace(void **state)
{
    static const char *const names[] = {"rms_norm", "quantise", "rope", "head_norm_rope",
                                        "hadamard"};
    char symbol[64];
    pl_ffi_any bytes;

    (void)state;
    for (int i = 0; i < 5; i++) {
        snprintf(symbol, sizeof symbol, "__tvm_ffi_%s_workspace_size", names[i]);
        assert_int_equal(of(symbol)(NULL, &context, 1, &bytes), 0);
        assert_int_equal(bytes.type_index, PL_FFI_INT);
        assert_int_equal(bytes.v.i, 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_and_quantiser),
        cmocka_unit_test(refuses_one_wrong_argument),
        cmocka_unit_test(rotations),
        cmocka_unit_test(hadamard),
        cmocka_unit_test(none_takes_a_workspace),
    };

    if (argc != 2) {
        fprintf(stderr, "usage: test_ffi_rows LIBRARY\n");
        return 2;
    }
    library = argv[1];
    return cmocka_run_group_tests_name("ffi_rows", tests, set_up, tear_down);
}
