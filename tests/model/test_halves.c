/* Level scalar, half block by half block, within the noise of summation order.
 *
 *     test_halves NAME ref|rec
 *
 * End to end the model is chaotic under another order of sums, so each half starts from the reference's
 * streams, with its selections and expert choices. The reference is level f64, whose streams have the sums of
 * the golden file. What comes out may differ by what fp32-sized noise in every dot product does, stored as
 * noise.attn and noise.ffn: over the tokens of a layer the rms within 2 times the rms of the noise, the largest
 * within 2.5 times the largest.
 *
 * Levels compute what mode rec describes, so that is the reference that nothing but the order of sums sets them
 * apart from. Mode ref rounds the query norm op by op, which is a difference of about the size of the noise. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"
#include "support/model.h"

/* What the reference did. */
typedef struct layer_record {
    float *mid, *out; /* [T][4 D] */
    int32_t *sel, *ids;
} layer_record;

static const char *model_name;
static pl_mode mode;
static golden *gold_ref, *gold; /* noise; sums */
static int32_t T, *tokens, n_failed;
static layer_record record[PL_MAX_LAYERS];

static void *copy_of(const void *data, size_t bytes)
{
    return memcpy(malloc(bytes), data, bytes);
}

/* ----------------------------------------------------------------------- the reference ---- */

static void check_sums(int32_t l, const float *x, int64_t cols)
{
    golden_tensor t = golden_get(gold, "F32", "layers.%d.sums", l);

    for (int64_t r = 0; r < T; r++) {
        double sum = 0, pattern = 0;

        for (int64_t i = 0; i < cols; i++) {
            sum += (double)x[r * cols + i];
            pattern += (double)x[r * cols + i] * (double)(i % 7 - 3);
        }
        assert_true((float)sum == ((const float *)t.data)[3 * r]);
        assert_true((float)pattern == ((const float *)t.data)[3 * r + 2]);
    }
}

static void visit_reference(void *user, const pl_tap_view *view)
{
    layer_record *r = view->layer < 0 ? NULL : &record[view->layer];
    size_t n = (size_t)(view->rows * view->cols);
    float **x;

    if (!r)
        return;
    switch (view->tap) {
    case PL_TAP_ATTN_SEL:
        r->sel = copy_of(view->data, n * sizeof *r->sel);
        break;
    case PL_TAP_FFN_IDS:
        r->ids = copy_of(view->data, n * sizeof *r->ids);
        break;
    case PL_TAP_STREAMS_MID:
    case PL_TAP_STREAMS:
        x = view->tap == PL_TAP_STREAMS ? &r->out : &r->mid;
        *x = malloc(n * sizeof **x);
        pl_tap_get(view, 0, view->rows, *x);
        if (view->tap == PL_TAP_STREAMS)
            check_sums(view->layer, *x, view->cols);
        break;
    default:
        break;
    }
}

/* ------------------------------------------------------------------------- the replay ---- */

typedef struct figures {
    double rms, largest;
} figures;

static figures figures_of(const double *v, int64_t n)
{
    figures f = {0};

    for (int64_t i = 0; i < n; i++) {
        f.rms += v[i] * v[i] / (double)n;
        f.largest = v[i] > f.largest ? v[i] : f.largest;
    }
    f.rms = sqrt(f.rms);
    return f;
}

/* |got - want| / |want| of a token. */
static double change(const float *got, const float *want, int64_t n)
{
    double diff = 0, norm = 0;

    for (int64_t i = 0; i < n; i++) {
        diff += pow((double)got[i] - (double)want[i], 2);
        norm += pow((double)want[i], 2);
    }
    return sqrt(diff / norm);
}

static void judge(int32_t layer, const char *half, const pl_tap_view *view, const float *want)
{
    golden_tensor t = golden_get(gold_ref, "F32", "layers.%d.noise.%s", layer, half);
    double *got_change = malloc((size_t)T * sizeof *got_change);
    double *noise = malloc((size_t)T * sizeof *noise);
    float *row = malloc((size_t)view->cols * sizeof *row);
    figures got, allowed;

    for (int64_t r = 0; r < T; r++) {
        pl_tap_get(view, r, 1, row);
        got_change[r] = change(row, want + r * view->cols, view->cols);
        noise[r] = (double)((const float *)t.data)[r];
    }
    got = figures_of(got_change, T);
    allowed = figures_of(noise, T);
    printf("layers.%d %-4s rms %.3e = %.2f x noise, largest %.3e = %.2f x noise\n", layer, half,
           got.rms, got.rms / allowed.rms, got.largest, got.largest / allowed.largest);
    if (!(got.rms <= 2 * allowed.rms && got.largest <= 2.5 * allowed.largest))
        n_failed++;
    free(got_change);
    free(noise);
    free(row);
}

/* Judges what was computed, then puts the reference's values in its place. */
static void visit_replay(void *user, const pl_tap_view *view)
{
    layer_record *r = view->layer < 0 ? NULL : &record[view->layer];
    size_t n = (size_t)(view->rows * view->cols);

    if (!r)
        return;
    switch (view->tap) {
    case PL_TAP_ATTN_SEL:
        memcpy(view->data, r->sel, n * sizeof *r->sel);
        break;
    case PL_TAP_FFN_IDS:
        memcpy(view->data, r->ids, n * sizeof *r->ids);
        break;
    case PL_TAP_STREAMS_MID:
        judge(view->layer, "attn", view, r->mid);
        view->ops->act_set(r->mid, (int64_t)n, view->data);
        break;
    case PL_TAP_STREAMS:
        judge(view->layer, "ffn", view, r->out);
        view->ops->act_set(r->out, (int64_t)n, view->data);
        break;
    default:
        break;
    }
}

static void run(const pl_ops *ops, void (*visit)(void *, const pl_tap_view *))
{
    test_model *m =
        test_model_open(model_name, ops, (pl_forward_limits){.max_tokens = T, .max_logits = 1}, 2);
    pl_hooks hooks = {NULL, visit, false};
    pl_state *s = test_state_new(m);

    pl_forward_set_hooks(m->forward, &hooks);
    test_run(m, s, tokens, T, false);
    test_state_free(s);
    test_model_close(m);
}

static void test_halves(void **unused)
{
    run(pl_ops_f64(mode), visit_reference);
    run(pl_ops_scalar(), visit_replay);
    assert_int_equal(n_failed, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_halves)};
    char file[128];
    golden_tensor t;

    assert_int_equal(argc, 3);
    model_name = argv[1];
    mode = strcmp(argv[2], "ref") == 0 ? PL_MODE_REF : PL_MODE_REC;
    snprintf(file, sizeof file, "%s.ref.safetensors", model_name);
    gold_ref = golden_open(file);
    snprintf(file, sizeof file, "%s.%s.safetensors", model_name, argv[2]);
    gold = golden_open(file);
    t = golden_get(gold, "I64", "tokens");
    T = (int32_t)t.n;
    tokens = malloc(t.n * sizeof *tokens);
    for (int32_t i = 0; i < T; i++)
        tokens[i] = (int32_t)((const int64_t *)t.data)[i];
    return cmocka_run_group_tests_name(file, tests, NULL, NULL);
}
