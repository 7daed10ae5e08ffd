/* The file of a trace: names, types, shapes and values of the golden file, from short steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/trace_file.h"
#include "support/golden.h"
#include "support/model.h"
#include "support/scratch.h"

static golden *gold;
static test_model *m;
static int32_t T, *tokens;

/* The trace stores all positions; `at` names those of a golden tensor with fewer rows. */
static void check_tensor(const golden *trace, const char *name, const char *at)
{
    golden_tensor want = golden_get(gold, NULL, "%s", name);
    golden_tensor got = golden_get(trace, want.dtype, "%s", name);
    bool all = want.shape[0] == got.shape[0];
    golden_tensor positions = golden_get(gold, "I64", "%s", all ? "positions" : at);
    size_t row = got.shape[0] ? got.bytes / (size_t)got.shape[0] : 0;

    assert_int_equal(got.rank, want.rank);
    for (int i = 1; i < want.rank; i++)
        assert_int_equal(got.shape[i], want.shape[i]);
    for (int64_t r = 0; r < want.shape[0]; r++) {
        int64_t from = all ? r : ((const int64_t *)positions.data)[r];
        check_same_bytes(name, (const uint8_t *)got.data + (size_t)from * row,
                         (const uint8_t *)want.data + (size_t)r * row, row);
    }
}

static void check_layers(const golden *trace)
{
    static const struct {
        const char *name, *at;
    } tensors[] = {
        {"sums", "positions"},        {"streams", "positions"},    {"streams_mid", "positions"},
        {"attn_out", "positions"},    {"ffn_out", "positions"},    {"attn.kv", "positions"},
        {"attn.q", "q_positions"},    {"attn.o", "q_positions"},   {"ffn.ids", "positions"},
        {"ffn.weights", "positions"}, {"attn.sel", "positions"},   {"attn.scores", "positions"},
        {"attn.entries", "-"},        {"attn.index_entries", "-"},
    };
    char name[64];

    for (int32_t l = 0; l < m->config->n_layers; l++)
        for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
            snprintf(name, sizeof name, "layers.%d.%s", l, tensors[i].name);
            assert_int_equal(golden_has(gold, name), golden_has(trace, name));
            if (golden_has(gold, name))
                check_tensor(trace, name, tensors[i].at);
        }
}

static void equals_the_golden_file(void **unused)
{
    char folder[SCRATCH_PATH_BYTES], path[SCRATCH_PATH_BYTES + 32], *old;
    golden *trace;
    pl_error err;

    scratch_create(folder);
    snprintf(path, sizeof path, "%s/t.safetensors", folder);
    check_ok(pl_trace_write(path, m->weights, m->ops, m->pool, tokens, T, 50, &err), &err);
    old = strdup(getenv("PL_GOLDEN_DIR"));
    setenv("PL_GOLDEN_DIR", folder, 1);
    trace = golden_open("t.safetensors");
    setenv("PL_GOLDEN_DIR", old, 1);
    assert_string_equal(golden_metadata(trace, "mode"), "ref");
    assert_string_equal(golden_metadata(trace, "level"), "f64");
    check_tensor(trace, "tokens", "-");
    check_tensor(trace, "logits", "-");
    check_tensor(trace, "mtp.logits", "mtp.positions");
    check_tensor(trace, "mtp.streams", "mtp.positions");
    assert_int_equal(golden_get(trace, "F32", "mtp.logits").shape[0], T - 1);
    check_layers(trace);
    golden_close(trace);
    free(old);
    scratch_remove(folder);
}

/* What failed leaves no file behind, neither under its name nor under that of the unfinished one. */
static void a_failure_leaves_nothing(void **unused)
{
    char folder[SCRATCH_PATH_BYTES], path[SCRATCH_PATH_BYTES + 32], part[SCRATCH_PATH_BYTES + 40];
    int32_t bad[] = {1, 2, m->config->vocab_size};
    pl_error err;

    scratch_create(folder);
    snprintf(path, sizeof path, "%s/t.safetensors", folder);
    snprintf(part, sizeof part, "%s.part", path);
    check_error(pl_trace_write(path, m->weights, m->ops, m->pool, bad, 3, 2, &err), PL_ERR_INVALID,
                &err, "512", "vocabulary", NULL);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_not_equal(access(part, F_OK), 0);
    check_error(pl_trace_write(path, m->weights, m->ops, m->pool, bad, 0, 2, &err), PL_ERR_INVALID,
                &err, "number of tokens", NULL);
    snprintf(path, sizeof path, "%s/no/such/folder", folder);
    check_error(pl_trace_write(path, m->weights, m->ops, m->pool, bad, 2, 2, &err), PL_ERR_IO, &err,
                "cannot create", NULL);
    scratch_remove(folder);
}

/* One token: no entry, no score, no mtp row. */
static void one_token(void **unused)
{
    char folder[SCRATCH_PATH_BYTES], path[SCRATCH_PATH_BYTES + 32];
    pl_error err;

    scratch_create(folder);
    snprintf(path, sizeof path, "%s/t.safetensors", folder);
    check_ok(pl_trace_write(path, m->weights, m->ops, m->pool, tokens, 1, 128, &err), &err);
    assert_int_equal(access(path, F_OK), 0);
    scratch_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_golden_file),
        cmocka_unit_test(a_failure_leaves_nothing),
        cmocka_unit_test(one_token),
    };
    golden_tensor t;

    gold = golden_open("nano.ref.safetensors");
    t = golden_get(gold, "I64", "tokens");
    T = (int32_t)t.n;
    tokens = malloc(t.n * sizeof *tokens);
    for (int32_t i = 0; i < T; i++)
        tokens[i] = (int32_t)((const int64_t *)t.data)[i];
    m = test_model_open("nano", pl_ops_f64(PL_MODE_REF), (pl_forward_limits){.max_tokens = 1}, 2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
