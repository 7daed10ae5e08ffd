/* Level scalar, attention over cache rows: against a softmax in double, whatever the split into units. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/numfmt.h"
#include "support/operators.h"

static pl_rows new_rows(const pl_ops *o, int64_t n, int32_t page_rows)
{
    pl_rows r = {
        .page_rows = page_rows, .data_bytes = o->kv_data_bytes, .scale_bytes = o->kv_scale_bytes};

    r.page_bytes = pl_rows_page_bytes(page_rows, r.data_bytes, r.scale_bytes);
    r.base = take((size_t)((n + page_rows - 1) / page_rows * r.page_bytes));
    return r;
}

static void store_random_rows(const pl_rows *rows, int64_t n)
{
    float one[32], zero[32] = {0};
    uint16_t kv[512];

    for (int i = 0; i < 32; i++)
        one[i] = 1;
    for (int64_t i = 0; i < n; i++) {
        pl_row_dest dest = {rows, i};
        pl_kv_store_args a = {kv, {one, zero}, &dest};

        for (int d = 0; d < 512; d++)
            kv[d] = pl_f32_to_bf16(2 * random_float());
        ops->kv_store(&env, &a, 0, 1);
    }
}

/* Softmax over the listed rows in double. */
static void attend_double(const uint16_t *q, float *const *keys, int n, double sink, double *out,
                          double *size)
{
    double s[1024], max = -INFINITY, den;

    for (int j = 0; j < n; j++) {
        s[j] = 0;
        for (int d = 0; d < 512; d++)
            s[j] += (double)pl_bf16_to_f32(q[d]) * (double)keys[j][d];
        s[j] *= (double)0x1.6a09e6p-5f;
        max = s[j] > max ? s[j] : max;
    }
    den = exp(sink - max);
    for (int j = 0; j < n; j++)
        den += s[j] = exp(s[j] - max);
    for (int d = 0; d < 512; d++) {
        out[d] = size[d] = 0;
        for (int j = 0; j < n; j++) {
            out[d] += s[j] / den * (double)keys[j][d];
            size[d] += fabs(s[j] / den * (double)keys[j][d]);
        }
    }
}

enum { H = 11, START = 300, N = 3, RING = 132, ENTRIES = 200 };

/* One sequence at positions START .. START + N - 1, everything unused poisoned by take(). */
typedef struct scene {
    uint16_t q[N][H][512], o[N][H][512];
    float sink[H];
    int32_t position[N], seq_of[N], sel[N][150], n_sel[N];
    pl_attention_seq seq;
    pl_attention_args args;
} scene;

static scene *new_scene(int32_t ratio)
{
    scene *s = take(sizeof *s);

    memset(&s->args, 0, sizeof s->args);
    s->seq = (pl_attention_seq){.first = 0, .n = N, .start = START, .ring_rows = RING};
    s->seq.ring = new_rows(ops, RING, RING);
    s->seq.entries = new_rows(ops, ENTRIES, 32);
    s->args.step = new_rows(ops, N, N);
    store_random_rows(&s->seq.ring, RING);
    store_random_rows(&s->seq.entries, ENTRIES);
    store_random_rows(&s->args.step, N);
    for (int t = 0; t < N; t++) {
        s->position[t] = START + t;
        s->seq_of[t] = 0;
        s->n_sel[t] = t == 0 ? 0 : 60 + 5 * t; /* none; within one block; across two */
        for (int i = 0; i < 150; i++)
            s->sel[t][i] = i < s->n_sel[t] ? i : -1;
        for (int h = 0; h < H; h++)
            for (int d = 0; d < 512; d++)
                s->q[t][h][d] = random_bf16();
    }
    for (int h = 0; h < H; h++)
        s->sink[h] = h == 0 ? -INFINITY : 3 * random_float();
    s->args.n_heads = H;
    s->args.ratio = ratio;
    s->args.q = s->q;
    s->args.o = s->o;
    s->args.sink = view(PL_WEIGHT_F32, 1, H, s->sink, NULL);
    s->args.seqs = &s->seq;
    s->args.seq_of = s->seq_of;
    s->args.position = s->position;
    if (ratio == 4)
        s->args.sel = s->sel[0], s->args.n_sel = s->n_sel, s->args.sel_stride = 150;
    return s;
}

static void free_scene(scene *s)
{
    free(s->seq.ring.base);
    free(s->seq.entries.base);
    free(s->args.step.base);
    free(s);
}

static void check_scene(const scene *s)
{
    for (int t = 0; t < N; t++) {
        float *keys[1024];
        int n = 0, n_entries = s->args.ratio == 4 ? s->n_sel[t]
                               : s->args.ratio    ? (START + t + 1) / 128
                                                  : 0;
        double out[512], size[512];

        for (int p = START + t - 127; p <= START + t; p++) {
            keys[n] = take(2048);
            if (p < START)
                ops->kv_get(&s->seq.ring, p % RING, keys[n++]);
            else
                ops->kv_get(&s->args.step, p - START, keys[n++]);
        }
        for (int i = 0; i < n_entries; i++) {
            keys[n] = take(2048);
            ops->kv_get(&s->seq.entries, i, keys[n++]);
        }
        for (int h = 0; h < H; h++) {
            attend_double(s->q[t][h], keys, n, (double)s->sink[h], out, size);
            for (int d = 0; d < 512; d++)
                if (!(fabs((double)pl_bf16_to_f32(s->o[t][h][d]) - out[d]) <= 0x1p-7 * size[d]))
                    fail_msg("token %d head %d dim %d: got %.9g, want %.9g", t, h, d,
                             (double)pl_bf16_to_f32(s->o[t][h][d]), out[d]);
        }
        while (n)
            free(keys[--n]);
    }
}

static void attention_matches_double(void **state)
{
    static const int32_t ratios[] = {0, 4, 128};

    for (int i = 0; i < 3; i++) {
        scene *s = new_scene(ratios[i]);
        uint16_t first[N][H][512];

        ops->attention(&env, &s->args, 0, N * H);
        check_scene(s);
        memcpy(first, s->o, sizeof first);
        memset(s->o, 0, sizeof s->o);
        for (int64_t u = N * H; u-- > 0;) /* one head at a time, backwards */
            ops->attention(&env, &s->args, u, u + 1);
        check_same_bytes("one by one", s->o, first, sizeof first);
        free_scene(s);
    }
}

static void early_positions_see_only_what_exists(void **state)
{
    scene *s = new_scene(0);
    float *key = take(2048);

    /* Position 0 alone: softmax over one key, o = v / (1 + e^(sink - s)); without a sink o = v. */
    s->seq.start = 0;
    s->position[0] = 0;
    ops->attention(&env, &s->args, 0, 1);
    ops->kv_get(&s->args.step, 0, key);
    for (int d = 0; d < 512; d++)
        assert_int_equal(s->o[0][0][d], pl_f32_to_bf16(key[d]));
    free(key);
    free_scene(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_matches_double),
        cmocka_unit_test(early_positions_see_only_what_exists),
    };
    return RUN_OPERATOR_TESTS(pl_ops_scalar(), tests);
}
