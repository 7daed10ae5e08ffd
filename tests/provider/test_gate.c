/* The gate: test_gate FOLDER, where the test providers lie. A call in which one field is changed sees that field's reason and no
 * other; direct and public results have equal bits; refused and dry calls touch nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

enum { T = 3, H = 64 };

static const char *folder;
static pl_ops_context *context;
static pl_providers *set;
static int padded;

static pl_tensor same_bytes_of(pl_tensor t, void *data)
{
    t.data = data;
    return t;
}

/* ---- one field at a time */

static void not_requested(pl_provider_call *c)
{
    c->flags &= ~(uint32_t)PL_PROVIDER_REQUEST;
}
static void no_out(pl_provider_call *c)
{
    c->out = (pl_tensor){0};
}
static void no_lengths(pl_provider_call *c)
{
    c->lengths = (pl_tensor){0};
}
static void other_device(pl_provider_call *c)
{
    c->q.device = 2;
}
static void capture_unknown(pl_provider_call *c)
{
    c->capture = PL_CAPTURE_UNKNOWN;
}
static void capture_active(pl_provider_call *c)
{
    c->capture = PL_CAPTURE_ACTIVE;
}
static void value_dim(pl_provider_call *c)
{
    c->value_dim = 448;
}
static void q_tokens(pl_provider_call *c)
{
    c->q.shape[0] = 0;
}
static void q_heads(pl_provider_call *c)
{
    c->q.shape[1] = 8;
}
static void q_dim(pl_provider_call *c)
{
    c->q.shape[2] = 576;
}
static void q_type(pl_provider_call *c)
{
    c->q.type = PL_TENSOR_FP16;
}
static void q_dims(pl_provider_call *c)
{
    c->q.n_dims = 2;
}
static void q_stride(pl_provider_call *c)
{
    c->q.strides[0] += 8;
}
static void q_data(pl_provider_call *c)
{
    c->q.data = NULL;
}
static void q_misaligned(pl_provider_call *c)
{
    c->q.data = (char *)c->q.data + 1;
}
static void out_tokens(pl_provider_call *c)
{
    c->out.shape[0]--;
}
static void out_heads(pl_provider_call *c)
{
    c->out.shape[1] = 8;
}
static void out_dim(pl_provider_call *c)
{
    c->out.shape[2] = 448;
}
static void out_type(pl_provider_call *c)
{
    c->out.type = PL_TENSOR_FP16;
}
static void out_device(pl_provider_call *c)
{
    c->out.device = 2;
}
static void out_stride(pl_provider_call *c)
{
    c->out.strides[1] = 0;
}
static void kv_heads(pl_provider_call *c)
{
    c->k.shape[1] = 2;
}
static void kv_dim(pl_provider_call *c)
{
    c->k.shape[2] = 448;
}
static void kv_type(pl_provider_call *c)
{
    c->k.type = PL_TENSOR_FP16;
}
static void kv_device(pl_provider_call *c)
{
    c->k.device = 2;
}
static void kv_stride(pl_provider_call *c)
{
    c->k.strides[0] = 1024;
}
static void kv_huge(pl_provider_call *c)
{
    c->k.shape[0] = INT64_MAX;
}
static void kv_values(pl_provider_call *c)
{
    c->v = c->k;
}
static void indices_tokens(pl_provider_call *c)
{
    c->indices.shape[0]--;
}
static void indices_multiple(pl_provider_call *c)
{
    c->indices.shape[2] = 63;
}
static void indices_type(pl_provider_call *c)
{
    c->indices.type = PL_TENSOR_FP32;
}
static void indices_heads(pl_provider_call *c)
{
    c->indices.shape[1] = 2;
}
static void indices_stride(pl_provider_call *c)
{
    c->indices.strides[0] = 65;
}
static void indices_device(pl_provider_call *c)
{
    c->indices.device = 2;
}
static void lengths_tokens(pl_provider_call *c)
{
    c->lengths.shape[0]--;
}
static void lengths_type(pl_provider_call *c)
{
    c->lengths.type = PL_TENSOR_FP32;
}
static void lengths_stride(pl_provider_call *c)
{
    c->lengths.strides[0] = 2;
}
static void lengths_device(pl_provider_call *c)
{
    c->lengths.device = 2;
}
static void sink_heads(pl_provider_call *c)
{
    c->sink.shape[0] = 8;
}
static void sink_type(pl_provider_call *c)
{
    c->sink.type = PL_TENSOR_BF16;
}
static void sink_stride(pl_provider_call *c)
{
    c->sink.strides[0] = 2;
}
static void sink_device(pl_provider_call *c)
{
    c->sink.device = 2;
}
static void out_is_q(pl_provider_call *c)
{
    c->out.data = c->q.data;
}
static void out_in_q(pl_provider_call *c)
{
    c->out.data = (char *)c->q.data + T * H * 512 * 2 - 2;
}
static void out_before_q(pl_provider_call *c)
{
    c->out.data = (char *)c->q.data - T * H * 512 * 2 + 2;
}
static void out_in_kv(pl_provider_call *c)
{
    c->out.data = (char *)c->k.data + 96 * 1024 - 2;
}
static void out_in_indices(pl_provider_call *c)
{
    c->out.data = (char *)c->indices.data + 4;
}
static void out_in_lengths(pl_provider_call *c)
{
    c->out.data = (char *)c->lengths.data + 4 * T - 2;
}
static void out_in_sink(pl_provider_call *c)
{
    c->out.data = (char *)c->sink.data + 4 * H - 2;
}
static void lse_in_out(pl_provider_call *c)
{
    c->lse.data = c->out.data;
}
static void workspace_in_q(pl_provider_call *c)
{
    c->workspace.data = c->q.data;
}
static void causal(pl_provider_call *c)
{
    c->causal = 1;
}
static void window(pl_provider_call *c)
{
    c->window_left = 5;
}
static void scale(pl_provider_call *c)
{
    c->softmax_scale = NAN;
}
static void softcap(pl_provider_call *c)
{
    c->softcap = 30;
}
static void softcap_nan(pl_provider_call *c)
{
    c->softcap = NAN;
}
static void lse_shape(pl_provider_call *c)
{
    c->lse.shape[0] = 63;
}
static void lse_type(pl_provider_call *c)
{
    c->lse.type = PL_TENSOR_INT32;
}
static void max_shape(pl_provider_call *c)
{
    c->max_logits.shape[1]++;
}
static void layout(pl_provider_call *c)
{
    c->lse_layout = PL_LSE_UNDECLARED;
}
static void no_workspace(pl_provider_call *c)
{
    c->workspace = (pl_tensor){0};
}
static void workspace_small(pl_provider_call *c)
{
    c->workspace.shape[0] = 64;
}
static void workspace_odd(pl_provider_call *c)
{
    c->workspace.data = (char *)c->workspace.data + 8;
}

typedef struct mutation {
    const char *name;
    void (*change)(pl_provider_call *);
    pl_provider_reason reason;
    bool same_numbers; /* what is asked for stays the same */
} mutation;

#define M(change, reason)                            \
    {                                                \
#change, change, PL_PROVIDER_##reason, false \
    }
#define SAME(change, reason)                        \
    {                                               \
#change, change, PL_PROVIDER_##reason, true \
    }

static const mutation mutations[] = {
    SAME(not_requested, NOT_REQUESTED),
    M(no_out, MISSING),
    M(no_lengths, MISSING),
    M(other_device, DEVICE),
    SAME(capture_unknown, CAPTURE),
    SAME(capture_active, CAPTURE),
    M(value_dim, VALUE_DIM),
    M(q_tokens, QUERY),
    M(q_heads, QUERY),
    M(q_dim, QUERY),
    M(q_type, QUERY),
    M(q_dims, QUERY),
    M(q_stride, QUERY),
    M(q_data, QUERY),
    M(q_misaligned, QUERY),
    M(out_tokens, OUT),
    M(out_heads, OUT),
    M(out_dim, OUT),
    M(out_type, OUT),
    M(out_device, OUT),
    M(out_stride, OUT),
    M(kv_heads, KEYS),
    M(kv_dim, KEYS),
    M(kv_type, KEYS),
    M(kv_device, KEYS),
    M(kv_stride, KEYS),
    M(kv_huge, KEYS),
    M(kv_values, KEYS),
    M(indices_tokens, INDICES),
    M(indices_multiple, INDICES),
    M(indices_type, INDICES),
    M(indices_heads, INDICES),
    M(indices_stride, INDICES),
    M(indices_device, INDICES),
    M(lengths_tokens, LENGTHS),
    M(lengths_type, LENGTHS),
    M(lengths_stride, LENGTHS),
    M(lengths_device, LENGTHS),
    M(sink_heads, SINK),
    M(sink_type, SINK),
    M(sink_stride, SINK),
    M(sink_device, SINK),
    M(out_is_q, ALIAS),
    M(out_in_q, ALIAS),
    M(out_before_q, ALIAS),
    M(out_in_kv, ALIAS),
    M(out_in_indices, ALIAS),
    M(out_in_lengths, ALIAS),
    M(out_in_sink, ALIAS),
    M(lse_in_out, ALIAS),
    M(workspace_in_q, ALIAS),
    M(causal, OPTION),
    M(window, OPTION),
    M(scale, OPTION),
    M(softcap, SOFTCAP),
    M(softcap_nan, SOFTCAP),
    M(lse_shape, LSE),
    M(lse_type, LSE),
    M(max_shape, LSE),
    M(layout, LSE_LAYOUT),
    M(no_workspace, WORKSPACE),
    M(workspace_small, WORKSPACE),
    M(workspace_odd, WORKSPACE),
};

enum { N_MUTATIONS = sizeof mutations / sizeof mutations[0] };

static pl_status run(int provider, const pl_provider_call *call, uint32_t flags,
                     pl_provider_outcome *outcome, pl_error *err)
{
    pl_provider_call c = *call;

    c.flags |= flags;
    *err = (pl_error){0};
    return pl_provider_run(set, provider, &c, outcome, err);
}

static void one_field_one_reason(void **state)
{
    case_call c = sparse_case(T, H);

    for (int i = 0; i < N_MUTATIONS; i++) {
        const mutation *m = &mutations[i];
        pl_provider_call call = c.call;
        uint64_t before = pl_providers_calls(set, padded, m->reason, 0);
        pl_provider_outcome outcome;
        pl_error err;

        assert_int_equal(pl_provider_gate(set, padded, &call, NULL), PL_PROVIDER_DIRECT);
        m->change(&call);
        if (pl_provider_gate(set, padded, &call, NULL) != m->reason)
            fail_msg("%s: got %s, want %s", m->name,
                     pl_provider_reason_name(pl_provider_gate(set, padded, &call, NULL)),
                     pl_provider_reason_name(m->reason));
        case_remember(&c);
        check_error(run(padded, &call, PL_PROVIDER_NO_PUBLIC, &outcome, &err), PL_ERR_UNSUPPORTED,
                    &err, "padded: ", pl_provider_reason_name(m->reason), NULL);
        assert_int_equal(outcome.provider, -1);
        assert_int_equal(outcome.reason, m->reason);
        (void)run(padded, &call, PL_PROVIDER_DRY_RUN, &outcome, &err);
        assert_int_equal(outcome.reason, m->reason);
        assert_int_equal(outcome.direct, 0);
        case_unchanged(m->name, &c);
        assert_int_equal(pl_providers_calls(set, padded, m->reason, 0), before + 1);
    }
    case_free(&c);
    (void)state;
}

/* Everything that the call may write. */
static size_t outputs(const pl_provider_call *c, uint8_t *to)
{
    size_t n = (size_t)(c->out.shape[0] * c->out.shape[1] * c->out.shape[2]) * 2;
    size_t m = c->lse.data ? (size_t)(c->lse.shape[0] * c->lse.shape[1]) * 4 : 0;
    size_t k =
        c->max_logits.data ? (size_t)(c->max_logits.shape[0] * c->max_logits.shape[1]) * 4 : 0;

    memcpy(to, c->out.data, n);
    if (m)
        memcpy(to + n, c->lse.data, m);
    if (k)
        memcpy(to + n + m, c->max_logits.data, k);
    return n + m + k;
}

static uint8_t direct_bytes[1 << 20], public_bytes[1 << 20];

static void direct_and_public_are_bitwise_equal(void **state)
{
    static const uint32_t flags[] = {0, PL_PROVIDER_NATIVE_SINK};

    for (int f = 0; f < 4; f++) {
        case_call c = sparse_case(T, H);
        pl_provider_outcome outcome;
        pl_error err;
        size_t n;

        c.call.lse_empty_positive = f & 1;
        check_ok(run(padded, &c.call, flags[f / 2], &outcome, &err), &err);
        assert_int_equal(outcome.provider, padded);
        assert_int_equal(outcome.direct, 1);
        n = outputs(&c.call, direct_bytes);
        /* Token 0 has no key. */
        assert_true(((float *)c.call.lse.data)[0] == (f & 1 ? INFINITY : -INFINITY));
        for (int i = 0; i < N_MUTATIONS; i++) {
            pl_provider_call call = c.call;
            if (!mutations[i].same_numbers)
                continue;
            mutations[i].change(&call);
            memset(c.call.out.data, 0xa5, T * H * 1024);
            memset(c.call.lse.data, 0xa5, T * H * 4);
            memset(c.call.max_logits.data, 0xa5, T * H * 4);
            check_ok(run(padded, &call, flags[f / 2], &outcome, &err), &err);
            assert_int_equal(outcome.provider, PL_PROVIDER_BUILTIN);
            assert_int_equal(outcome.direct, 0);
            assert_int_equal(outputs(&call, public_bytes), n);
            check_same_bytes(mutations[i].name, public_bytes, direct_bytes, n);
        }
        case_free(&c);
    }
    (void)state;
}

/* Eight heads are no contract of the padded provider, but a call like any other. */
static void public_path_takes_what_the_contract_does_not(void **state)
{
    case_call c = sparse_case(T, 8);
    pl_provider_outcome outcome;
    pl_error err;

    check_ok(run(padded, &c.call, 0, &outcome, &err), &err);
    assert_int_equal(outcome.reason, PL_PROVIDER_QUERY);
    assert_int_equal(outcome.provider, PL_PROVIDER_BUILTIN);
    c.call.lengths = (pl_tensor){0};
    check_ok(run(padded, &c.call, 0, &outcome, &err), &err);
    assert_int_equal(outcome.reason, PL_PROVIDER_MISSING);
    c.call.q.type = PL_TENSOR_FP16;
    check_error(run(padded, &c.call, 0, &outcome, &err), PL_ERR_INVALID, &err, "q: ", NULL);
    assert_int_equal(outcome.provider, -1);
    case_free(&c);
    (void)state;
}

static void dry_run_is_counted_apart_and_writes_nothing(void **state)
{
    case_call c = sparse_case(T, H);
    uint64_t real = pl_providers_calls(set, padded, PL_PROVIDER_DIRECT, 0);
    uint64_t dry = pl_providers_calls(set, padded, PL_PROVIDER_DIRECT, 1);
    pl_provider_outcome outcome;
    pl_error err;

    case_remember(&c);
    check_ok(run(padded, &c.call, PL_PROVIDER_DRY_RUN, &outcome, &err), &err);
    assert_int_equal(outcome.direct, 1);
    case_unchanged("dry run", &c);
    assert_int_equal(pl_providers_calls(set, padded, PL_PROVIDER_DIRECT, 0), real);
    assert_int_equal(pl_providers_calls(set, padded, PL_PROVIDER_DIRECT, 1), dry + 1);
    case_free(&c);
    (void)state;
}

/* ---- libraries that no call reaches */

static void refused_library(const char *name, const pl_provider_pin *pin, pl_provider_reason reason,
                            const char *text)
{
    int i = add_provider(set, folder, name, pin);
    const pl_provider_record *r = pl_providers_record(set, i);
    case_call c = varlen_case((int32_t[]){5, -1}, (int32_t[]){7, -1}, 2, 2, 16, 16, false);
    pl_provider_outcome outcome;
    pl_error err;

    if (r->reason != reason || !strstr(r->problem, text))
        fail_msg("%s: got %s (%s), want %s (%s)", name, pl_provider_reason_name(r->reason),
                 r->problem, pl_provider_reason_name(reason), text);
    case_remember(&c);
    check_error(run(i, &c.call, PL_PROVIDER_NO_PUBLIC, &outcome, &err), PL_ERR_UNSUPPORTED, &err,
                pl_provider_reason_name(reason), text, NULL);
    case_unchanged(name, &c);
    check_ok(run(i, &c.call, 0, &outcome, &err), &err);
    assert_int_equal(outcome.reason, reason);
    assert_int_equal(outcome.provider, PL_PROVIDER_BUILTIN);
    case_free(&c);
}

static void a_library_that_is_not_right_is_refused(void **state)
{
    pl_provider_pin pin = {.name = "padded", .version = "0.2.4"};
    pl_providers *main_set = set;
    pl_error err;
    int again;

    check_ok(pl_providers_create(context, &set, &err), &err);
    refused_library("nowhere", NULL, PL_PROVIDER_NOT_LOADED, "dlopen");
    refused_library("bare", NULL, PL_PROVIDER_SYMBOLS, "test_attention_workspace_size");
    refused_library("drift", NULL, PL_PROVIDER_ABI, "parameter 1 is another (got k, want q)");
    refused_library("unknown", NULL, PL_PROVIDER_ABI, "record");
    snprintf(pin.fingerprint, sizeof pin.fingerprint, "%s",
             pl_providers_record(main_set, padded)->fingerprint);
    again = add_provider(set, folder, "padded", &pin);
    assert_int_equal(pl_providers_record(set, again)->reason, PL_PROVIDER_DIRECT);
    strcpy(pin.version, "0.2.3");
    refused_library("padded", &pin, PL_PROVIDER_VERSION, "drift (got 0.2.4+test, want 0.2.3)");
    strcpy(pin.version, "0.2.4");
    pin.fingerprint[0] = pin.fingerprint[0] == '0' ? '1' : '0';
    refused_library("padded", &pin, PL_PROVIDER_ABI, "drift");
    check_error(pl_providers_add(set, "one_more", NULL, 1, &again, &err), PL_ERR_LIMIT, &err,
                "full", NULL);
    pl_providers_destroy(set);
    set = main_set;
    (void)state;
}

/* The error is the caller's, and nobody computes instead. */
static void a_failed_launch_is_returned_and_not_tried_again(void **state)
{
    int i = add_provider(set, folder, "failing", NULL);
    case_call c = varlen_case((int32_t[]){5, -1}, (int32_t[]){7, -1}, 2, 2, 16, 16, false);
    pl_provider_outcome outcome;
    pl_error err;
    uint16_t *out = c.call.out.data;

    check_error(run(i, &c.call, 0, &outcome, &err), PL_ERR_INTERNAL, &err, "test_attention: failed",
                "RuntimeError: test_attention: no tiles are left", "for 16 arguments", NULL);
    assert_int_equal(outcome.provider, i);
    assert_int_equal(outcome.reason, PL_PROVIDER_LAUNCH_FAILED);
    assert_int_equal(pl_providers_calls(set, i, PL_PROVIDER_LAUNCH_FAILED, 0), 1);
    assert_int_equal(pl_providers_calls(set, i, PL_PROVIDER_DIRECT, 0), 0);
    assert_int_equal(out[0], 0x7777);
    for (int k = 1; k < 5 * 2 * 16; k++)
        assert_int_equal(out[k], 0xa5a5);
    case_free(&c);
    (void)state;
}

/* ---- auto */

static void auto_takes_the_first_whose_contract_holds_and_never_overrides(void **state)
{
    case_call c = sparse_case(T, H), other = sparse_case(T, 8);
    pl_provider_choice choice;

    pl_provider_choose(set, NULL, &c.call, &choice);
    assert_int_equal(choice.provider, padded);
    assert_int_equal(choice.n, pl_providers_count(set));
    pl_provider_choose(set, "auto", &other.call, &choice);
    assert_int_equal(choice.provider, PL_PROVIDER_BUILTIN);
    assert_int_equal(choice.candidate[0].provider, padded);
    assert_int_equal(choice.candidate[0].reason, PL_PROVIDER_QUERY);
    assert_non_null(strstr(choice.candidate[0].detail, "want 64 heads"));
    pl_provider_choose(set, "padded", &other.call, &choice);
    assert_int_equal(choice.provider, padded);
    assert_int_equal(choice.n, 1);
    assert_int_equal(choice.candidate[0].reason, PL_PROVIDER_QUERY);
    pl_provider_choose(set, "builtin", &c.call, &choice);
    assert_int_equal(choice.provider, PL_PROVIDER_BUILTIN);
    pl_provider_choose(set, "nobody", &c.call, &choice);
    assert_int_equal(choice.provider, -1);
    assert_int_equal(choice.n, 0);
    case_free(&c);
    case_free(&other);
    (void)state;
}

static void layouts_that_cannot_be_told_apart_are_refused(void **state)
{
    int i = add_provider(set, folder, "undeclared", NULL);
    case_call square = varlen_case((int32_t[]){32, -1}, (int32_t[]){9, -1}, 32, 1, 8, 8, false);
    case_call apart = varlen_case((int32_t[]){32, -1}, (int32_t[]){9, -1}, 4, 1, 8, 8, false);
    case_call few = varlen_case((int32_t[]){31, 2, -1}, (int32_t[]){9, 9, -1}, 4, 1, 8, 8, false);

    assert_int_equal(pl_provider_gate(set, i, &square.call, NULL), PL_PROVIDER_LSE_LAYOUT);
    square.call.lse = (pl_tensor){0};
    assert_int_equal(pl_provider_gate(set, i, &square.call, NULL), PL_PROVIDER_DIRECT);
    assert_int_equal(pl_provider_gate(set, i, &apart.call, NULL), PL_PROVIDER_DIRECT);
    assert_int_equal(pl_provider_gate(set, i, &few.call, NULL), PL_PROVIDER_MIN_QUERY);
    assert_int_equal(pl_provider_gate(set, PL_PROVIDER_BUILTIN, &few.call, NULL),
                     PL_PROVIDER_DIRECT);
    assert_int_equal(pl_provider_gate(set, padded, &few.call, NULL), PL_PROVIDER_OPERATOR);
    case_free(&square);
    case_free(&apart);
    case_free(&few);
    (void)state;
}

static void ends_of_sequences_stay_inside(void **state)
{
    case_call c = varlen_case((int32_t[]){5, 3, -1}, (int32_t[]){7, 2, -1}, 2, 1, 16, 16, true);
    int32_t *cu_q = c.call.indices.data, *cu_k = c.call.lengths.data;

    assert_int_equal(pl_provider_gate(set, 0, &c.call, NULL), PL_PROVIDER_DIRECT);
    cu_q[1] = 9;
    assert_int_equal(pl_provider_gate(set, 0, &c.call, NULL), PL_PROVIDER_INDICES);
    cu_q[1] = 5;
    cu_q[2] = 9;
    assert_int_equal(pl_provider_gate(set, 0, &c.call, NULL), PL_PROVIDER_INDICES);
    cu_q[2] = 8;
    cu_k[2] = 10;
    assert_int_equal(pl_provider_gate(set, 0, &c.call, NULL), PL_PROVIDER_LENGTHS);
    cu_k[2] = 9;
    cu_k[0] = 1;
    assert_int_equal(pl_provider_gate(set, 0, &c.call, NULL), PL_PROVIDER_LENGTHS);
    case_free(&c);
    (void)state;
}

/* Ranges, not pointers: arrays that touch are apart, heads outside of tokens are one range. */
static void ranges_that_touch_are_apart(void **state)
{
    case_call c = sparse_case(T, H);
    uint8_t *room = case_take(&c, 2 * T * H * 1024);

    memcpy(room, c.call.q.data, T * H * 1024);
    c.call.q = same_bytes_of(c.call.q, room);
    c.call.out = same_bytes_of(c.call.out, room + T * H * 1024);
    assert_int_equal(pl_provider_gate(set, padded, &c.call, NULL), PL_PROVIDER_DIRECT);
    c.call.out.data = room + T * H * 1024 - 2;
    assert_int_equal(pl_provider_gate(set, padded, &c.call, NULL), PL_PROVIDER_ALIAS);
    case_free(&c);
    (void)state;
}

static void reasons_have_stable_names(void **state)
{
    assert_string_equal(pl_provider_reason_name(PL_PROVIDER_DIRECT), "direct");
    assert_string_equal(pl_provider_reason_name(PL_PROVIDER_ABI), "abi");
    assert_int_equal(PL_PROVIDER_ABI, 16);
    assert_int_equal(PL_PROVIDER_LAUNCH_FAILED, 25);
    assert_string_equal(pl_provider_reason_name((pl_provider_reason)99), "unknown");
    for (int i = 0; i < PL_PROVIDER_N_REASONS; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(pl_provider_reason_name((pl_provider_reason)i),
                                    pl_provider_reason_name((pl_provider_reason)k));
    (void)state;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_field_one_reason),
        cmocka_unit_test(direct_and_public_are_bitwise_equal),
        cmocka_unit_test(public_path_takes_what_the_contract_does_not),
        cmocka_unit_test(dry_run_is_counted_apart_and_writes_nothing),
        cmocka_unit_test(a_library_that_is_not_right_is_refused),
        cmocka_unit_test(auto_takes_the_first_whose_contract_holds_and_never_overrides),
        cmocka_unit_test(a_failed_launch_is_returned_and_not_tried_again),
        cmocka_unit_test(layouts_that_cannot_be_told_apart_are_refused),
        cmocka_unit_test(ends_of_sequences_stay_inside),
        cmocka_unit_test(ranges_that_touch_are_apart),
        cmocka_unit_test(reasons_have_stable_names),
    };
    pl_error err;
    int failed;

    if (argc != 2)
        return 2;
    folder = argv[1];
    context = case_context();
    if (pl_providers_create(context, &set, &err) != PL_OK)
        return 1;
    padded = add_provider(set, folder, "padded", NULL);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    pl_providers_destroy(set);
    pl_ops_context_destroy(context);
    return failed;
}
