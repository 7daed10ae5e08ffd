/* The TVM-FFI functions as a host calls them: test_ffi LIBRARY. Tensors of both kinds give the library's own bits, errors
 * arrive with their kind and name the argument, and nothing is written then. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ffi_host.h"
#include "plimsoll/ops.h"
#include "support/check.h"

enum { T = 5, K = 7, H = 4, HK = 2, D = 16, N_ARGS = 16 };

static const char *library;
static ffi_host host;
static pl_ffi_function *create, *destroy, *size_of, *attention;
static const char *(*last_error)(void);

static float q[T][H][D], k[K][HK][D], v[K][HK][D], sink[H] = {0.5f, -1, 2, 0};
static float out[T][H][D], lse[H][T];
static int32_t cu_q[3] = {0, 2, T}, cu_k[3] = {0, 3, K};
static uint8_t *work;
static int64_t work_bytes;
static pl_ffi_any context;

static ffi_host_tensor *const tensors = host.tensors;
static pl_ffi_any *const args = host.args;

static void put_tensor(int i, void *data, uint8_t code, uint8_t bits, int n, const int64_t *shape)
{
    ffi_host_put(&host, i, data, code, bits, n, shape);
}

/* A call in which everything is right. */
static void prepare(void)
{
    memset(args, 0, sizeof host.args);
    args[0] = context;
    put_tensor(1, q, PL_DL_FLOAT, 32, 3, (const int64_t[]){T, H, D});
    put_tensor(2, k, PL_DL_FLOAT, 32, 3, (const int64_t[]){K, HK, D});
    put_tensor(3, v, PL_DL_FLOAT, 32, 3, (const int64_t[]){K, HK, D});
    put_tensor(4, cu_q, PL_DL_INT, 32, 1, (const int64_t[]){3});
    put_tensor(5, cu_k, PL_DL_INT, 32, 1, (const int64_t[]){3});
    put_tensor(7, sink, PL_DL_FLOAT, 32, 1, (const int64_t[]){H});
    args[8] = ffi_host_real(0.25);
    args[9] = (pl_ffi_any){.type_index = PL_FFI_BOOL, .v.i = 1};
    args[10] = args[11] = ffi_host_int(-1);
    args[12] = ffi_host_real(3);
    put_tensor(13, out, PL_DL_FLOAT, 32, 3, (const int64_t[]){T, H, D});
    put_tensor(14, lse, PL_DL_FLOAT, 32, 2, (const int64_t[]){H, T});
    put_tensor(15, work, PL_DL_UINT, 8, 1, &work_bytes);
    memset(out, 0xa5, sizeof out);
    memset(lse, 0xa5, sizeof lse);
    ffi_host_raised[0] = 0;
}

static int call(void)
{
    pl_ffi_any result = ffi_host_int(77);
    int rc = attention(NULL, args, N_ARGS, &result);

    assert_int_equal(result.type_index, PL_FFI_NONE);
    return rc;
}

static int set_up(void **state)
{
    pl_ffi_any one = ffi_host_int(1), bytes;

    (void)state;
    ffi_host_open(&host, library);
    *(void **)&create = ffi_host_symbol(&host, "__tvm_ffi_ops_context_create");
    *(void **)&destroy = ffi_host_symbol(&host, "__tvm_ffi_ops_context_destroy");
    *(void **)&size_of = ffi_host_symbol(&host, "__tvm_ffi_attention_varlen_workspace_size");
    *(void **)&attention = ffi_host_symbol(&host, "__tvm_ffi_attention_varlen");
    *(void **)&last_error = ffi_host_symbol(&host, "plimsoll_ffi_last_error");
    assert_string_equal(last_error(), "");
    assert_int_equal(create(NULL, &one, 1, &context), 0);
    assert_int_equal(context.type_index, PL_FFI_OPAQUE);
    assert_int_equal(size_of(NULL, &context, 1, &bytes), 0);
    assert_int_equal(bytes.type_index, PL_FFI_INT);
    work_bytes = bytes.v.i;
    work = aligned_alloc(64, (size_t)work_bytes);
    assert_non_null(work);
    for (int i = 0; i < T * H * D; i++)
        (&q[0][0][0])[i] = (float)(i * 37 % 101) / 64 - 0.75f;
    for (int i = 0; i < K * HK * D; i++) {
        (&k[0][0][0])[i] = (float)(i * 53 % 97) / 32 - 1.5f;
        (&v[0][0][0])[i] = (float)(i * 29 % 89) / 16 - 2;
    }
    return 0;
}

static int tear_down(void **state)
{
    pl_ffi_any result;

    (void)state;
    assert_int_equal(destroy(NULL, &context, 1, &result), 0);
    free(work);
    return dlclose(host.so);
}

/* Of no token: an array of statistics has no gaps then, whatever its strides. */
static void no_tokens_are_fine(void **state)
{
    int64_t far[] = {T, 1};

    (void)state;
    cu_q[1] = cu_q[2] = 0;
    prepare();
    tensors[1].shape[0] = tensors[13].shape[0] = tensors[14].shape[1] = 0;
    tensors[14].t.strides = far;
    assert_int_equal(call(), 0);
    cu_q[1] = 2;
    cu_q[2] = T;
}

/* What the library's own entry gives. */
static void direct(float *want, float *want_lse)
{
    pl_attention_varlen_args a = pl_attention_varlen_default();
    pl_ops_params params = {.n_workers = 1};
    pl_ops_context *c;
    pl_error err;

    check_ok(pl_ops_context_create(&params, &c, &err), &err);
    a.dtype = PL_DTYPE_FP32;
    a.n_seqs = 2;
    a.n_heads = H;
    a.n_kv_heads = HK;
    a.head_dim = a.value_dim = D;
    a.cu_seqlens_q = cu_q;
    a.cu_seqlens_k = cu_k;
    a.q = q;
    a.k = k;
    a.v = v;
    a.q_token_stride = a.out_token_stride = H * D;
    a.k_token_stride = a.v_token_stride = HK * D;
    a.q_head_stride = a.k_head_stride = a.v_head_stride = a.out_head_stride = D;
    a.sink = sink;
    a.n_sinks = 1;
    a.softmax_scale = 0.25f;
    a.causal = 1;
    a.softcap = 3;
    a.out = want;
    a.lse = want_lse;
    check_ok(pl_attention_varlen(c, &a, work, (uint64_t)work_bytes, &err), &err);
    pl_ops_context_destroy(c);
}

static void tensors_of_both_kinds(void **state)
{
    static _Alignas(64) char shifted[128 + sizeof q];
    float want[T][H][D], want_lse[H][T];

    (void)state;
    direct(&want[0][0][0], &want_lse[0][0]);
    prepare();
    assert_int_equal(call(), 0);
    assert_memory_equal(out, want, sizeof out);
    assert_memory_equal(lse, want_lse, sizeof lse);
    prepare();
    ffi_host_objects(&host);
    assert_int_equal(call(), 0);
    assert_memory_equal(out, want, sizeof out);
    assert_memory_equal(lse, want_lse, sizeof lse);
    /* An address in two parts, and strides that are said. */
    prepare();
    memcpy(shifted + 128, q, sizeof q);
    tensors[1].t.data = shifted;
    tensors[1].t.byte_offset = 128;
    tensors[1].t.strides = (int64_t[]){H * D, D, 1};
    assert_int_equal(call(), 0);
    assert_memory_equal(out, want, sizeof out);
}

static void pages_are_found(void **state)
{
    static float pages[2][3][4][HK][D];
    int32_t table[2][1] = {{2}, {0}};
    float want[T][H][D], want_lse[H][T];

    (void)state;
    direct(&want[0][0][0], &want_lse[0][0]);
    memset(pages, 0xff, sizeof pages); /* NaN where there is no key */
    memcpy(pages[0][2], k[0], sizeof k[0] * 3);
    memcpy(pages[1][2], v[0], sizeof v[0] * 3);
    memcpy(pages[0][0], k[3], sizeof k[0] * 4);
    memcpy(pages[1][0], v[3], sizeof v[0] * 4);
    prepare();
    put_tensor(2, pages[0], PL_DL_FLOAT, 32, 4, (const int64_t[]){3, 4, HK, D});
    put_tensor(3, pages[1], PL_DL_FLOAT, 32, 4, (const int64_t[]){3, 4, HK, D});
    put_tensor(6, table, PL_DL_INT, 32, 2, (const int64_t[]){2, 1});
    assert_int_equal(call(), 0);
    assert_memory_equal(out, want, sizeof out);
    assert_memory_equal(lse, want_lse, sizeof lse);
}

static void expect_refusal(const char *text)
{
    float filled[T][H][D];

    memset(filled, 0xa5, sizeof filled);
    assert_int_equal(call(), -1);
    if (!strstr(ffi_host_raised, text))
        fprintf(stderr, "got '%s', want '%s' in it\n", ffi_host_raised, text);
    assert_non_null(strstr(ffi_host_raised, text));
    assert_string_equal(last_error(), ffi_host_raised);
    assert_memory_equal(out, filled, sizeof out);
    assert_memory_equal(lse, filled, sizeof lse);
}

#define REFUSED(change, text) \
    do {                      \
        prepare();            \
        change;               \
        expect_refusal(text); \
    } while (0)

static void refuses_one_wrong_argument(void **state)
{
    int64_t gaps[] = {2 * H * D, 2 * D, 2}, lse_gaps[] = {T + 1, 1};

    (void)state;
    REFUSED(args[0] = ffi_host_int(1),
            "TypeError: attention_varlen: context: wrong type (got type index 1");
    REFUSED(args[1] = ffi_host_int(1), "TypeError: attention_varlen: q: wrong type");
    REFUSED(args[1].type_index = PL_FFI_NONE, "q: wrong type (got type index 0, want a tensor)");
    REFUSED(tensors[1].t.device_type = 2,
            "ValueError: attention_varlen: q: not on the CPU (got device type 2");
    REFUSED(tensors[1].t.n_dims = 2, "q: number of dimensions is wrong (got 2, want 3)");
    REFUSED(tensors[1].t.type_lanes = 4, "q: elements are vectors");
    REFUSED(tensors[1].t.type_bits = 64, "TypeError: attention_varlen: q: wrong element type");
    REFUSED(tensors[1].t.strides = gaps, "q: the last dimension has gaps (got a stride of 2");
    REFUSED(tensors[1].shape[0] = -1, "q: negative length (got -1");
    REFUSED((tensors[1].shape[0] = INT64_MAX / 2, tensors[1].t.strides = NULL), "q: too large");
    REFUSED(tensors[2].t.type_code = PL_DL_BFLOAT, "k: not q's element type");
    REFUSED(tensors[2].shape[2] = 8, "k and q, dims: lengths differ (got 8, want 16)");
    REFUSED(tensors[3].shape[0] = K - 1, "v and k: lengths differ (got 6, want 7)");
    REFUSED(tensors[4].t.type_bits = 64, "cu_seqlens_q: wrong element type");
    REFUSED(tensors[4].shape[0] = 0, "cu_seqlens");
    REFUSED(tensors[5].shape[0] = 2, "cu_seqlens_k: wrong length (got 2, want 3)");
    REFUSED(tensors[7].shape[0] = 2, "sink: wrong shape");
    REFUSED(tensors[7].t.type_bits = 16, "sink: wrong element type");
    REFUSED(args[8].type_index = PL_FFI_STR,
            "softmax_scale: wrong type (got type index 65, want a float)");
    REFUSED(args[9] = ffi_host_real(1), "causal: wrong type");
    REFUSED(args[10] = ffi_host_int(INT64_C(1) << 32), "window_left: out of range (got 4294967296");
    REFUSED(args[11] = ffi_host_int(-2),
            "ValueError: attention_varlen: window_right: out of range (got -2");
    REFUSED(tensors[13].shape[0] = T + 1, "out and q, tokens: lengths differ (got 6, want 5)");
    REFUSED(tensors[13].t.data = q, "out: overlaps q");
    REFUSED(tensors[14].shape[0] = T, "lse: wrong shape (got [5][5], want [4][5])");
    REFUSED(tensors[14].t.strides = lse_gaps, "lse: has gaps");
    REFUSED(tensors[15].shape[0]--, "workspace_bytes: too few");
    REFUSED(tensors[15].t.type_code = PL_DL_INT, "workspace: wrong element type");
}

static void refuses_lengths_and_calls(void **state)
{
    pl_ffi_any result;

    (void)state;
    cu_q[2] = T - 1;
    REFUSED(, "cu_seqlens_q, its end and q: lengths differ (got 4, want 5)");
    cu_q[2] = T;
    cu_k[1] = K + 1;
    REFUSED(, "ValueError: attention_varlen: cu_seqlens_k[2]: falls");
    cu_k[1] = 3;
    prepare();
    assert_int_equal(attention(NULL, args, N_ARGS - 1, &result), -1);
    assert_non_null(
        strstr(ffi_host_raised,
               "TypeError: attention_varlen: number of arguments is wrong (got 15, want 16)"));
    args[0] = ffi_host_int(100000);
    assert_int_equal(create(NULL, args, 1, &result), -1);
    assert_non_null(strstr(ffi_host_raised,
                           "ValueError: ops_context_create: n_workers: out of range (got 100000"));
    assert_int_equal(result.type_index, PL_FFI_NONE);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_of_both_kinds),     cmocka_unit_test(pages_are_found),
        cmocka_unit_test(no_tokens_are_fine),        cmocka_unit_test(refuses_one_wrong_argument),
        cmocka_unit_test(refuses_lengths_and_calls),
    };

    if (argc != 2) {
        fprintf(stderr, "usage: test_ffi LIBRARY\n");
        return 2;
    }
    library = argv[1];
    return cmocka_run_group_tests_name("ffi", tests, set_up, tear_down);
}
