/* Sparse attention and caches as a host of TVM-FFI calls them: test_ffi_sparse LIBRARY. Tensors of both kinds give the
 * library's own bits, caches are found by type and shape, and one wrong argument is named and writes nothing. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ffi_host.h"
#include "plimsoll/ops.h"
#include "support/check.h"

enum { T = 4, SEQ = 2, H = 3, D = 512, PAGE = 3, N_PAGES = 2, SLOTS = PAGE * N_PAGES, N = 5 };
enum { ROW = 584, PAGE_BYTES = PAGE * ROW + 40, PLAIN = 2, N_PREFILL = 14, N_DECODE = 15 };

static const char *library;
static ffi_host host;
static ffi_host_tensor *const tensors = host.tensors;
static pl_ffi_any *const args = host.args;
static pl_ffi_function *create, *destroy, *size_of, *prefill, *decode;
static pl_ffi_function *insert, *gather, *pack, *unpack;

static uint16_t q[T][H][D], x[SLOTS][D], plain[PLAIN][D + 64], out[T][H][D];
static uint8_t pages[N_PAGES][PAGE_BYTES];
static int32_t list[T][N + 1], extra[T][1], lengths[T / SEQ] = {N, 3}, token_lengths[T];
static int32_t slots[SLOTS];
static float sink[H] = {0.5f, -1, 2}, max_logits[H][T], lse[H][T];
static uint8_t *work;
static int64_t work_bytes;
static pl_ffi_any context;
static pl_ops_context *own; /* of the library that this program is linked with */

static const int64_t page_strides[] = {PAGE_BYTES, ROW, ROW, 1}, list_strides[] = {N + 1, 1},
                     plain_strides[] = {D + 64, D + 64, 1};

static void put(int i, void *data, uint8_t code, uint8_t bits, int n, const int64_t *shape,
                const int64_t *strides)
{
    ffi_host_put(&host, i, data, code, bits, n, shape);
    tensors[i].t.strides = (int64_t *)(uintptr_t)strides;
}

static void put_pages(int i, uint8_t code)
{
    put(i, pages, code, 8, 4, (const int64_t[]){N_PAGES, PAGE, 1, ROW}, page_strides);
}

static int set_up(void **state)
{
    static const uint16_t numbers[] = {0x3F80, 0xBF00, 0x3E80, 0x4000, 0xBFC0, 0x3F20, 0x3DCC};
    pl_ops_params params = {.n_workers = 1};
    pl_ffi_any one = ffi_host_int(1), bytes;
    pl_error err;

    (void)state;
    ffi_host_open(&host, library);
    *(void **)&create = ffi_host_symbol(&host, "__tvm_ffi_ops_context_create");
    *(void **)&destroy = ffi_host_symbol(&host, "__tvm_ffi_ops_context_destroy");
    *(void **)&size_of =
        ffi_host_symbol(&host, "__tvm_ffi_attention_sparse_prefill_workspace_size");
    *(void **)&prefill = ffi_host_symbol(&host, "__tvm_ffi_attention_sparse_prefill");
    *(void **)&decode = ffi_host_symbol(&host, "__tvm_ffi_attention_sparse_decode");
    *(void **)&insert = ffi_host_symbol(&host, "__tvm_ffi_kv_insert");
    *(void **)&gather = ffi_host_symbol(&host, "__tvm_ffi_kv_gather");
    *(void **)&pack = ffi_host_symbol(&host, "__tvm_ffi_kv_pack");
    *(void **)&unpack = ffi_host_symbol(&host, "__tvm_ffi_kv_unpack");
    assert_int_equal(create(NULL, &one, 1, &context), 0);
    check_ok(pl_ops_context_create(&params, &own, &err), &err);
    assert_int_equal(size_of(NULL, &context, 1, &bytes), 0);
    assert_int_equal(bytes.v.i, (int64_t)pl_ops_workspace_bytes(own));
    work_bytes = bytes.v.i;
    work = aligned_alloc(64, (size_t)work_bytes);
    assert_non_null(work);
    for (int i = 0; i < T * H * D; i++)
        (&q[0][0][0])[i] = numbers[i * 5 % 7];
    for (int i = 0; i < SLOTS * D; i++)
        (&x[0][0])[i] = numbers[(i * 3 + i / 64) % 7];
    memset(plain, 0xFF, sizeof plain);
    for (int i = 0; i < PLAIN; i++)
        memcpy(plain[i], x[i + 2], sizeof x[0]);
    for (int t = 0; t < T; t++) {
        for (int i = 0; i <= N; i++)
            list[t][i] = i == N ? SLOTS : (i + t) % (SLOTS + 1) - 1;
        extra[t][0] = t % PLAIN;
        token_lengths[t] = lengths[t / SEQ];
    }
    for (int i = 0; i < SLOTS; i++)
        slots[i] = SLOTS - 1 - i;
    return 0;
}

static int tear_down(void **state)
{
    pl_ffi_any result;

    (void)state;
    pl_ops_context_destroy(own);
    assert_int_equal(destroy(NULL, &context, 1, &result), 0);
    free(work);
    return dlclose(host.so);
}

/* What the library's own entry gives for prepare's call. */
static void direct(uint16_t *want, float *want_max, float *want_lse)
{
    pl_attention_sparse_args a = {.n_tokens = T,
                                  .n_heads = H,
                                  .head_dim = D,
                                  .seq_tokens = SEQ,
                                  .q = q[0][0],
                                  .q_token_stride = H * D,
                                  .q_head_stride = D,
                                  .softmax_scale = 0.0625f,
                                  .n_sets = 2,
                                  .sink = sink,
                                  .out = want,
                                  .out_token_stride = H * D,
                                  .out_head_stride = D,
                                  .lse = want_lse,
                                  .max_logits = want_max};
    pl_error err;

    a.set[0] = (pl_sparse_keys){
        {PL_KV_V4, D, pages, PAGE, N_PAGES, PAGE_BYTES}, list[0], N + 1, N, lengths};
    a.set[1] =
        (pl_sparse_keys){{PL_KV_BF16, D, plain, 1, PLAIN, sizeof plain[0]}, extra[0], 1, 1, NULL};
    check_ok(pl_attention_sparse_decode(own, &a, work, (uint64_t)work_bytes, &err), &err);
}

/* A call of decode (1) or prefill (0) in which everything is right: what follows q is one place later in decode. */
static void prepare(int of_decode)
{
    int at = 1 + of_decode;

    memset(args, 0, sizeof host.args);
    args[0] = context;
    put(1, q, PL_DL_BFLOAT, 16, 3, (const int64_t[]){T, H, D}, NULL);
    if (of_decode)
        args[2] = ffi_host_int(SEQ);
    put_pages(at + 1, PL_DL_E4M3);
    put(at + 2, list, PL_DL_INT, 32, 2, (const int64_t[]){T, N}, list_strides);
    put(at + 3, of_decode ? lengths : token_lengths, PL_DL_INT, 32, 1,
        (const int64_t[]){of_decode ? T / SEQ : T}, NULL);
    put(at + 4, plain, PL_DL_BFLOAT, 16, 3, (const int64_t[]){PLAIN, 1, D}, plain_strides);
    put(at + 5, extra, PL_DL_INT, 32, 3, (const int64_t[]){T, 1, 1}, NULL);
    put(at + 7, sink, PL_DL_FLOAT, 32, 1, (const int64_t[]){H}, NULL);
    args[at + 8] = ffi_host_real(0.0625);
    put(at + 9, out, PL_DL_BFLOAT, 16, 3, (const int64_t[]){T, H, D}, NULL);
    put(at + 10, max_logits, PL_DL_FLOAT, 32, 2, (const int64_t[]){H, T}, NULL);
    put(at + 11, lse, PL_DL_FLOAT, 32, 2, (const int64_t[]){H, T}, NULL);
    put(at + 12, work, PL_DL_UINT, 8, 1, &work_bytes, NULL);
    memset(out, 0xA5, sizeof out);
    memset(max_logits, 0xA5, sizeof max_logits);
    memset(lse, 0xA5, sizeof lse);
    ffi_host_raised[0] = 0;
}

static int call(pl_ffi_function *fn, int n)
{
    pl_ffi_any result = ffi_host_int(77);
    int rc = fn(NULL, args, n, &result);

    assert_int_equal(result.type_index, PL_FFI_NONE);
    return rc;
}

static void put_rows(void)
{
    memset(args, 0, sizeof host.args);
    args[0] = context;
    put_pages(1, PL_DL_UINT);
    put(2, slots, PL_DL_INT, 32, 1, (const int64_t[]){SLOTS}, NULL);
    put(3, x, PL_DL_BFLOAT, 16, 2, (const int64_t[]){SLOTS, D}, NULL);
    ffi_host_raised[0] = 0;
}

static void fill_pages(void)
{
    memset(pages, 0xFF, sizeof pages);
    put_rows();
    assert_int_equal(call(insert, 4), 0);
}

static void rows_go_in_and_out(void **state)
{
    static uint8_t codes[SLOTS][448], scales[SLOTS][8], want[N_PAGES][PAGE_BYTES];
    static uint16_t got[SLOTS][D], again[SLOTS][D], rope[SLOTS][64];
    pl_kv_cache cache = {PL_KV_V4, D, want, PAGE, N_PAGES, PAGE_BYTES};
    pl_error err;

    (void)state;
    memset(want, 0xFF, sizeof want);
    check_ok(pl_kv_insert(own, &cache, SLOTS, slots, x[0], D, &err), &err);
    fill_pages();
    assert_memory_equal(pages, want, sizeof pages);
    check_ok(pl_kv_gather(own, &cache, SLOTS, slots, again[0], D, &err), &err);
    put_rows();
    tensors[3].t.data = got;
    ffi_host_objects(&host);
    assert_int_equal(call(gather, 4), 0);
    assert_memory_equal(got, again, sizeof got);
    put_rows();
    put(3, codes, PL_DL_UINT, 8, 2, (const int64_t[]){SLOTS, 448}, NULL);
    put(4, scales, PL_DL_UINT, 8, 2, (const int64_t[]){SLOTS, 8}, NULL);
    put(5, rope, PL_DL_BFLOAT, 16, 2, (const int64_t[]){SLOTS, 64}, NULL);
    assert_int_equal(call(unpack, 6), 0);
    for (int i = 0; i < SLOTS; i++)
        assert_memory_equal(rope[i], &x[i][448], sizeof rope[i]);
    memset(pages, 0xFF, sizeof pages);
    assert_int_equal(call(pack, 6), 0);
    assert_memory_equal(pages, want, sizeof pages);
}

static void both_calls_give_the_librarys_bits(void **state)
{
    static uint16_t want[T][H][D];
    static float want_max[H][T], want_lse[H][T];

    (void)state;
    fill_pages();
    direct(want[0][0], want_max[0], want_lse[0]);
    for (int i = 0; i < 4; i++) {
        prepare(i % 2);
        if (i > 1)
            ffi_host_objects(&host);
        assert_int_equal(i % 2 ? call(decode, N_DECODE) : call(prefill, N_PREFILL), 0);
        assert_memory_equal(out, want, sizeof out);
        assert_memory_equal(max_logits, want_max, sizeof lse);
        assert_memory_equal(lse, want_lse, sizeof lse);
    }
    /* Statistics are not wanted; int8 is the third name of a byte. */
    prepare(1);
    args[12].type_index = args[13].type_index = PL_FFI_NONE;
    tensors[3].t.type_code = PL_DL_INT;
    assert_int_equal(call(decode, N_DECODE), 0);
    assert_memory_equal(out, want, sizeof out);
}

static void one_set_of_keys(void **state)
{
    static uint16_t want[T][H][D];
    static float want_max[H][T], want_lse[H][T];

    (void)state;
    fill_pages();
    direct(want[0][0], want_max[0], want_lse[0]);
    prepare(1);
    args[6].type_index = args[7].type_index = PL_FFI_NONE;
    assert_int_equal(call(decode, N_DECODE), 0);
    assert_memory_not_equal(lse, want_lse, sizeof lse);
    /* Pages of bf16 whose rows have one distance throughout are rows. */
    prepare(1);
    put(6, plain, PL_DL_BFLOAT, 16, 4, (const int64_t[]){1, PLAIN, 1, D},
        (const int64_t[]){PLAIN * (D + 64), D + 64, 1, 1});
    assert_int_equal(call(decode, N_DECODE), 0);
    assert_memory_equal(lse, want_lse, sizeof lse);
}

static void expect_refusal(const char *text, pl_ffi_function *fn, int n)
{
    float filled[H][T];
    static uint16_t filled_out[T][H][D];

    memset(filled, 0xA5, sizeof filled);
    memset(filled_out, 0xA5, sizeof filled_out);
    assert_int_equal(call(fn, n), -1);
    if (!strstr(ffi_host_raised, text))
        fprintf(stderr, "got '%s', want '%s' in it\n", ffi_host_raised, text);
    assert_non_null(strstr(ffi_host_raised, text));
    assert_memory_equal(out, filled_out, sizeof out);
    assert_memory_equal(lse, filled, sizeof lse);
    assert_memory_equal(max_logits, filled, sizeof lse);
}

#define REFUSED(change, text)                   \
    do {                                        \
        prepare(1);                             \
        change;                                 \
        expect_refusal(text, decode, N_DECODE); \
    } while (0)

static void refuses_one_wrong_argument(void **state)
{
    static const int64_t gaps[] = {2 * PAGE * ROW, 2 * ROW, ROW, 1},
                         far[] = {INT64_MAX, ROW, ROW, 1};

    (void)state;
    fill_pages();
    REFUSED(args[0] = ffi_host_int(1), "TypeError: attention_sparse_decode: context: wrong type");
    REFUSED(tensors[1].t.type_code = PL_DL_FLOAT, "TypeError: attention_sparse_decode: q: wrong");
    REFUSED(tensors[1].shape[2] = 64, "head_dim: not supported (got 64");
    REFUSED(args[2] = ffi_host_int(3), "seq_tokens: does not divide the tokens (got 3");
    REFUSED(args[2] = ffi_host_int(0), "seq_tokens: does not divide the tokens (got 0");
    REFUSED(args[3].type_index = PL_FFI_NONE, "TypeError: attention_sparse_decode: cache: wrong");
    REFUSED(tensors[3].t.type_bits = 16, "cache: wrong element type");
    REFUSED(tensors[3].t.type_code = 12, "cache: wrong element type");
    REFUSED(tensors[3].shape[3] = 583, "cache: no such row (got 583");
    REFUSED(tensors[3].shape[2] = 2, "cache: number of key heads is wrong (got 2");
    REFUSED(tensors[3].t.n_dims = 3, "cache: number of dimensions is wrong (got 3");
    REFUSED(tensors[3].t.strides = (int64_t *)(uintptr_t)gaps, "cache: gaps between rows");
    REFUSED(tensors[3].t.strides = (int64_t *)(uintptr_t)far, "cache: rows or pages overlap");
    REFUSED(tensors[3].shape[1] = PAGE + 1, "set[0].cache.page_bytes: pages overlap");
    REFUSED(tensors[4].shape[0] = T - 1, "indices: lengths differ (got 3, want 4)");
    REFUSED(tensors[4].t.type_bits = 64, "indices: wrong element type");
    REFUSED((tensors[4].t.n_dims = 1, tensors[4].t.strides = NULL), "indices: wrong shape");
    REFUSED(tensors[5].shape[0] = T, "lengths: wrong length (got 4, want 2)");
    REFUSED(args[6].type_index = PL_FFI_NONE, "extra_indices: of no cache");
    REFUSED(args[7].type_index = PL_FFI_NONE, "extra_indices: wrong type");
    REFUSED(tensors[6].shape[2] = 64, "extra_cache: no such row (got 64");
    REFUSED(tensors[9].shape[0] = H - 1, "sink: wrong length (got 2, want 3)");
    REFUSED(args[10] = ffi_host_real(-1), "softmax_scale: not a scale (got -1");
    REFUSED(tensors[11].shape[2] = D / 2, "out, dims: lengths differ (got 256, want 512)");
    REFUSED(tensors[11].t.data = q, "out: overlaps q");
    REFUSED(tensors[12].shape[1] = T - 1, "max_logits: wrong shape (got [3][3], want [3][4])");
    REFUSED(tensors[13].t.type_bits = 64, "lse: wrong element type");
    REFUSED(tensors[13].t.strides = (int64_t *)(uintptr_t)list_strides, "lse: has gaps");
    REFUSED(tensors[13].t.data = max_logits, "overlaps");
    REFUSED(tensors[14].shape[0]--, "workspace_bytes: too few");
    lengths[1] = N + 1;
    REFUSED(, "set[0].lengths[1]: out of range (got 6, want 0 .. 5)");
    lengths[1] = 3;
    prepare(1);
    expect_refusal("attention_sparse_prefill: number of arguments is wrong (got 15, want 14)",
                   prefill, N_DECODE);
    prepare(0);
    tensors[4].shape[0] = T / SEQ;
    expect_refusal("attention_sparse_prefill: lengths: wrong length (got 2, want 4)", prefill,
                   N_PREFILL);
}

static void refuses_wrong_rows(void **state)
{
    uint8_t before[N_PAGES][PAGE_BYTES];

    (void)state;
    fill_pages();
    memcpy(before, pages, sizeof pages);
    put_rows();
    tensors[3].shape[1] = 64;
    expect_refusal("ValueError: kv_insert: x, dims: lengths differ (got 64, want 512)", insert, 4);
    put_rows();
    tensors[3].shape[0] = SLOTS - 1;
    expect_refusal("kv_insert: x and slots: lengths differ (got 5, want 6)", insert, 4);
    put_rows();
    slots[1] = SLOTS;
    expect_refusal("kv_insert: slots[1]: no such slot (got 6, want -1 .. 5)", insert, 4);
    slots[1] = SLOTS - 2;
    put_rows();
    put(3, x, PL_DL_UINT, 8, 2, (const int64_t[]){SLOTS, 512}, NULL);
    put(4, x, PL_DL_UINT, 8, 2, (const int64_t[]){SLOTS, 8}, NULL);
    put(5, x, PL_DL_BFLOAT, 16, 2, (const int64_t[]){SLOTS, 64}, NULL);
    expect_refusal("kv_pack: codes: wrong shape (got [6][512], want [6][448])", pack, 6);
    assert_memory_equal(pages, before, sizeof pages);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_go_in_and_out), cmocka_unit_test(both_calls_give_the_librarys_bits),
        cmocka_unit_test(one_set_of_keys),    cmocka_unit_test(refuses_one_wrong_argument),
        cmocka_unit_test(refuses_wrong_rows),
    };

    if (argc != 2) {
        fprintf(stderr, "usage: test_ffi_sparse LIBRARY\n");
        return 2;
    }
    library = argv[1];
    return cmocka_run_group_tests_name("ffi_sparse", tests, set_up, tear_down);
}
