/* Forms of keys at the gate: test_forms FOLDER. Keys in pages, caches of FP8, two of them, decode: a call of each in which one
 * field is changed sees that field's reason and no other, refused and dry calls touch nothing, and direct and public
 * results have equal bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "plimsoll/ops.h"

static const char *folder;
static pl_ops_context *context;
static pl_providers *set;
static int forms, padded, base2;

typedef struct mutation {
    const char *name;
    void (*change)(pl_provider_call *);
    pl_provider_reason reason;
} mutation;

#define M(change, reason)                     \
    {                                         \
#change, change, PL_PROVIDER_##reason \
    }
#define CHANGE(name, statement)           \
    static void name(pl_provider_call *c) \
    {                                     \
        statement;                        \
    }

/* ---- keys in pages */

CHANGE(keys_packed, c->k = pl_tensor_of(c->k.data, PL_TENSOR_BF16, 3, 12, 2, 16))
CHANGE(keys_type, c->k.type = PL_TENSOR_FP16)
CHANGE(keys_device, c->k.device = 2)
CHANGE(keys_heads, c->k.shape[2] = 3)
CHANGE(keys_dim, c->k.shape[3] = 8)
CHANGE(keys_none, c->k.shape[0] = 0)
CHANGE(keys_page, c->k.shape[1] = 0)
CHANGE(keys_stride, c->k.strides[0] = 8)
CHANGE(keys_back, c->k.strides[1] = -32)
CHANGE(values_pages, c->v.shape[0]--)
CHANGE(values_page, c->v.shape[1]--)
CHANGE(values_dims, c->v.n_dims = 3)
CHANGE(values_wide, c->v.shape[3] = 8)
CHANGE(table_missing, c->pages = (pl_tensor){0})
CHANGE(table_type, c->pages.type = PL_TENSOR_FP32)
CHANGE(table_dims, c->pages.n_dims = 1)
CHANGE(table_rows, c->pages.shape[0]--)
CHANGE(table_short, c->pages.shape[1] = 1)
CHANGE(table_device, c->pages.device = 2)
CHANGE(table_stride, c->pages.strides[0] = 1)
CHANGE(table_null, c->pages.data = NULL)
CHANGE(pages_fewer, (c->k.shape[0]--, c->v.shape[0]--))
CHANGE(ends_falling, c->lengths = c->pages)
CHANGE(out_in_table, c->out.data = (char *)c->pages.data + 4)
CHANGE(second_of_varlen, c->extra_k = c->k)
CHANGE(tokens_of_varlen, c->seq_tokens = 2)

static const mutation paged_mutations[] = {
    M(keys_packed, KEYS),
    M(keys_type, KEYS),
    M(keys_device, KEYS),
    M(keys_heads, KEYS),
    M(keys_dim, KEYS),
    M(keys_none, KEYS),
    M(keys_page, KEYS),
    M(keys_stride, KEYS),
    M(keys_back, KEYS),
    M(values_pages, KEYS),
    M(values_page, KEYS),
    M(values_dims, KEYS),
    M(values_wide, KEYS),
    M(table_missing, KEYS),
    M(table_type, PAGES),
    M(table_dims, PAGES),
    M(table_rows, PAGES),
    M(table_short, PAGES),
    M(table_device, PAGES),
    M(table_stride, PAGES),
    M(table_null, PAGES),
    M(pages_fewer, PAGES),
    M(ends_falling, LENGTHS),
    M(out_in_table, ALIAS),
    M(tokens_of_varlen, SEQ_TOKENS),
    M(second_of_varlen, SECOND_SET),
};

/* ---- caches, one or two, prefill or decode */

CHANGE(row_bytes, c->k.shape[3]--)
CHANGE(row_of_the_other, c->k.shape[3] = c->k.shape[3] == 584 ? 656 : 584)
CHANGE(row_type, c->k.type = PL_TENSOR_INT32)
CHANGE(row_heads, c->k.shape[2] = 2)
CHANGE(row_dims, c->k.n_dims = 3)
CHANGE(row_page, c->k.shape[1] = 0)
CHANGE(row_gap, c->k.strides[1]++)
CHANGE(row_pages_overlap, c->k.strides[0] = 100)
CHANGE(row_device, c->k.device = 2)
CHANGE(row_null, c->k.data = NULL)
CHANGE(row_too_many, c->k.shape[0] = (int64_t)1 << 31)
CHANGE(query_width,
       c->q = pl_tensor_of(c->q.data, PL_TENSOR_BF16, 3, 6, 8, c->q.shape[2] == 512 ? 576 : 512))
CHANGE(list_tokens, c->indices.shape[0]--)
CHANGE(lengths_count, c->lengths.shape[0]++)
CHANGE(values_there, c->v = c->k)
CHANGE(table_there, c->pages = c->lengths)
CHANGE(out_in_cache, c->out.data = (char *)c->k.data + 2)
CHANGE(too_many_heads, (c->q.shape[1] = 129, c->out.shape[1] = 129))

CHANGE(extra_missing, c->extra_k = (pl_tensor){0})
CHANGE(extra_type, c->extra_k.type = PL_TENSOR_FP32)
CHANGE(extra_gap, c->extra_k.strides[1]++)
CHANGE(extra_device, c->extra_k.device = 2)
CHANGE(extra_none, c->extra_k.shape[0] = 0)
CHANGE(extra_list_none, c->extra_indices = (pl_tensor){0})
CHANGE(extra_list_tokens, c->extra_indices.shape[0]--)
CHANGE(extra_list_type, c->extra_indices.type = PL_TENSOR_FP32)
CHANGE(extra_list_stride, c->extra_indices.strides[0]++)
CHANGE(extra_length_none, c->extra_lengths = (pl_tensor){0})
CHANGE(extra_length_count, c->extra_lengths.shape[0]++)
CHANGE(extra_length_type, c->extra_lengths.type = PL_TENSOR_FP32)
CHANGE(out_in_extra, c->out.data = (char *)c->extra_k.data + 2)
CHANGE(lse_in_extra_list, c->lse.data = c->extra_indices.data)
CHANGE(workspace_in_extra_length, c->workspace.data = c->extra_lengths.data)

CHANGE(tokens_negative, c->seq_tokens = -1)
CHANGE(tokens_uneven, c->seq_tokens = 4)
CHANGE(tokens_others, c->seq_tokens = 1)
CHANGE(tokens_of_prefill, c->seq_tokens = 3)

static const mutation cache_mutations[] = {
    M(row_bytes, KEYS),         M(row_type, KEYS),     M(row_heads, KEYS),
    M(row_dims, KEYS),          M(row_page, KEYS),     M(row_gap, KEYS),
    M(row_pages_overlap, KEYS), M(row_device, KEYS),   M(row_null, KEYS),
    M(row_too_many, KEYS),      M(values_there, KEYS), M(list_tokens, INDICES),
    M(lengths_count, LENGTHS),  M(table_there, PAGES), M(out_in_cache, ALIAS),
    M(too_many_heads, QUERY),
};
static const mutation bytes_mutations[] = {M(row_of_the_other, KEYS), M(query_width, KEYS)};
static const mutation extra_mutations[] = {
    M(extra_missing, SECOND_SET),
    M(extra_type, EXTRA_KEYS),
    M(extra_gap, EXTRA_KEYS),
    M(extra_device, EXTRA_KEYS),
    M(extra_none, EXTRA_KEYS),
    M(extra_list_none, EXTRA_INDICES),
    M(extra_list_tokens, EXTRA_INDICES),
    M(extra_list_type, EXTRA_INDICES),
    M(extra_list_stride, EXTRA_INDICES),
    M(extra_length_none, EXTRA_LENGTHS),
    M(extra_length_count, EXTRA_LENGTHS),
    M(extra_length_type, EXTRA_LENGTHS),
    M(out_in_extra, ALIAS),
    M(lse_in_extra_list, ALIAS),
    M(workspace_in_extra_length, ALIAS),
};
static const mutation decode_mutations[] = {
    M(tokens_negative, SEQ_TOKENS), M(tokens_uneven, SEQ_TOKENS), M(tokens_others, LENGTHS)};
static const mutation prefill_mutations[] = {M(tokens_of_prefill, SEQ_TOKENS)};

#define LENGTH(list) (int)(sizeof(list) / sizeof(list)[0])

static pl_status run(int provider, const pl_provider_call *call, uint32_t flags,
                     pl_provider_outcome *outcome, pl_error *err)
{
    pl_provider_call c = *call;

    c.flags |= flags;
    *err = (pl_error){0};
    return pl_provider_run(set, provider, &c, outcome, err);
}

static void refused(int provider, const char *name, case_call *c, const pl_provider_call *call,
                    pl_provider_reason reason)
{
    uint64_t before = pl_providers_calls(set, provider, reason, 0);
    pl_provider_reason got = pl_provider_gate(set, provider, call, NULL);
    pl_provider_outcome outcome;
    pl_error err;

    if (got != reason)
        fail_msg("%s: got %s, want %s", name, pl_provider_reason_name(got),
                 pl_provider_reason_name(reason));
    case_remember(c);
    check_error(run(provider, call, PL_PROVIDER_NO_PUBLIC, &outcome, &err), PL_ERR_UNSUPPORTED,
                &err, pl_provider_reason_name(reason), NULL);
    assert_int_equal(outcome.provider, -1);
    assert_int_equal(outcome.reason, reason);
    (void)run(provider, call, PL_PROVIDER_DRY_RUN, &outcome, &err);
    assert_int_equal(outcome.reason, reason);
    assert_int_equal(outcome.direct, 0);
    case_unchanged(name, c);
    assert_int_equal(pl_providers_calls(set, provider, reason, 0), before + 1);
}

static void mutate(case_call *c, const mutation *list, int n)
{
    for (int i = 0; i < n; i++) {
        pl_provider_call call = c->call;

        assert_int_equal(pl_provider_gate(set, forms, &call, NULL), PL_PROVIDER_DIRECT);
        list[i].change(&call);
        refused(forms, list[i].name, c, &call, list[i].reason);
    }
}

static void direct_is_public(const char *name, case_call *c)
{
    uint64_t dry = pl_providers_calls(set, forms, PL_PROVIDER_DIRECT, 1);
    uint8_t *direct = malloc(case_bytes(c));
    pl_provider_outcome outcome;
    pl_error err;

    assert_non_null(direct);
    case_remember(c);
    check_ok(run(forms, &c->call, PL_PROVIDER_DRY_RUN, &outcome, &err), &err);
    assert_int_equal(outcome.direct, 1);
    case_unchanged(name, c);
    assert_int_equal(pl_providers_calls(set, forms, PL_PROVIDER_DIRECT, 1), dry + 1);
    check_ok(run(forms, &c->call, 0, &outcome, &err), &err);
    assert_int_equal(outcome.provider, forms);
    assert_int_equal(outcome.direct, 1);
    assert_memory_not_equal(c->arena, c->copy, case_bytes(c));
    memcpy(direct, c->arena, case_bytes(c));
    memcpy(c->arena, c->copy, case_bytes(c));
    c->call.capture = PL_CAPTURE_UNKNOWN;
    check_ok(run(forms, &c->call, 0, &outcome, &err), &err);
    assert_int_equal(outcome.provider, PL_PROVIDER_BUILTIN);
    assert_int_equal(outcome.reason, PL_PROVIDER_CAPTURE);
    /* Scratch is nobody's result. */
    memset(c->call.workspace.data, 0, (size_t)c->call.workspace.shape[0]);
    memset(direct + ((uint8_t *)c->call.workspace.data - c->arena), 0,
           (size_t)c->call.workspace.shape[0]);
    check_same_bytes(name, c->arena, direct, case_bytes(c));
    c->call.capture = PL_CAPTURE_NONE;
    free(direct);
}

static void pages_of_keys(void **state)
{
    static const int32_t n_q[] = {3, 1, 5, -1}, n_k[] = {9, 0, 16, -1};
    case_call c = paged_case(n_q, n_k, 4, 2);

    mutate(&c, paged_mutations, LENGTH(paged_mutations));
    direct_is_public("pages", &c);
    assert_true(((float *)c.call.lse.data)[3] == -INFINITY); /* the sequence without keys */
    refused(base2, "not offered", &c, &c.call, PL_PROVIDER_PAGES);
    case_free(&c);
    (void)state;
}

/* The same keys packed and in pages have equal bits. */
static void pages_change_no_bit(void **state)
{
    static const int32_t n_q[] = {3, 2, -1}, n_k[] = {9, 6, -1};
    case_call paged = paged_case(n_q, n_k, 4, 2),
              packed = varlen_case(n_q, n_k, 4, 2, 16, 16, true);
    const int32_t *table = paged.call.pages.data;
    pl_provider_outcome outcome;
    pl_error err;

    for (int row = 0; row < 15; row++) {
        int seq = row >= 9, j = row - 9 * seq;
        int64_t at = table[seq * 4 + j / 4] * paged.call.k.strides[0] + j % 4 * 32;
        memcpy((uint16_t *)packed.call.k.data + row * 32, (uint16_t *)paged.call.k.data + at, 64);
        memcpy((uint16_t *)packed.call.v.data + row * 32, (uint16_t *)paged.call.v.data + at, 64);
    }
    memcpy(packed.call.q.data, paged.call.q.data, 5 * 4 * 16 * 2);
    check_ok(run(forms, &paged.call, 0, &outcome, &err), &err);
    check_ok(run(forms, &packed.call, 0, &outcome, &err), &err);
    check_same_bytes("out", paged.call.out.data, packed.call.out.data, 5 * 4 * 16 * 2);
    check_same_bytes("lse", paged.call.lse.data, packed.call.lse.data, 5 * 4 * 4);
    case_free(&paged);
    case_free(&packed);
    (void)state;
}

static void caches(void **state)
{
    static const char *const names[] = {"bf16", "v4", "v32"};

    for (int format = PL_KV_BF16; format <= (int)PL_KV_V32; format++)
        for (int second = 0; second < 2; second++)
            for (int32_t tokens = 0; tokens <= 3; tokens += 3) {
                case_call c = cache_case(context, format, second, tokens, 6, 8);

                mutate(&c, cache_mutations, LENGTH(cache_mutations));
                if (format != PL_KV_BF16)
                    mutate(&c, bytes_mutations, LENGTH(bytes_mutations));
                if (second)
                    mutate(&c, extra_mutations, LENGTH(extra_mutations));
                if (tokens)
                    mutate(&c, decode_mutations, LENGTH(decode_mutations));
                else
                    mutate(&c, prefill_mutations, LENGTH(prefill_mutations));
                for (int native = 0; native < 2; native++) {
                    c.call.flags = PL_PROVIDER_REQUEST | (native ? PL_PROVIDER_NATIVE_SINK : 0);
                    direct_is_public(names[format], &c);
                }
                assert_true(((float *)c.call.lse.data)[0] == -INFINITY);
                assert_true(((float *)c.call.lse.data)[5] != -INFINITY);
                case_free(&c);
            }
    (void)state;
}

/* The padded test provider takes [rows][1][512] of bf16 and one set. */
static void what_is_not_offered_has_its_reason(void **state)
{
    case_call v4 = cache_case(context, PL_KV_V4, false, 0, 3, 64),
              bf16 = cache_case(context, PL_KV_BF16, false, 0, 3, 64),
              two = cache_case(context, PL_KV_BF16, true, 0, 3, 64),
              decode = cache_case(context, PL_KV_V4, false, 3, 3, 64);

    v4.call.k.strides[0] = v4.call.k.shape[1] * 584; /* it wants no gaps */
    refused(padded, "v4", &v4, &v4.call, PL_PROVIDER_CACHE);
    refused(padded, "gap", &bf16, &bf16.call, PL_PROVIDER_KEYS);
    bf16.call.k.strides[0] = bf16.call.k.shape[1] * 512;
    refused(padded, "pages", &bf16, &bf16.call, PL_PROVIDER_PAGES);
    two.call.k = pl_tensor_of(two.call.k.data, PL_TENSOR_BF16, 3, 80, 1, 512);
    refused(padded, "two", &two, &two.call, PL_PROVIDER_SECOND_SET);
    refused(padded, "decode", &decode, &decode.call, PL_PROVIDER_OPERATOR);
    case_free(&v4);
    case_free(&bf16);
    case_free(&two);
    case_free(&decode);
    (void)state;
}

/* A form of its own in each set, and lists of other lengths. */
static void sets_of_two_forms(void **state)
{
    case_call c = cache_case(context, PL_KV_V4, true, 0, 6, 8);
    case_call other = cache_case(context, PL_KV_BF16, false, 0, 6, 8);

    c.call.extra_k = other.call.k;
    c.call.extra_indices.shape[2] = 16;
    c.call.extra_indices.strides[0] = c.call.extra_indices.strides[1] = 16;
    for (int t = 0; t < 6; t++)
        ((int32_t *)c.call.extra_lengths.data)[t] = t;
    direct_is_public("two forms", &c);
    case_free(&c);
    case_free(&other);
    (void)state;
}

/* A list longer than it says is the operator's to refuse: returned, and not tried again. */
static void lengths_past_the_list_are_refused_by_the_operator(void **state)
{
    case_call c = cache_case(context, PL_KV_V4, false, 3, 6, 8);
    pl_provider_outcome outcome;
    pl_error err;

    ((int32_t *)c.call.lengths.data)[1] = 65;
    case_remember(&c);
    check_error(run(forms, &c.call, 0, &outcome, &err), PL_ERR_INTERNAL, &err,
                "attention_sparse_decode: failed", "ValueError", "out of range (got 65", NULL);
    assert_int_equal(outcome.reason, PL_PROVIDER_LAUNCH_FAILED);
    case_unchanged("lengths", &c);
    case_free(&c);
    (void)state;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_keys),
        cmocka_unit_test(pages_change_no_bit),
        cmocka_unit_test(caches),
        cmocka_unit_test(what_is_not_offered_has_its_reason),
        cmocka_unit_test(sets_of_two_forms),
        cmocka_unit_test(lengths_past_the_list_are_refused_by_the_operator),
    };
    pl_error err;
    int failed;

    if (argc != 2)
        return 2;
    folder = argv[1];
    context = case_context();
    if (pl_providers_create(context, &set, &err) != PL_OK)
        return 1;
    forms = add_provider(set, folder, "forms", NULL);
    padded = add_provider(set, folder, "padded", NULL);
    base2 = add_provider(set, folder, "base2", NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    pl_providers_destroy(set);
    pl_ops_context_destroy(context);
    return failed;
}
