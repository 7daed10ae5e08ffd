/* States of sequences under random use, against states that keep everything (naive_state.h), bit for bit.
 *
 *     test_state_fuzz CHECKPOINT [LEVEL]
 *
 * LEVEL: that of PL_CPU or the best of this machine. Several sequences share steps: chunks, single tokens, up to 16
 * drafts of which any number is kept, drafts of the mtp block that are taken back, snapshots that any sequence goes on
 * from, copies, fresh starts. After each of them everything that a later step can see is compared: windows, counts,
 * entries, indexer keys, compressors; after steps the logits too.
 * PL_STATE_FUZZ=N: N times as many steps, of other seeds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/selftest.h"
#include "cache/snapshot.h"
#include "naive_state.h"
#include "ops/level.h"

enum {
    N_SEQS = 3,
    N_SLOTS = 3,
    MAX_DRAFT = 16,
    MAX_CHUNK = 24,
    MAX_STEP = 72,
    MAX_LEN = 448,
    VOCAB = 512,
    RING = PL_WINDOW + MAX_DRAFT,
    N_STEPS = 84,
};

typedef struct sequence {
    pl_state *s;
    naive_state *v;
    /* Of the step being made. */
    int32_t start, first, n_sure, n_draft, n_kept;
} sequence;

typedef struct slot {
    uint8_t *data;
    uint64_t bytes;
    naive_state *v;
} slot;

/* What must have happened for the test to mean anything. */
typedef struct happened {
    int taken_back, over_4, over_128, at_128, over_ring, whole_16, restored, restored_pending,
        copied;
} happened;

static const char *checkpoint;
static const pl_ops *ops;
static test_model *model, *naive_model;
static sequence seqs[N_SEQS];
static slot slots[N_SLOTS];
static happened seen;
static uint32_t random_state;
static const pl_snapshot_id id = {1, "fuzz"};

static int32_t random_in(int32_t low, int32_t high)
{
    random_state = random_state * 1664525u + 1013904223u;
    return low + (int32_t)((random_state >> 8) % (uint32_t)(high - low + 1));
}

static void check_row(const char *what, const pl_rows *got, int64_t at, const pl_rows *want,
                      int64_t i)
{
    check_same_bytes(what, pl_rows_data(got, at), pl_rows_data(want, i), (size_t)got->data_bytes);
    check_same_bytes(what, pl_rows_scales(got, at), pl_rows_scales(want, i),
                     (size_t)got->scale_bytes);
}

static void check_compressor(const sequence *q, int32_t l, const pl_compressor_state *c,
                             bool is_index)
{
    char what[64];

    snprintf(what, sizeof what, "layer %d: %s before %d", l, is_index ? "index" : "main",
             q->s->n_settled);
    check_same_bytes(what, c->state, naive_pool(q->v, q->s->n_settled, l, is_index),
                     (size_t)ops->compress_state_bytes(c->ratio, c->dim));
}

static void check_layer(const sequence *q, int32_t l)
{
    const pl_layer_state *got = &q->s->layer[l], *want = &q->v->s->layer[l];
    const int32_t n = l < q->s->n_layers ? q->s->n : q->s->n_mtp;
    char what[64];

    snprintf(what, sizeof what, "layer %d of %d positions", l, n);
    for (int32_t p = n < PL_WINDOW ? 0 : n - PL_WINDOW; p < n; p++)
        check_row(what, &got->ring, p % q->s->ring_rows, &want->ring, p);
    for (int32_t i = 0; got->ratio && i < n / got->ratio; i++)
        check_row(what, &got->entries, i, &want->entries, i);
    for (int32_t i = 0; got->ratio == 4 && i < n / 4; i++)
        check_row(what, &got->keys, i, &want->keys, i);
    if (got->ratio)
        check_compressor(q, l, &got->main, false);
    if (got->ratio == 4)
        check_compressor(q, l, &got->index, true);
}

/* The naive one stands at the same position. */
static void check(const sequence *q)
{
    assert_int_equal(q->s->n, q->v->s->n);
    assert_int_equal(q->s->n_mtp, q->v->s->n_mtp);
    assert_in_range(q->s->n - q->s->n_settled, 0, MAX_DRAFT);
    for (int32_t l = 0; l < q->s->n_layers + q->s->has_mtp; l++)
        check_layer(q, l);
}

/* ---- a step */

/* Tokens of a sequence: the one that was next, more that are known, drafts. */
static void plan(sequence *q, int32_t first)
{
    static const int32_t chunks[] = {1, 1, 1, 1, 2, 3, 4, 7, MAX_CHUNK};
    const int32_t left = MAX_LEN - 1 - q->s->n;

    q->start = q->s->n;
    q->first = first;
    q->n_sure = chunks[random_in(0, 8)];
    /* Much of what there is to see begins with the window's end. */
    if (q->start < PL_WINDOW - MAX_CHUNK && random_in(0, 1))
        q->n_sure = MAX_CHUNK;
    q->n_draft = random_in(0, 3) ? random_in(0, MAX_DRAFT) : 0;
    if (q->n_sure + q->n_draft > MAX_STEP / N_SEQS)
        q->n_draft = q->n_sure < MAX_CHUNK - MAX_DRAFT ? MAX_DRAFT : 0;
    if (q->n_sure + q->n_draft > left) {
        q->n_sure = 1;
        q->n_draft = left - 1 < q->n_draft ? left - 1 : q->n_draft;
    }
    q->n_kept = random_in(0, 3) ? random_in(0, q->n_draft) : 0;
    /* An end at which an entry is just whole is where a missed replay would show. */
    for (int32_t i = 0; i < q->n_draft; i++)
        if ((q->start + q->n_sure + i) % PL_WINDOW == 0 && random_in(0, 1))
            q->n_kept = i;
    for (int32_t i = 1; i < q->n_sure + q->n_draft; i++)
        q->v->tokens[q->start + i] = random_in(0, VOCAB - 1);
}

static void note(const sequence *q)
{
    const int32_t n = q->start + q->n_sure + q->n_kept, end = q->start + q->n_sure + q->n_draft;

    seen.taken_back += end > n;
    seen.over_4 += end / 4 > n / 4;
    seen.over_128 += end / 128 > n / 128;
    seen.at_128 += end > n && n % 128 == 0;
    seen.over_ring += end > n && end / RING > n / RING;
    seen.whole_16 += end - n == MAX_DRAFT;
}

static void run_step(sequence *const *q, int32_t n)
{
    pl_step_seq step_seqs[N_SEQS];
    int32_t tokens[MAX_STEP], rows[MAX_STEP];
    pl_step step = {
        .tokens = tokens, .n_seqs = n, .seqs = step_seqs, .logit_rows = rows, .n_tokens = 0};
    pl_error err;

    for (int32_t i = 0; i < n; i++) {
        const int32_t of_step = q[i]->n_sure + q[i]->n_draft;

        step_seqs[i] = (pl_step_seq){q[i]->s, step.n_tokens, of_step, q[i]->n_draft};
        memcpy(&tokens[step.n_tokens], &q[i]->v->tokens[q[i]->start],
               (size_t)of_step * sizeof *tokens);
        step.n_tokens += of_step;
    }
    for (int32_t i = 0; i < step.n_tokens; i++)
        rows[i] = i;
    step.n_logits = step.n_tokens;
    check_ok(pl_forward_run(model->forward, &step, &err), &err);
}

/* All tokens are there, drafts among them: logits and state; then only those kept. */
static void take_back(sequence *q)
{
    const int32_t end = q->start + q->n_sure + q->n_draft, n = end - q->n_draft + q->n_kept;
    float got[VOCAB];

    while (q->v->s->n < end)
        naive_append(q->v);
    for (int32_t i = 0; i < q->n_sure + q->n_draft; i++) {
        test_logits(model, q->first + i, got);
        check_same_f32("logits", got, naive_logits(q->v, q->start + i), VOCAB);
    }
    assert_int_equal(q->s->n_settled, end - q->n_draft);
    check(q);
    note(q);
    pl_state_rewind(q->s, n);
    naive_back(q->v, n);
    q->v->tokens[n] = random_in(0, VOCAB - 1);
}

/* The mtp block over what was kept, then over drafts of its own, which are taken back. */
static void follow(sequence *q)
{
    const int32_t n = q->s->n - q->s->n_mtp, n_back = random_in(0, 3) ? 0 : random_in(1, MAX_DRAFT);

    test_run_mtp(model, q->s, pl_forward_streams(model->forward), q->first + q->s->n_mtp - q->start,
                 &q->v->tokens[q->s->n_mtp + 1], n, false);
    for (int32_t i = 0; i < n_back && q->s->n_mtp < MAX_LEN; i++) {
        const int32_t token = random_in(0, VOCAB - 1);

        test_run_mtp(model, q->s, pl_forward_mtp_streams(model->forward), i ? 0 : n - 1, &token, 1,
                     false);
    }
    pl_state_rewind_mtp(q->s, q->s->n);
    naive_follow(q->v);
    check(q);
}

static void step(void)
{
    sequence *chosen[N_SEQS];
    int32_t n = 0, n_tokens = 0;

    for (int i = 0; i < N_SEQS; i++) {
        sequence *q = &seqs[i];

        if (random_in(0, 3) == 0 || q->s->n >= MAX_LEN - 2)
            continue;
        plan(q, n_tokens);
        n_tokens += q->n_sure + q->n_draft;
        chosen[n++] = q;
    }
    if (!n)
        return;
    run_step(chosen, n);
    for (int32_t i = 0; i < n; i++)
        take_back(chosen[i]);
    for (int32_t i = 0; i < n; i++)
        follow(chosen[i]);
}

/* ---- beside steps */

static void begin(sequence *q)
{
    pl_state_reset(q->s);
    naive_reset(q->v);
    q->v->tokens[0] = random_in(0, VOCAB - 1);
    check(q);
}

static void save(const sequence *q, slot *to)
{
    const pl_snapshot_tokens tokens = {q->v->tokens, NULL, q->s->n};

    free(to->data);
    to->bytes = pl_snapshot_bytes(q->s);
    to->data = malloc((size_t)to->bytes);
    assert_non_null(to->data);
    pl_snapshot_save(q->s, &id, &tokens, to->data);
    naive_copy(to->v, q->v);
}

static void restore(sequence *q, const slot *from)
{
    const uint8_t *tokens;
    int32_t n;
    pl_error err;

    if (!from->data)
        return;
    check_ok(pl_snapshot_check(q->s, &id, from->data, from->bytes, &n, &tokens, &err), &err);
    assert_int_equal(n, from->v->s->n);
    check_same_bytes("tokens", tokens, from->v->tokens, (size_t)n * sizeof *from->v->tokens);
    pl_snapshot_restore(q->s, from->data);
    naive_copy(q->v, from->v);
    q->v->tokens[n] = random_in(0, VOCAB - 1);
    /* What the mtp block made of its last position saw the token that was next then. */
    q->s->n_mtp = q->v->s->n_mtp = n;
    check(q);
    seen.restored++;
    seen.restored_pending += q->s->n > q->s->n_settled;
}

static void copy(sequence *to, const sequence *from)
{
    if (to == from)
        return;
    pl_state_copy(to->s, from->s);
    naive_copy(to->v, from->v);
    check(to);
    seen.copied++;
}

static void act(void)
{
    sequence *q = &seqs[random_in(0, N_SEQS - 1)];
    slot *at = &slots[random_in(0, N_SLOTS - 1)];
    const int32_t what = random_in(0, 99);

    if (what < 12 && q->s->n)
        save(q, at);
    else if (what < 26)
        restore(q, at);
    else if (what < 30)
        copy(q, &seqs[random_in(0, N_SEQS - 1)]);
    else if (what < 31 || q->s->n >= MAX_LEN - 2)
        begin(q);
    else
        step();
}

static int n_times(void)
{
    const char *times = getenv("PL_STATE_FUZZ");
    const long n = times ? strtol(times, NULL, 10) : 1;

    return n > 1 ? (int)n : 1;
}

static void test_random_use(void **unused)
{
    const int times = n_times();

    for (int round = 0; round < times; round++) {
        random_state = 5 + (uint32_t)round;
        for (int i = 0; i < N_SEQS; i++)
            begin(&seqs[i]);
        for (int i = 0; i < N_STEPS; i++)
            act();
    }
    print_message(
        "%d taken back, %d over 4, %d over 128, %d at 128, %d over the ring, %d of all 16; "
        "%d restored, %d with rows pending; %d copied\n",
        seen.taken_back, seen.over_4, seen.over_128, seen.at_128, seen.over_ring, seen.whole_16,
        seen.restored, seen.restored_pending, seen.copied);
    assert_true(seen.taken_back >= 40 && seen.over_4 >= 30 && seen.over_128 >= 2 &&
                seen.at_128 >= 1);
    assert_true(seen.over_ring >= 2 && seen.whole_16 >= 2);
    assert_true(seen.restored >= 4 && seen.restored_pending >= 2 && seen.copied >= 1);
}

static int open_all(void **unused)
{
    const pl_forward_limits naive = {.max_tokens = 1, .max_len = MAX_LEN};
    const pl_forward_limits limits = {
        .max_tokens = MAX_STEP, .max_seqs = N_SEQS, .max_len = MAX_LEN, .max_draft = MAX_DRAFT};

    model = test_model_open(checkpoint, ops, limits, 1);
    naive_model = test_model_open(checkpoint, ops, naive, 1);
    assert_int_equal(model->config->vocab_size, VOCAB);
    for (int i = 0; i < N_SEQS; i++) {
        seqs[i].s = test_state_new(model);
        seqs[i].v = naive_open(naive_model, MAX_LEN);
        assert_int_equal(seqs[i].s->ring_rows, RING);
    }
    for (int i = 0; i < N_SLOTS; i++)
        slots[i].v = naive_open(naive_model, MAX_LEN);
    return 0;
}

static int close_all(void **unused)
{
    for (int i = 0; i < N_SEQS; i++) {
        test_state_free(seqs[i].s);
        naive_close(seqs[i].v);
    }
    for (int i = 0; i < N_SLOTS; i++) {
        naive_close(slots[i].v);
        free(slots[i].data);
    }
    test_model_close(model);
    test_model_close(naive_model);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_use)};
    static const pl_selftest *const selftests[] = {pl_base_selftests, pl_ops_selftests, NULL};
    pl_level_choice choice;
    pl_cpu cpu;
    pl_error err;

    assert_true(argc == 2 || argc == 3);
    checkpoint = argv[1];
    pl_cpu_detect(&cpu, NULL);
    check_ok(pl_level_choose(&cpu, pl_level_built(), argc > 2 ? argv[2] : NULL, getenv("PL_CPU"),
                             selftests, &choice, &err),
             &err);
    ops = pl_ops_at(choice.level, PL_MODE_REC);
    assert_non_null(ops);
    return cmocka_run_group_tests_name(pl_level_name(choice.level), tests, open_all, close_all);
}
