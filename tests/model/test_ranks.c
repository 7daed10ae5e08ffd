/* The forward pass by several ranks: bits do not depend on their number.
 *
 *     test_ranks NAME
 *
 * Three sequences that cross the window and the indexer's selection run together, with drafts that are taken back,
 * by 1, 2, 3 and 8 ranks at level scalar and at the processor's other levels. Then shards are added up here, apart from
 * everything that a rank does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/numfmt.h"
#include "model/workspace.h"
#include "ops/level.h"
#include "support/model.h"

enum { N_SEQS = 3, PROMPT = 130, MAX_DRAFT = 3, MAX_TOKENS = 90, MAX_LEN = PROMPT + 8 };

static const char *model_name;

/* Lengths of the prompts, of which the longest takes two steps. */
static const int32_t lengths[N_SEQS] = {PROMPT, 20, 6};

static test_model *open_model(const pl_ops *ops, int n_ranks)
{
    return test_model_open(model_name, ops,
                           (pl_forward_limits){
                               .max_tokens = MAX_TOKENS,
                               .max_seqs = N_SEQS,
                               .max_len = MAX_LEN,
                               .max_draft = MAX_DRAFT,
                               .n_ranks = n_ranks,
                           },
                           2);
}

static int32_t token_of(const test_model *m, int s, int32_t at)
{
    return (s * 4099 + at * 193 + at / 7 * 31 + 5) % m->config->vocab_size;
}

/* A step of n[s] tokens of each sequence, the last n_draft of them drafts; logits of all. */
static void run_step(test_model *m, pl_state *const *states, const int32_t *n, int32_t n_draft)
{
    int32_t tokens[MAX_TOKENS], rows[MAX_TOKENS], first = 0;
    pl_step_seq seqs[N_SEQS];
    int n_seqs = 0;
    pl_step step;
    pl_error err;

    for (int s = 0; s < N_SEQS; s++) {
        if (n[s] == 0)
            continue;
        seqs[n_seqs++] = (pl_step_seq){states[s], first, n[s], n_draft};
        for (int32_t i = 0; i < n[s]; i++, first++) {
            tokens[first] = token_of(m, s, states[s]->n + i);
            rows[first] = first;
        }
    }
    step = (pl_step){first, tokens, n_seqs, seqs, first, rows};
    check_ok(pl_forward_run(m->forward, &step, &err), &err);
}

static void digest_step(test_model *m, int64_t n, XXH3_state_t *digest)
{
    int64_t dim = m->config->hidden_size, vocab = m->config->vocab_size;

    XXH3_128bits_update(digest, pl_forward_streams(m->forward),
                        (size_t)(n * PL_HC_MULT * dim * m->ops->act_bytes));
    XXH3_128bits_update(digest, pl_forward_logits(m->forward),
                        (size_t)(n * vocab * m->ops->acc_bytes));
}

static void run_mtp(test_model *m, pl_state *state, XXH3_state_t *digest)
{
    int32_t tokens[9];

    for (int32_t i = 0; i < 9; i++)
        tokens[i] = token_of(m, 0, i + 1);
    test_run_mtp(m, state, pl_forward_streams(m->forward), 0, tokens, 9, true);
    XXH3_128bits_update(digest, pl_forward_mtp_streams(m->forward),
                        (size_t)(9 * PL_HC_MULT * m->config->hidden_size * m->ops->act_bytes));
    XXH3_128bits_update(digest, pl_forward_logits(m->forward),
                        (size_t)(9 * m->config->vocab_size * m->ops->acc_bytes));
    /* Once more on its own streams, as drafts are made. */
    test_run_mtp(m, state, pl_forward_mtp_streams(m->forward), 8, tokens, 1, true);
    XXH3_128bits_update(digest, pl_forward_logits(m->forward),
                        (size_t)(m->config->vocab_size * m->ops->acc_bytes));
}

/* Everything above, by n_ranks ranks. */
static XXH128_hash_t digest_of(const pl_ops *ops, int n_ranks)
{
    static const int32_t steps[][N_SEQS] = {{9, 0, 0}, {60, 20, 0}, {61, 0, 6}, {4, 4, 4}};
    test_model *m = open_model(ops, n_ranks);
    XXH3_state_t *digest = XXH3_createState();
    pl_state *states[N_SEQS];
    XXH128_hash_t h;

    XXH3_128bits_reset(digest);
    for (int s = 0; s < N_SEQS; s++)
        states[s] = test_state_new(m);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        const int32_t *n = steps[i];

        run_step(m, states, n, i == 3 ? 3 : 0);
        digest_step(m, n[0] + n[1] + n[2], digest);
        if (i == 0)
            run_mtp(m, states[0], digest);
    }
    for (int s = 0; s < N_SEQS; s++) {
        assert_int_equal(states[s]->n, lengths[s] + 4);
        pl_state_rewind(states[s], lengths[s] + 1 + s);
    }
    run_step(m, states, (int32_t[]){2, 1, 1}, 0);
    digest_step(m, 4, digest);
    h = XXH3_128bits_digest(digest);
    XXH3_freeState(digest);
    for (int s = 0; s < N_SEQS; s++)
        test_state_free(states[s]);
    test_model_close(m);
    return h;
}

static void check_same_digest(const char *level, int n_ranks, XXH128_hash_t got, XXH128_hash_t want)
{
    if (got.high64 != want.high64 || got.low64 != want.low64)
        fail_msg("%s, %d ranks: got %016llx%016llx, want %016llx%016llx", level, n_ranks,
                 (unsigned long long)got.high64, (unsigned long long)got.low64,
                 (unsigned long long)want.high64, (unsigned long long)want.low64);
}

/* Level scalar takes seconds for each: it runs 3 ranks alone where there is another level. */
static void ranks_give_the_same_bits(void **state)
{
    static const int n_ranks[] = {3, 2, 8};
    XXH128_hash_t want = digest_of(pl_ops_scalar(), 1);
    int n_scalar = 3;
    pl_cpu cpu;

    pl_cpu_detect(&cpu, NULL);
    for (pl_level l = PL_LEVEL_AVX2; l <= cpu.level; l++) {
        if (!(pl_level_built() >> l & 1))
            continue;
        for (int i = 0; i < 3; i++)
            check_same_digest(pl_level_name(l), n_ranks[i],
                              digest_of(pl_ops_at(l, PL_MODE_REC), n_ranks[i]), want);
        n_scalar = 1;
    }
    for (int i = 0; i < n_scalar; i++)
        check_same_digest("scalar", n_ranks[i], digest_of(pl_ops_scalar(), n_ranks[i]), want);
}

/* What a token of the last layer's expert half comes to: every shard's part, as its own rank made it, and the shared
 * expert. */
static uint16_t add_up(const test_model *m, int32_t n, int32_t t, int64_t i)
{
    const pl_config *c = m->config;
    const pl_forward *f = m->forward;
    int64_t at = t * (int64_t)c->hidden_size + i, S = c->o_groups, E = c->n_experts;
    int64_t pairs = (int64_t)n * c->n_experts_per_tok * c->hidden_size;
    float total = 0;

    for (int64_t s = 0; s < S; s++) {
        int owner = 0;

        if (s * E / S == (s + 1) * E / S)
            continue;
        while (s >= f[owner].share.shard_end)
            owner++;
        assert_in_range(s, f[owner].share.shard, f[owner].share.shard_end - 1);
        total = total + ((const float *)f[owner].ws.part)[s * n * c->hidden_size + at];
    }
    total = total + pl_bf16_to_f32(((const uint16_t *)f[0].ws.y)[pairs + at]);
    return pl_f32_to_bf16(total);
}

/* As many ranks as shards: each rank's part comes from nothing but its own experts. Added here in the stated order they
 * are the half's output. (tests/unit/test_contract_linear.c does so for linear layers, where the order tells.) */
static void shards_apart_add_up_in_order(void **state)
{
    enum { T = 40 };
    test_model *alone = open_model(pl_ops_scalar(), 1), *m;
    int32_t S = alone->config->o_groups, dim = alone->config->hidden_size, tokens[T];
    pl_state *one = test_state_new(alone), *apart;

    m = open_model(pl_ops_scalar(), S);
    apart = test_state_new(m);
    for (int32_t i = 0; i < T; i++)
        tokens[i] = token_of(m, 1, i);
    test_run(alone, one, tokens, T, false);
    test_run(m, apart, tokens, T, false);
    for (int32_t t = 0; t < T; t++)
        for (int32_t i = 0; i < dim; i++) {
            uint16_t want = ((const uint16_t *)alone->forward->ws.out)[t * dim + i];

            assert_int_equal(add_up(m, T, t, i), want);
        }
    /* Every rank has every sum. */
    for (int r = 0; r < S; r++)
        check_same_bytes("out", m->forward[r].ws.out, alone->forward->ws.out,
                         (size_t)(T * dim) * sizeof(uint16_t));
    test_state_free(one);
    test_state_free(apart);
    test_model_close(alone);
    test_model_close(m);
}

/* Ranks own everything once, in order. */
static void shares_cover_the_model(void **state)
{
    test_model *m = open_model(pl_ops_scalar(), 1);
    const pl_config *c = m->config;

    for (int n = 1; n <= PL_MAX_RANKS; n++) {
        pl_share end = {0};

        for (int r = 0; r < n; r++) {
            pl_share s = pl__share_of(c, r, n);

            assert_int_equal(s.shard, end.shard_end);
            assert_int_equal(s.head, end.head + end.n_heads);
            assert_int_equal(s.expert, end.expert_end);
            assert_int_equal(s.inner, end.inner_end);
            assert_int_equal(s.vocab, end.vocab_end);
            end = s;
        }
        assert_int_equal(end.shard_end, c->o_groups);
        assert_int_equal(end.head + end.n_heads, c->n_heads);
        assert_int_equal(end.expert_end, c->n_experts);
        assert_int_equal(end.inner_end, c->moe_intermediate_size);
        assert_int_equal(end.vocab_end, c->vocab_size);
    }
    test_model_close(m);
}

static void nothing(void *user, const pl_tap_view *view) {}

static void refusals(void **state)
{
    test_model *m = open_model(pl_ops_scalar(), 2);
    pl_state *s = test_state_new(m), *second = s->next_rank;
    pl_step_seq seqs[2] = {{s, 0, 1, 0}, {s, 1, 1, 0}};
    int32_t tokens[2] = {1, 2};
    pl_step step = {1, tokens, 1, seqs, 0, NULL};
    pl_hooks hooks = {NULL, nothing, false};
    pl_ranks *three;
    pl_error err;

    check_ok(pl_ranks_create(3, &three, &err), &err);
    check_error(pl_forward_set_ranks(m->forward, three, &err), PL_ERR_INVALID, &err,
                "got 3, want 2", NULL);
    pl_ranks_destroy(three);
    s->next_rank = NULL;
    check_error(pl_forward_run(m->forward, &step, &err), PL_ERR_INVALID, &err, "fewer", NULL);
    s->next_rank = second;
    second->n = 1;
    check_error(pl_forward_run(m->forward, &step, &err), PL_ERR_INVALID, &err, "differ at rank 1",
                NULL);
    second->n = 0;
    pl_forward_set_hooks(m->forward, &hooks);
    check_error(pl_forward_run(m->forward, &step, &err), PL_ERR_INVALID, &err, "whole tensors",
                NULL);
    pl_forward_set_hooks(m->forward, NULL);
    check_ok(pl_forward_run(m->forward, &step, &err), &err);
    assert_int_equal(second->n, 1);
    test_state_free(s);
    test_model_close(m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_cover_the_model),
        cmocka_unit_test(refusals),
        cmocka_unit_test(shards_apart_add_up_in_order),
        cmocka_unit_test(ranks_give_the_same_bits),
    };

    assert_int_equal(argc, 2);
    model_name = argv[1];
    return cmocka_run_group_tests_name(model_name, tests, NULL, NULL);
}
