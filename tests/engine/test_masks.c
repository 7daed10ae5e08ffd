/* Masks by callback, and log-probabilities of prompts: both are what single tokens give that are forced one by one.
 *
 *     test_masks CHECKPOINT */
#include <string.h>

#include "engine_support.h"

enum { N_PROMPT = 37, N_REQUESTS = 3 };

static const char *checkpoint;
static int32_t prompt[N_PROMPT];
static int vocab;

static pl_engine *open_with(int k, int chunk, int seqs)
{
    pl_engine_params p = small_params();

    p.level = NULL;
    p.num_speculative_tokens = k;
    p.max_num_batched_tokens = chunk;
    p.max_num_seqs = seqs;
    return open_engine(checkpoint, &p);
}

static int prepare(void **state)
{
    pl_engine *e = open_with(0, 64, 1);

    vocab = pl_engine_model_of(e).vocab_size;
    fill_prompt(prompt, N_PROMPT, vocab, 1);
    pl_engine_close(e);
    return 0;
}

static pl_request_params simple(int32_t n_prompt, int32_t max_tokens)
{
    pl_request_params p = pl_request_params_default();

    p.tokens = prompt;
    p.n_tokens = n_prompt;
    p.max_tokens = max_tokens;
    p.ignore_eos = true;
    return p;
}

/* ---- masks */

/* Only tokens whose remainder by 5 is one more than the sum of those before. */
static bool may_follow(const int32_t *output, int32_t n, int32_t token)
{
    int64_t sum = 1;

    for (int32_t i = 0; i < n; i++)
        sum += output[i];
    return token % 5 == sum % 5;
}

static void mask_by_sum(void *user, const int32_t *output, int32_t n, uint32_t *mask)
{
    ++*(int *)user;
    for (int32_t id = 0; id < vocab; id++)
        if (!may_follow(output, n, id))
            mask[id / 32] &= ~(1u << (id & 31));
}

static void run_masked(int k, int chunk, int32_t n, result *r)
{
    pl_engine *e = open_with(k, chunk, N_REQUESTS);
    pl_request_params p[N_REQUESTS];
    int calls = 0;

    for (int i = 0; i < N_REQUESTS; i++) {
        p[i] = simple(N_PROMPT - 9 * i, n);
        p[i].temperature = 0.7f * (float)i;
        p[i].mask = mask_by_sum;
        p[i].mask_user = &calls;
    }
    run_all(e, p, N_REQUESTS, NULL, r);
    assert_true(calls >= N_REQUESTS * n);
    pl_engine_close(e);
}

static void test_masks_hold_and_drafts_change_no_bit(void **state)
{
    enum { N = 40 };
    static result want[N_REQUESTS], got[N_REQUESTS];
    static const int shapes[][2] = {{1, 64}, {4, 64}, {4, 7}, {8, 2}};

    run_masked(0, 64, N, want);
    for (int i = 0; i < N_REQUESTS; i++) {
        assert_int_equal(want[i].n, N);
        for (int32_t t = 0; t < N; t++)
            assert_true(may_follow(want[i].tokens, t, want[i].tokens[t]));
    }
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        run_masked(shapes[s][0], shapes[s][1], N, got);
        for (int i = 0; i < N_REQUESTS; i++)
            check_same_result("masked", &got[i], &want[i]);
    }
}

static void mask_all(void *user, const int32_t *output, int32_t n, uint32_t *mask)
{
    if (n >= 3)
        memset(mask, 0, (size_t)(vocab + 31) / 32 * sizeof *mask);
}

static void test_a_request_without_a_token_is_cancelled(void **state)
{
    for (int k = 0; k <= 4; k += 4) {
        pl_engine *e = open_with(k, 64, 2);
        pl_request_params p[2] = {simple(5, 20), simple(9, 20)};
        static result r[2];

        p[0].mask = mask_all;
        run_all(e, p, 2, NULL, r);
        assert_int_equal(r[0].state, PL_REQUEST_CANCELLED);
        assert_int_equal(r[1].state, PL_REQUEST_LENGTH);
        assert_int_equal(r[1].n, 20);
        pl_engine_close(e);
    }
}

/* After two tokens only token 7 is left, which is a stop token. */
static void mask_seven(void *user, const int32_t *output, int32_t n, uint32_t *mask)
{
    if (n < 2)
        return;
    memset(mask, 0, (size_t)(vocab + 31) / 32 * sizeof *mask);
    mask[0] = 1u << 7;
}

static void test_min_tokens_yields_to_a_mask(void **state)
{
    static const int32_t seven[] = {7};
    pl_engine *e = open_with(0, 64, 1);
    pl_request_params p = simple(5, 20);
    static result r;

    p.min_tokens = 9;
    p.stop_ids = seven;
    p.n_stop_ids = 1;
    p.mask = mask_seven;
    run_all(e, &p, 1, NULL, &r);
    assert_int_equal(r.state, PL_REQUEST_STOPPED);
    assert_int_equal(r.n, 3);
    assert_int_equal(r.tokens[2], 7);
    assert_true(r.tokens[0] != 7 && r.tokens[1] != 7);
    pl_engine_close(e);
}

/* ---- prompts */

typedef struct heard {
    float logprob[N_PROMPT];
    pl_token_logprob top[N_PROMPT][3];
    int n;
} heard;

static void hear(void *user, pl_request *request, const pl_token_event *event)
{
    heard *h = user;

    assert_int_equal(event->index, ++h->n);
    assert_int_equal(event->token, prompt[h->n]);
    h->logprob[h->n] = event->logprob;
    assert_int_equal(pl_request_top_logprobs(request, h->top[h->n], 3), 3);
}

static void hear_choice(void *user, pl_request *request, const pl_token_event *event)
{
    heard *h = user;

    if (event->index == 0 && h->n == 0) { /* of the single steps that make the reference */
        h->logprob[0] = event->logprob;
        assert_int_equal(pl_request_top_logprobs(request, h->top[0], 3), 3);
    }
}

/* Each token forced alone behind those before it. */
static void make_reference(heard *want)
{
    pl_engine *e = open_with(0, 64, 1);

    for (int32_t i = 1; i < N_PROMPT; i++) {
        pl_request_params p = simple(i, 1);
        uint32_t only[4096 / 32] = {0};
        heard h = {0};
        static result r;

        assert_true(vocab <= 4096);
        only[prompt[i] / 32] = 1u << (prompt[i] & 31);
        p.allowed = only;
        p.on_token = hear_choice;
        p.user = &h;
        run_all(e, &p, 1, NULL, &r);
        assert_int_equal(r.tokens[0], prompt[i]);
        want->logprob[i] = h.logprob[0];
        memcpy(want->top[i], h.top[0], sizeof want->top[i]);
    }
    want->n = N_PROMPT - 1;
    pl_engine_close(e);
}

static void test_logprobs_of_prompts(void **state)
{
    static const int shapes[][3] = {{0, 64, 1}, {0, 64, 4}, {0, 2, 3}, {4, 64, 4}, {4, 5, 3}};
    static heard want, got[N_REQUESTS];
    static result plain[N_REQUESTS], r[N_REQUESTS];

    make_reference(&want);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        pl_engine *e = open_with(shapes[s][0], shapes[s][1], shapes[s][2]);
        pl_request_params p[N_REQUESTS];
        const int n = shapes[s][2] < N_REQUESTS ? shapes[s][2] : N_REQUESTS;

        for (int i = 0; i < n; i++)
            p[i] = simple(N_PROMPT, 6 + i);
        run_all(e, p, n, NULL, plain);
        memset(got, 0, sizeof got);
        for (int i = 0; i < n; i++) {
            p[i].on_prompt_token = i == 1 ? NULL : hear;
            p[i].user = &got[i];
        }
        run_all(e, p, n, NULL, r);
        for (int i = 0; i < n; i++) {
            check_same_result("beside its prompt", &r[i], &plain[i]);
            assert_int_equal(got[i].n, i == 1 ? 0 : N_PROMPT - 1);
            assert_true(i == 1 || memcmp(&got[i], &want, sizeof want) == 0);
        }
        pl_engine_close(e);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks_hold_and_drafts_change_no_bit),
        cmocka_unit_test(test_a_request_without_a_token_is_cancelled),
        cmocka_unit_test(test_min_tokens_yields_to_a_mask),
        cmocka_unit_test(test_logprobs_of_prompts),
    };

    checkpoint = argc > 1 ? argv[1] : "nano";
    return cmocka_run_group_tests(tests, prepare, NULL);
}
