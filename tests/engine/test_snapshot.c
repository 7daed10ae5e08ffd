/* Snapshots: a request that begins with one gives the bits of a request that ran all of its prompt; whatever else is
 * handed over as one is refused.
 *
 * Positions lie before, on and behind groups of 4 and blocks of 128, before and behind the wrap of the ring, beyond the
 * indexer's top-k; in the middle of a prompt, among outputs with drafts pending, and at the end. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/snapshot.h"
#include "engine_support.h"

enum { LEN = 400, TAIL = 12, VOCAB = 500 };

static int32_t prompt[LEN];

static pl_engine_params params_with(int k, int chunk, int ranks, const char *level)
{
    pl_engine_params p = small_params();

    p.max_model_len = LEN + 64;
    p.max_num_batched_tokens = chunk;
    p.num_speculative_tokens = k;
    p.ranks = ranks;
    p.level = level;
    return p;
}

static pl_request_params request_of(int32_t n)
{
    pl_request_params p = pl_request_params_default();

    p.tokens = prompt;
    p.n_tokens = n;
    p.max_tokens = TAIL;
    p.temperature = 0.9f;
    p.seed = 7;
    p.ignore_eos = true;
    return p;
}

typedef struct saved {
    void *data;
    uint64_t bytes;
    int32_t n;
    int32_t tokens[LEN + 64]; /* prompt and outputs */
} saved;

/* Runs a prompt until its state has at least n positions, or to its end, and saves it. */
static saved save_at(pl_engine *e, const pl_request_params *p, int32_t n)
{
    pl_request *r;
    pl_error err;
    bool busy = true;
    const int32_t *outputs;
    int32_t n_outputs;
    saved s = {0};

    check_ok(pl_engine_submit(e, p, &r, &err), &err);
    assert_int_equal(pl_request_snapshot_bytes(r), 0);
    while (busy && s.n < n) {
        check_ok(pl_engine_step(e, &busy, &err), &err);
        free(s.data);
        s.bytes = pl_request_snapshot_bytes(r);
        s.data = malloc(s.bytes);
        check_ok(pl_request_snapshot(r, s.data, s.bytes, &s.n, &err), &err);
    }
    outputs = pl_request_tokens(r, &n_outputs);
    memcpy(s.tokens, p->tokens, (size_t)p->n_tokens * sizeof *s.tokens);
    memcpy(s.tokens + p->n_tokens, outputs, (size_t)n_outputs * sizeof *outputs);
    assert_int_equal(pl_request_snapshot(r, s.data, s.bytes - 1, &n_outputs, &err), PL_ERR_LIMIT);
    pl_request_release(r);
    return s;
}

/* The same prompt from a snapshot and from nothing. */
static void compare(pl_engine *e, const saved *s, const int32_t *tokens, int32_t n)
{
    pl_request_params p = request_of(n);
    uint64_t before;
    result want, got;
    char what[64];

    p.tokens = tokens;
    run_all(e, &p, 1, NULL, &want);
    p.snapshot = s->data;
    p.snapshot_bytes = s->bytes;
    before = pl_engine_stats_of(e).prefill_tokens;
    run_all(e, &p, 1, NULL, &got);
    snprintf(what, sizeof what, "%d of %d tokens", s->n, n);
    check_same_result(what, &got, &want);
    assert_int_equal(want.stats.cached_tokens, 0);
    assert_int_equal(got.stats.cached_tokens, s->n);
    assert_int_equal(pl_engine_stats_of(e).prefill_tokens - before, n - s->n);
}

static void restored_is_never_left(void **state)
{
    static const int32_t ends[] = {1, 4, 127, 128, 129, 260};
    const pl_engine_params p = params_with(3, 300, 0, NULL);
    pl_engine *e = open_engine("nano", &p);

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        pl_request_params r = request_of(ends[i]);
        saved s = save_at(e, &r, ends[i]);
        assert_int_equal(s.n, ends[i]);
        compare(e, &s, prompt, ends[i] + 1);
        if (ends[i] == 4 || ends[i] == 129)
            compare(e, &s, prompt, LEN);
        free(s.data);
    }
    pl_engine_close(e);
}

/* Some drafts kept, which the compressors have not read: their raw rows travel. The text goes on with what was
 * chosen. */
static void among_drafts(void **state)
{
    const pl_engine_params p = params_with(4, 40, 0, NULL), other = params_with(8, 33, 0, NULL);
    pl_engine *e = open_engine("nano", &p), *o = open_engine("nano", &other);
    int n_pending = 0;

    for (int32_t n = 120; n < 132; n += 3) {
        pl_request_params r = request_of(118);
        saved s;
        pl_snapshot_header h;

        r.max_tokens = 40;
        r.temperature = 0;
        s = save_at(e, &r, n);
        memcpy(&h, s.data, sizeof h);
        n_pending += h.n_settled < h.n;
        s.tokens[s.n + 1] = 9;
        compare(e, &s, s.tokens, s.n + 2);
        compare(o, &s, s.tokens, s.n + 2);
        free(s.data);
    }
    assert_true(n_pending > 0);
    pl_engine_close(e);
    pl_engine_close(o);
}

/* Saved by one kind of engine, restored by another: levels, ranks, drafts, chunks. */
static void other_engines(void **state)
{
    const pl_engine_params p = params_with(0, 64, 2, NULL), q = params_with(2, 50, 0, "scalar");
    pl_engine *a = open_engine("nano", &p), *b = open_engine("nano", &q);
    pl_request_params r = request_of(130);
    saved s = save_at(a, &r, 130), t = save_at(b, &r, 130);

    compare(b, &s, prompt, 133);
    compare(a, &t, prompt, 133);
    free(s.data);
    free(t.data);
    pl_engine_close(a);
    pl_engine_close(b);
}

/* ---- what is refused */

static void refused(pl_engine *e, const saved *s, pl_status want, const char *part)
{
    pl_request_params p = request_of(200);
    pl_request *r;
    pl_error err = {0};

    p.snapshot = s->data;
    p.snapshot_bytes = s->bytes;
    assert_int_equal(pl_engine_submit(e, &p, &r, &err), want);
    assert_null(r);
    if (!strstr(err.msg, part))
        fail_msg("error does not tell of '%s': %s", part, err.msg);
}

static void refuse_changed(pl_engine *e, const saved *s, size_t at, pl_status want,
                           const char *part)
{
    uint8_t *byte = (uint8_t *)s->data + at;

    *byte ^= 1;
    refused(e, s, want, part);
    *byte ^= 1;
}

#define AT(field) offsetof(pl_snapshot_header, field)

static void refusals(void **state)
{
    const pl_engine_params p = params_with(1, 64, 0, NULL), q = params_with(0, 64, 0, "f64");
    pl_engine *e = open_engine("nano", &p), *other;
    pl_request_params r = request_of(140);
    saved s = save_at(e, &r, 140);

    refuse_changed(e, &s, AT(magic), PL_ERR_CORRUPT, "magic");
    refuse_changed(e, &s, AT(version), PL_ERR_UNSUPPORTED, "version (got 0, want 1)");
    refuse_changed(e, &s, AT(header_bytes), PL_ERR_CORRUPT, "header");
    refuse_changed(e, &s, AT(n_sections), PL_ERR_CORRUPT, "sections");
    refuse_changed(e, &s, AT(total_bytes), PL_ERR_CORRUPT, "cut off or too long");
    refuse_changed(e, &s, AT(numerics_version), PL_ERR_INVALID, "numerics version");
    refuse_changed(e, &s, AT(checkpoint), PL_ERR_INVALID, "another checkpoint");
    refuse_changed(e, &s, AT(n_layers), PL_ERR_INVALID, "layers");
    refuse_changed(e, &s, AT(has_mtp), PL_ERR_INVALID, "has_mtp");
    refuse_changed(e, &s, AT(kv_data_bytes), PL_ERR_INVALID, "kv_data_bytes");
    refuse_changed(e, &s, AT(kv_scale_bytes), PL_ERR_INVALID, "kv_scale_bytes");
    refuse_changed(e, &s, AT(key_data_bytes), PL_ERR_INVALID, "key_data_bytes");
    refuse_changed(e, &s, AT(key_scale_bytes), PL_ERR_INVALID, "key_scale_bytes");
    refuse_changed(e, &s, AT(acc_bytes), PL_ERR_INVALID, "acc_bytes");
    refuse_changed(e, &s, AT(window), PL_ERR_INVALID, "window");
    refuse_changed(e, &s, AT(ratios), PL_ERR_INVALID, "ratios");
    refuse_changed(e, &s, AT(n) + 3, PL_ERR_LIMIT, "too long");
    refuse_changed(e, &s, AT(n), PL_ERR_CORRUPT, "section 0");
    refuse_changed(e, &s, AT(n_settled) + 1, PL_ERR_CORRUPT, "counts");
    refuse_changed(e, &s, AT(n_mtp) + 1, PL_ERR_CORRUPT, "counts");
    refuse_changed(e, &s, AT(section[2].offset), PL_ERR_CORRUPT, "section 2");
    refuse_changed(e, &s, AT(section[3].bytes), PL_ERR_CORRUPT, "section 3");
    refuse_changed(e, &s, AT(checksum), PL_ERR_CORRUPT, "checksum");
    refuse_changed(e, &s, (size_t)s.bytes / 2, PL_ERR_CORRUPT, "checksum");
    s.bytes--;
    refused(e, &s, PL_ERR_CORRUPT, "cut off");
    s.bytes = 10;
    refused(e, &s, PL_ERR_CORRUPT, "too short for a header");
    s.bytes = 0;
    refused(e, &s, PL_ERR_CORRUPT, "too short for a header");
    pl_engine_close(e);
    free(s.data);

    e = open_engine("nano", &p);
    s = save_at(e, &r, 140);
    prompt[77]++;
    refused(e, &s, PL_ERR_INVALID, "at position 77");
    prompt[77]--;
    other = open_engine("nano", &q);
    refused(other, &s, PL_ERR_INVALID, "bytes");
    pl_engine_close(other);
    free(s.data);
    r = request_of(200);
    s = save_at(e, &r, 200);
    refused(e, &s, PL_ERR_INVALID, "as long as the prompt");
    free(s.data);
    pl_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restored_is_never_left),
        cmocka_unit_test(among_drafts),
        cmocka_unit_test(other_engines),
        cmocka_unit_test(refusals),
    };

    fill_prompt(prompt, LEN, VOCAB, 3);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
