/* Level scalar, half block by half block, within the noise of summation order.
 *
 *     test_halves NAME ref|rec|chosen
 *
 * End to end the model is chaotic under another order of sums, so each half starts from the reference's
 * streams, with its selections and expert choices. The reference is level f64, whose streams have the sums of
 * the golden file. What comes out may differ by what fp32-sized noise in every dot product does, stored as
 * noise.attn and noise.ffn: over the tokens of a layer the rms within 2 times the rms of the noise, the largest
 * within 2.5 times the largest.
 *
 * Levels compute what mode rec describes, so that is the reference that nothing but the order of sums sets them
 * apart from. Mode ref rounds the query norm op by op, which is a difference of about the size of the noise, and wo_a
 * of Base to bf16; the two together are more than the noise (docs/NUMERICS.md 14). `chosen` shows that this is all
 * there is: from the streams of ref, level f64 computes each half with just these two choices made as our levels make
 * them. Level scalar has to agree with that by the same bounds, and to be as far from ref as that is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/golden.h"
#include "support/model.h"

typedef enum half { ATTN, FFN } half;
static const char *const half_names[] = {"attn", "ffn"};

typedef struct figures {
    double rms, largest;
} figures;

/* What the reference did. */
typedef struct layer_record {
    float *streams[2]; /* of each half, [T][4 D] */
    int32_t *sel, *ids;
    float *chosen[2]; /* in run `chosen`: from these streams with our choices, */
    double apart[2];  /* and how far from the reference that is, rms over tokens */
} layer_record;

static const char *model_name;
static pl_mode mode;
static bool chosen;
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
        x = &r->streams[view->tap == PL_TAP_STREAMS ? FFN : ATTN];
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

/* How far the computed half is from `want`, over the tokens. */
static figures distance(const pl_tap_view *view, const float *want)
{
    double *token = malloc((size_t)T * sizeof *token);
    float *row = malloc((size_t)view->cols * sizeof *row);
    figures f;

    for (int64_t r = 0; r < T; r++) {
        pl_tap_get(view, r, 1, row);
        token[r] = change(row, want + r * view->cols, view->cols);
    }
    f = figures_of(token, T);
    free(token);
    free(row);
    return f;
}

static void judge(half h, const pl_tap_view *view, layer_record *r)
{
    golden_tensor t = golden_get(gold_ref, "F32", "layers.%d.noise.%s", view->layer, half_names[h]);
    double *noise = malloc((size_t)T * sizeof *noise);
    figures got = distance(view, chosen ? r->chosen[h] : r->streams[h]), allowed;

    for (int64_t i = 0; i < T; i++)
        noise[i] = (double)((const float *)t.data)[i];
    allowed = figures_of(noise, T);
    free(noise);
    printf("layers.%d %-4s rms %.3e = %.2f x noise, largest %.3e = %.2f x noise\n", view->layer,
           half_names[h], got.rms, got.rms / allowed.rms, got.largest,
           got.largest / allowed.largest);
    if (!(got.rms <= 2 * allowed.rms && got.largest <= 2.5 * allowed.largest))
        n_failed++;
    if (chosen) {
        double apart = distance(view, r->streams[h]).rms;

        printf("  from ref %.2f x noise, with the two choices alone %.2f\n", apart / allowed.rms,
               r->apart[h] / allowed.rms);
        if (h == ATTN ? !(fabs(apart - r->apart[h]) <= 0.1 * allowed.rms) : r->apart[h] != 0)
            n_failed++; /* neither choice is met in an expert half */
    }
}

static void keep(half h, const pl_tap_view *view, layer_record *r)
{
    r->chosen[h] = malloc((size_t)(view->rows * view->cols) * sizeof **r->chosen);
    pl_tap_get(view, 0, view->rows, r->chosen[h]);
    r->apart[h] = distance(view, r->streams[h]).rms;
}

/* Whatever was computed, the next half starts from the reference's values, with its selections. */
static void replay(const pl_tap_view *view, void (*see)(half, const pl_tap_view *, layer_record *))
{
    layer_record *r = view->layer < 0 ? NULL : &record[view->layer];
    size_t n = (size_t)(view->rows * view->cols);
    half h = view->tap == PL_TAP_STREAMS ? FFN : ATTN;

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
    case PL_TAP_STREAMS:
        see(h, view, r);
        view->ops->act_set(r->streams[h], (int64_t)n, view->data);
        break;
    default:
        break;
    }
}

static void visit_chosen(void *user, const pl_tap_view *view)
{
    replay(view, keep);
}

static void visit_judged(void *user, const pl_tap_view *view)
{
    replay(view, judge);
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

/* wo_a as it is stored. */
static void stored_wo_a(const pl_op_env *env, const pl_linear_job *job, int64_t begin, int64_t end)
{
    pl_linear_job raw = *job;

    raw.a16 = false;
    pl_ops_f64(PL_MODE_REC)->linear_fp8_a16(env, &raw, begin, end);
}

static void test_halves(void **unused)
{
    pl_ops ours = *pl_ops_f64(PL_MODE_REC); /* selections are forced: the query norm is left */

    ours.linear_fp8_a16 = stored_wo_a;
    run(pl_ops_f64(mode), visit_reference);
    if (chosen)
        run(&ours, visit_chosen);
    run(pl_ops_scalar(), visit_judged);
    assert_int_equal(n_failed, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_halves)};
    char file[128];
    golden_tensor t;

    assert_int_equal(argc, 3);
    model_name = argv[1];
    chosen = strcmp(argv[2], "chosen") == 0;
    mode = strcmp(argv[2], "rec") == 0 ? PL_MODE_REC : PL_MODE_REF;
    snprintf(file, sizeof file, "%s.ref.safetensors", model_name);
    gold_ref = golden_open(file);
    snprintf(file, sizeof file, "%s.%s.safetensors", model_name,
             mode == PL_MODE_REC ? "rec" : "ref");
    gold = golden_open(file);
    t = golden_get(gold, "I64", "tokens");
    T = (int32_t)t.n;
    tokens = malloc(t.n * sizeof *tokens);
    for (int32_t i = 0; i < T; i++)
        tokens[i] = (int32_t)((const int64_t *)t.data)[i];
    return cmocka_run_group_tests_name(file, tests, NULL, NULL);
}
