/* Level f64 against the oracle's golden files: every stored tensor of a model and mode.
 *
 *     test_golden NAME MODE
 *
 * In modes ref and rec each value must have the golden bits: one wrong rounding anywhere, in any of the
 * several thousand operators behind a logit, would show. In mode exact numbers agree within 1e-5 of the
 * largest of their row, choices (ids, selections, tokens) must be equal. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"
#include "support/model.h"

static const char *model_name;
static pl_mode mode;
static golden *gold;
static test_model *m;
static int n_failed;
static int32_t T, *tokens; /* the long prompt */
static uint8_t *streams;   /* act [T][4][D]: its streams */

/* ------------------------------------------------------------------------- comparing ---- */

static bool differs(float got, float want, float scale)
{
    if (mode != PL_MODE_EXACT)
        return memcmp(&got, &want, sizeof got) != 0;
    return !(fabsf(got - want) <= 1e-5f * scale);
}

/* Rows of `cols` values. Prints and counts; the test fails once at the end, so that one run shows all. */
static void compare(const char *what, const float *got, const float *want, int64_t rows,
                    int64_t cols)
{
    int64_t n_bad = 0, first = -1;

    for (int64_t r = 0; r < rows; r++) {
        float scale = 0;
        for (int64_t i = r * cols; i < (r + 1) * cols; i++)
            if (fabsf(want[i]) < 1e29f && fabsf(want[i]) > scale)
                scale = fabsf(want[i]);
        for (int64_t i = r * cols; i < (r + 1) * cols; i++)
            if (differs(got[i], want[i], scale) && n_bad++ == 0)
                first = i;
    }
    if (n_bad) {
        printf("%s: %ld of %ld differ, first at row %ld column %ld: got %.9g, want %.9g\n", what,
               (long)n_bad, (long)(rows * cols), (long)(first / cols), (long)(first % cols),
               (double)got[first], (double)want[first]);
        n_failed++;
    }
}

static void compare_ids(const char *what, const int64_t *got, const int64_t *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (got[i] != want[i]) {
            printf("%s: element %ld: got %ld, want %ld\n", what, (long)i, (long)got[i],
                   (long)want[i]);
            n_failed++;
            return;
        }
}

static float *golden_values(const char *name, golden_tensor *t)
{
    *t = golden_get(gold, NULL, "%s", name);
    return golden_floats(t);
}

/* ---------------------------------------------------------------------- the main stack ---- */

typedef struct positions {
    const int64_t *at;
    int64_t n;
} positions;

static positions golden_positions(const char *name)
{
    golden_tensor t = golden_get(gold, "I64", "%s", name);

    return (positions){t.data, (int64_t)t.n};
}

/* Rows `at` of a tapped tensor, or all of them where the golden tensor has that many. */
static void compare_rows(const char *name, const pl_tap_view *view, positions at)
{
    golden_tensor t;
    float *want = golden_values(name, &t), *got = malloc((t.n + 1) * sizeof *got);
    bool all = t.shape[0] == view->rows;

    for (int64_t i = 0; i < t.shape[0]; i++)
        pl_tap_get(view, all ? i : at.at[i], 1, got + i * view->cols);
    compare(name, got, want, t.shape[0], view->cols);
    free(got);
    free(want);
}

static void compare_int_rows(const char *name, const pl_tap_view *view)
{
    golden_tensor t = golden_get(gold, "I64", "%s", name);
    int64_t *got = malloc(t.n * sizeof *got);

    assert_int_equal(t.n, view->rows * view->cols);
    for (size_t i = 0; i < t.n; i++)
        got[i] = ((const int32_t *)view->data)[i];
    compare_ids(name, got, t.data, (int64_t)t.n);
    free(got);
}

static void compare_sums(int32_t layer, const pl_tap_view *view)
{
    char name[64];
    golden_tensor t;
    float *want, *got, *row = malloc((size_t)view->cols * sizeof *row);

    snprintf(name, sizeof name, "layers.%d.sums", layer);
    want = golden_values(name, &t);
    got = malloc(t.n * sizeof *got);
    for (int64_t r = 0; r < view->rows; r++) {
        double sum = 0, squares = 0, pattern = 0;
        pl_tap_get(view, r, 1, row);
        for (int64_t i = 0; i < view->cols; i++) {
            sum += (double)row[i];
            squares += (double)row[i] * (double)row[i];
            pattern += (double)row[i] * (double)(i % 7 - 3);
        }
        got[3 * r] = (float)sum;
        got[3 * r + 1] = (float)sqrt(squares);
        got[3 * r + 2] = (float)pattern;
    }
    compare(name, got, want, view->rows, 3);
    free(row);
    free(got);
    free(want);
}

/* Scores of the stored positions, and the margin of every selection. */
static void compare_scores(int32_t layer, const pl_tap_view *view)
{
    positions at = golden_positions("positions");
    char name[64];
    golden_tensor t;
    float *want, *got, *row = malloc((size_t)view->cols * sizeof *row);

    snprintf(name, sizeof name, "layers.%d.attn.scores", layer);
    want = golden_values(name, &t);
    got = malloc(t.n * sizeof *got);
    for (int64_t i = 0; i < at.n; i++) {
        pl_tap_get(view, at.at[i], 1, row);
        for (int64_t j = 0; j < t.shape[1]; j++)
            got[i * t.shape[1] + j] = j < (at.at[i] + 1) / 4 ? row[j] : 1e30f;
    }
    compare(name, got, want, at.n, t.shape[1]);
    free(row);
    free(got);
    free(want);
}

static void visit(void *user, const pl_tap_view *view)
{
    positions at = golden_positions("positions"), q_at = golden_positions("q_positions");
    char name[64];

    if (view->layer < 0)
        return;
    snprintf(name, sizeof name, "layers.%d.%s", view->layer, pl_tap_name(view->tap));
    switch (view->tap) {
    case PL_TAP_ATTN_SEL:
    case PL_TAP_FFN_IDS:
        compare_int_rows(name, view);
        break;
    case PL_TAP_ATTN_SCORES:
        compare_scores(view->layer, view);
        break;
    case PL_TAP_ATTN_Q:
    case PL_TAP_ATTN_O:
        compare_rows(name, view, q_at);
        break;
    case PL_TAP_STREAMS:
        compare_sums(view->layer, view);
        compare_rows(name, view, at);
        break;
    default:
        compare_rows(name, view, at);
    }
}

static void compare_entries(const pl_state *s)
{
    for (int32_t l = 0; l < s->n_layers; l++) {
        const pl_layer_state *layer = &s->layer[l];

        for (int keys = 0; keys <= (layer->ratio == 4) && layer->ratio; keys++) {
            int64_t dim = keys ? PL_INDEX_DIM : PL_HEAD_DIM;
            char name[64];
            golden_tensor t;
            float *want, *got;

            snprintf(name, sizeof name, "layers.%d.attn.%s", l, keys ? "index_entries" : "entries");
            want = golden_values(name, &t);
            got = malloc((t.n + 1) * sizeof *got);
            assert_int_equal(t.shape[0], s->n / layer->ratio);
            for (int64_t i = 0; i < t.shape[0]; i++)
                (keys ? m->ops->key_get : m->ops->kv_get)(keys ? &layer->keys : &layer->entries, i,
                                                          got + i * dim);
            compare(name, got, want, t.shape[0], dim);
            free(got);
            free(want);
        }
    }
}

/* The prompt as one step. Its streams stay for the tests of mtp. */
static void test_prompt(void **unused)
{
    pl_hooks hooks = {NULL, visit, true};
    pl_state *s = test_state_new(m);
    size_t row = PL_HC_MULT * (size_t)m->config->hidden_size * (size_t)m->ops->act_bytes;
    golden_tensor t;
    float *want, *got;

    n_failed = 0;
    pl_forward_set_hooks(m->forward, &hooks);
    test_run(m, s, tokens, T, true);
    pl_forward_set_hooks(m->forward, NULL);
    want = golden_values("logits", &t);
    got = malloc(t.n * sizeof *got);
    m->ops->acc_get(pl_forward_logits(m->forward), (int64_t)t.n, got);
    compare("logits", got, want, T, m->config->vocab_size);
    compare_entries(s);
    streams = malloc((size_t)T * row);
    memcpy(streams, pl_forward_streams(m->forward), (size_t)T * row);
    free(got);
    free(want);
    test_state_free(s);
    assert_int_equal(n_failed, 0);
}

/* ------------------------------------------------------------------------------- mtp ---- */

static void test_mtp(void **unused)
{
    pl_state *s = test_state_new(m), *zero = test_state_new(m);
    positions at = golden_positions("mtp.positions");
    int64_t V = m->config->vocab_size, cols = PL_HC_MULT * (int64_t)m->config->hidden_size;
    golden_tensor t, u;
    float *want = golden_values("mtp.logits", &t), *want_x = golden_values("mtp.streams", &u);
    float *got = malloc((t.n + u.n + 8 * (size_t)V) * sizeof *got);
    int32_t first[8];

    n_failed = 0;
    assert_non_null(streams);
    test_run_mtp(m, s, streams, 0, tokens + 1, T - 1, true);
    for (int64_t i = 0; i < at.n; i++)
        test_logits(m, (int32_t)at.at[i], got + i * V);
    compare("mtp.logits", got, want, at.n, V);
    for (int64_t i = 0; i < at.n; i++)
        m->ops->act_get((const uint8_t *)pl_forward_mtp_streams(m->forward) +
                            at.at[i] * cols * m->ops->act_bytes,
                        cols, got + i * cols);
    compare("mtp.streams", got, want_x, at.n, cols);
    free(want);

    memcpy(first, tokens + 1, sizeof first);
    first[0] = -1;
    test_run_mtp(m, zero, streams, 0, first, 8, true);
    want = golden_values("mtp.zero0.logits", &t);
    for (int32_t i = 0; i < 8; i++)
        test_logits(m, i, got + i * V);
    compare("mtp.zero0.logits", got, want, 8, V);
    free(want);
    free(want_x);
    free(got);
    test_state_free(s);
    test_state_free(zero);
    assert_int_equal(n_failed, 0);
}

/* --------------------------------------------------------------------- continuations ---- */

/* Greedy decoding from a copy of the state after n tokens. */
static void decode(pl_state *s, int32_t n, int32_t next)
{
    golden_tensor ids = golden_get(gold, "I64", "dec.%d.tokens", n), t;
    int64_t V = m->config->vocab_size;
    char name[64];
    float *want, *got = malloc((size_t)V * sizeof *got);

    snprintf(name, sizeof name, "dec.%d.logits", n);
    want = golden_values(name, &t);
    for (size_t i = 0; i < ids.n; i++) {
        snprintf(name, sizeof name, "dec.%d.tokens", n);
        compare_ids(name, (const int64_t[]){next}, (const int64_t *)ids.data + i, 1);
        test_run(m, s, &next, 1, true);
        test_logits(m, 0, got);
        snprintf(name, sizeof name, "dec.%d.logits, step %zu", n, i);
        compare(name, got, want + (int64_t)i * V, 1, V);
        next = pl_forward_argmax(m->forward, 0);
    }
    free(want);
    free(got);
}

/* k greedy drafts behind the n positions whose streams begin at row first_row of X and whose successors are
 * `next`; keeps the mtp rows of true hidden states only. rows: logits [k][V], or NULL. */
static void draft(pl_state *s, const void *X, int32_t first_row, const int32_t *next, int32_t n,
                  int32_t k, int32_t *ids, float *rows)
{
    int32_t at = n - 1, n_true;

    test_run_mtp(m, s, X, first_row, next, n, true);
    n_true = s->n_mtp;
    for (int32_t j = 0; j < k; j++) {
        if (j) {
            test_run_mtp(m, s, pl_forward_mtp_streams(m->forward), at, &ids[j - 1], 1, true);
            at = 0;
        }
        ids[j] = pl_forward_argmax(m->forward, at);
        if (rows)
            test_logits(m, at, rows + (int64_t)j * m->config->vocab_size);
    }
    s->n_mtp = n_true;
}

static void drafts(pl_state *s, int32_t n, int32_t next)
{
    golden_tensor want_ids = golden_get(gold, "I64", "draft.%d.ids", n), t;
    int32_t ids[3];
    char name[64];
    float *want, *rows = malloc(3 * (size_t)m->config->vocab_size * sizeof *rows);

    draft(s, streams, n - 1, &next, 1, 3, ids, rows);
    snprintf(name, sizeof name, "draft.%d.ids", n);
    compare_ids(name, (const int64_t[]){ids[0], ids[1], ids[2]}, want_ids.data, 3);
    snprintf(name, sizeof name, "draft.%d.logits", n);
    want = golden_values(name, &t);
    compare(name, rows, want, 3, m->config->vocab_size);
    free(want);
    free(rows);
}

/* One speculative continuation at work. */
typedef struct spec {
    int32_t n, k; /* prompt, drafts per round */
    bool rewind;  /* how rejected tokens are taken back: by the state itself, or by a copy of it */
    pl_state *s, *before;
    int32_t next[4], n_next; /* tokens since the last round */
} spec;

/* One round: drafts, verification, acceptance. Returns how many were accepted. */
static int32_t spec_round(spec *x, const void *X, int32_t first_row, int32_t *ids, int32_t *best)
{
    pl_step_seq seq = {x->s, 0, x->k + 1, x->rewind ? x->k : 0};
    int32_t verify[4], rows[] = {0, 1, 2, 3}, a = 0, start;
    pl_step step = {x->k + 1, verify, 1, &seq, x->k + 1, rows};
    pl_error err;

    draft(x->s, X, first_row, x->next, x->n_next, x->k, ids, NULL);
    pl_state_copy(x->before, x->s);
    start = x->s->n;
    verify[0] = x->next[x->n_next - 1];
    memcpy(verify + 1, ids, (size_t)x->k * sizeof *ids);
    check_ok(pl_forward_run(m->forward, &step, &err), &err);
    for (int32_t i = 0; i <= x->k; i++)
        best[i] = pl_forward_argmax(m->forward, i);
    while (a < x->k && ids[a] == best[a])
        a++;
    if (x->rewind) {
        pl_state_rewind(x->s, start + 1 + a);
    } else if (a < x->k) {
        pl_state_copy(x->s, x->before);
        test_run(m, x->s, verify, a + 1, false);
    }
    return a;
}

static void speculate(spec *x)
{
    int32_t n = x->n, k = x->k, out = 1;
    golden_tensor first = golden_get(gold, "I64", "spec.%d.%d.first", n, k);
    golden_tensor ids_want = golden_get(gold, "I64", "spec.%d.%d.drafts", n, k);
    golden_tensor accepted = golden_get(gold, "I64", "spec.%d.%d.accepted", n, k);
    golden_tensor plain = golden_get(gold, "I64", "dec.%d.tokens", n);

    x->next[0] = (int32_t)((const int64_t *)plain.data)[0];
    x->n_next = 1;
    for (size_t r = 0; r < first.n; r++) {
        int32_t ids[4] = {0}, best[4], last = x->next[x->n_next - 1], a;
        char what[64];

        snprintf(what, sizeof what, "spec.%d.%d round %zu%s", n, k, r,
                 x->rewind ? " (rewound)" : "");
        a = r ? spec_round(x, pl_forward_streams(m->forward), 0, ids, best)
              : spec_round(x, streams, n - 1, ids, best);
        compare_ids(what, (const int64_t[]){last}, (const int64_t *)first.data + r, 1);
        compare_ids(what, (const int64_t[]){ids[0], ids[1], ids[2]},
                    (const int64_t *)ids_want.data + (int64_t)r * k, k);
        compare_ids(what, (const int64_t[]){a}, (const int64_t *)accepted.data + r, 1);
        memcpy(x->next, ids, (size_t)a * sizeof *ids);
        x->next[a] = best[a];
        x->n_next = a + 1;
        for (int32_t i = 0; i <= a && out < (int32_t)plain.n; i++, out++)
            compare_ids(what, (const int64_t[]){x->next[i]}, (const int64_t *)plain.data + out, 1);
    }
    assert_true(out >= (int32_t)plain.n);
}

/* Speculation with 1, 2 and 3 drafts where the file has it. Returns the number of cases. */
static int speculations(const pl_state *from, int32_t n, pl_state *s, pl_state *before)
{
    spec x = {.n = n, .s = s, .before = before};
    int n_cases = 0;
    char name[64];

    for (x.k = 1; x.k <= 3; x.k++) {
        snprintf(name, sizeof name, "spec.%d.%d.first", n, x.k);
        if (!golden_has(gold, name))
            continue;
        n_cases++;
        for (int rewind = mode != PL_MODE_REF; rewind < 2; rewind++) {
            pl_state_copy(s, from);
            x.rewind = rewind != 0;
            speculate(&x);
        }
    }
    return n_cases;
}

/* The prompt grows to every tested length; from each, copies of the state go on. Before position n the mtp
 * block has done n - 1: the last one's successor is what is being decided. */
static void test_continuations(void **unused)
{
    pl_state *s = test_state_new(m), *copy = test_state_new(m), *before = test_state_new(m);
    positions lengths = golden_positions("lengths");
    int n_cases = 0;

    n_failed = 0;
    assert_non_null(streams);
    for (int64_t i = 0; i < lengths.n; i++) {
        int32_t n = (int32_t)lengths.at[i], n_new = n - s->n, next;

        test_run(m, s, tokens + s->n, n_new, true);
        next = pl_forward_argmax(m->forward, n_new - 1);
        if (n - 1 > s->n_mtp)
            test_run_mtp(m, s, streams, s->n_mtp, tokens + s->n_mtp + 1, n - 1 - s->n_mtp, false);
        pl_state_copy(copy, s);
        decode(copy, n, next);
        pl_state_copy(copy, s);
        drafts(copy, n, next);
        n_cases += speculations(s, n, copy, before);
    }
    /* The file at true layer sizes stores no rounds of speculation. */
    assert_true(strcmp(model_name, "flash4") == 0 ? n_cases == 0 : n_cases >= 9);
    test_state_free(s);
    test_state_free(copy);
    test_state_free(before);
    assert_int_equal(n_failed, 0);
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {"ref", "rec", "exact"};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_mtp),
        cmocka_unit_test(test_continuations),
    };
    char file[128];
    golden_tensor t;

    assert_int_equal(argc, 3);
    model_name = argv[1];
    while (strcmp(modes[mode], argv[2]) != 0)
        mode++;
    snprintf(file, sizeof file, "%s.%s.safetensors", argv[1], argv[2]);
    gold = golden_open(file);
    t = golden_get(gold, "I64", "tokens");
    T = (int32_t)t.n;
    tokens = malloc(t.n * sizeof *tokens);
    for (int32_t i = 0; i < T; i++)
        tokens[i] = (int32_t)((const int64_t *)t.data)[i];
    m = test_model_open(model_name, pl_ops_f64(mode),
                        (pl_forward_limits){
                            .max_tokens = T,
                            .max_len = T + 32,
                            .max_draft = 3,
                            .want_scores = true,
                        },
                        2);
    return cmocka_run_group_tests_name(file, tests, NULL, NULL);
}
